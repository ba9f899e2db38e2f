"""The law of erasure: what is folded after an erasure is what would be if the messages had never been there.

``fold(log + forget(E)) = fold((log - E) + forget(E))``, whatever comes late: each message of E may be delivered again after
the erasure, live or in a rebuild.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.events import EPOCH_MS, at, control, entry, vector
from support.strategies import journals
from support.views import DeadLetters, node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.schemas.core.errors import FoldError
from crew_journal.schemas.core.ids import entry_id_at, is_id
from crew_journal.schemas.core.sequence_set import in_parts, ranges_of
from crew_journal.schemas.decode import decode
from crew_journal.schemas.entries.events import ERASURE_TYPES, ErasureCompleted, ErasureRequested, ErasureScoped
from crew_journal.schemas.erasure.lineage import names_of
from crew_journal.schemas.erasure.tables import ERASURES_PROJECTION
from crew_journal.services.erasure.use_cases import NOT_PROVEN, Erasures, ErasureScope

BOUNDED = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
FULL = settings(max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
ERASURE_ID = "x_law"


class Stored:
    """A stream in memory, as an erasure reads it."""

    def __init__(self, messages: Sequence[RawMessage]) -> None:
        self._messages = messages

    async def read(self, first_seq: int, last_seq: int) -> AsyncIterator[list[Any]]:
        yield [message for message in self._messages if first_seq <= message.seq <= last_seq]

    async def last_seq(self) -> int:
        return self._messages[-1].seq


@cache
def empty_views() -> Path:
    """Views without rows: making 80 tables takes longer than all else of an example."""
    path = Path(tempfile.mkdtemp(prefix="empty-views-")) / "views.duckdb"

    async def make() -> None:
        async with node(path, discover_projections()):
            pass

    asyncio.run(make())
    return path


def folded(messages: Sequence[RawMessage], batch: int) -> tuple[dict[str, str], set[int], list[tuple[Any, ...]]]:
    """Digests of all views, the parked sequences, and the messages that are to be deleted."""

    empty = empty_views()

    async def fold() -> tuple[dict[str, str], set[int], list[tuple[Any, ...]]]:
        with tempfile.TemporaryDirectory(prefix="crew-law-") as folder:
            path = Path(folder) / "views.duckdb"
            shutil.copy(empty, path)
            letters = DeadLetters()
            async with node(path, discover_projections(), letters) as made:
                for first in range(0, len(messages), batch):
                    await made.host.fold(messages[first : first + batch])
                late = made.store.rows("SELECT seq FROM late_messages ORDER BY seq")
                return made.digests(), {parked.message.seq for parked in letters.parked}, late

    return asyncio.run(fold())


def names(messages: Sequence[RawMessage]) -> list[tuple[str, str]]:
    """Workspace and name of everything that can be named in a request."""
    found: dict[tuple[str, str], None] = {}
    for message in messages:
        try:
            event = decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
        except FoldError:
            continue
        if getattr(getattr(event, "entry", None), "entry_type", None) not in ERASURE_TYPES:
            found.update(dict.fromkeys((event.workspace_id, name) for name in names_of(event)))
    return list(found)


def scope_of(messages: Sequence[RawMessage], workspace_id: str, asked: Sequence[str]) -> ErasureScope:
    """What an erasure of these names covers."""
    erasures = Erasures(cast("Any", SimpleNamespace(subject_key=b"k")), cast("Any", Stored(messages)))
    scope = ErasureScope(set(asked), asked=frozenset(asked))
    asyncio.run(erasures._read(workspace_id, scope))
    return scope


def forget(scope: ErasureScope, workspace_id: str, after: int) -> list[RawMessage]:
    """The events of an erasure."""
    [part] = in_parts(ranges_of(scope.sequences), (name for name in scope.ids if is_id(name)))
    payloads = (
        ErasureRequested(erasure_id=ERASURE_ID, entry_ids=tuple(scope.seeds)),
        ErasureScoped(erasure_id=ERASURE_ID, scope=part),
        ErasureCompleted(erasure_id=ERASURE_ID, counts={"stream": len(scope.sequences)}, not_proven=NOT_PROVEN),
    )
    return [
        at(after + number, control(payload, f"x_law_{number}", workspace=workspace_id))
        for number, payload in enumerate(payloads, 1)
    ]


def has_id_of_its_sequence(message: RawMessage) -> bool:
    """Whether it was published without an id, so that it would be another entry if it came again."""
    [*own] = names([message])
    return any(name == entry_id_at(message.seq) for _, name in own)


def hold_to_the_law(data: st.DataObject, max_messages: int) -> None:
    log = data.draw(journals(max_messages))
    named = names(log)
    if not named:
        return
    workspace_id, first = data.draw(st.sampled_from(named))
    others = [name for workspace, name in named if workspace == workspace_id]
    asked = sorted({first, *data.draw(st.lists(st.sampled_from(others), max_size=2))})
    scope = scope_of(log, workspace_id, asked)
    if not scope.seeds:
        return  # only drawers or facts whose events have ids of the service: nothing an event could name
    kept = [message for message in log if message.seq not in scope.sequences]
    events = forget(scope, workspace_id, log[-1].seq)
    last = events[-1].seq
    gone = [message for message in log if message.seq in scope.sequences and not has_id_of_its_sequence(message)]
    late = [
        replace(message, seq=last + number, published_ms=EPOCH_MS + last + number)
        for number, message in enumerate(gone, 1)
    ]
    batch = data.draw(st.sampled_from([1, 3, 100]))

    expected, parked, none_late = folded([*kept, *events], 100)
    found, parked_too, still = folded([*kept, *events, *late], batch)

    assert none_late == [] or {seq for (seq,) in none_late} <= {message.seq for message in kept}
    assert {seq for (seq,) in still} - {seq for (seq,) in none_late} == {message.seq for message in late}
    assert parked_too == parked
    for view, digest in expected.items():
        if view != ERASURES_PROJECTION:  # it keeps what came late until it is deleted
            assert found[view] == digest, (view, asked)


@BOUNDED
@given(data=st.data())
def test_late_deliveries_of_erased_messages_change_no_view_and_are_parked_nowhere(data: st.DataObject) -> None:
    hold_to_the_law(data, 25)


@pytest.mark.nightly
@FULL
@given(data=st.data())
def test_late_deliveries_in_two_thousand_journals_change_no_view(data: st.DataObject) -> None:
    hold_to_the_law(data, 60)


def test_what_comes_before_the_request_is_folded_and_its_vector_after_it_is_not() -> None:
    request = control(ErasureRequested(erasure_id=ERASURE_ID, entry_ids=("e1",)), "x_law", workspace="w1")
    log = [
        at(1, entry("e1")),
        at(2, request),
        at(3, entry("e1", summary="other text")),
        at(4, vector("e1", entry_seq=1)),
    ]
    for batch in (1, 4):
        _, parked, late = folded(log, batch)
        assert (parked, late) == (set(), [(3,), (4,)])
