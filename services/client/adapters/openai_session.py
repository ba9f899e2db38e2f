"""``CrewJournalSession``: a session of the OpenAI Agents SDK on the journal.

Every item is an entry ``chat.user_message`` or ``chat.agent_response`` with the payload ``item``, in order, under one
``trace_id``. Removing an item retracts its entry. The SDK requires only a protocol, so the SDK is not imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from ....schemas.api import EntryRecord
from ....schemas.core.errors import ViewsBehind
from ....schemas.core.ids import is_id
from ....schemas.standing.operations import State
from ..aio import AsyncCrewJournal

_TYPES: Final = {"user": "chat.user_message"}
_ELSE: Final = "chat.agent_response"
_SUMMARY_CHARS: Final = 2_000


class CrewJournalSession:
    """The history of one conversation.

    Args:
        session_id: Any text; a text that is not a valid id is stored as a digest.
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
        self._trace_id = (
            session_id if is_id(session_id) else f"s_{hashlib.sha256(session_id.encode()).hexdigest()[:32]}"
        )
        self._who: dict[str, Any] = {"agent_id": agent_id, "crew_id": crew_id, "workspace_id": workspace_id}
        self._seq: int | None = None

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The last ``limit`` items in order (by default the limit of ``session_settings``)."""
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        items = [entry.payload["item"] for entry in await self._entries()]
        return items if limit is None else items[max(len(items) - limit, 0) :]

    async def add_items(self, items: list[Any]) -> None:
        """Append items; another session object with the same id then sees them, too."""
        async for receipt in self._journal.append_many([self._entry(dict(item)) for item in items]):
            self._seq = receipt.seq
        with suppress(ViewsBehind):  # they are recorded anyway
            await self._journal.count(trace_id=self._trace_id, min_seq=self._seq, **self._who)

    async def pop_item(self) -> Any | None:
        """Retract the last item and return it; None if the session is empty."""
        entries = await self._entries()
        if not entries:
            return None
        await self._retract(entries[-1], "taken out of the session")
        return entries[-1].payload["item"]

    async def clear_session(self) -> None:
        """Retract every item."""
        for entry in await self._entries():
            await self._retract(entry, "the session was cleared")

    async def _entries(self) -> list[EntryRecord]:
        """The current entries in the journal's order, because entries of one request have the same time."""
        filters: dict[str, Any] = {"trace_id": self._trace_id, "types": [*_TYPES.values(), _ELSE], "min_seq": self._seq}
        entries = [
            entry
            async for entry in self._journal.entries(**filters, **self._who)
            if "item" in entry.payload and (entry.standing is None or entry.standing.state is not State.RETRACTED)
        ]
        return sorted(entries, key=lambda entry: entry.seq)

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
    """The text of a message, else the arguments or the output of a tool call."""
    content = item.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    if isinstance(content, str):
        return content
    return " ".join(str(item[name]) for name in ("name", "arguments", "output") if item.get(name))
