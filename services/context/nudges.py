"""The use-case nudges: hints that an orchestrator puts into an agent's user turn, each kind once per session.

Invariants: a nudge is published (``memory.nudge_offered``) before it is offered, under an id made of agent, session and
kind, so one of any number of concurrent requests, nodes and retries gets it. A failure to read or publish gives no nudge
and no error (contract §10). A nudge whose answer is lost is not given again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog
from pydantic_core import from_json

from ...schemas.access.operations import NUDGES, NudgesAnswer, NudgeShown, NudgesRequest
from ...schemas.access.tables import NUDGES_OFFERED, NUDGES_PROJECTION, read_workspace_settings
from ...schemas.context.nudges import (
    COST_DEFAULT_USD,
    COST_TYPES,
    COST_WINDOW_MS,
    KINDS,
    MEMORY_FALLBACK_MS,
    MEMORY_MARKERS,
    CostEntry,
    NudgeKind,
    Spending,
    cost_nudge,
    memory_nudge,
    spending,
)
from ...schemas.core.errors import CrewJournalError, InvalidQuery, NotAllowed
from ...schemas.core.ids import derived_id
from ...schemas.core.principal import Principal
from ...schemas.core.timestamps import to_ms
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION
from ...schemas.recall.events import MemorySearched, NudgeOffered
from ..desk import Caller
from ..node import Answers, Node

_ID_NAME: Final = "nudge"
_ID_VERSION: Final = 1
_OF_AGENT: Final = f"FROM {ENTRIES} WHERE workspace_id = ? AND agent_id = ? AND ts_ms <= ?"
_MARKS: Final = ", ".join("?" * len(MEMORY_MARKERS))
_LAST_MARKER: Final = (
    f"SELECT ts_ms, seq {_OF_AGENT} AND entry_type IN ({_MARKS}) ORDER BY ts_ms DESC, seq DESC LIMIT 1"
)
_COUNT: Final = f"""SELECT count(*) {_OF_AGENT} AND (NOT control OR entry_type = '{MemorySearched.ENTRY_TYPE}')
    AND entry_type NOT IN ({_MARKS})
    AND (ts_ms > ? OR (ts_ms = ? AND seq > ?))"""
_COSTS: Final = f"""SELECT id, entry_type, trace_id, span_id, payload, refs {_OF_AGENT} AND ts_ms > ?
    AND entry_type IN ({", ".join("?" * len(COST_TYPES))}) ORDER BY seq"""
_OFFERED: Final = f"SELECT kind FROM {NUDGES_OFFERED} WHERE workspace_id = ? AND agent_id = ? AND session_id = ?"

_log = structlog.get_logger(__name__)


class NudgeService:
    """Offers nudges."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views

    async def offer(self, caller: Caller, request: NudgesRequest) -> NudgesAnswer:
        """The nudges that are due and that this session has not had.

        Raises:
            NotAllowed: If the token is for another agent.
            InvalidQuery: If no agent is named by the token or the request.
        """
        workspace_id, session_id = caller.workspace_id, request.session_id
        agent = _agent_of(caller.principal, request.agent_id)
        needed = (ENTRIES_PROJECTION, NUDGES_PROJECTION)
        view_seq = self._views.view_seq(*needed)
        due = await asyncio.to_thread(self._due, workspace_id, agent, session_id, to_ms(self._node.clock()))
        offered = [
            NudgeShown(kind=kind, text=text)
            for kind, text in due.items()
            if await self._publish(workspace_id, agent, session_id, kind)
        ]
        return NudgesAnswer(nudges=tuple(offered), view_seq=view_seq)

    async def _publish(self, workspace_id: str, agent_id: str, session_id: str, kind: NudgeKind) -> bool:
        """Whether this request is the one that may offer it."""
        try:
            decided = await self._node.decide(
                None,
                NudgeOffered(agent_id=agent_id, session_id=session_id, kind=kind),
                f"A {kind} nudge was offered to {agent_id}",
                workspace_id=workspace_id,
                entry_id=offer_id(agent_id, session_id, kind),
                agent_id=agent_id,
            )
        except CrewJournalError as error:
            _log.warning("nudge_not_published", kind=kind, error=type(error).__name__)
            return False
        return not decided.duplicate

    # in a worker thread

    def _due(self, workspace_id: str, agent_id: str, session_id: str, now_ms: int) -> dict[NudgeKind, str]:
        try:
            had = {row[0] for row in self._views.rows(_OFFERED, [workspace_id, agent_id, session_id])}
        except Exception:  # whatever fails: no nudge (contract §10), and the agent's run goes on
            _log.exception("nudges_not_judged")
            return {}
        texts: dict[NudgeKind, Callable[[], str | None]] = {
            "memory": lambda: memory_nudge(self._entries(workspace_id, agent_id, now_ms)),
            "cost": lambda: cost_nudge(self._spent(workspace_id, agent_id, now_ms), self._threshold(workspace_id)),
        }
        due: dict[NudgeKind, str] = {}
        for kind in KINDS:
            if kind in had:
                continue
            try:
                text = texts[kind]()
            except Exception:
                _log.exception("nudge_not_judged", kind=kind)
                continue
            if text is not None:
                due[kind] = text
        return due

    def _entries(self, workspace_id: str, agent_id: str, now_ms: int) -> int:
        """The agent's entries after its last marker, in order of time and then arrival."""
        of_agent = [workspace_id, agent_id, now_ms]
        marker = self._views.rows(_LAST_MARKER, [*of_agent, *MEMORY_MARKERS])
        since, after = marker[0] if marker else (now_ms - MEMORY_FALLBACK_MS, 0)
        return int(self._views.rows(_COUNT, [*of_agent, *MEMORY_MARKERS, since, since, after])[0][0])

    def _spent(self, workspace_id: str, agent_id: str, now_ms: int) -> Spending:
        rows = self._views.rows(_COSTS, [workspace_id, agent_id, now_ms, now_ms - COST_WINDOW_MS, *COST_TYPES])
        return spending(
            CostEntry(entry_id, kind, trace_id, span_id, _object(payload), _object(refs))
            for entry_id, kind, trace_id, span_id, payload, refs in rows
        )

    def _threshold(self, workspace_id: str) -> float:
        usd = read_workspace_settings(self._views, workspace_id).cost_nudge_usd
        return COST_DEFAULT_USD if usd is None else usd


def offer_id(agent_id: str, session_id: str, kind: NudgeKind) -> str:
    """The id of an offer: the same for the same agent, session and kind, and reserved for the service."""
    return derived_id(_ID_NAME, _ID_VERSION, f"{agent_id}/{session_id}", kind)


def _agent_of(principal: Principal, named: str | None) -> str:
    if principal.role.administers:
        if agent := named or principal.agent_id:
            return agent
        raise InvalidQuery("agent_id is missing: nudges are given to one agent", hint="set agent_id", field="agent_id")
    assert principal.agent_id is not None  # roles that do not administer are bound to an agent
    if named and named != principal.agent_id:
        raise NotAllowed(
            "the token is bound to another agent_id",
            hint="leave agent_id out or use a token of that agent",
            field="agent_id",
        )
    return principal.agent_id


def _object(text: str) -> dict[str, Any]:
    """An object as stored; empty if JSON cannot hold it, so that one entry does not prevent all nudges."""
    try:
        parsed = from_json(text)  # orjson refuses whole numbers of 400 digits, which an entry may hold
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


ANSWERS: Final[Answers] = ((NUDGES, NudgeService.offer),)
