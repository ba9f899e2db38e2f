"""Recall: what it asks and answers, as every shell sees it.

Invariant: a request never decides what may be seen; the token does. An answer of ``render`` holds nothing of an entry that
the scanners have not passed: payload and refs are left out, and what was redacted in the text is redacted in the hits.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StrictBool, StrictInt, field_validator

from ..entry import Id
from ..rules.render_budget import RENDER_CHARS_DEFAULT, RENDER_CHARS_MAX
from ..settings import RECALL_K_DEFAULT, RECALL_K_MAX, RECALL_QUERY_MAX_CHARS
from ..timestamps import DAY_MS, parse_ts, to_ms
from .operation import Answer, Effect, MinSeq, Operation, Request, Workspace

LEXICAL_ONLY: Final = "lexical-only"
NO_VECTORS: Final = "no-vectors"
ASKED_UNKNOWN: Final = "unknown"
"""``asked_at`` of a query whose time nobody knows: today's date would be a wrong one."""
Degraded = Literal["lexical-only", "no-vectors"]
INJECT: Final = "inject"
Mode = Literal["search", "inject"]


class RecallRequest(Request):
    """Recall what bears on a question, best first.

    Searches words (lexical arm) and meaning (dense arm); if the embedder is down, the lexical arm answers alone and
    ``degraded`` says so. The scope follows from the token's role if it is left out. ``min_seq`` waits for entries and full
    text; vectors follow a little later.
    """

    query: str = Field(
        min_length=1,
        max_length=RECALL_QUERY_MAX_CHARS,
        description="What to recall.",
        examples=["why was the checkout deploy denied?"],
        json_schema_extra={
            "x-fix": f"say what to recall in 1 to {RECALL_QUERY_MAX_CHARS} characters that are not all blank"
        },
    )
    k: StrictInt = Field(
        default=RECALL_K_DEFAULT,
        description=f"Number of hits, 1 to {RECALL_K_MAX}; anything else counts as {RECALL_K_DEFAULT}.",
        json_schema_extra={"x-fix": f"send a whole number, 1 to {RECALL_K_MAX}"},
    )
    scope: Literal["own", "crew_shared", "workspace"] | None = Field(
        default=None, description="Whose memories: own, crew_shared or workspace; by the token's role if absent."
    )
    agent_id: Id | None = Field(default=None, description="Whose entries, for OWNER and ADMIN.")
    crew_id: Id | None = Field(default=None, description="Which crew's entries, for OWNER and ADMIN.")
    recipe: str | None = Field(
        default=None,
        description="conversational (default where turns of conversation are in scope), conversational-static, "
        "robust (default elsewhere), rrf, dense or lexical.",
    )
    walk_depth: Annotated[StrictInt, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="Hops along similar edges, 0 or 1, which append at most k neighbours; the agent's default if absent.",
        json_schema_extra={"x-fix": "send 0 or 1"},
    )
    mode: Mode = Field(
        default="search",
        description="search leaves out what has nothing to speak for it; inject, for prompts, also what has too little, and "
        "answers nothing where the hits as a whole have.",
    )
    explain: StrictBool = Field(default=False, description="Show each arm's rank and score and each rule's share.")
    asked_at: str | None = Field(
        default=None,
        description='The time to which "yesterday" or "last week" in the query refer, RFC 3339, by its day in UTC; now '
        'if absent. "unknown" if it is not known.',
        json_schema_extra={"x-fix": f'send a time like 2026-11-21T09:30:00Z, or "{ASKED_UNKNOWN}"'},
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None

    @field_validator("query")
    @classmethod
    def _has_text(cls, query: str) -> str:
        if not query.strip():
            raise ValueError("must not be blank")
        return query

    @field_validator("asked_at")
    @classmethod
    def _is_a_time(cls, asked_at: str | None) -> str | None:
        if asked_at is not None and asked_at != ASKED_UNKNOWN:
            parse_ts(asked_at)
        return asked_at

    @field_validator("scope", "agent_id", "crew_id", "recipe", mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any) -> Any:
        return None if value == "" else value

    @property
    def hits_wanted(self) -> int:
        """``k``, or 5 if it is outside 1 to 50."""
        return self.k if 1 <= self.k <= RECALL_K_MAX else RECALL_K_DEFAULT

    def asked_day(self, now: datetime) -> int | None:
        """The day it is asked on, days since 1970-01-01 (UTC); None if that is not known."""
        if self.asked_at == ASKED_UNKNOWN:
            return None
        return to_ms(now if self.asked_at is None else parse_ts(self.asked_at)) // DAY_MS


class ArmShare(Answer):
    """What one arm says of a hit: its rank in the arm's list (null if it is not in it) and its score there."""

    rank: int | None
    score: float | None


class HitExplanation(Answer):
    """Why a hit stands where it stands; the shares add up to what the recipe ranks by."""

    lexical: ArmShare
    dense: ArmShare
    importance: float | None
    shares: dict[str, float]


class Via(Answer):
    """How a neighbour was reached: from this hit, along an edge of this relation and weight."""

    entry_id: str
    relation: str
    weight: float


class Hit(Answer):
    """What every answer shows of an entry that was found.

    ``score`` is comparable within one answer only: cosine for ``dense``, BM25 squashed into (0, 1) for ``lexical``, the
    fused score otherwise, which says how a hit stands among the candidates (0 for a single one); of a neighbour (``via``
    is not null) the edge's weight. ``confidence`` is the calibrated probability that the hit is relevant (null for a
    neighbour), comparable across answers, and ``reason`` says what speaks for it. ``priority`` is the one it was emitted
    with, for entries never change.
    """

    entry_id: str
    score: float
    confidence: float | None
    reason: str
    ts: str
    age_seconds: float
    entry_type: str
    summary: str
    agent_id: str | None
    crew_id: str | None
    actor_type: str
    actor_id: str | None
    severity: str
    priority: str
    trace_id: str | None
    mission_id: str | None
    seq: int
    explain: HitExplanation | None = None
    via: Via | None = None


class RecallHit(Hit):
    """One entry that was recalled; ``live_priority`` is the one that operators gave it since, the same if none."""

    live_priority: str
    payload: dict[str, Any]
    refs: dict[str, Any]
    supersedes: tuple[str, ...]
    valid_at: str | None


class RecallAnswer(Answer):
    """The answer.

    ``model`` is the model of the query's vector, null if it has none that could be compared. ``degraded`` is
    ``lexical-only`` if the dense arm of a hybrid recipe is missing, ``no-vectors`` if the recipe is nothing but the dense
    arm. ``confidence`` is the probability that something here answers, null if nothing was found at all; ``no_evidence``
    says that nothing had enough to speak for it. ``view_seq`` is the sequence the answer is the truth of.
    """

    receipt: str
    hits: tuple[RecallHit, ...]
    confidence: float | None
    no_evidence: bool
    recipe: str
    scope: str
    model: str | None
    degraded: Degraded | None
    view_seq: int


class RenderRequest(RecallRequest):
    """Recall as a block of text for a prompt.

    The block is wrapped as untrusted hints, escaped, scanned for injections, and holds whole lines within ``max_chars``.
    The recipe is ``dense`` if it is left out, or the hybrid default where there are no vectors.
    """

    mode: Mode = Field(
        default=INJECT, description="inject leaves out what has too little to speak for it; search is lenient."
    )

    max_chars: StrictInt | None = Field(
        default=None,
        description=f"Characters of the block, wrapper included; {RENDER_CHARS_DEFAULT} if absent or not positive, "
        f"at most {RENDER_CHARS_MAX}.",
        json_schema_extra={"x-fix": "send a whole number of characters"},
    )


class Redaction(Answer):
    """Why something was replaced by a notice: the scanner, the category and the name of its rule."""

    scanner: str
    category: str
    pattern: str


class RenderedHit(Hit):
    """One line of the text, with the metadata of its entry; ``summary`` is what the line shows, before escaping."""

    redaction: Redaction | None


class RenderAnswer(Answer):
    """The answer.

    ``text`` is empty if nothing was found or nothing fits. ``hits`` are the lines of the text in their order, ``omitted``
    counts the hits that did not fit, ``redacted`` the lines of which something was replaced. ``recipe`` and ``degraded``
    say whether the dense arm answered, ``confidence`` and ``no_evidence`` what ``recall`` says by them.
    """

    text: str
    hits: tuple[RenderedHit, ...]
    confidence: float | None
    no_evidence: bool
    receipt: str
    omitted: int
    redacted: int
    recipe: str
    scope: str
    model: str | None
    degraded: Degraded | None
    view_seq: int


class UsedRequest(Request):
    """Say which hits of a recall reached a prompt.

    All hits, or those named. A receipt counts once. An entry that is used keeps its importance longer.
    """

    receipt: str = Field(description="The receipt of the recall.")
    entry_ids: tuple[Id, ...] | None = Field(
        default=None, max_length=RECALL_K_MAX, description="The hits that reached the prompt; all if absent."
    )


class UsedAnswer(Answer):
    """What a receipt counted for: ``counted`` entries now, none if it had been used ``already``."""

    receipt: str
    counted: int
    already: bool


RECALL: Final = Operation(
    name="recall",
    request=RecallRequest,
    answer=RecallAnswer,
    route="POST /v1/recall",
    effect=Effect.READS,
    errors=(404,),
)
RENDER: Final = Operation(
    name="render",
    request=RenderRequest,
    answer=RenderAnswer,
    route="POST /v1/recall/render",
    effect=Effect.READS,
    errors=(404,),
)
USED: Final = Operation(
    name="used",
    request=UsedRequest,
    answer=UsedAnswer,
    route="POST /v1/recall/{receipt}/used",
    effect=Effect.CHANGES,
    errors=(404,),
)
OPERATIONS: Final = (RECALL, RENDER, USED)
"""In the order of the docs."""
