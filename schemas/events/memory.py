"""Payloads about the use of memories: priorities, references, searches and nudges."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from ..entry import Id, Priority
from .payload import STORED, ControlPayload


class PriorityChanged(ControlPayload):
    """An operator changed an entry's live priority."""

    ENTRY_TYPE = "memory.priority_changed"
    target_entry_id: Id
    previous_priority: Priority
    new_priority: Priority
    reason: str = Field(min_length=1, max_length=1_000)


class ReferencedEntry(BaseModel):
    """One entry that reached prompts, and how often since the last batch."""

    model_config = STORED
    entry_id: Id
    count: int = Field(ge=1)


class MemoryReferenced(ControlPayload):
    """Entries reached a prompt: batched, so that recall itself writes nothing."""

    ENTRY_TYPE = "memory.referenced"
    entries: tuple[ReferencedEntry, ...] = Field(min_length=1, max_length=1_000)


class MemorySearched(ControlPayload):
    """A recall was answered; at most a few a second are recorded, to compare models on and to judge efficiency.

    Attributes:
        query: What was asked.
        scope: own, crew_shared or workspace.
        crew_id: The asker's crew.
        agent_id: The asker.
        recipe: The recipe that ranked.
        model: Model of the vectors that took part, None if none did.
        hit_ids: Entries returned, best first.
        mean_cosine: Mean cosine of the hits that have a vector, None if none has.
    """

    ENTRY_TYPE = "memory.searched"
    query: str = Field(min_length=1, max_length=4_000)
    scope: Literal["own", "crew_shared", "workspace"]
    crew_id: Id | None = None
    agent_id: Id | None = None
    recipe: str = Field(min_length=1, max_length=64)
    model: str | None = Field(default=None, max_length=96)
    hit_ids: tuple[Id, ...] = Field(default=(), max_length=100)
    mean_cosine: float | None = Field(default=None, ge=-1.0, le=1.0, allow_inf_nan=False)


class NudgeOffered(ControlPayload):
    """A nudge was handed to an orchestrator; each kind once per session."""

    ENTRY_TYPE = "memory.nudge_offered"
    agent_id: Id
    session_id: Id
    kind: Literal["memory", "cost"]
