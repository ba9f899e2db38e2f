"""The use-case remember: a text becomes an entry of a type that always gets a vector.

Invariant: the entry goes through the same intake as any other, so the token decides whose memory it is.
"""

from __future__ import annotations

from typing import Any, Final

from ...schemas.core.entry import MAX_SUMMARY
from ...schemas.entries.operations import REMEMBER, RememberAnswer, RememberRequest
from ...schemas.models.rules import REMEMBERED
from ..desk import Caller
from ..node import Answers, Node

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
