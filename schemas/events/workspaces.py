"""Payloads of the settings of workspaces, agents and crews, and of consent."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from pydantic import Field

from ..entry import Id, Name
from .operators import KeyId
from .payload import ControlPayload, EntryTypeInfo, PublisherKind

EMBED_CHAT: Final = "embed_chat"
"""In ``settings``: whether speech (``rules/embed_policy``) gets vectors; absent: the embed policy decides."""
EVIDENCE_FLOOR: Final = "evidence_floor"
"""In ``settings``: confidence below which ``inject`` leaves out a hit, 0 to 1; absent for the default."""

REVIEW_RULES: Final = "review_rules"
"""In ``settings``: whether rules that a consolidation finds wait for a person; absent means no."""
PALACE_INGEST: Final = "palace_ingest"
"""In ``settings``: whether exchanges of ``chat.*`` entries are filed as drawers; absent means no."""
CONTEXT_BUDGET_TOKENS: Final = "context_budget_tokens"
"""In ``settings``: tokens of a whole context; absent for the node's."""
CONTEXT_SYSTEM_TOKENS: Final = "context_system_tokens"
"""In ``settings``: tokens reserved for the system's text; absent for the node's."""
SALIENCE_WEIGHTS: Final = "salience_weights"
"""In ``settings``: fields of ``rules/salience.Weights`` that differ from the node's."""
EPISODIC_TTL_HOURS: Final = "episodic_ttl_hours"
"""In ``settings``: time to live of episodes; absent for the node's."""

REMEMBERED_TOKENS: Final = "remembered_tokens"
"""In ``settings``: tokens of remembered notes in a memory block, 0 for none; absent for the default."""


class WorkspaceConfigured(ControlPayload):
    """All settings of a workspace; the last event counts."""

    ENTRY_TYPE = "workspace.configured"
    cost_nudge_usd: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    settings: dict[str, Any] = Field(default_factory=dict)

    @property
    def chat_choice(self) -> bool | None:
        """Whether the workspace chose that speech gets vectors or does not; None if it made no choice."""
        choice = self.settings.get(EMBED_CHAT)
        return choice if isinstance(choice, bool) else None

    @property
    def reviews_rules(self) -> bool:
        """Whether rules that a consolidation finds wait for a person."""
        return self.settings.get(REVIEW_RULES) is True

    @property
    def files_chat(self) -> bool:
        """Whether exchanges of the workspace are filed as drawers."""
        return self.settings.get(PALACE_INGEST) is True


REMEMBERED_TOKENS_MAX: Final = 100_000
"""Maximum number of tokens of remembered notes in the prompt of an agent."""
MEMORY_BUDGET_MAX: Final = 1_000_000
"""Maximum number of characters of memory in the prompt of an agent."""


class AgentRole(StrEnum):
    """The role of an agent in its crew. A closed set; what a token may write follows from the token's role."""

    AGENT = "agent"
    LEAD = "lead"


class AgentRegistered(ControlPayload):
    """All settings of an agent; the last event counts.

    Attributes:
        memory_enabled: Whether its memory documents are written, searched and put into its prompt.
        memory_budget_chars: Characters of memory in its prompt; None for the default of ``rules/memory_block``.
    """

    ENTRY_TYPE = "agent.registered"
    agent_id: Id
    name: Name | None = None
    role: AgentRole = AgentRole.AGENT
    crew_id: Id | None = None
    memory_enabled: bool = False
    memory_budget_chars: int | None = Field(default=None, ge=0, le=MEMORY_BUDGET_MAX)
    memory_walk_depth: int = Field(default=0, ge=0, le=1)
    settings: dict[str, Any] = Field(default_factory=dict)


class CrewRegistered(ControlPayload):
    """All settings of a crew; the last event counts."""

    ENTRY_TYPE = "crew.registered"
    crew_id: Id
    name: Name | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


class ConsentChanged(ControlPayload):
    """A data subject opted in or out. ``key_id`` names the key of the hash; None in events of earlier versions."""

    ENTRY_TYPE = "consent.changed"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
    subject_hash: str
    granted: bool
    key_id: KeyId | None = None
