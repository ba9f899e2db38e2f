"""What crosses HTTP beside the entry itself: answers and problems; shared by server (OpenAPI) and client.

Invariant: answers only ever gain fields, and readers ignore those they do not know.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from crew_journal.schemas.entry import Id, JournalEntry
from crew_journal.schemas.settings import RECALL_K_MAX


class Answer(BaseModel):
    """Base of every answer."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Receipt(Answer):
    """An acked entry: its id and its sequence in the journal; ``duplicate`` if it had been there before."""

    id: Id
    seq: int = Field(ge=1)
    duplicate: bool = False


class AppendAnswer(Answer):
    """One receipt per submitted entry, in order."""

    entries: tuple[Receipt, ...]


class EntryRecord(JournalEntry):
    """An entry as read back, with its sequence in the journal."""

    model_config = ConfigDict(frozen=True, extra="ignore", title="EntryRecord")
    seq: int = Field(ge=1)


class EntriesAnswer(Answer):
    """A page of entries, newest first; ``next_cursor`` only if the page is full."""

    entries: tuple[EntryRecord, ...]
    next_cursor: str | None
    view_seq: int


class CountAnswer(Answer):
    """How many entries pass the filters."""

    count: int
    view_seq: int


class EntryAnswer(EntryRecord):
    """One entry, and how far the views were."""

    model_config = ConfigDict(frozen=True, extra="ignore", title="EntryAnswer")
    view_seq: int


class TailGap(Answer):
    """Event ``gap`` of the stream: more was missed than is replayed."""

    missed: int
    after: int
    before: int


class TailCut(Answer):
    """Event ``cut`` of the stream: it ends here; resume after ``resume_after``."""

    reason: str
    resume_after: int


class ProblemField(Answer):
    """One offending field."""

    field: str
    problem: str
    fix: str = ""


class Problem(Answer):
    """An error as problem+json (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    hint: str = ""
    trace_id: str
    field: str | None = None
    problems: tuple[ProblemField, ...] | None = None


class RecallHit(Answer):
    """One recalled entry; further fields (arms, rules) come with ``explain``."""

    model_config = ConfigDict(frozen=True, extra="allow")
    entry_id: str
    score: float
    ts: str
    age_seconds: float
    entry_type: str
    summary: str
    agent_id: str | None = None
    crew_id: str | None = None
    actor_type: str | None = None
    actor_id: str | None = None
    payload: dict[str, Any] = Field(default_factory=dict)
    supersedes: tuple[str, ...] = ()
    valid_at: str | None = None


class RecallAnswer(Answer):
    """What was recalled, by which recipe and model, and whether an arm was missing; ``receipt`` is for ``used``."""

    model_config = ConfigDict(frozen=True, extra="allow")
    receipt: str = ""
    hits: tuple[RecallHit, ...]
    recipe: str
    model: str | None
    degraded: str | None
    view_seq: int


class UsedRequest(BaseModel):
    """Which hits of a recall reached a prompt; all if absent."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    entry_ids: tuple[Id, ...] | None = Field(default=None, max_length=RECALL_K_MAX)


class RenderedHit(Answer):
    """One line of a rendered block; ``redaction`` names the scanner's rule if its text was replaced."""

    model_config = ConfigDict(frozen=True, extra="allow")
    entry_id: str
    score: float
    ts: str
    age_seconds: float
    entry_type: str
    summary: str
    agent_id: str | None = None
    crew_id: str | None = None
    actor_type: str | None = None
    actor_id: str | None = None
    redaction: dict[str, str] | None = None


class RenderAnswer(Answer):
    """A recall as text for a prompt; empty if nothing was found or nothing fits."""

    model_config = ConfigDict(frozen=True, extra="allow")
    text: str
    hits: tuple[RenderedHit, ...]
    receipt: str
    omitted: int
    redacted: int
    recipe: str
    model: str | None
    degraded: str | None
    view_seq: int


class UsedAnswer(Answer):
    """What a receipt counted for: ``counted`` entries now, none if it had been used ``already``."""

    receipt: str
    counted: int
    already: bool


class Nudge(Answer):
    """Text for the user turn, marked so that ``strip_nudges`` takes it out of what a model answers."""

    kind: str
    text: str


class NudgesAnswer(Answer):
    """What is due and was not offered to this session before."""

    nudges: tuple[Nudge, ...]
    view_seq: int


class HealthSnapshot(Answer):
    """A memory's health on a day; everything but ``status`` is None where nothing was measured."""

    status: str
    date: str | None = None
    measured_at: str | None = None
    score: float | None = None
    band: str | None = None
    metrics: dict[str, float | None] = Field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    next_step: str = ""
    counts: dict[str, int] = Field(default_factory=dict)
    model: str | None = None
    rules: int | None = None


class ProposedContradiction(Answer):
    """Two entries of which a rule says that they contradict each other, until somebody judges."""

    src: str
    dst: str
    weight: float
    reason: str = ""


class HealthAnswer(HealthSnapshot):
    """The latest snapshot; ``status`` is ok, "no data" (nothing to measure) or "no snapshot yet".

    ``embedder`` is how it is now. For OWNER and ADMIN: ``crews`` names those that have snapshots, ``review`` holds the
    contradictions that wait to be judged now, the likeliest first.
    """

    workspace_id: str
    crew_id: str | None = None
    profile: str = "seed"
    embedder: dict[str, Any] = Field(default_factory=dict)
    crews: tuple[str, ...] | None = None
    review: tuple[ProposedContradiction, ...] | None = None
    history: tuple[HealthSnapshot, ...] = ()
    hint: str = ""
    view_seq: int
