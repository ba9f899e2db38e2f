"""Payloads of the settings of workspaces, agents and crews, and of consent."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ..recorded_settings import AgentSettings, CrewSettings, WorkspaceSettings
from .operators import KeyId
from .payload import ControlPayload, EntryTypeInfo, PublisherKind


class WorkspaceConfigured(ControlPayload):
    """All settings of a workspace; the last event counts."""

    ENTRY_TYPE = "workspace.configured"
    cost_nudge_usd: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    settings: dict[str, Any] = Field(default_factory=dict)

    @property
    def chosen(self) -> WorkspaceSettings:
        """The settings, typed."""
        return WorkspaceSettings.of({**self.settings, "cost_nudge_usd": self.cost_nudge_usd})


class AgentRegistered(AgentSettings, ControlPayload):
    """All settings of an agent; the last event counts."""

    ENTRY_TYPE = "agent.registered"


class CrewRegistered(CrewSettings, ControlPayload):
    """All settings of a crew; the last event counts."""

    ENTRY_TYPE = "crew.registered"


class ConsentChanged(ControlPayload):
    """A data subject opted in or out. ``key_id`` names the key of the hash; None in events of earlier versions."""

    ENTRY_TYPE = "consent.changed"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    subject_hash: str
    granted: bool
    key_id: KeyId | None = None
