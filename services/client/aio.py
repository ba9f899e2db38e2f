"""The client for asyncio.

Invariant: no logic here: requests are those of ``*Calls``, streams of ``streams``; this file only awaits them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import httpx

from ...schemas.api import (
    EntryRecord,
    Receipt,
    TailGap,
)
from ...schemas.errors import Unavailable
from ...schemas.settings import ATOMIC_BATCH, LIST_LIMIT_MAX
from .administering import (
    AdminCalls,
    compare_request,
    rebuild_request,
    salvage_request,
    verify_request,
)
from .core import checked
from .find import find
from .generated import AsyncOperations
from .journalling import JournalCalls
from .streams import TAIL_SILENCE_S, Lines, Tail, record_of
from .submitting import Entry, checked_size, in_batches, places_from
from .wire import TIMEOUT_S, Broken, Outcome, Pause, Reply, Request, Steps

_T = TypeVar("_T")


class AsyncCrewJournal(AsyncOperations, JournalCalls, AdminCalls):
    """A Crew Journal over HTTP, for asyncio.

    Args:
        url: Of the service; ``CREW_JOURNAL_URL``, or a running ``up``, if absent.
        token: ``CREW_JOURNAL_TOKEN``, or the owner's of that ``up``, if absent.
        data_dir: Of that ``up``; ``CREW_JOURNAL_DATA_DIR`` or ``.crew-journal`` if absent.
        timeout_s: Seconds for one answer.

    Raises:
        NotFound: If no service is named and none runs.
        NotAuthenticated: If there is no token.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._http = httpx.AsyncClient(**find(url, token, data_dir).arguments(), timeout=timeout_s)

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # streams

    def append_many(self, entries: Iterable[Entry], *, batch: int = ATOMIC_BATCH) -> AsyncIterator[Receipt]:
        """Append any number of entries, batch by batch, handing out receipts in order.

        Nothing is sent but by iterating: each batch when the receipts of the one before it are taken. ``async for receipt in
        journal.append_many(entries)``, to the end, appends them all.

        Args:
            entries: The entries; taken from the iterable as they are sent.
            batch: Entries of one request at most; one is sent with fewer once it has some 8 MiB.

        Raises:
            InvalidQuery: If ``batch`` is not 1 to 1,000.
            InvalidEntry: While iterating, if an entry is not valid, by its place among all. Its batch is not appended, those
                before it are.
        """
        return self._append_all(in_batches(entries, checked_size(batch)))

    async def entries(
        self, *, min_seq: int | None = None, workspace_id: str | None = None, **filters: object
    ) -> AsyncIterator[EntryRecord]:
        """Every entry that passes the filters, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(
                limit=LIST_LIMIT_MAX, cursor=cursor, min_seq=min_seq, workspace_id=workspace_id, **filters
            )
            for entry in page.entries:
                yield entry
            if (cursor := page.next_cursor) is None:
                return

    async def tail(
        self,
        *,
        after: int | None = None,
        workspace_id: str | None = None,
        on_gap: Callable[[TailGap], None] | None = None,
        **filters: object,
    ) -> AsyncIterator[EntryRecord]:
        """Entries as they come, without end; resumes by itself when the connection breaks.

        Args:
            after: Begin after this sequence; with the newest 50 if absent.
            workspace_id: For a token of all workspaces.
            on_gap: Told when more was missed than the service replays.
            filters: The query parameters of GET /v1/journal.
        """
        tail = Tail({**filters, "workspace_id": workspace_id}, after, on_gap)
        while True:
            try:
                async with self._stream(tail.request(), TAIL_SILENCE_S) as pieces:
                    async for piece in pieces:
                        for entry in tail.feed(piece):
                            yield entry
                pause = tail.pause("the service ended it")
            except (httpx.TransportError, Unavailable) as error:
                pause = tail.pause_after(error)
            await asyncio.sleep(pause)

    def compare_models(self, one: str, other: str, **given: object) -> AsyncIterator[dict[str, Any]]:
        """How far two models agree on logged queries (queries, k, recipe, workspace_id): progress, then ``result``."""
        return self._records(compare_request(one, other, given))

    def rebuild(
        self, projections: Sequence[str] | None = None, *, accept_loss: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """Rebuild views: progress records, the last one with key ``result``.

        Raises:
            JournalDamaged: If the journal has lost something, unless ``accept_loss`` gives it up.
        """
        return self._records(rebuild_request(projections, accept_loss))

    def salvage(self) -> AsyncIterator[dict[str, Any]]:
        """What the views still know of lost entries: records with ``entry`` or ``decision``, the last with ``result``."""
        return self._records(salvage_request())

    def verify(self) -> AsyncIterator[dict[str, Any]]:
        """Compare the views with a fresh rebuild: progress records, the last one with key ``result``."""
        return self._records(verify_request())

    # carrying out

    async def _append_all(self, batches: Iterable[Sequence[bytes]]) -> AsyncIterator[Receipt]:
        sent = 0
        for records in batches:
            with places_from(sent):
                receipts = await self._append_encoded(records)
            sent += len(records)
            for receipt in receipts:
                yield receipt

    async def _records(self, request: Request) -> AsyncIterator[dict[str, Any]]:
        lines = Lines()
        async with self._stream(request, None) as pieces:
            async for piece in pieces:
                for line in lines.feed(piece):
                    yield record_of(line)

    @asynccontextmanager
    async def _stream(self, request: Request, silence_s: float | None) -> AsyncIterator[AsyncIterator[bytes]]:
        timeout = httpx.Timeout(TIMEOUT_S, read=silence_s)
        async with self._http.stream(**request.arguments(), timeout=timeout) as answer:
            if answer.is_error:
                checked(Reply(answer.status_code, await answer.aread()))
            yield answer.aiter_bytes()

    async def _run(self, steps: Steps[_T]) -> _T:
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                result: _T = done.value
                return result
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                outcome = None
            else:
                outcome = await self._perform(step)

    async def _perform(self, request: Request) -> Outcome:
        try:
            answer = await self._http.request(**request.arguments())
        except httpx.TransportError as error:
            return Broken(type(error).__name__)
        return Reply(answer.status_code, answer.content)
