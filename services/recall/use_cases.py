"""The operations recall, render, recall_brief and calibrate; those by which an agent publishes and searches."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any, Final

from ...schemas.access.operations import CALIBRATE, CalibrateAnswer, CalibrateRequest, FloorShown
from ...schemas.catalogue import info_of
from ...schemas.entries import operations as entries_ops
from ...schemas.recall import operations as ops
from ...schemas.recall.evidence import ReplayedHit, propose_floor
from ...schemas.recall.operations import ENTRIES_ALONE, RecallRequest
from ...schemas.recall.tables import RECEIPTS, RECEIPTS_PROJECTION
from ..desk import Caller
from ..index.unknown_names import refuse_unknown_workspace
from ..node import Answers, Node
from .render import RenderService


class Recalls:
    """The use-cases; they find workspace and scope themselves, from the token."""

    def __init__(self, node: Node) -> None:
        self._recall = node.recall
        self._rendering = RenderService(node.recall)

    async def recall(self, caller: Caller, request: ops.RecallRequest) -> ops.RecallAnswer:
        """Raises as ``RecallService.recall``."""
        return await self._recall.recall(caller.principal, request)

    async def render(self, caller: Caller, request: ops.RenderRequest) -> ops.RenderAnswer:
        """Raises as ``RenderService.render``."""
        return await self._rendering.render(caller.principal, request)

    async def brief(self, caller: Caller, request: ops.BriefRequest) -> ops.BriefAnswer:
        """Raises as ``RenderService.brief``."""
        return await self._rendering.brief(caller.principal, request)


# The use-cases of an agent on the journal: publish an entry, and search its own conversations.


_READ_AHEAD: Final = 3
"""Hits asked for each turn wanted, because entries that are not turns of a conversation are among them."""
_MOST: Final = 50


class Conversations:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._journal = node.journal
        self._recall = node.recall

    async def publish(self, caller: Caller, request: entries_ops.PublishEntryRequest) -> entries_ops.PublishEntryAnswer:
        """Append one entry; returns after the ack.

        Raises:
            InvalidEntry, NotAllowed, EntryTooLarge, EntryConflict, BrokerUnavailable: As for any append.
        """
        entry: dict[str, Any] = {name: value for name, value in request.model_dump(mode="json").items() if value}
        entry["id"] = entry.pop("entry_id", None)
        entry["workspace_id"] = caller.workspace_id
        appended = await self._journal.append(caller.principal, entry)
        return entries_ops.PublishEntryAnswer(entry_id=appended.id, seq=appended.seq, duplicate=appended.duplicate)

    async def search(
        self, caller: Caller, request: entries_ops.ConversationSearchRequest
    ) -> entries_ops.ConversationSearchAnswer:
        """The turns of the agent's conversations that bear on a query."""
        recalled = await self._recall.recall(
            caller.principal,
            RecallRequest(
                query=request.query,
                kinds=ENTRIES_ALONE,
                k=min(request.limit * _READ_AHEAD, _MOST),
                scope="own",
                agent_id=request.agent_id,
                min_seq=request.min_seq,
                workspace_id=request.workspace_id,
            ),
        )
        turns = [
            entries_ops.Turn(
                entry_id=hit.entry_id,
                ts=hit.ts,
                speaker=hit.actor_id or hit.actor_type,
                text=str(hit.payload.get("text") or hit.summary),
                session=hit.trace_id,
                score=hit.score,
            )
            for hit in recalled.hits
            if info_of(hit.entry_type).conversation and request.session in (None, hit.trace_id)
        ]
        return entries_ops.ConversationSearchAnswer(
            turns=tuple(turns[: request.limit]), degraded=recalled.degraded, view_seq=recalled.view_seq
        )


# The operation calibrate: proposes an evidence floor from a workspace's receipts.


_NEWEST: Final = f"SELECT hits, used, rendered FROM {RECEIPTS} WHERE workspace_id = ? ORDER BY seq DESC LIMIT ?"


class FloorCalibration:
    """Replays the receipts of a workspace."""

    def __init__(self, node: Node) -> None:
        self._views = node.views

    async def propose(self, caller: Caller, request: CalibrateRequest) -> CalibrateAnswer:
        """The floor that keeps the used hits."""
        view_seq = self._views.view_seq(RECEIPTS_PROJECTION)
        receipts, rendered = await asyncio.to_thread(self._replayed, caller.workspace_id, request.receipts)
        if not receipts:
            await refuse_unknown_workspace(self._views, caller.principal, caller.workspace_id)
        proposal = await asyncio.to_thread(propose_floor, receipts)
        return CalibrateAnswer(
            workspace_id=caller.workspace_id,
            floor=proposal.floor,
            receipts=len(receipts),
            used=sum(hit.used for hits in receipts for hit in hits),
            rendered=rendered,
            floors=tuple(FloorShown(**asdict(figure)) for figure in proposal.figures),
            view_seq=view_seq,
        )

    def _replayed(self, workspace_id: str, most: int) -> tuple[list[list[ReplayedHit]], int]:
        """The hits of each recall, and how many were rendered, used or not."""
        replayed = []
        in_blocks = 0
        for hits, used, rendered in self._views.rows(_NEWEST, [workspace_id, most]):
            kept = set(json.loads(used)) if used else set()
            if rendered:
                in_blocks += len(kept)
                kept.clear()
            replayed.append(
                [
                    ReplayedHit(hit["confidence"], hit["entry_id"] in kept)
                    for hit in json.loads(hits)
                    if hit["confidence"] is not None  # a neighbour of a hit has none
                ]
            )
        return replayed, in_blocks


ANSWERS: Final[Answers] = (
    (ops.RECALL, Recalls.recall),
    (ops.RENDER, Recalls.render),
    (ops.RECALL_BRIEF, Recalls.brief),
    (entries_ops.PUBLISH_ENTRY, Conversations.publish),
    (entries_ops.CONVERSATION_SEARCH, Conversations.search),
    (CALIBRATE, FloorCalibration.propose),
)
