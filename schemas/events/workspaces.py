"""Payloads of the settings of workspaces, agents and crews, and of consent."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from ..entry import Id
from .payload import ControlPayload

EMBED_CHAT: Final = "embed_chat"
"""In ``settings``: whether ``chat.*`` entries get vectors; absent means no."""
EVIDENCE_FLOOR: Final = "evidence_floor"
"""In ``settings``: confidence below which ``inject`` leaves out a hit, 0 to 1; absent for that of the constants."""


class WorkspaceConfigured(ControlPayload):
    """All settings of a workspace; the last event counts."""

    ENTRY_TYPE = "workspace.configured"
    cost_nudge_usd: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    settings: dict[str, Any] = Field(default_factory=dict)

    @property
    def embeds_chat(self) -> bool:
        """Whether ``chat.*`` entries of the workspace get vectors."""
        return self.settings.get(EMBED_CHAT) is True


class AgentRegistered(ControlPayload):
    """All settings of an agent; the last event counts."""

    ENTRY_TYPE = "agent.registered"
    agent_id: Id
    crew_id: Id | None = None
    memory_walk_depth: int = Field(default=0, ge=0, le=1)
    settings: dict[str, Any] = Field(default_factory=dict)


class CrewRegistered(ControlPayload):
    """All settings of a crew; the last event counts."""

    ENTRY_TYPE = "crew.registered"
    crew_id: Id
    settings: dict[str, Any] = Field(default_factory=dict)


class ConsentChanged(ControlPayload):
    """A data subject opted in or out."""

    ENTRY_TYPE = "consent.changed"
    subject_hash: str
    granted: bool
