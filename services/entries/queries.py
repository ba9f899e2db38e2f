"""List, count and get entries, and replay them for the live tail, from the view ``journal_entries``.

Invariants: every query is limited to what the token may read (``Visible``); list and count share one WHERE; an unknown
id and one that the token may not read give the same ``NotFound``; queries run in worker threads.

No index is needed: at 300,000 entries of one workspace, a first page takes 5 ms of one thread, a later one 20 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from ...schemas.core.entry import MAX_SUMMARY
from ...schemas.core.errors import InvalidQuery, NotFound
from ...schemas.core.ids import is_id
from ...schemas.core.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import Principal
from ...schemas.entries.operations import REMEMBER, RememberAnswer, RememberRequest
from ...schemas.entries.tables import ENTRIES_PROJECTION, ENTRY_COLUMNS, FULLTEXT_PROJECTION
from ...schemas.models.rules import REMEMBERED
from ...schemas.settings import MIN_SEQ_WAIT_S
from ...schemas.standing.tables import STANDINGS_PROJECTION
from ..desk import Caller
from ..index.unknown_names import refuse_unknown_workspace
from ..node import Answers, Node
from .filters import Condition, Cursor, EntryFilters, Phrase, Visible, quiet_condition
from .rows import (
    ARCHIVE_SOURCE,
    JOURNAL_SOURCE,
    SELECT_LIST,
    EntryCount,
    EntryFound,
    EntryPage,
    StoredEntry,
    add_marks,
    live_priority_condition,
    payload_json,
)

MAX_SEQ: Final = 2**63 - 1
_THREADS: Final = 4
"""Number of concurrent queries; more give no gain on two cores."""
_VERIFY_CHUNK: Final = 2_000
"""Rows read at once for the verification of a phrase."""

_RECENT: Final = 20_000
"""The newest entries are first searched among this many last sequences: with 300,000 entries, 5 ms of one thread
instead of 20.
"""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Replay:
    """The stored entries with which a live tail begins.

    Attributes:
        seqs: Sequences of the entries, oldest first.
        missed: How many further entries since ``after`` are left out.
        upto: Sequence of the views; later entries come live.
    """

    seqs: tuple[int, ...]
    missed: int
    upto: int


@dataclass(frozen=True, slots=True)
class _Selection:
    """Conditions joined by AND, the phrase that must be verified for each row, and the source of the rows."""

    conditions: tuple[Condition, ...]
    phrase: Phrase | None
    source: str = JOURNAL_SOURCE

    @classmethod
    def of(cls, visible: Visible, filters: EntryFilters, *, archive: bool = False) -> _Selection:
        conditions = [visible.condition(), *filters.conditions(visible.workspace_id, archive=archive)]
        if filters.priorities:
            conditions.append(live_priority_condition(visible.workspace_id, filters.priorities))
        return cls(tuple(conditions), filters.phrase, ARCHIVE_SOURCE if archive else JOURNAL_SOURCE)

    def also(self, *more: Condition) -> _Selection:
        return _Selection((*self.conditions, *more), self.phrase, self.source)

    @property
    def where(self) -> str:
        return " AND ".join(condition.sql for condition in self.conditions)

    @property
    def params(self) -> tuple[object, ...]:
        return tuple(param for condition in self.conditions for param in condition.params)

    def holds(self, row: Sequence[Any]) -> bool:
        return self.phrase is None or _contains(self.phrase, row[_SUMMARY], row[_PAYLOAD], row[_BUCKET])


@dataclass(frozen=True, slots=True)
class _Order:
    """An order of rows, with the condition for the rows after a given one."""

    sql: str
    after: Callable[[Sequence[Any]], Condition]


def older_than(cursor: Cursor) -> Condition:
    """Strictly older than a cursor; the redundant first bound lets DuckDB skip blocks."""
    return Condition("ts_ms <= ? AND (ts_ms < ? OR id < ?)", (cursor.ts_ms, cursor.ts_ms, cursor.entry_id))


_SEQ: Final = ENTRY_COLUMNS.index("seq")
_ID: Final = ENTRY_COLUMNS.index("id")
_TS_MS: Final = ENTRY_COLUMNS.index("ts_ms")
_SUMMARY: Final = ENTRY_COLUMNS.index("summary")
_PAYLOAD: Final = ENTRY_COLUMNS.index("payload")
_BUCKET: Final = len(ENTRY_COLUMNS)
"""Index of ``bucket_id`` in ``SELECT_LIST``."""

_BY_TIME: Final = _Order("ts_ms DESC, id DESC", lambda row: older_than(Cursor(row[_TS_MS], row[_ID])))
_BY_ARRIVAL: Final = _Order("seq DESC", lambda row: Condition("seq < ?", (row[_SEQ],)))
_IN_ORDER: Final = _Order("seq", lambda row: Condition("seq > ?", (row[_SEQ],)))


class JournalQueries:
    """Reads stored entries."""

    def __init__(self, views: ViewReader, *, min_seq_wait_s: float = MIN_SEQ_WAIT_S) -> None:
        self._views = views
        self._min_seq_wait_s = min_seq_wait_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="journal-queries")

    def close(self) -> None:
        """Stop the worker threads after the running queries."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def list(
        self,
        principal: Principal,
        filters: EntryFilters,
        *,
        workspace: str | None = None,
        cursor: Cursor | None = None,
        after_seq: int | None = None,
        limit: int = LIST_LIMIT_DEFAULT,
        min_seq: int | None = None,
        include_archive: bool = False,
    ) -> EntryPage:
        """A page of entries, newest first (ts, then id), strictly older than ``cursor``; archived ones only on request.

        With ``after_seq``: those after this sequence, in the order of the journal; the next page begins after the last.

        Raises:
            InvalidQuery: If ``limit`` is not in 1..500, ``min_seq`` is negative, or ``cursor`` and ``after_seq`` are given.
            NotAllowed: If the token is not for the workspace.
            NotFound: If there is no such workspace.
            ViewsBehind: If the views do not reach ``min_seq`` in time.
        """
        if not 1 <= limit <= LIST_LIMIT_MAX:
            raise InvalidQuery(
                f"limit is {limit}, but must be 1 to {LIST_LIMIT_MAX}",
                hint=f"limit: send an integer, 1 to {LIST_LIMIT_MAX}; use next_cursor for further pages",
                field="limit",
            )
        selection = _Selection.of(Visible.to(principal, workspace), filters, archive=include_archive)
        view_seq = await self._passed(min_seq, filters)
        if cursor is not None:
            selection = selection.also(older_than(cursor))
        if after_seq is not None:
            if cursor is not None:
                raise InvalidQuery(
                    "cursor and after_seq exclude each other", hint="after_seq: leave it out", field="after_seq"
                )
            selection = selection.also(Condition("seq > ?", (after_seq,)))
            entries = await self._in_thread(lambda: self._first(selection, _IN_ORDER, limit))
            return EntryPage(entries, None, _passed_by(entries, view_seq))
        is_first = filters.phrase is None and cursor is None
        entries = await self._in_thread(
            lambda: (
                self._first_page(selection, limit, view_seq) if is_first else self._first(selection, _BY_TIME, limit)
            )
        )
        if not entries:
            await refuse_unknown_workspace(self._views, principal, principal.workspace(workspace))
        following = entries[-1].cursor if len(entries) == limit else None
        if filters.phrase is None:  # otherwise the page may come from several reads at different sequences
            view_seq = _passed_by(entries, view_seq)
        return EntryPage(entries, following, view_seq)

    async def count(
        self,
        principal: Principal,
        filters: EntryFilters,
        *,
        workspace: str | None = None,
        min_seq: int | None = None,
        include_archive: bool = False,
    ) -> EntryCount:
        """Number of entries on all pages of ``list``; raises the same errors."""
        selection = _Selection.of(Visible.to(principal, workspace), filters, archive=include_archive)
        view_seq = await self._passed(min_seq, filters)
        number = await self._in_thread(lambda: self._count(selection))
        if not number:
            await refuse_unknown_workspace(self._views, principal, principal.workspace(workspace))
        return EntryCount(number, view_seq)

    async def get(
        self,
        principal: Principal,
        entry_id: str,
        *,
        workspace: str | None = None,
        min_seq: int | None = None,
        include_archive: bool = True,
    ) -> EntryFound:
        """Get an entry by its id, archived or not.

        Raises:
            NotFound: If it does not exist or the token may not read it.
            NotAllowed: If the token is not for the workspace.
            ViewsBehind: If the views do not reach ``min_seq`` in time.
        """
        selection = _Selection.of(Visible.to(principal, workspace), EntryFilters(), archive=include_archive)
        view_seq = await self._passed(min_seq, EntryFilters())
        entries: tuple[StoredEntry, ...] = ()
        if is_id(entry_id):
            selection = selection.also(Condition("id = ?", (entry_id,)))
            entries = await self._in_thread(lambda: self._first(selection, _BY_ARRIVAL, 1))
        if not entries:
            raise NotFound(f"no entry {entry_id[:64]}", hint="check the id and the token's workspace, crew and agent")
        return EntryFound(entries[0], _passed_by(entries, view_seq))

    async def of_ids(self, principal: Principal, ids: Sequence[str], workspace: str) -> tuple[StoredEntry, ...]:
        """The entries with some ids, archived or not, that the token may read."""
        known = [one for one in dict.fromkeys(ids) if is_id(one)]
        if not known:
            return ()
        selection = _Selection.of(Visible.to(principal, workspace), EntryFilters(), archive=True)
        selection = selection.also(Condition("list_contains(?::VARCHAR[], id)", (known,)))
        return await self._in_thread(lambda: self._first(selection, _BY_ARRIVAL, len(known)))

    async def replay(
        self,
        principal: Principal,
        filters: EntryFilters,
        *,
        workspace: str | None = None,
        after: int | None,
        limit: int,
    ) -> Replay:
        """The newest ``limit`` entries, after sequence ``after`` if given, with which a tail begins.

        Quiet types are left out unless the filters name types.
        """
        selection = _Selection.of(Visible.to(principal, workspace), filters)
        upto = await self._passed(None, filters)
        selection = selection.also(Condition("seq > ? AND seq <= ?", (after or 0, upto)))
        if (quiet := quiet_condition(filters.types)) is not None:
            selection = selection.also(quiet)
        return await self._in_thread(lambda: self._replay(selection, upto, limit, resumes=after is not None))

    async def replayed(
        self, principal: Principal, seqs: Sequence[int], *, workspace: str | None = None
    ) -> tuple[StoredEntry, ...]:
        """The entries of a replay at these sequences (ascending, at least one), oldest first."""
        within = Condition("seq >= ? AND seq <= ? AND list_contains(?, seq)", (seqs[0], seqs[-1], list(seqs)))
        selection = _Selection((Visible.to(principal, workspace).condition(), within), None)
        newest = await self._in_thread(lambda: self._first(selection, _BY_ARRIVAL, len(seqs)))
        return newest[::-1]

    # in worker threads

    def _first_page(self, selection: _Selection, limit: int, view_seq: int) -> tuple[StoredEntry, ...]:
        """The newest entries, found with a lower bound on ``ts``: the oldest of the ``limit`` entries that arrived last.

        Entries are stored in order of arrival, so that without a bound, every block would replace the newest entries
        found so far.
        """
        recent = selection.also(Condition("seq > ?", (view_seq - _RECENT,)))
        [(oldest, count)] = self._views.rows(
            f"SELECT min(ts_ms), count(*) FROM (SELECT ts_ms FROM {recent.source} WHERE {recent.where} "
            "ORDER BY ts_ms DESC LIMIT ?)",
            (*recent.params, limit),
        )
        if count == limit:
            entries = self._first(selection.also(Condition("ts_ms >= ?", (oldest,))), _BY_TIME, limit)
            if len(entries) == limit:  # otherwise entries were archived between the two reads
                return entries
        return self._first(selection, _BY_TIME, limit)

    def _first(self, selection: _Selection, order: _Order, limit: int) -> tuple[StoredEntry, ...]:
        entries = tuple(StoredEntry.of_row(row) for row in islice(self._rows(selection, order, limit), limit))
        add_marks(self._views, entries)
        return entries

    def _rows(self, selection: _Selection, order: _Order, limit: int) -> Iterator[Sequence[Any]]:
        """At least the first ``limit`` rows in ``order``; reads again if a phrase excludes rows."""
        chunk = limit if selection.phrase is None else max(limit, _VERIFY_CHUNK)
        remaining = selection
        while True:
            rows = self._views.rows(
                f"SELECT {SELECT_LIST} FROM {selection.source} WHERE {remaining.where} ORDER BY {order.sql} LIMIT ?",
                (*remaining.params, chunk),
            )
            yield from (row for row in rows if selection.holds(row))
            if selection.phrase is None or len(rows) < chunk:
                return
            remaining = selection.also(order.after(rows[-1]))

    def _count(self, selection: _Selection) -> int:
        phrase = selection.phrase
        where, params = selection.where, selection.params
        if phrase is None:
            return int(self._views.rows(f"SELECT count(*) FROM {selection.source} WHERE {where}", params)[0][0])
        texts = self._views.columns(f"SELECT summary, payload, bucket_id FROM {selection.source} WHERE {where}", params)
        return sum(
            _contains(phrase, *row)
            for batch in texts.to_batches(max_chunksize=_VERIFY_CHUNK)
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )

    def _replay(self, selection: _Selection, upto: int, limit: int, *, resumes: bool) -> Replay:
        newest = self._newest(selection, limit)
        full = resumes and len(newest) == limit
        missed = self._count(selection.also(Condition("seq < ?", (newest[-1],)))) if full else 0
        return Replay(newest[::-1], missed, upto)

    def _newest(self, selection: _Selection, limit: int) -> tuple[int, ...]:
        """Sequences of the newest entries, newest first; reads texts only if there is a phrase."""
        if selection.phrase is not None:
            return tuple(row[_SEQ] for row in islice(self._rows(selection, _BY_ARRIVAL, limit), limit))
        rows = self._views.rows(
            f"SELECT seq FROM {selection.source} WHERE {selection.where} ORDER BY seq DESC LIMIT ?",
            (*selection.params, limit),
        )
        return tuple(seq for (seq,) in rows)

    # waiting

    async def _passed(self, min_seq: int | None, filters: EntryFilters) -> int:
        needed = (ENTRIES_PROJECTION, STANDINGS_PROJECTION, *((FULLTEXT_PROJECTION,) if filters.phrase else ()))
        if min_seq is None:
            return self._views.view_seq(*needed)
        if not 0 <= min_seq <= MAX_SEQ:
            raise InvalidQuery(
                "min_seq is not a valid sequence", hint="min_seq: send the seq that an append returned", field="min_seq"
            )
        return await self._views.wait_for(min_seq, self._min_seq_wait_s, *needed)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _contains(phrase: Phrase, summary: str, payload: str, bucket_id: str | None) -> bool:
    return phrase.found_in_row(summary, payload_json(payload, bucket_id))


def _passed_by(entries: Sequence[StoredEntry], view_seq: int) -> int:
    """The sequence of the views, at least that of the entries: a batch may be folded after ``view_seq`` was read."""
    return max(view_seq, max((entry.seq for entry in entries), default=0))


# The use-case remember: a text becomes an entry of a type that always gets a vector.
#
# Invariant: the entry goes through the same intake as any other, so the token decides whose memory it is.


_IN_PAYLOAD: Final[tuple[str, ...]] = ("kind", "about", "aliases")
_OF_ENTRY: Final[tuple[str, ...]] = ("supersedes", "valid_at", "data_subject_id", "agent_id", "crew_id")


class Remembering:
    """The use-case."""

    def __init__(self, node: Node) -> None:
        self._journal = node.journal

    async def remember(self, caller: Caller, request: RememberRequest) -> RememberAnswer:
        """Record a text; returns after the ack.

        Raises:
            NotAllowed: If the token is for another agent or crew.
            EntryConflict: If ``entry_id`` belongs to other content.
            EntryTooLarge, BrokerUnavailable: As for any entry.
        """
        given = {name: value for name, value in request.model_dump(mode="json").items() if value}
        text = request.text.strip()
        summary = " ".join(text.split())
        if len(summary) > MAX_SUMMARY:
            summary = summary[: MAX_SUMMARY - 1] + "…"
        payload = {name: given[name] for name in _IN_PAYLOAD if name in given}
        if summary != text:
            payload["text"] = text
        entry: dict[str, Any] = {name: given[name] for name in _OF_ENTRY if name in given}
        entry |= {"workspace_id": caller.workspace_id, "id": request.entry_id, "entry_type": REMEMBERED}
        appended = await self._journal.append(caller.principal, {**entry, "summary": summary, "payload": payload})
        return RememberAnswer(
            entry_id=appended.id, seq=appended.seq, duplicate=appended.duplicate, warnings=appended.warnings
        )


ANSWERS: Final[Answers] = ((REMEMBER, Remembering.remember),)
