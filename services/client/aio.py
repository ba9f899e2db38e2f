"""The client for asyncio.

Invariant: no logic here: steps come from ``core``, streams from ``streams``; this file only carries them out, awaiting.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final, Self, TypeVar

import httpx

from crew_journal.schemas.api import (
    BrokerAnswer,
    CountAnswer,
    DeadLetter,
    DeadLetterAnswer,
    EntriesAnswer,
    EntryRecord,
    HealthAnswer,
    Nudge,
    PriorityAnswer,
    RecallAnswer,
    Receipt,
    ReindexAnswer,
    RenderAnswer,
    SweepAnswer,
    TailGap,
    TokenCreatedAnswer,
    TokenRecord,
    UsedAnswer,
    WorkspaceSettingsAnswer,
)
from crew_journal.schemas.errors import Unavailable
from crew_journal.schemas.settings import ATOMIC_BATCH, LIST_LIMIT_MAX
from crew_journal.services.client import core
from crew_journal.services.client.find import find
from crew_journal.services.client.relating import AsyncRelationCalls
from crew_journal.services.client.streams import TAIL_SILENCE_S, Lines, Tail, record_of
from crew_journal.services.client.wire import Broken, Outcome, Pause, Reply, Request, Steps

TIMEOUT_S: Final = 40.0
"""Seconds for one answer; an append may wait 30 for the broker's ack."""

_T = TypeVar("_T")


class AsyncCrewJournal(AsyncRelationCalls):
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
        address = find(url, token, data_dir)
        self._http = httpx.AsyncClient(
            base_url=address.url,
            headers={"Authorization": f"Bearer {address.token}"},
            timeout=timeout_s,
            trust_env=not address.is_loopback,
        )

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # the journal

    async def append(self, entry: core.Entry) -> Receipt:
        """Append one entry; returns after the broker's ack. Safe to repeat: the id is minted here if absent."""
        return await self._run(core.append(entry))

    async def append_batch(self, entries: Iterable[core.Entry]) -> tuple[Receipt, ...]:
        """Append up to 1,000 entries, all or nothing."""
        return await self._run(core.append_batch(entries))

    async def append_many(self, entries: Iterable[core.Entry], *, batch: int = ATOMIC_BATCH) -> AsyncIterator[Receipt]:
        """Append any number of entries, batch by batch, handing out receipts in order."""
        waiting = iter(entries)
        while records := list(islice(waiting, batch)):
            for receipt in await self.append_batch(records):
                yield receipt

    async def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        min_seq: int | None = None,
        workspace_id: str | None = None,
        **filters: object,
    ) -> EntriesAnswer:
        """One page, newest first; ``filters`` are the query parameters of GET /v1/journal."""
        given = {**filters, "limit": limit, "cursor": cursor, "min_seq": min_seq, "workspace_id": workspace_id}
        return await self._run(core.list_page(given))

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

    async def count(
        self, *, min_seq: int | None = None, workspace_id: str | None = None, **filters: object
    ) -> CountAnswer:
        """How many entries pass the filters."""
        return await self._run(core.count({**filters, "min_seq": min_seq, "workspace_id": workspace_id}))

    async def get(self, entry_id: str, *, min_seq: int | None = None, workspace_id: str | None = None) -> EntryRecord:
        """One entry.

        Raises:
            NotFound: If there is none that the token may see.
        """
        return await self._run(core.get(entry_id, {"min_seq": min_seq, "workspace_id": workspace_id}))

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
                pause = tail.pause(type(error).__name__)
            await asyncio.sleep(pause)

    async def recall(self, query: str, **given: object) -> RecallAnswer:
        """What is remembered of ``query``; ``given`` are the fields of POST /v1/recall (k, scope, recipe …)."""
        return await self._run(core.recall(query, given))

    async def render(self, query: str, **given: object) -> RenderAnswer:
        """What is remembered as a block of text for a prompt; ``given`` as for ``recall``, and ``max_chars``."""
        return await self._run(core.render(query, given))

    async def set_priority(
        self, entry_id: str, priority: str, reason: str, *, workspace_id: str | None = None
    ) -> PriorityAnswer:
        """Give an entry another live priority (OWNER, ADMIN); it counts in its importance from the next decay on."""
        body = {"priority": priority, "reason": reason}
        return await self._run(core.set_priority(entry_id, body, {"workspace_id": workspace_id}))

    async def sweep(self, sweep: str, *, workspace_id: str | None = None) -> SweepAnswer:
        """Run a sweep now (OWNER, ADMIN): decay, health or index; returns when its tick is folded."""
        return await self._run(core.sweep({"sweep": sweep, "workspace_id": workspace_id}))

    async def nudges(self, session_id: str, **given: object) -> tuple[Nudge, ...]:
        """Nudges for the user turn of a session, each kind once; ``given`` are the fields of POST /v1/nudges."""
        return await self._run(core.nudges(session_id, given))

    async def workspace_settings(
        self, *, workspace_id: str | None = None, min_seq: int | None = None
    ) -> WorkspaceSettingsAnswer:
        """The settings of a workspace."""
        return await self._run(core.workspace_settings({"workspace_id": workspace_id, "min_seq": min_seq}))

    async def configure_workspace(
        self, *, cost_nudge_usd: float, workspace_id: str | None = None
    ) -> WorkspaceSettingsAnswer:
        """Change them; ``view_seq`` of the answer is the sequence of the change."""
        return await self._run(
            core.configure_workspace({"cost_nudge_usd": cost_nudge_usd, "workspace_id": workspace_id})
        )

    async def used(self, receipt: str, entry_ids: Sequence[str] | None = None) -> UsedAnswer:
        """Say that a recall's hits, or those named, reached a prompt: what is used stays important longer."""
        return await self._run(core.used(receipt, entry_ids))

    async def health(
        self,
        *,
        crew_id: str | None = None,
        profile: str | None = None,
        history: int | None = None,
        workspace_id: str | None = None,
    ) -> HealthAnswer:
        """The latest health snapshot of the workspace or a crew, ``history`` days of them beside it."""
        given = {"crew_id": crew_id, "profile": profile, "history": history, "workspace_id": workspace_id}
        return await self._run(core.health(given))

    async def measure_health(
        self,
        *,
        crew_id: str | None = None,
        profile: str | None = None,
        history: int | None = None,
        workspace_id: str | None = None,
    ) -> HealthAnswer:
        """Have health measured now, and its snapshot (OWNER, ADMIN)."""
        given = {"crew_id": crew_id, "profile": profile, "history": history, "workspace_id": workspace_id}
        return await self._run(core.measure_health(given))

    async def sweep_embeddings(self, *, workspace_id: str | None = None) -> SweepAnswer:
        """Embed what was missed, and how many that were (OWNER, ADMIN)."""
        return await self._run(core.sweep_embeddings({"workspace_id": workspace_id}))

    async def reindex(
        self, *, model: str | None = None, reason: str | None = None, workspace_id: str | None = None
    ) -> ReindexAnswer:
        """Judge entries by the current embed policy and try refused texts again (OWNER, ADMIN)."""
        return await self._run(core.reindex({"model": model, "reason": reason, "workspace_id": workspace_id}))

    async def status(self, *, workspace_id: str | None = None) -> dict[str, Any]:
        """How the node and the workspace are doing."""
        return await self._run(core.status({"workspace_id": workspace_id}))

    # administration

    async def create_token(
        self,
        *,
        role: str,
        workspace_id: str | None = None,
        all_workspaces: bool = False,
        crew_id: str | None = None,
        agent_id: str | None = None,
        label: str = "",
    ) -> TokenCreatedAnswer:
        """Make a token; the answer's ``token`` is its secret, shown this once."""
        given = {
            "role": role,
            "workspace_id": workspace_id,
            "all_workspaces": all_workspaces,
            "crew_id": crew_id,
            "agent_id": agent_id,
            "label": label,
        }
        return await self._run(core.create_token(given))

    async def tokens(self, *, workspace_id: str | None = None) -> tuple[TokenRecord, ...]:
        """Every token, revoked ones too."""
        return await self._run(core.tokens({"workspace_id": workspace_id}))

    async def revoke_token(self, token_id: str) -> None:
        """End a token."""
        await self._run(core.revoke_token(token_id))

    async def dead_letters(
        self, *, state: str | None = None, workspace_id: str | None = None
    ) -> tuple[DeadLetter, ...]:
        """Events that could not be folded."""
        return await self._run(core.dead_letters({"state": state, "workspace_id": workspace_id}))

    async def retry_dead_letter(self, seq: int, *, workspace_id: str | None = None) -> DeadLetterAnswer:
        """Publish a parked event again as a new one."""
        return await self._run(core.decide_dead_letter(seq, "retry", {}, {"workspace_id": workspace_id}))

    async def discard_dead_letter(
        self, seq: int, reason: str = "", *, workspace_id: str | None = None
    ) -> DeadLetterAnswer:
        """Decide that a parked event needs nothing more."""
        body = {"reason": reason}
        return await self._run(core.decide_dead_letter(seq, "discard", body, {"workspace_id": workspace_id}))

    async def embedder_status(self) -> dict[str, Any]:
        """The embedder and its last outcome."""
        return await self._run(core.embedder_status())

    async def activate_model(
        self, model: str, *, workspace_id: str | None = None, reason: str = "", force: bool = False
    ) -> dict[str, Any]:
        """Make a model the active one, of a workspace or (absent, for an OWNER of all) by default; it must be filled."""
        given = {"model": model, "workspace_id": workspace_id, "reason": reason, "force": force or None}
        return await self._run(core.activate_model(given))

    async def embedding_models(self, *, workspace_id: str | None = None) -> dict[str, Any]:
        """The embedding models, and how far each is filled."""
        return await self._run(core.embedding_models({"workspace_id": workspace_id}))

    async def add_model(self, model: str) -> dict[str, Any]:
        """Fill a further model in the background."""
        return await self._run(core.add_model(model))

    async def drop_model(self, model: str, reason: str = "") -> dict[str, Any]:
        """Forget a model's vectors; the active one cannot be dropped."""
        return await self._run(core.drop_model(model, reason))

    async def broker(self) -> BrokerAnswer:
        """How a reactor in another process reaches the broker."""
        return await self._run(core.broker())

    def compare_models(self, one: str, other: str, **given: object) -> AsyncIterator[dict[str, Any]]:
        """How far two models agree on logged queries (queries, k, recipe, workspace_id): progress, then ``result``."""
        return self._records(core.compare_request(one, other, given))

    def rebuild(self, projections: Sequence[str] | None = None) -> AsyncIterator[dict[str, Any]]:
        """Rebuild views: progress records, the last one with key ``result``."""
        return self._records(core.rebuild_request(projections))

    def verify(self) -> AsyncIterator[dict[str, Any]]:
        """Compare the views with a fresh rebuild: progress records, the last one with key ``result``."""
        return self._records(core.verify_request())

    # carrying out

    async def _records(self, request: Request) -> AsyncIterator[dict[str, Any]]:
        lines = Lines()
        async with self._stream(request, None) as pieces:
            async for piece in pieces:
                for line in lines.feed(piece):
                    yield record_of(line)

    @asynccontextmanager
    async def _stream(self, request: Request, silence_s: float | None) -> AsyncIterator[AsyncIterator[bytes]]:
        timeout = httpx.Timeout(TIMEOUT_S, read=silence_s)
        async with self._http.stream(
            request.method,
            request.path,
            params=list(request.params),
            json=request.json,
            headers=dict(request.headers),
            timeout=timeout,
        ) as answer:
            if answer.is_error:
                core.checked(Reply(answer.status_code, await answer.aread()))
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
            answer = await self._http.request(
                request.method,
                request.path,
                params=list(request.params),
                json=request.json,
                headers=dict(request.headers),
            )
        except httpx.TransportError as error:
            return Broken(type(error).__name__)
        return Reply(answer.status_code, answer.content)
