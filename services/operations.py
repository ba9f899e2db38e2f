"""What operators may have done to a running node: rebuild, verify, dead letters, the active model.

Invariant: one long operation at a time, under one lock; progress is reported as it happens and the last record holds the
result. The parts are handed in, so this module knows neither DuckDB nor the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crew_journal.schemas.api_admin import BrokerAnswer, DeadLetter, DeadLetterAnswer
from crew_journal.schemas.errors import NotFound, RefusedByOneView, Unavailable
from crew_journal.schemas.ports import ViewReader
from crew_journal.schemas.views import BEFORE_VIEWS
from crew_journal.services.journal.deadletters import LIST_LIMIT, DeadLetters
from crew_journal.services.node_status import LETTERS, as_json

Progress = Callable[[int, int], None]
Work = Callable[[Progress], Awaitable[Mapping[str, Any]]]

_DEAD_LETTERS = f"""
SELECT projection, version, seq, subject, reason, parked_ms, state, workspace_id FROM {LETTERS}
WHERE ($1 IS NULL OR workspace_id = $1) AND ($2 IS NULL OR state = $2)
ORDER BY seq DESC, projection LIMIT 1000
"""


@dataclass(frozen=True, slots=True)
class OperationParts:
    """What the operations are made of; handed in by the composition root.

    Attributes:
        views: The views.
        rebuild: ``(names or None, accept a loss, token of whoever asks, progress)`` → the result.
        verify: ``(progress)`` → the result with ``equal``.
        salvage: ``(progress)`` → a record for each lost entry, the last with ``result``.
        desk: Retries and discards dead letters.
        embedder: The embedder and its last outcome.
        broker: How other processes reach the broker.
    """

    views: ViewReader
    rebuild: Callable[[Sequence[str] | None, bool, str | None, Progress], Awaitable[Mapping[str, Any]]]
    verify: Callable[[Progress], Awaitable[Mapping[str, Any]]]
    salvage: Callable[[Progress], AsyncIterator[Mapping[str, Any]]]
    desk: DeadLetters
    embedder: Callable[[], Mapping[str, Any]]
    broker: Callable[[], BrokerAnswer]


class Operations:
    """Implements ``services.http.ports.AdminOperations``."""

    def __init__(self, parts: OperationParts) -> None:
        self._parts = parts
        self._one_at_a_time = asyncio.Lock()

    async def rebuild(
        self, projections: Sequence[str] | None, *, accept_loss: bool = False, actor: str | None = None
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Rebuild beside the live views and swap; progress records, then ``result``."""
        async for record in self._long(lambda progress: self._parts.rebuild(projections, accept_loss, actor, progress)):
            yield record

    async def salvage(self) -> AsyncIterator[Mapping[str, Any]]:
        """What the views still know of lost entries: ``entry`` or ``decision`` records, then ``result``."""
        self._refuse_second()
        async with self._one_at_a_time:
            async for record in self._parts.salvage(lambda _done, _total: None):
                yield record

    async def verify(self) -> AsyncIterator[Mapping[str, Any]]:
        """Compare with a fresh rebuild; progress records, then ``result``."""
        async for record in self._long(self._parts.verify):
            yield record

    async def dead_letters(self, workspace_id: str | None, *, state: str | None) -> Sequence[DeadLetter]:
        """Parked events, newest first, at most 1,000."""
        rows = await asyncio.to_thread(self._parts.views.rows, _DEAD_LETTERS, [workspace_id, state])
        return [
            DeadLetter(
                projection=projection,
                version=version,
                seq=seq,
                subject=subject,
                reason=reason,
                parked_ms=parked_ms,
                state=letter_state,
                workspace_id=workspace,
            )
            for projection, version, seq, subject, reason, parked_ms, letter_state, workspace in rows
        ]

    async def retry_dead_letter(self, workspace_id: str | None, seq: int, *, force: bool) -> DeadLetterAnswer:
        """Publish a parked event again as a new one.

        Raises:
            NotFound: If no event is parked at ``seq``.
            RefusedByOneView: If all other views have it, unless forced.
        """
        letter = await self._letter(workspace_id, seq)
        if letter.projection not in BEFORE_VIEWS and not force:
            raise RefusedByOneView(
                f"only {letter.projection} could not fold the event at {seq}; all other views would have it twice",
                hint=f"mend {letter.projection} and raise its version: it folds the event in its place, which settles this; "
                "or discard it; or publish it again all the same (--force)",
            )
        new_seq = await self._parts.desk.retry(await self._kept(letter))
        return DeadLetterAnswer(seq=seq, state="retried", new_seq=new_seq)

    async def discard_dead_letter(self, workspace_id: str | None, seq: int, reason: str) -> DeadLetterAnswer:
        """Decide that a parked event needs nothing more."""
        for letter in await self._letters(workspace_id, seq):
            await self._parts.desk.discard(await self._kept(letter), reason=reason)
        return DeadLetterAnswer(seq=seq, state="discarded")

    async def embedder(self) -> Mapping[str, Any]:
        """The embedder, its model, and its last outcome."""
        answer: Mapping[str, Any] = as_json(self._parts.embedder())
        return answer

    async def broker(self) -> BrokerAnswer:
        """How reactors in other processes reach the broker."""
        return self._parts.broker()

    async def _letters(self, workspace_id: str | None, seq: int) -> list[DeadLetter]:
        letters = [one for one in await self.dead_letters(workspace_id, state="parked") if one.seq == seq]
        if not letters:
            raise NotFound(f"no parked event at sequence {seq}", hint="crew-journal dlq list shows them")
        return letters

    async def _letter(self, workspace_id: str | None, seq: int) -> DeadLetter:
        return (await self._letters(workspace_id, seq))[0]

    async def _kept(self, letter: DeadLetter) -> int:
        """Where DEADLETTER keeps the event."""
        after = 0
        while found := await self._parts.desk.list(after=after):
            for kept in found:
                if (kept.projection, kept.seq) == (letter.projection, letter.seq):
                    return kept.letter_seq
            if len(found) < LIST_LIMIT:
                break
            after = found[-1].letter_seq
        raise NotFound(
            f"the event at {letter.seq} is no longer kept in DEADLETTER", hint="it was settled or erased meanwhile"
        )

    def _refuse_second(self) -> None:
        if self._one_at_a_time.locked():
            raise Unavailable("another rebuild or verify is running", hint="wait for it to end, then ask again")

    async def _long(self, work: Work) -> AsyncIterator[Mapping[str, Any]]:
        self._refuse_second()
        async with self._one_at_a_time:
            news: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
            loop = asyncio.get_running_loop()

            def progress(done: int, total: int) -> None:
                record = {"done": done, "total": total}
                loop.call_soon_threadsafe(news.put_nowait, record)

            task = asyncio.ensure_future(work(progress))
            task.add_done_callback(lambda _: loop.call_soon(news.put_nowait, None))
            try:
                while (record := await news.get()) is not None:
                    yield record
                yield {"result": as_json(await task)}
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])
