"""``CrewJournalMemoryService``: the ``BaseMemoryService`` of Google's Agent Development Kit on the journal.

An event with text is an entry ``chat.user_message`` or ``chat.agent_response``, a memory ``memory.remembered``; the
``mission_id`` is a digest of application and user. Invariant: an event is stored once even if its session is added
several times, and a deleted event does not come back, because its id is derived from the event. Deleting retracts the
entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.genai.types import Content, Part

from ....schemas.api import EntryRecord
from ....schemas.core.errors import NotFound
from ....schemas.core.ids import is_id
from ....schemas.recall.operations import ENTRIES_ALONE
from ....schemas.standing.operations import State
from ..aio import AsyncCrewJournal

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.sessions.session import Session

_SUMMARY_CHARS: Final = 2_000
_RANKED: Final = 50
"""Maximum hits of one recall; hits of other users are removed afterwards."""
FOUND_MAX: Final = 10
"""Maximum memories of one answer, as in the framework's own service."""
_USER: Final = "user"


class CrewJournalMemoryService(BaseMemoryService):  # type: ignore[misc]  # the package is not installed here
    """The memory of an application's users.

    Args:
        journal: The client.
        agent_id: The agent whose memory it is, for an OWNER's or ADMIN's token.
        crew_id: The agent's crew, likewise.
        workspace_id: For a token of all workspaces.
    """

    def __init__(
        self,
        journal: AsyncCrewJournal,
        *,
        agent_id: str | None = None,
        crew_id: str | None = None,
        workspace_id: str | None = None,
    ) -> None:
        self._journal = journal
        self._who: dict[str, Any] = {"agent_id": agent_id, "crew_id": crew_id, "workspace_id": workspace_id}
        self._seq: int | None = None

    async def add_session_to_memory(self, session: Session) -> None:
        """Add the events of a session that are not stored yet."""
        await self._add_events(session.app_name, session.user_id, session.events, session.id, None)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add some events; ``custom_metadata`` is kept with each."""
        await self._add_events(app_name, user_id, events, session_id, custom_metadata)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add memories unchanged. A memory whose id is already stored is skipped."""
        entries = []
        for memory in memories:
            kept = {**memory.custom_metadata, **(custom_metadata or {})}
            entry = self._entry("memory.remembered", app_name, user_id, memory.content, memory.author, kept)
            if memory.id is not None:
                entry["id"] = memory.id if is_id(memory.id) else _digest("adk_m", app_name, user_id, memory.id)
            if memory.timestamp is not None:
                entry["payload"]["timestamp"] = memory.timestamp
            entries.append(entry)
        await self._append(entries, mission_id=_scope(app_name, user_id), types=["memory.remembered"])

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """The memories of this user in this application that match the query, best first."""
        if not query.strip():
            return SearchMemoryResponse()
        scope = _scope(app_name, user_id)
        hits = (await self._journal.recall(query, kinds=ENTRIES_ALONE, k=_RANKED, min_seq=self._seq, **self._who)).hits
        entries: list[MemoryEntry] = []
        for hit in hits:
            entry = await self._journal.get(hit.entry_id, workspace_id=self._who["workspace_id"])
            counts = entry.standing is None or entry.standing.state is State.DISPUTED
            if entry.mission_id == scope and counts and len(entries) < FOUND_MAX:
                entries.append(_memory(entry))
        return SearchMemoryResponse(memories=entries)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Retract a memory by the id from a search; memories of other users are not touched."""
        if not memory_id:
            return
        where = {"workspace_id": self._who["workspace_id"]}
        try:
            entry = await self._journal.get(memory_id, min_seq=self._seq, **where)
        except NotFound:
            return
        if entry.mission_id == _scope(app_name, user_id):
            done = await self._journal.retract(memory_id, "deleted by the application", min_seq=self._seq, **where)
            self._seq = done.seq or self._seq

    async def _add_events(
        self,
        app_name: str,
        user_id: str,
        events: Iterable[Event],
        session_id: str | None,
        metadata: Mapping[str, object] | None,
    ) -> None:
        entries = []
        session = _digest("adk_s", app_name, user_id, session_id or "")
        for event in events:
            if event.content is None:
                continue
            kind = "chat.user_message" if event.author == _USER else "chat.agent_response"
            entry = self._entry(kind, app_name, user_id, event.content, event.author, metadata or {})
            entry["id"] = _digest("adk_e", app_name, user_id, event.id)
            entry["trace_id"] = session
            entry["ts"] = datetime.fromtimestamp(event.timestamp, UTC).isoformat(timespec="milliseconds")
            entries.append(entry)
        await self._append(entries, trace_id=session)

    async def _append(self, entries: Iterable[dict[str, Any]], **place: Any) -> None:
        """Append entries that have text and are not stored yet; deleted entries are still stored, as retracted."""
        known = {entry.id async for entry in self._journal.entries(min_seq=self._seq, **place, **self._who)}
        new = [entry for entry in entries if entry["summary"] and entry.get("id") not in known]
        async for receipt in self._journal.append_many(new):
            self._seq = receipt.seq

    def _entry(
        self,
        kind: str,
        app_name: str,
        user_id: str,
        content: Content,
        author: str | None,
        metadata: Mapping[str, object],
    ) -> dict[str, Any]:
        texts = [part.text for part in content.parts or () if part.text]
        payload = {"content": texts, "role": content.role, "author": author, "metadata": dict(metadata)}
        return {
            "entry_type": kind,
            "summary": " ".join(" ".join(texts).split())[:_SUMMARY_CHARS],
            "payload": {name: value for name, value in payload.items() if value},
            "mission_id": _scope(app_name, user_id),
            **{name: value for name, value in self._who.items() if value is not None},
        }


def _scope(app_name: str, user_id: str) -> str:
    return _digest("adk_u", app_name, user_id)


def _digest(prefix: str, *parts: str) -> str:
    return f"{prefix}_{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def _memory(entry: EntryRecord) -> MemoryEntry:
    payload = entry.payload
    return MemoryEntry(
        content=Content(role=payload.get("role"), parts=[Part(text=text) for text in payload["content"]]),
        custom_metadata=payload.get("metadata", {}),
        id=entry.id,
        author=payload.get("author"),
        timestamp=payload.get("timestamp") or str(entry.ts),
    )
