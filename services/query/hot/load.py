"""How a hot index comes out of the views: one sorted read of each table, as columns.

Invariant: the index stands at exactly one sequence, and no Python object is made per row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import ValidationError
from pydantic_core import from_json

from ....schemas.active_models import active_in, read_active_models
from ....schemas.catalogue import info_of
from ....schemas.entry import ActorType
from ....schemas.events.memory import PriorityChanged
from ....schemas.ids import hash64
from ....schemas.ports import ViewReader
from ....schemas.rules.turns import side_of_name, side_of_type
from ....schemas.views import (
    EMBED_POLICIES,
    ENTRIES,
    ENTRIES_PROJECTION,
    FULLTEXT_PROJECTION,
    POSTINGS,
    POSTINGS_TAIL,
    TURNS_PROJECTION,
)
from .documents import (
    ABSENT,
    CONVERSATION,
    EMBEDDABLE,
    HIGH_PRIORITY,
    SPOKEN_BY_USER,
    USERS,
    Codes,
    NewDocuments,
    Texts,
    Vocabulary,
)
from .importances import read_importances
from .index import HIGH, HotIndex, PostingColumns
from .records import RECORD_SQL
from .relations import load_relations
from .turns import read_turns
from .vectors import read_matrix

INDEXED_PROJECTIONS: Final = (ENTRIES_PROJECTION, FULLTEXT_PROJECTION, TURNS_PROJECTION)
"""What ``min_seq`` of a recall waits for; vectors follow (DESIGN §7)."""

_DOCUMENTS: Final = f"""SELECT seq::BIGINT AS seq, ts_ms, agent_id, crew_id, trace_id, actor_id, actor_type, entry_type,
    priority, embeddable, words, size, id FROM {ENTRIES} WHERE workspace_id = ? AND seq <= ? ORDER BY seq"""
_POSTINGS: Final = f"""SELECT term, doc::BIGINT AS doc, tf, dl, true AS sealed FROM {POSTINGS} WHERE ws = ? AND doc <= ?
    UNION ALL SELECT term, doc::BIGINT AS doc, tf, dl, false FROM {POSTINGS_TAIL} WHERE ws = ? AND doc <= ?"""
_RECORDS: Final = f"""SELECT seq::BIGINT AS seq, {RECORD_SQL} AS record FROM {ENTRIES}
    WHERE workspace_id = ? AND seq BETWEEN ? AND ? ORDER BY seq"""
_PRIORITIES: Final = f"""SELECT payload FROM {ENTRIES}
    WHERE workspace_id = ? AND seq <= ? AND control AND entry_type = ? ORDER BY seq"""


def priority_of(payload: Mapping[str, Any]) -> tuple[str, str] | None:
    """Entry and live priority of a change; None if it is none, which its fold has parked."""
    try:
        change = PriorityChanged.model_validate(payload)
    except ValidationError:
        return None
    return change.target_entry_id, change.new_priority.value


_POLICY: Final = f"SELECT policy FROM {EMBED_POLICIES} WHERE workspace_id = ?"


def load(views: ViewReader, workspace_id: str, record_bytes: int = 0) -> HotIndex:
    """Read one workspace's index; blocking, for a worker thread.

    Commits that happen meanwhile are not in it: the caller keeps them and applies those after ``seq``. Vectors are
    read as they are, later ones included; putting a vector twice changes nothing.

    Args:
        views: The views.
        workspace_id: The workspace.
        record_bytes: Most bytes of entries' texts to keep for hits: the newest ones.
    """
    seq = views.view_seq(*INDEXED_PROJECTIONS)
    model = active_in(read_active_models(views), workspace_id)
    index = HotIndex(workspace_id, record_bytes=record_bytes)
    for (policy,) in views.rows(_POLICY, [workspace_id]):
        index.policy = int(policy)
    new, sizes = _documents(index, views.columns(_DOCUMENTS, [workspace_id, seq]))
    ws = hash64(workspace_id)
    postings = _postings(views.columns(_POSTINGS, [ws, seq, ws, seq]))
    index.append(new, *postings, turns=read_turns(views, workspace_id, seq))
    index.sort()
    if record_bytes and len(index):
        _records(views, index, sizes, seq)
    for (payload,) in views.rows(_PRIORITIES, [workspace_id, seq, PriorityChanged.ENTRY_TYPE]):
        if (changed := priority_of(from_json(payload))) is not None:
            index.priorities.update([changed])
    if index.priorities:
        index.set_priorities(index.priorities)
    index.importances.needed_seq = seq
    index.importances.take(read_importances(views, workspace_id), index.documents)
    if model is not None:
        index.vectors = read_matrix(views, workspace_id, model, index.documents.seq)
    load_relations(views, index)
    index.seq = seq
    return index


def _documents(index: HotIndex, table: pa.Table) -> tuple[NewDocuments, npt.NDArray[np.int64]]:
    """The documents that are no noise, and the bytes of each."""
    types, type_of = _dictionary(table, "entry_type")
    infos = [info_of(name or "") for name in types]
    table = table.filter(pa.array(~_lookup([info.noise for info in infos], type_of)))
    _, type_of = types, type_of[~_lookup([info.noise for info in infos], type_of)]
    documents = index.documents
    actor_types, actor_type = _dictionary(table, "actor_type")
    priorities, priority = _dictionary(table, "priority")
    flags = np.zeros(table.num_rows, np.uint8)
    flags |= np.where(_array(table, "embeddable"), np.uint8(EMBEDDABLE), np.uint8(0))
    for flag, holds in (
        (HIGH_PRIORITY, _lookup([name in HIGH for name in priorities], priority)),
        (SPOKEN_BY_USER, _lookup([name == ActorType.USER for name in actor_types], actor_type)),
        (CONVERSATION, _lookup([info.conversation for info in infos], type_of)),
    ):
        flags[holds] |= np.uint8(flag)
    by_user = (flags & SPOKEN_BY_USER) != 0
    flags[_users(types, type_of, by_user, table)] |= np.uint8(USERS)
    new = NewDocuments(
        seq=_array(table, "seq"),
        ts_ms=_array(table, "ts_ms"),
        agent=_codes(documents.agents, table, "agent_id"),
        crew=_codes(documents.crews, table, "crew_id"),
        session=_codes(documents.sessions, table, "trace_id"),
        actor=_codes(documents.actors, table, "actor_id"),
        words=_array(table, "words"),
        flags=flags,
        ids=_texts(table, "id"),
    )
    return new, _array(table, "size").astype(np.int64)


def _users(types: list[str | None], type_of: Codes, by_user: npt.NDArray[np.bool_], table: pa.Table) -> Codes:
    """Rows that are the user's own: ``rules.turns.is_users``, asked once for each type and each actor."""
    actors, actor = _dictionary(table, "actor_id")
    of_type = _sides([side_of_type(name or "") for name in types], type_of)
    of_name = _sides([side_of_name(name or "") for name in actors], actor)
    side = np.where(of_name != 0, of_name, of_type)
    return np.flatnonzero(np.where(side != 0, side > 0, by_user)).astype(np.int32)


def _sides(sides: list[bool | None], codes: Codes) -> npt.NDArray[np.int8]:
    """1 for the user's, -1 for the assistant's, 0 where nothing is said."""
    values = [0 if side is None else 1 if side else -1 for side in sides]
    return np.array([*values, 0], np.int8)[codes]  # -1 reads the last


def _postings(table: pa.Table) -> list[PostingColumns]:
    """Sealed runs and tail apart, so that the sorted ones need no sort; together if their entries overlap."""
    whole = PostingColumns(_array(table, "term"), _array(table, "doc"), _array(table, "tf"), _array(table, "dl"))
    sealed = _array(table, "sealed")
    if sealed.all() or not sealed.any() or int(whole.seq[sealed].max()) >= int(whole.seq[~sealed].min()):
        return [whole]
    return [
        PostingColumns(whole.term[part], whole.seq[part], whole.tf[part], whole.length[part])
        for part in (sealed, ~sealed)
    ]


def _records(views: ViewReader, index: HotIndex, sizes: npt.NDArray[np.int64], seq: int) -> None:
    """The records of the newest entries: as many as fit, by the size of their messages."""
    from_newest = np.cumsum(sizes[::-1])
    fitting = int(from_newest.searchsorted(index.records.cap_bytes, side="right"))
    first = len(index) - fitting
    index.records.start_at(first)
    if not fitting:
        return
    table = views.columns(_RECORDS, [index.workspace_id, int(index.documents.seq[first]), seq])
    known = index.documents.local(_array(table, "seq")) != ABSENT
    texts = _texts(table.filter(pa.array(known)), "record")
    index.records.append(texts.data, texts.ends)


def _one(table: pa.Table, name: str) -> Any:
    column = table.column(name).combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _array(table: pa.Table, name: str) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = _one(table, name).to_numpy(zero_copy_only=False)
    return values


def _dictionary(table: pa.Table, name: str) -> tuple[list[str | None], Codes]:
    """The distinct values of a column and each row's index into them, -1 for null."""
    encoded = _one(table, name).dictionary_encode()
    codes = encoded.indices.fill_null(ABSENT).to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), codes.astype(np.int32, copy=False)


def _lookup(values: list[bool], codes: Codes) -> npt.NDArray[np.bool_]:
    return np.array([*values, False], bool)[codes]  # -1 reads the last


def _codes(vocabulary: Vocabulary, table: pa.Table, name: str) -> Codes:
    names, codes = _dictionary(table, name)
    return np.append(vocabulary.learn_all(names), np.int32(ABSENT)).astype(np.int32)[codes]


def _texts(table: pa.Table, name: str) -> Texts:
    column = _one(table, name).cast(pa.large_string())
    if not len(column):
        return Texts(np.empty(0, np.uint8), np.empty(0, np.int64))
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return Texts(data, offsets[1:] - offsets[0])
