"""The use-cases of an agent on the journal: publish an entry, and search its own conversations.

Invariant: publishing goes through the same intake as any append; a search is a recall in the scope of one agent.
"""

from __future__ import annotations

from typing import Any, Final

from ...schemas.catalogue import info_of
from ...schemas.operations import conversation as ops
from ...schemas.operations.recall import RecallRequest
from ..desk import Caller
from ..node import Answers, Node

_READ_AHEAD: Final = 3
"""Hits asked for each turn wanted, because entries that are not turns of a conversation are among them."""
_MOST: Final = 50


class Conversations:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._journal = node.journal
        self._recall = node.recall

    async def publish(self, caller: Caller, request: ops.PublishEntryRequest) -> ops.PublishEntryAnswer:
        """Append one entry; returns after the ack.

        Raises:
            InvalidEntry, NotAllowed, EntryTooLarge, EntryConflict, BrokerUnavailable: As for any append.
        """
        entry: dict[str, Any] = {name: value for name, value in request.model_dump(mode="json").items() if value}
        entry["id"] = entry.pop("entry_id", None)
        entry["workspace_id"] = caller.workspace_id
        appended = await self._journal.append(caller.principal, entry)
        return ops.PublishEntryAnswer(entry_id=appended.id, seq=appended.seq, duplicate=appended.duplicate)

    async def search(self, caller: Caller, request: ops.ConversationSearchRequest) -> ops.ConversationSearchAnswer:
        """The turns of the agent's conversations that bear on a query."""
        recalled = await self._recall.recall(
            caller.principal,
            RecallRequest(
                query=request.query,
                k=min(request.limit * _READ_AHEAD, _MOST),
                scope="own",
                agent_id=request.agent_id,
                min_seq=request.min_seq,
                workspace_id=request.workspace_id,
            ),
        )
        turns = [
            ops.Turn(
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
        return ops.ConversationSearchAnswer(
            turns=tuple(turns[: request.limit]), degraded=recalled.degraded, view_seq=recalled.view_seq
        )


ANSWERS: Final[Answers] = (
    (ops.PUBLISH_ENTRY, Conversations.publish),
    (ops.CONVERSATION_SEARCH, Conversations.search),
)
