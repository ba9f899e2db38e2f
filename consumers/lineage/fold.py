"""``lineage`` and its names; ``lineage_given``, ``lineage_endings``, ``lineage_near`` and ``lineage_notices``.

Invariants: a row for each reference of a message to another one, none for a message without references; vectors of entries
have theirs in ``journal_embeddings`` (``LINEAGE_SOURCE``). A notice for each run that was given a memory before it ended (or
something that says almost the same as what was refuted), once for each memory and kind of end; it is made when the later of
receipt and end is folded, so a late receipt misses nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import ValidationError

from ...schemas.core.entry import problems_of
from ...schemas.core.envelope import (
    ChunkVectorDerived,
    DocumentWritten,
    EntryRecorded,
    Event,
    LinkDerived,
    TokenBitsDerived,
)
from ...schemas.core.errors import FoldError
from ...schemas.core.ids import name_key
from ...schemas.core.table import R, Table, Tables
from ...schemas.erasure.lineage import names_of, origins_of
from ...schemas.lineage import rules
from ...schemas.lineage.events import NoticesGiven
from ...schemas.lineage.rules import REFUTED, Ending, Given, endings_of, given_by, is_near
from ...schemas.lineage.tables import (
    ENDINGS,
    GIVEN,
    LINEAGE,
    LINEAGE_NAMES,
    LINEAGE_PROJECTION,
    NEAR,
    NOTICES,
    EndingRow,
    GivenRow,
    LineageNameRow,
    LineageRow,
    NearRow,
    NoticeRow,
)
from ..projection import Batch, FoldTransaction

MOST_REFERENCES: Final = 1_000
"""References of one message that are kept; an agent's entry may name any number in its ``refs``."""
NAME_CHARS: Final = 400
"""Characters of the longest name that is kept: that of a drawer has 327."""


class LineageProjection:
    """Folds every kind of event but vectors of entries."""

    name: ClassVar = LINEAGE_PROJECTION
    version: ClassVar = 101 + rules.VERSION
    tables: ClassVar[Tables] = (LINEAGE, LINEAGE_NAMES, GIVEN, ENDINGS, NEAR, NOTICES)
    folds: ClassVar = (EntryRecorded, TokenBitsDerived, ChunkVectorDerived, LinkDerived, DocumentWritten)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Record references, and make notices."""
        rows: list[LineageRow] = []
        names: list[LineageNameRow] = []
        steps: list[_Step] = []
        for event in _referring(batch):
            if isinstance(event, EntryRecorded):
                names += _names(event)
            rows += _references(event)
            steps += _steps(event)
        tx.add(LINEAGE, rows)
        if steps:
            _Notices(tx, names, steps).fold()
        if names:
            tx.add(LINEAGE_NAMES, names)


def _referring(batch: Batch) -> list[Event]:
    """The events that may refer to others, in stream order: most entries refer to none."""
    entries = [event for event in batch.entries if event.control or event.entry.refs or event.entry.supersedes]
    writes = [event for event in batch.documents if event.derived_from]
    events: list[Event] = [*entries, *writes, *batch.links, *batch.token_bits, *batch.chunk_vectors]
    events.sort(key=attrgetter("seq"))
    return events


def _references(event: Event) -> Iterator[LineageRow]:
    found = ((name, how) for name, how in origins_of(event) if 0 < len(name) <= NAME_CHARS)
    for name, how in islice(dict.fromkeys(found), MOST_REFERENCES):
        yield LineageRow(event.workspace_id, event.seq, name, how)


def _names(event: EntryRecorded) -> Iterator[LineageNameRow]:
    workspace_id, entry_id = event.workspace_id, event.entry.id
    for name in names_of(event)[1:]:
        yield LineageNameRow(name_key((workspace_id, name)), workspace_id, name, entry_id, event.seq)


class _Step(NamedTuple):
    """An event that may make a notice, or says that notices were told."""

    seq: int
    workspace_id: str
    what: Given | Ending | NoticesGiven | LinkDerived


def _steps(event: Event) -> Iterator[_Step]:
    try:
        if isinstance(event, EntryRecorded) and event.control:
            given = given_by(event.entry)
            if given is not None:
                yield _Step(event.seq, event.workspace_id, given)
            if event.entry.entry_type == NoticesGiven.ENTRY_TYPE:
                told = NoticesGiven.model_validate(event.entry.payload)
                yield _Step(event.seq, event.workspace_id, told)
        elif isinstance(event, LinkDerived) and is_near(event):
            yield _Step(event.seq, event.workspace_id, event)
        for ending in endings_of(event):
            yield _Step(event.seq, event.workspace_id, ending)
    except ValidationError as error:
        fields = ", ".join(sorted({problem.field for problem in problems_of(error)})[:5])
        raise FoldError(f"the payload at {event.seq} is not valid: {fields}") from None


_Name = tuple[str, str]
"""A workspace, and an entry in it."""
_Run = tuple[str, str, str]
"""A workspace, a holder, and a run of it."""


class _Notices:
    """The notices of a batch: what the tables know of its memories is read first, then its events are taken in order."""

    def __init__(self, tx: FoldTransaction, names: Sequence[LineageNameRow], steps: Sequence[_Step]) -> None:
        self._tx = tx
        self._steps = steps
        self._bearers: dict[_Name, list[LineageNameRow]] = defaultdict(list)
        named = {
            (step.workspace_id, name) for step in steps if isinstance(step.what, Ending) for name in step.what.names
        }
        for row in (*_found(tx, LINEAGE_NAMES, named), *names):
            self._bearers[row.workspace_id, row.name].append(row)
        about = set(self._about())
        self._near = _grouped(_found(tx, NEAR, about))
        about |= {(row.workspace_id, row.other_id) for rows in self._near.values() for row in rows}
        self._endings = _grouped(_found(tx, ENDINGS, about))
        self._given = _grouped(_found(tx, GIVEN, about))
        self._made: list[GivenRow | EndingRow | NearRow] = []
        self._runs: dict[_Run, dict[tuple[str, str], NoticeRow]] = {}
        self._former: list[NoticeRow] = []

    def fold(self) -> None:
        """Take in the events in order, and write what they add."""
        self._load_runs()
        for step in self._steps:
            what = step.what
            if isinstance(what, Given):
                self._give(step.seq, step.workspace_id, what)
            elif isinstance(what, Ending):
                for entry_id in self._ids(step, what):
                    self._end(step.seq, step.workspace_id, entry_id, what)
            elif isinstance(what, LinkDerived):
                self._join(what)
            else:
                self._tell(step.seq, (step.workspace_id, what.holder, what.run), what)
        self._tx.add(GIVEN, [row for row in self._made if isinstance(row, GivenRow)])
        self._tx.add(ENDINGS, [row for row in self._made if isinstance(row, EndingRow)])
        self._tx.add(NEAR, [row for row in self._made if isinstance(row, NearRow)])
        rows = [row for notices in self._runs.values() for row in notices.values()]
        if rows != self._former:
            self._tx.replace(NOTICES, rows, self._former)

    def _load_runs(self) -> None:
        """The notices of every run that an event of the batch may concern."""
        runs = {(row.workspace_id, row.holder, row.run) for rows in self._given.values() for row in rows}
        for step in self._steps:
            if isinstance(step.what, (Given, NoticesGiven)):
                runs.add((step.workspace_id, step.what.holder, step.what.run))
        for row in self._tx.find(NOTICES, [name_key(run) for run in sorted(runs)]):
            self._former.append(row)
            self._notices_of((row.workspace_id, row.holder, row.run))[row.entry_id, row.why] = row

    def _about(self) -> Iterator[_Name]:
        for step in self._steps:
            what = step.what
            if isinstance(what, Given):
                yield from ((step.workspace_id, entry_id) for entry_id in what.entry_ids)
            elif isinstance(what, Ending):
                yield from ((step.workspace_id, entry_id) for entry_id in self._ids(step, what))
            elif isinstance(what, LinkDerived):
                yield from ((step.workspace_id, end) for end in (what.src_entry_id, what.dst_entry_id))

    def _ids(self, step: _Step, ending: Ending) -> Iterator[str]:
        """The entries that an event ends: a name of a drawer or fact stands for those that bore it until then."""
        for name in ending.names:
            bearers = self._bearers.get((step.workspace_id, name), ())
            yield from dict.fromkeys(row.entry_id for row in bearers if row.seq < step.seq) if bearers else (name,)

    def _give(self, seq: int, workspace_id: str, given: Given) -> None:
        for entry_id in given.entry_ids:
            key = name_key((workspace_id, entry_id))
            row = GivenRow(key, workspace_id, entry_id, given.holder, given.run, given.view_seq or seq, seq)
            self._made.append(row)
            self._given[workspace_id, entry_id].append(row)
            for ending in self._endings[workspace_id, entry_id]:
                self._notify(seq, row, ending)
            for near in self._near[workspace_id, entry_id]:
                for ending in self._endings[workspace_id, near.other_id]:
                    self._notify(seq, row, ending)

    def _end(self, seq: int, workspace_id: str, entry_id: str, what: Ending) -> None:
        ending = EndingRow(name_key((workspace_id, entry_id)), workspace_id, entry_id, what.why, what.by, seq)
        self._made.append(ending)
        self._endings[workspace_id, entry_id].append(ending)
        others = [near.other_id for near in self._near[workspace_id, entry_id]] if what.why in REFUTED else []
        for held in (entry_id, *others):
            for row in self._given[workspace_id, held]:
                self._notify(seq, row, ending)

    def _join(self, link: LinkDerived) -> None:
        for here, other in ((link.src_entry_id, link.dst_entry_id), (link.dst_entry_id, link.src_entry_id)):
            name = link.workspace_id, here
            if any(near.other_id == other for near in self._near[name]):
                continue
            near = NearRow(name_key(name), *name, other, link.seq)
            self._made.append(near)
            self._near[name].append(near)
            for row in self._given[name]:
                for ending in self._endings[link.workspace_id, other]:
                    self._notify(link.seq, row, ending)

    def _notify(self, seq: int, given: GivenRow, ending: EndingRow) -> None:
        """Make a notice, unless the memory was given after its end or the run has one of this kind."""
        is_near = ending.entry_id != given.entry_id
        if ending.seq <= given.view_seq or (is_near and (ending.why not in REFUTED or ending.by_id == given.entry_id)):
            return
        run = given.workspace_id, given.holder, given.run
        near = ending.entry_id if is_near else None
        notices = self._notices_of(run)
        known = notices.get((given.entry_id, ending.why))
        if known is None or known.told_seq is None:  # an end that was not valid may be so now
            row = NoticeRow(name_key(run), *run, given.entry_id, ending.why, ending.by_id, near, seq)
            notices[given.entry_id, ending.why] = row

    def _tell(self, seq: int, run: _Run, told: NoticesGiven) -> None:
        notices = self._notices_of(run)
        for name, row in notices.items():
            if row.told_seq is None and row.seq <= told.until_seq and row.entry_id in told.entry_ids:
                notices[name] = row._replace(told_seq=seq)

    def _notices_of(self, run: _Run) -> dict[tuple[str, str], NoticeRow]:
        return self._runs.setdefault(run, {})


def _found(tx: FoldTransaction, table: Table[R], names: Iterable[_Name]) -> list[R]:
    keys = [name_key(name) for name in sorted(names)]
    return tx.find(table, keys) if keys else []


def _grouped(rows: Sequence[Any]) -> dict[_Name, list[Any]]:
    groups: dict[_Name, list[Any]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.seq):
        groups[row.workspace_id, row.entry_id].append(row)
    return groups


PROJECTION = LineageProjection
