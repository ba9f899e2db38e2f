"""What a hot index takes in of its workspace's rows: the same function loads it and follows every commit.

Invariant: after ``take`` of the rows that the views hold, and after ``take`` of what each commit wrote, the index is the
same: the folds alone decide what a row says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import ValidationError
from pydantic_core import from_json

from ....schemas.catalogue import info_of
from ....schemas.entry import ActorType
from ....schemas.events.memory import PriorityChanged
from ....schemas.rules.turns import side_of_name, side_of_type
from ....schemas.views import AGENTS, ENTRIES, POSTINGS, POSTINGS_TAIL
from .arrow import array, dictionary, sequences, texts
from .documents import CONVERSATION, EMBEDDABLE, HIGH_PRIORITY, SPOKEN_BY_USER, USERS
from .index import HIGH, HotIndex, PostingColumns
from .rows import Rows
from .vectors import fill
from .vocabulary import Codes

_DOCUMENT: Final = ("seq", "id", "entry_type", "priority", "actor_type", "actor_id", "embeddable")


def take(index: HotIndex, rows: Rows) -> None:
    """Take in rows of the index's workspace; entries that the index has already are passed over."""
    _take_documents(index, rows)
    seqs = index.documents.seq
    for table in index.tables.values():
        table.take(rows, seqs)
    index.turns.take(rows, seqs)
    _take_priorities(index, rows)
    for matrix in index.matrices():
        fill(matrix, rows, seqs)
    index.edges.take(rows, seqs)
    _take_agents(index, rows)


def _take_documents(index: HotIndex, rows: Rows) -> None:
    """The documents that are no noise, with their postings."""
    found = rows.of(ENTRIES, *_DOCUMENT, order="seq")
    if found is None:
        return
    types, type_of = dictionary(found.column("entry_type"))
    infos = [info_of(name or "") for name in types]
    kept = ~_lookup([info.noise for info in infos], type_of)
    if len(index):
        kept &= sequences(found, "seq") > index.documents.seq[-1]
    found, type_of = found.filter(pa.array(kept)), type_of[kept]
    if not found.num_rows:
        return
    actor_types, actor_type = dictionary(found.column("actor_type"))
    priorities, priority = dictionary(found.column("priority"))
    flags = np.zeros(found.num_rows, np.uint8)
    for flag, holds in (
        (EMBEDDABLE, found.column("embeddable").to_numpy()),
        (HIGH_PRIORITY, _lookup([name in HIGH for name in priorities], priority)),
        (SPOKEN_BY_USER, _lookup([name == ActorType.USER for name in actor_types], actor_type)),
        (CONVERSATION, _lookup([info.conversation for info in infos], type_of)),
    ):
        flags[holds] |= np.uint8(flag)
    by_user = (flags & SPOKEN_BY_USER) != 0
    flags[_users(types, type_of, by_user, found)] |= np.uint8(USERS)
    ids = found.column("id")
    index.append(sequences(found, "seq"), flags, texts(ids), *_postings(rows))
    if index.priorities:
        index.set_priorities({name: index.priorities[name] for name in ids.to_pylist() if name in index.priorities})


def _users(types: Sequence[str | None], type_of: Codes, by_user: npt.NDArray[np.bool_], found: pa.Table) -> Codes:
    """Rows that are the user's own: ``rules.turns.is_users``, asked once for each type and each actor."""
    actors, actor = dictionary(found.column("actor_id"))
    of_type = _sides([side_of_type(name or "") for name in types], type_of)
    of_name = _sides([side_of_name(name or "") for name in actors], actor)
    side = np.where(of_name != 0, of_name, of_type)
    return np.flatnonzero(np.where(side != 0, side > 0, by_user)).astype(np.int32)


def _sides(sides: list[bool | None], codes: Codes) -> npt.NDArray[np.int8]:
    """1 for the user's, -1 for the assistant's, 0 where nothing is said."""
    values = [0 if side is None else 1 if side else -1 for side in sides]
    return np.array([*values, 0], np.int8)[codes]  # -1 reads the last


def _lookup(values: list[bool], codes: Codes) -> npt.NDArray[np.bool_]:
    return np.array([*values, False], bool)[codes]  # -1 reads the last


def _postings(rows: Rows) -> list[PostingColumns]:
    """Sealed runs and tail apart, so that the sorted ones need no sort; together if their entries overlap."""
    tables = (rows.of(table, "term", "doc", "tf", "dl") for table in (POSTINGS, POSTINGS_TAIL))
    parts = [
        PostingColumns(array(found, "term"), sequences(found, "doc"), array(found, "tf"), array(found, "dl"))
        for found in tables
        if found is not None
    ]
    if len(parts) > 1 and int(parts[0].seq.max()) >= int(parts[1].seq.min()):
        return [parts[0].joined(parts[1])]
    return parts


def _take_priorities(index: HotIndex, rows: Rows) -> None:
    """Live priorities that operators gave, in stream order."""
    found = rows.of(ENTRIES, "payload", order="seq", control=True, entry_type=PriorityChanged.ENTRY_TYPE)
    if found is None:
        return
    changes = [priority_of(from_json(payload)) for payload in found.column("payload").to_pylist()]
    index.set_priorities(dict(change for change in changes if change is not None))


def priority_of(payload: Mapping[str, Any]) -> tuple[str, str] | None:
    """Entry and live priority of a change; None if it is none, which its fold has parked."""
    try:
        change = PriorityChanged.model_validate(payload)
    except ValidationError:
        return None
    return change.target_entry_id, change.new_priority.value


def _take_agents(index: HotIndex, rows: Rows) -> None:
    found = rows.of(AGENTS, "agent_id", "memory_walk_depth", "seq")
    if found is not None:
        names, depths, seqs = (column.to_pylist() for column in found.columns)
        index.walk_depths.update(zip(names, zip(depths, seqs, strict=True), strict=True))
