"""``CrewJournalSession``: a session of the OpenAI Agents SDK on the journal.

Every item is an entry ``chat.user_message`` or ``chat.agent_response`` with the payload ``item``, in order, under one
``trace_id``. Taking an item out retracts its entry. The SDK asks for a protocol, so nothing of it is imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from ....schemas.api import EntryRecord
from ....schemas.ids import is_id
from ....schemas.operations.retractions import State
from ..aio import AsyncCrewJournal

_TYPES: Final = {"user": "chat.user_message"}
_ELSE: Final = "chat.agent_response"
_SUMMARY_CHARS: Final = 2_000


class CrewJournalSession:
    """The history of one conversation.

    Args:
        session_id: Any text; one that cannot be an id is stored as a digest.
        journal: The client.
        agent_id: The agent whose conversation it is, for an OWNER's or ADMIN's token.
        crew_id: The agent's crew, likewise.
        workspace_id: For a token of all workspaces.
    """

    def __init__(
        self,
        session_id: str,
        journal: AsyncCrewJournal,
        *,
        agent_id: str | None = None,
        crew_id: str | None = None,
        workspace_id: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: Any = None
        self._journal = journal
        self._trace_id = session_id if is_id(session_id) else f"s_{hashlib.sha256(session_id.encode()).hexdigest()[:32]}"
        self._who = {"agent_id": agent_id, "crew_id": crew_id, "workspace_id": workspace_id}
        self._seq: int | None = None

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items in order; the last ``limit`` of them (that of ``session_settings`` if absent)."""
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        found: list[Any] = []
        async for entry in self._newest_first():
            if limit is not None and len(found) >= limit:
                break
            found.append(entry.payload["item"])
        return found[::-1]

    async def add_items(self, items: list[Any]) -> None:
        """Append items."""
        async for receipt in self._journal.append_many([self._entry(dict(item)) for item in items]):
            self._seq = receipt.seq

    async def pop_item(self) -> Any | None:
        """Retract the last item and return it; None if there is none."""
        async for entry in self._newest_first():
            await self._retract(entry, "taken out of the session")
            return entry.payload["item"]
        return None

    async def clear_session(self) -> None:
        """Retract every item."""
        for entry in [entry async for entry in self._newest_first()]:
            await self._retract(entry, "the session was cleared")

    async def _newest_first(self) -> AsyncIterator[EntryRecord]:
        types = [*_TYPES.values(), _ELSE]
        filters = {"trace_id": self._trace_id, "types": types, "min_seq": self._seq}
        async for entry in self._journal.entries(**filters, **self._who):
            retracted = entry.standing is not None and entry.standing.state is State.RETRACTED
            if "item" in entry.payload and not retracted:
                yield entry

    async def _retract(self, entry: EntryRecord, reason: str) -> None:
        workspace_id = self._who["workspace_id"]
        done = await self._journal.retract(entry.id, reason, min_seq=self._seq, workspace_id=workspace_id)
        self._seq = done.seq or self._seq

    def _entry(self, item: dict[str, Any]) -> dict[str, Any]:
        text = " ".join(_text(item).split()) or str(item.get("type", "item"))
        return {
            "entry_type": _TYPES.get(str(item.get("role")), _ELSE),
            "summary": text[:_SUMMARY_CHARS],
            "payload": {"item": item},
            "trace_id": self._trace_id,
            **{name: value for name, value in self._who.items() if value is not None},
        }


def _text(item: Mapping[str, Any]) -> str:
    """The text of a message, else what a tool was called with or answered."""
    content = item.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    if isinstance(content, str):
        return content
    return " ".join(str(item[name]) for name in ("name", "arguments", "output") if item.get(name))
