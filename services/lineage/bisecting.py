"""Finds the event that brought a hit into an answer, or took it out of it, by halving the moments between two.

Invariants: ages count from the later moment everywhere, so that only events make a difference; of n messages between the
moments, at most log2(n) + 1 past views are folded, because a view is folded on where the search goes forward.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...schemas.access.events import WorkspaceConfigured
from ...schemas.core.errors import InvalidQuery
from ...schemas.core.expectations import folded
from ...schemas.core.ids import name_key
from ...schemas.core.timestamps import format_ms, to_ms
from ...schemas.entries.events import ErasureScoped
from ...schemas.entries.tables import ENTRIES
from ...schemas.erasure.lineage import VECTOR_OF, named_drawer, named_fact
from ...schemas.erasure.tables import ERASED_IDS
from ...schemas.lineage.operations import BISECT, BisectAnswer, BisectEvent, BisectRequest
from ...schemas.lineage.tables import ENDINGS, LINEAGE_SOURCE
from ...schemas.models.events import EmbeddingsActivated
from ...schemas.recall.events import PriorityChanged
from ...schemas.recall.operations import RecallHit, RecallRequest
from ..desk import Caller
from ..entries.rows import ARCHIVE_SOURCE, SELECT_LIST, StoredEntry
from ..node import Answers, Node, PastMoments, PastWalk
from ..recall.expectations import text_of
from ..recall.receipts import id_of_hit
from .use_cases import Trace
from .why import MayRead, message_of

_LAST: Final = f"SELECT max(published_ms) FROM {ENTRIES} WHERE seq <= ?"
_AT: Final = f"SELECT {SELECT_LIST} FROM {ARCHIVE_SOURCE} WHERE seq = ?"
_MADE_OF: Final = f"SELECT workspace_id, source, how FROM {LINEAGE_SOURCE} WHERE seq = ? ORDER BY source"
_ENDED: Final = f"""SELECT why, by_id FROM {ENDINGS} WHERE workspace_id = ? AND seq = ?
    AND entry_id IN (SELECT unnest(?::VARCHAR[]))"""
_ERASURE: Final = f"SELECT erasure_id FROM {ERASED_IDS} WHERE key IN (SELECT unnest(?::UBIGINT[]))"
_SCOPED: Final = f"""SELECT {SELECT_LIST} FROM {ARCHIVE_SOURCE}
    WHERE workspace_id = ? AND entry_type = '{ErasureScoped.ENTRY_TYPE}'
    AND json_extract_string(payload, '$.erasure_id') = ? ORDER BY seq"""
_BY_TYPE: Final = {
    PriorityChanged.ENTRY_TYPE: "priority",
    WorkspaceConfigured.ENTRY_TYPE: "setting",
    EmbeddingsActivated.ENTRY_TYPE: "model",
}
_BECAUSE: Final = {
    "written": "it is the message that holds the hit",
    "vector": "it is the vector by which the hit is found",
    "priority": "it changed the priority of an entry, and with it the ranking or who shares the entry",
    "setting": "it changed the settings of the workspace",
    "model": "it changed the embedding model",
    "superseded": "it supersedes the hit",
    "contradicted": "it contradicts the hit",
    "corrected": "it corrects the hit",
    "retracted": "it retracts the hit",
    "stale": "it says that the hit is out of date",
    "ended": "it ends the fact",
    "deleted": "it deletes the drawer",
    "displaced": "what it holds took the place of the hit",
    "moved": "what it took away made room for the hit",
    "ranking": "it changed the ranking",
    "erased": "it erased the hit, which is therefore at neither moment",
    "age": "no event did: the ages of the memories changed, or the time of what they say came",
    "hidden": "it is an event that this token may not read",
    "same": "the hit is in both answers",
    "absent": "the hit is in neither answer",
}


class _Probe(NamedTuple):
    """An answer at a moment, and the rank of the hit in it."""

    seq: int
    hits: Sequence[RecallHit]
    rank: int | None


@dataclass(slots=True)
class _Walks:
    """The walk of a search: opened again where the search goes back."""

    past: PastMoments
    stack: AsyncExitStack
    walk: PastWalk | None = None
    opened: int = 0

    async def to(self, seq: int) -> Node:
        """The node at a sequence."""
        if self.walk is None or seq < self.walk.seq:
            await self.stack.aclose()
            self.walk = await self.stack.enter_async_context(self.past.walk("", ()))
            self.opened += 1
        return await self.walk.to(seq)


class Bisections:
    """The use-case."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views

    async def bisect(self, caller: Caller, request: BisectRequest) -> BisectAnswer:
        """Find the event.

        Raises:
            NotAllowed: If the token may not see the scope.
            InvalidQuery: If neither or both of ``hit`` and ``contains`` are named, or a moment is not one of the journal's.
        """
        if (request.hit is None) == (request.contains is None):
            raise InvalidQuery(
                "name either the id of the hit or a text that it contains", hint="hit or contains", field="hit"
            )
        past = self._node.use(PastMoments)
        since = await past.sequence_of(request.since, "since")
        until = self._views.view_seq() if request.until is None else await past.sequence_of(request.until, "until")
        if since >= until:
            raise InvalidQuery(
                f"since is {since:,}, until is {until:,}", hint="name the earlier moment first", field="since"
            )
        walks = _Walks(past, AsyncExitStack())
        since_ms, until_ms = await asyncio.to_thread(self._times, since, until)
        async with walks.stack:
            first = await walks.to(since)
            before = await self._ask(caller, request, first, since, until_ms)
            then = await self._ask(caller, request, first, since, since_ms)
            last = self._node if request.until is None else await walks.to(until)
            after = await self._ask(caller, request, last, until, until_ms)
            same = (before.rank is None) == (after.rank is None)
            aged = same and (then.rank is None) != (after.rank is None)
            while not same and after.seq - before.seq > 1:
                middle = (before.seq + after.seq) // 2
                probe = await self._ask(caller, request, await walks.to(middle), middle, until_ms)
                if (probe.rank is None) == (before.rank is None):
                    before = probe
                else:
                    after = probe
        event: BisectEvent | None = None
        by: str | None = None
        if aged:
            why = "age"
        elif same and after.rank is None and (entry := await asyncio.to_thread(self._erasure, caller, request)):
            why, event = "erased", _event(entry)
        elif same:
            why = "absent" if after.rank is None else "same"
        else:
            why, by, event = await asyncio.to_thread(self._explained, caller, before, after)
        return BisectAnswer(
            hit=request.hit or str(request.contains),
            event=event,
            why=why,
            because=_BECAUSE["vector" if why == "written" and event is not None and event.of else why],
            by=by,
            rank_before=before.rank,
            rank_after=after.rank,
            since_seq=since,
            until_seq=until,
            past_views=walks.opened,
        )

    async def _ask(self, caller: Caller, request: BisectRequest, node: Node, seq: int, now_ms: int) -> _Probe:
        recall = RecallRequest(
            **request.model_dump(include={"query", "k", "scope", "agent_id", "crew_id", "recipe", "mode", "kinds"}),
            min_seq=seq,
            workspace_id=caller.workspace_id,
        )
        hits = (await node.recall.answer(caller.principal, recall, now_ms=now_ms)).response.hits
        wanted = (rank for rank, hit in enumerate(hits) if _is_meant(hit, request))
        return _Probe(seq, hits, next(wanted, None))

    # blocking

    def _times(self, since: int, until: int) -> tuple[int, int]:
        """The times of the last entries at two sequences."""
        now_ms = to_ms(self._node.clock())
        times = [self._views.rows(_LAST, [seq])[0][0] for seq in (since, until)]
        return now_ms if times[0] is None else times[0], now_ms if times[1] is None else times[1]

    def _erasure(self, caller: Caller, request: BisectRequest) -> StoredEntry | None:
        """The event that erased the hit."""
        if request.hit is None:
            return None
        keys = [name_key((caller.workspace_id, name)) for name in _names(request.hit)]
        for (erasure_id,) in self._views.rows(_ERASURE, [keys]):
            for row in self._views.rows(_SCOPED, [caller.workspace_id, erasure_id]):
                entry = StoredEntry.of_row(row)
                return entry if self._may_read(caller, entry) else None
        return None

    def _may_read(self, caller: Caller, entry: StoredEntry) -> bool:
        may_read = MayRead(self._views, caller.principal, caller.workspace_id)
        may_read.look_at([entry.id])
        return may_read(entry.id)

    def _explained(self, caller: Caller, before: _Probe, after: _Probe) -> tuple[str, str | None, BisectEvent | None]:
        """Why the hit came or went at ``after``, by what, and the event."""
        workspace_id = caller.workspace_id
        trace = Trace(self._views, workspace_id)
        rank, hits = (before.rank, before.hits) if after.rank is None else (after.rank, after.hits)
        assert rank is not None  # the hit is in one of the answers
        hit = hits[rank]
        names = trace.names_of({hit.entry_id, id_of_hit(hit), *_names(id_of_hit(hit))})
        gone = {id_of_hit(other) for other in before.hits} - {id_of_hit(other) for other in after.hits}
        entries = [StoredEntry.of_row(row) for row in self._views.rows(_AT, [after.seq])]
        if not entries:  # a vector or a link
            made_of = [row[1:] for row in self._views.rows(_MADE_OF, [after.seq]) if row[0] == workspace_id]
            source = next((source for source, _ in made_of), None)
            if source is None:
                return "ranking" if caller.administers else "hidden", None, _derived(after.seq, None)
            found = [
                StoredEntry.of_row(row)
                for seq in trace.messages(trace.ids_of([source])[source]).values()
                for row in self._views.rows(_AT, [seq.seq])
            ]
            if found and not self._may_read(caller, found[0]):
                return "hidden", None, None
            about_hit = any(name in names for name, _ in made_of)
            why = (
                "written" if about_hit and after.rank is not None else "displaced" if after.rank is None else "ranking"
            )
            how = made_of[0][1]
            return why, None, _derived(after.seq, source, how, found[0] if found else None)
        [entry] = entries
        if not self._may_read(caller, entry):
            return "hidden", None, None
        event = _event(entry)
        ended = self._views.rows(_ENDED, [workspace_id, after.seq, list(names)]) if after.rank is None else []
        if ended:
            return str(ended[0][0]), ended[0][1], event
        if (kind := str(entry.record["entry_type"])) in _BY_TYPE:
            return _BY_TYPE[kind], None, event
        own = {entry.id, *trace.names_of([entry.id])}
        if after.rank is not None:
            is_own = not own.isdisjoint(names) or hit.document is not None
            return "written" if is_own else "moved" if gone else "ranking", None, event
        new = {id_of_hit(other) for other in after.hits} - {id_of_hit(other) for other in before.hits}
        return "displaced" if new else "ranking", next(iter(sorted(new)), None), event


def _is_meant(hit: RecallHit, request: BisectRequest) -> bool:
    if request.contains is not None:
        return folded(request.contains) in folded(text_of(hit))
    wanted, name = str(request.hit), id_of_hit(hit)
    return wanted in (hit.entry_id, name, *_names(name)) or (
        hit.document is not None and wanted == f"{hit.document.owner}/{hit.document.file}"
    )


def _names(name: str) -> tuple[str, str, str]:
    return name, named_drawer(name), named_fact(name)


def _event(entry: StoredEntry) -> BisectEvent:
    message = message_of(entry)
    return BisectEvent(
        seq=message.seq,
        entry_id=message.entry_id,
        ts=message.ts,
        what=message.what,
        author=message.author,
        summary=message.summary,
    )


def _derived(seq: int, source: str | None, how: str = "", entry: StoredEntry | None = None) -> BisectEvent:
    what = "a vector" if how == VECTOR_OF else "a link" if source is not None else "a message that is not an entry"
    known: dict[str, Any] = {"author": None, "ts": None, "summary": what}
    if entry is not None:
        message = message_of(entry)
        known = {"author": message.author, "ts": format_ms(entry.ts_ms), "summary": f"{what} of: {message.summary}"}
    return BisectEvent(seq=seq, entry_id=None, what="derived", of=source, **known)


ANSWERS: Final[Answers] = ((BISECT, Bisections.bisect),)
