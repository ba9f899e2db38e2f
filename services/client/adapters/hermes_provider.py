"""``CrewJournalProvider``: the ``MemoryProvider`` of Hermes Agent on the journal.

A turn is two entries ``chat.user_message`` and ``chat.agent_response``; a text that Hermes' own memory tool writes is
an entry ``memory.remembered``, which is retracted when the tool removes the text. Invariant: an unavailable memory
never stops a turn; turns are written in one thread, in order.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from agent.memory_provider import MemoryProvider

from ....schemas.core.errors import CrewJournalError
from ....schemas.core.ids import is_id
from ....schemas.standing.operations import State
from ....schemas.toolsets import DEFAULT_TOOLSETS
from ..find import find
from ..generated_sync import CrewJournal
from .called_tools import CalledTools, ToolFailed

_log = logging.getLogger(__name__)
_SUMMARY_CHARS: Final = 2_000
_TEXT_CHARS: Final = 20_000
PREFETCH_CHARS: Final = 2_000
PRIMARY: Final = "primary"
"""The only kind of session whose turns are recorded; turns of scheduled jobs and sub-agents would be mistaken for the
user's.
"""


class CrewJournalProvider(MemoryProvider):  # type: ignore[misc]  # the package is not installed here
    """The memory of one agent.

    Args:
        url: The service; found like by ``CrewJournal`` if absent.
        token: Its token.
        agent_id: The agent whose memory it is, for an OWNER's or ADMIN's token.
        crew_id: The agent's crew, likewise.
        workspace_id: For a token of all workspaces.
        toolsets: Tools that the model is offered.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        agent_id: str | None = None,
        crew_id: str | None = None,
        workspace_id: str | None = None,
        toolsets: Sequence[str] = DEFAULT_TOOLSETS,
    ) -> None:
        self._where = (url, token)
        self._who: dict[str, Any] = {"agent_id": agent_id, "crew_id": crew_id, "workspace_id": workspace_id}
        self._tools = CalledTools(toolsets, self._who)
        self._why = ""
        self._session = ""
        self._keeps = True
        self._seq: int | None = None
        self._journal: CrewJournal | None = None
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="crew-journal")

    @property
    def name(self) -> str:
        """As in Hermes' ``memory.provider``."""
        return "crew-journal"

    def is_available(self) -> bool:
        """Whether a service and a token are configured; sends no request."""
        try:
            find(*self._where, None)
        except CrewJournalError as error:
            self._why = str(error)
            return False
        return True

    def unavailable_reason(self) -> str:
        """The missing setting."""
        return self._why

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Begin a session."""
        self._session = session_id
        self._keeps = kwargs.get("agent_context", PRIMARY) == PRIMARY
        if self._journal is None:
            self._journal = CrewJournal(*self._where)

    def system_prompt_block(self) -> str:
        """The block of memory documents; empty if there are none."""
        return self._asked(lambda journal: journal.memory_block(**self._who).text)

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Memories relevant to a prompt, framed as untrusted records of the past."""
        if not query.strip():
            return ""
        return self._asked(
            lambda journal: journal.render(query, max_chars=PREFETCH_CHARS, min_seq=self._seq, **self._who).text
        )

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Record a turn, in the background."""
        turns = (("chat.user_message", user_content), ("chat.agent_response", assistant_content))
        trace = _trace(session_id or self._session)
        entries = [self._entry(kind, text) | {"trace_id": trace} for kind, text in turns if text.strip()]
        self._write(lambda journal: journal.append_batch(entries)[-1].seq if entries else None)

    def on_memory_write(self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Follow Hermes' own memory: what it adds is remembered, what it removes or replaces is retracted."""
        before = str((metadata or {}).get("old_text") or ("" if action != "remove" else content))
        if action in ("remove", "replace") and before:
            self._write(lambda journal: self._retract(journal, target, before))
        if action in ("add", "replace") and content.strip():
            entry = self._entry("memory.remembered", content) | {"mission_id": _mission(target)}
            self._write(lambda journal: journal.append(entry).seq)

    def on_session_switch(self, new_session_id: str, **kwargs: Any) -> None:
        """Later turns belong to the new session."""
        self._session = new_session_id

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The tools, as functions."""
        return [
            {"name": name, "description": tool.description, "parameters": self._tools.schema(name)}
            for name, tool in self._tools.tools.items()
        ]

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Call a tool; the answer as JSON."""
        if self._journal is None:
            raise RuntimeError("call initialize first")
        try:
            return json.dumps(self._tools.call(self._journal, tool_name, args), ensure_ascii=False)
        except ToolFailed as error:
            return json.dumps({"error": str(error)}, ensure_ascii=False)

    def shutdown(self) -> None:
        """Write pending turns, and end."""
        self._writing.shutdown(wait=True)
        if self._journal is not None:
            self._journal.close()

    def get_config_schema(self) -> list[dict[str, Any]]:
        """The settings for which ``hermes memory setup`` asks."""
        return [
            {"key": "url", "description": "URL of the service", "env_var": "CREW_JOURNAL_URL"},
            {"key": "token", "description": "Token of the agent", "secret": True, "env_var": "CREW_JOURNAL_TOKEN"},
        ]

    def _asked(self, ask: Callable[[CrewJournal], str]) -> str:
        if self._journal is None:
            return ""
        try:
            return ask(self._journal)
        except CrewJournalError as error:
            _log.warning("Crew Journal does not answer: %s", error)
            return ""

    def _write(self, write: Callable[[CrewJournal], int | None]) -> None:
        journal = self._journal
        if journal is None or not self._keeps:
            return

        def run() -> None:
            try:
                self._seq = write(journal) or self._seq
            except CrewJournalError as error:
                _log.warning("Crew Journal did not record: %s", error)

        self._writing.submit(run)

    def _retract(self, journal: CrewJournal, target: str, text: str) -> int | None:
        """Retract the entries of Hermes' memory that contain this text, by which its tool identifies entries."""
        where = {"workspace_id": self._who["workspace_id"]}
        seq = None
        for entry in journal.entries(mission_id=_mission(target), min_seq=self._seq, **self._who):
            retracted = entry.standing is not None and entry.standing.state is State.RETRACTED
            if text in entry.payload.get("text", entry.summary) and not retracted:
                seq = journal.retract(entry.id, "removed from the memory of Hermes", min_seq=self._seq, **where).seq
        return seq

    def _entry(self, kind: str, text: str) -> dict[str, Any]:
        summary = " ".join(text.split())[:_SUMMARY_CHARS]
        entry: dict[str, Any] = {"entry_type": kind, "summary": summary}
        if summary != text:
            entry["payload"] = {"text": text[:_TEXT_CHARS]}
        return entry | {name: value for name, value in self._who.items() if value is not None}


def _trace(session: str) -> str:
    return session if is_id(session) else f"s_{hashlib.sha256(session.encode()).hexdigest()[:32]}"


def _mission(target: str) -> str:
    """The ``mission_id`` of one of Hermes' memory files, ``memory`` or ``user``."""
    return f"hermes-{target}" if is_id(target) else "hermes"


def register(ctx: Any) -> None:
    """Register the provider; Hermes calls this for plugins."""
    ctx.register_memory_provider(CrewJournalProvider())
