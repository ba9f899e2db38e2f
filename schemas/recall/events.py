"""Payloads about priorities, references, searches and nudges."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, model_validator

from ..core.entry import Id, Priority
from ..core.payload import STORED, ControlPayload, EntryTypeInfo, PublisherKind
from ..core.principal import Role

HIT_ID_CHARS: Final = 700
"""Characters of the longest id of a hit: that of a document."""
MOST_FURTHER: Final = 1_000
"""Maximum number of further entries and document writes in a receipt: 36 KB."""


class PriorityChanged(ControlPayload):
    """An operator changed an entry's live priority."""

    ENTRY_TYPE = "memory.priority_changed"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.SERVICE)
    target_entry_id: Id
    previous_priority: Priority
    new_priority: Priority
    reason: str = Field(min_length=1, max_length=1_000)


class ReferencedEntry(BaseModel):
    """An entry that reached prompts, and how often since the last batch."""

    model_config = STORED
    entry_id: Id
    count: int = Field(ge=1)


def _is_empty(values: tuple[object, ...]) -> bool:
    return not values


def _is_none(value: object) -> bool:
    return value is None


def _is_false(value: object) -> bool:
    return value is False


class MemoryReferenced(ControlPayload):
    """Entries that reached prompts.

    Attributes:
        receipt: The receipt whose hits were reported as used; None in entries from before receipts were durable.
        chunks: Chunks of documents that reached the prompt with them: ``<owner>/<label>:<first line>``.
    """

    ENTRY_TYPE = "memory.referenced"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.SERVICE, noise=True, quiet=True)
    entries: tuple[ReferencedEntry, ...] = Field(default=(), max_length=1_000)
    receipt: Id | None = None
    chunks: tuple[Annotated[str, StringConstraints(max_length=HIT_ID_CHARS)], ...] = Field(
        default=(), max_length=100, exclude_if=_is_empty
    )

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not self.entries and not self.chunks:
            raise ValueError("must name an entry or a chunk")
        return self


class SearchedText(BaseModel):
    """A hit of a recall that is not an entry.

    Attributes:
        id: ``<owner>/<label>:<first line>`` of a document, the id of the fact, or ``entry_id`` of a drawer, whose own id
            follows from its text; older receipts have that.
        rank: Its place among all hits, from 0.
        entry_id: The entry by which the drawer was filed or the fact asserted, by which its uses are counted; None for
            a document.
        rendered: Whether a document's text reached a prompt by ``render``; other kinds stand in ``rendered`` of the
            recall.
    """

    model_config = STORED
    kind: str = Field(min_length=1, max_length=32)
    id: str = Field(min_length=1, max_length=HIT_ID_CHARS)
    rank: int = Field(ge=0)
    confidence: float | None = None
    entry_id: Id | None = None
    rendered: bool = False


class AskedRecall(BaseModel):
    """What a recall asked for beside its query, scope and recipe; with it, the recall can be run again.

    Attributes:
        role: Role of the token that asked.
        k: Number of hits.
        kinds: Kinds of memory that were searched; None for all.
        scope: The scope as the request named it; None if the role decided.
        asked_at: Time of the question as the request named it; None for the time of the recall.
        walk_depth: As the request named it.
        collect: Whether the hits were collected for lists and totals.
        max_tokens: Of the collected hits.
        crew_only: Whether the agent's own entries were searched only if they were of the crew.
    """

    model_config = STORED
    role: Role
    k: int = Field(ge=1)
    kinds: tuple[Annotated[str, StringConstraints(max_length=32)], ...] | None = Field(
        default=None, max_length=32, exclude_if=_is_none
    )
    scope: Literal["own", "crew_shared", "workspace"] | None = Field(default=None, exclude_if=_is_none)
    asked_at: str | None = Field(default=None, max_length=64, exclude_if=_is_none)
    walk_depth: int | None = Field(default=None, exclude_if=_is_none)
    collect: bool = Field(default=False, exclude_if=_is_false)
    max_tokens: int | None = Field(default=None, exclude_if=_is_none)
    crew_only: bool = Field(default=False, exclude_if=_is_false)


class MemorySearched(ControlPayload):
    """A recall was answered. The id of the entry is the receipt; agent and crew of the entry are the caller's.

    Attributes:
        crew_id: The crew whose memories were searched.
        agent_id: The agent whose memories were searched.
        model: Model of the vectors that were used, or None.
        hit_ids: Entries returned, best first.
        mean_cosine: Mean cosine of the hits that have a vector, or None.
        scores: Their scores, in the order of ``hit_ids``.
        confidences: Their confidences, likewise; None for a hit without one.
        mode: The mode of the recall, or None.
        floor: The confidence below which hits were left out, or None.
        rendered: The hits whose text reached a prompt by ``render``, which count as used; None if it was not a
            render.
        asked_by: Id of the token that asked.
        chunks: Chunks of documents returned, best first: ``<owner>/<label>:<first line>``.
        texts: Hits of a recall that are not entries, best first.
        held: Further entries and document writes whose text was given: those that brought the lines of the returned pieces
            of documents, and what only filled a context.
        view_seq: Sequence of the views from which it was answered; None in older entries.
        asked: What else was asked for; None in older entries and for searches that are not recalls.
    """

    ENTRY_TYPE = "memory.searched"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.RESERVED, noise=True, quiet=True)
    query: str = Field(min_length=1, max_length=4_000)
    scope: Literal["own", "crew_shared", "workspace"]
    crew_id: Id | None = None
    agent_id: Id | None = None
    recipe: str = Field(min_length=1, max_length=64)
    model: str | None = Field(default=None, max_length=96)
    hit_ids: tuple[Id, ...] = Field(default=(), max_length=100)
    mean_cosine: float | None = Field(default=None, ge=-1.0, le=1.0, allow_inf_nan=False)
    scores: tuple[float, ...] = Field(default=(), max_length=100)
    confidences: tuple[float | None, ...] = Field(default=(), max_length=100)
    mode: str | None = Field(default=None, max_length=64)
    floor: float | None = None
    rendered: tuple[Id, ...] | None = Field(default=None, max_length=100)
    asked_by: str | None = Field(default=None, max_length=64)
    chunks: tuple[Annotated[str, StringConstraints(max_length=HIT_ID_CHARS)], ...] = Field(default=(), max_length=100)
    texts: tuple[SearchedText, ...] = Field(default=(), max_length=100, exclude_if=_is_empty)
    held: tuple[Id, ...] = Field(default=(), max_length=MOST_FURTHER, exclude_if=_is_empty)
    view_seq: int | None = Field(default=None, ge=0, exclude_if=_is_none)
    asked: AskedRecall | None = Field(default=None, exclude_if=_is_none)


class NudgeOffered(ControlPayload):
    """A nudge was returned to an orchestrator; each kind once per session."""

    ENTRY_TYPE = "memory.nudge_offered"
    INFO = EntryTypeInfo(group="memory", publisher=PublisherKind.SERVICE, noise=True, quiet=True)
    agent_id: Id
    session_id: Id
    kind: Literal["memory", "cost"]
