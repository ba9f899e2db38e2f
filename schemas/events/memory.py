"""Payloads about priorities, references, searches and nudges."""

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
    """An entry that reached prompts, and how often since the last batch."""

    model_config = STORED
    entry_id: Id
    count: int = Field(ge=1)


class MemoryReferenced(ControlPayload):
    """Entries that reached prompts; recorded in batches, so that a recall does not wait for a write."""

    ENTRY_TYPE = "memory.referenced"
    entries: tuple[ReferencedEntry, ...] = Field(min_length=1, max_length=1_000)


class MemorySearched(ControlPayload):
    """A recall was answered. A sample is recorded, for the comparison of models and for health.

    Attributes:
        model: Model of the vectors that were used, or None.
        hit_ids: Entries returned, best first.
        mean_cosine: Mean cosine of the hits that have a vector, or None.
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
    """A nudge was returned to an orchestrator; each kind once per session."""

    ENTRY_TYPE = "memory.nudge_offered"
    agent_id: Id
    session_id: Id
    kind: Literal["memory", "cost"]
