"""Operations recall, render, used and receipt.

Invariant: the token decides which entries may be found, never the request. An answer of ``render`` holds only text that
the scanners have checked: no payload, no refs, and redactions also in the hits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, StrictBool, StrictInt, field_validator

from ..access.tables import NUDGES_PROJECTION
from ..core.entry import Id
from ..core.limits import (
    COLLECTED_MOST,
    RECALL_K_DEFAULT,
    RECALL_K_MAX,
    RECALL_QUERY_MAX_CHARS,
    RENDER_CHARS_DEFAULT,
    RENDER_CHARS_MAX,
)
from ..core.operation import Access, Answer, AsOf, Effect, MinSeq, Operation, Request, Workspace
from ..core.timestamps import parse_ts, to_ms
from ..entries.tables import ENTRIES_PROJECTION
from ..standing.operations import Standing
from ..texts import TEXT_KINDS
from .events import HIT_ID_CHARS
from .evidence import ConfidenceWord, confidence_word

LEXICAL_ONLY: Final = "lexical-only"
NO_VECTORS: Final = "no-vectors"
ASKED_UNKNOWN: Final = "unknown"
"""Value of ``asked_at`` if the time of the query is not known; relative dates then have no effect."""
Degraded = Literal["lexical-only", "no-vectors"]
INJECT: Final = "inject"
Mode = Literal["search", "inject"]
RECALLED_KINDS: Final = tuple(kind for kind in TEXT_KINDS if kind.recalled)
"""Kinds of text that are found by their declaration alone."""
RECALL_KINDS: Final = (
    "entries",
    "documents",
    "drawers",
    "facts",
    *(str(kind.recalled) for kind in RECALLED_KINDS),
    "rules",
)
_HIT_KINDS: Final = ("entry", "document", "drawer", "fact", *(kind.name for kind in RECALLED_KINDS), "rule")
if TYPE_CHECKING:
    RecallKind: TypeAlias = str
    """A kind of memory that a recall may search."""
    HitKind: TypeAlias = str
    """The kind of a hit."""
else:
    RecallKind = Literal[RECALL_KINDS]
    HitKind = Literal[_HIT_KINDS]
HitId = Annotated[str, Field(min_length=1, max_length=HIT_ID_CHARS)]
"""``entry_id`` of a hit: the id of an entry, or ``<owner>/<file>:<line>`` of a document."""
ENTRIES_ALONE: Final[tuple[Literal["entries"], ...]] = ("entries",)
"""Value of ``kinds`` with which only the journal's entries are searched, learned rules among them."""


COLLECTED_TOKENS: Final = 4_000
COLLECTED_TOKENS_LEAST: Final = 100
COLLECTED_TOKENS_MOST: Final = 20_000


class RecallRequest(Request):
    """Recall what is relevant to a question, best first.

    Searches entries, memory documents, drawers and facts by words (lexical arm) and by meaning (dense arm), and ranks
    them in one list. If the embedder is down, the lexical arm answers alone and ``degraded`` is set. ``min_seq`` waits
    for entries, documents, drawers and facts; vectors follow a little later.
    """

    query: str = Field(
        min_length=1,
        max_length=RECALL_QUERY_MAX_CHARS,
        description="The question, or any text.",
        examples=["why was the checkout deploy denied?"],
        json_schema_extra={"x-fix": f"send 1 to {RECALL_QUERY_MAX_CHARS} characters that are not all blank"},
    )
    k: StrictInt = Field(
        default=RECALL_K_DEFAULT,
        ge=1,
        le=RECALL_K_MAX,
        description=f"Number of hits, 1 to {RECALL_K_MAX}.",
        json_schema_extra={"x-fix": f"send an integer, 1 to {RECALL_K_MAX}"},
    )
    scope: Literal["own", "crew_shared", "workspace"] | None = Field(
        default=None,
        description="Which entries are searched: own, crew_shared or workspace. If absent, the token's role decides. own "
        "restricts documents, drawers and facts to those of the agent, too.",
    )
    agent_id: Id | None = Field(default=None, description="The agent whose entries are searched; for OWNER and ADMIN.")
    crew_id: Id | None = Field(default=None, description="The crew whose entries are searched; for OWNER and ADMIN.")
    crew_only: bool = Field(
        default=False, description="Whether the agent's own entries are searched only if they are of the crew."
    )
    recipe: str | None = Field(
        default=None,
        description="conversational (default where turns of conversation are in scope), conversational-static, "
        "robust (default elsewhere), rrf, dense or lexical.",
    )
    walk_depth: Annotated[StrictInt, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="1 appends up to k entries that are similar to the hits, 0 none; the agent's default if absent.",
        json_schema_extra={"x-fix": "send 0 or 1"},
    )
    mode: Mode = Field(
        default="search",
        description="search leaves out entries without any evidence and marks entries that no longer count. inject, "
        "for prompts, leaves out entries that no longer count or have too little evidence, and returns "
        "nothing if the hits together do not show that the memory holds an answer.",
    )
    explain: StrictBool = Field(default=False, description="Return each arm's rank and score and each rule's share.")
    asked_at: str | None = Field(
        default=None,
        description='RFC 3339 time of the question, from which "yesterday" or "last week" count (by UTC days); now if '
        'absent, "unknown" if not known.',
        json_schema_extra={"x-fix": f'send a time like 2026-11-21T09:30:00Z, or "{ASKED_UNKNOWN}"'},
    )
    collect: StrictBool = Field(
        default=False,
        description="For lists, totals, orders and summaries: as many hits as fit into max_tokens, at most "
        f"{COLLECTED_MOST}, each as a line around what answers and without its payload, the oldest first. k and walk_depth "
        "do not count.",
    )
    max_tokens: StrictInt | None = Field(
        default=None,
        ge=COLLECTED_TOKENS_LEAST,
        le=COLLECTED_TOKENS_MOST,
        description=f"Tokens of the texts of the hits, with collect; {COLLECTED_TOKENS} if absent.",
        json_schema_extra={"x-fix": f"send an integer, {COLLECTED_TOKENS_LEAST} to {COLLECTED_TOKENS_MOST}"},
    )
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None
    kinds: tuple[RecallKind, ...] | None = Field(
        default=None,
        min_length=1,
        description="Which kinds of memory are searched: entries, documents, drawers, facts, rules (several separated by "
        "commas); all if absent. entries includes learned rules.",
        examples=[["entries", "documents"]],
        json_schema_extra={"x-fix": f"send one or more of {', '.join(RECALL_KINDS)}"},
    )

    @field_validator("query")
    @classmethod
    def _has_text(cls, query: str) -> str:
        if not query.strip():
            raise ValueError("must not be blank")
        return query

    @field_validator("kinds", mode="before")
    @classmethod
    def _separated(cls, kinds: Any) -> Any:
        """``entries,documents``, alone or in a list, as separate kinds; each counts once."""
        parts = [kinds] if isinstance(kinds, str) else kinds
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            return kinds
        names = [name.strip() for part in parts for name in part.split(",")]
        return list(dict.fromkeys(filter(None, names)))

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
    def asked_ms(self) -> int | None:
        """``asked_at``, milliseconds since 1970-01-01; None if it is absent or unknown."""
        return None if self.asked_at in (None, ASKED_UNKNOWN) else to_ms(parse_ts(self.asked_at))


class ArmShare(Answer):
    """Rank and score of a hit in the list of one arm; null if it is not in that list."""

    rank: int | None
    score: float | None


class HitExplanation(Answer):
    """Explanation of a hit's rank; the recipe ranks by the sum of the shares.

    ``meant`` has the words of the query that occur nowhere in scope, each with the words that were looked up instead
    and count half: parts of an identifier, the long form of a short name, or words one typing error away.
    """

    lexical: ArmShare
    dense: ArmShare
    importance: float | None
    shares: dict[str, float]
    meant: dict[str, tuple[str, ...]]


class Via(Answer):
    """How a neighbour was found: the hit, the relation and its weight."""

    entry_id: str
    relation: str
    weight: float


class FoundInDocument(Answer):
    """Where a hit in a memory document is: owner (``a-<agent>``, ``c-<crew>`` or ``w``), file, headings, first line."""

    owner: str
    file: str
    heading: str
    line: int


class FoundInDrawer(Answer):
    """Where a drawer is."""

    drawer_id: str
    wing: str
    room: str


class FoundAsFact(Answer):
    """A fact: its id, what it says, and from when until when it holds, as far as that is known."""

    fact_id: str
    subject: str
    predicate: str
    object: str
    valid_from: str | None
    valid_to: str | None


class FoundAsText(Answer):
    """A text of a further kind: what its family opens it by, whose memory it is in, and its place and headings."""

    item: str
    owner: str
    place: str
    label: str


def _is_none(value: object) -> bool:
    return value is None


class Hit(Answer):
    """Fields of a hit that every answer has.

    ``score`` is comparable within one answer only. It is the cosine for ``dense``, BM25 mapped into (0, 1) for
    ``lexical``, the fused score for other recipes (relative to the other candidates; 0 if there is only one), and for a
    neighbour (``via`` is set) the weight of the relation. ``priority`` is the stored entry's priority. ``confidence``
    is the calibrated probability that the hit is relevant (null for a neighbour), comparable across answers; ``reason``
    names the evidence. ``standing`` says why the entry no longer counts, null if it counts. ``repeats`` is the number
    of other hits with nearly the same text, which are left out.

    ``kind`` is absent if only entries are searched. A hit that is not an entry says where it is: ``document``,
    ``drawer``, ``fact``, or ``text`` of a further kind; its ``entry_id`` is the entry that it was made from, or
    ``<owner>/<file>:<line>`` of a document, its ``score`` is its confidence, and its ``seq`` is 0 if it is not known.
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
    standing: Standing | None = None
    repeats: int = 0
    explain: HitExplanation | None = None
    via: Via | None = None
    kind: HitKind | None = Field(default=None, exclude_if=_is_none)
    document: FoundInDocument | None = Field(default=None, exclude_if=_is_none)
    drawer: FoundInDrawer | None = Field(default=None, exclude_if=_is_none)
    fact: FoundAsFact | None = Field(default=None, exclude_if=_is_none)
    text: FoundAsText | None = Field(default=None, exclude_if=_is_none)

    @property
    def certainty(self) -> ConfidenceWord | None:
        """The confidence in a word: ``sure`` (from .7), ``likely`` (from .3) or ``weak``; None for a neighbour."""
        return None if self.confidence is None else confidence_word(self.confidence)


class RecallHit(Hit):
    """A recalled memory; ``live_priority`` is the latest priority that an operator set, else the entry's own priority."""

    live_priority: str
    payload: dict[str, Any]
    refs: dict[str, Any]
    supersedes: tuple[str, ...]
    valid_at: str | None


class RecallAnswer(Answer):
    """The answer.

    ``model`` is the model of the query's vector, null if no vector was used. ``degraded`` is ``lexical-only`` if a
    hybrid recipe had to work without vectors, and ``no-vectors`` if ``dense`` had no vector of the query or none in
    scope. ``view_seq`` is the sequence that the views had reached. ``without_vectors`` counts the entries in scope that
    could have a vector (the embed policy selects them, or they are ``chat.*``) and have none of the active model, so
    that only their words find them; ``awaiting_vectors`` counts those that will get a vector, null if no embedding
    model is configured. ``confidence`` is the probability that the memory holds an answer, null if nothing was found;
    ``no_evidence`` is true if nothing had enough evidence. ``receipt`` names the recall in the journal; it is null if
    it could not be recorded, because the broker is not available.
    """

    receipt: str | None
    hits: tuple[RecallHit, ...]
    confidence: float | None
    no_evidence: bool
    recipe: str
    scope: str
    model: str | None
    degraded: Degraded | None
    without_vectors: int = 0
    awaiting_vectors: int | None = 0
    view_seq: int


class RenderRequest(RecallRequest):
    """Recall as a block of text for a prompt.

    The block is marked as untrusted hints, escaped and scanned for injections, and has at most ``max_chars``
    characters in whole lines. Each line names the speaker and the date.
    """

    mode: Mode = Field(
        default=INJECT,
        description="inject leaves out entries with too little evidence or that do not count any more; search marks them.",
    )
    max_chars: StrictInt | None = Field(
        default=None,
        description=f"Characters of the block, wrapper included; {RENDER_CHARS_DEFAULT} if absent or not positive, "
        f"at most {RENDER_CHARS_MAX}.",
        json_schema_extra={"x-fix": "send an integer"},
    )


class Redaction(Answer):
    """Why text was replaced by a notice: scanner, category and name of the rule."""

    scanner: str
    category: str
    pattern: str


class RenderedHit(Hit):
    """One line of the text with its entry's metadata; ``summary`` is the line's summary before escaping."""

    redaction: Redaction | None


class RenderAnswer(Answer):
    """The answer.

    ``status`` is ``nothing`` if memory was searched and nothing was found, and ``unavailable`` if it could not be
    searched. ``text`` is empty then, or if nothing fits. ``hits`` are the lines of the text in their order. ``omitted``
    counts hits that did not fit, ``redacted`` lines in which text was replaced. ``recipe`` and ``degraded`` show
    whether vectors were used; ``confidence`` and ``no_evidence`` are as in ``recall``.
    """

    status: Literal["ok", "nothing", "unavailable"]
    text: str
    hits: tuple[RenderedHit, ...]
    confidence: float | None
    no_evidence: bool
    receipt: str | None
    omitted: int
    redacted: int
    recipe: str
    scope: str
    model: str | None
    degraded: Degraded | None
    without_vectors: int = 0
    awaiting_vectors: int | None = 0
    view_seq: int


class BriefRequest(RecallRequest):
    """Recall as a short text for the model that asks.

    Each hit is one line: id, date, author, sure, likely or weak, whether it still counts, and the text. The lines are
    escaped, fenced and scanned for injections as in a rendered block.
    """


class BriefHit(Answer):
    """One line of the text; ``summary`` is the line's summary before escaping. ``kind`` is as in ``recall``.

    ``certainty`` is null for a neighbour. ``standing`` says since when and why the entry does not count, absent if it
    counts.
    """

    entry_id: str
    date: str
    who: str
    certainty: ConfidenceWord | None
    standing: str | None = None
    summary: str
    kind: HitKind | None = Field(default=None, exclude_if=_is_none)


class BriefAnswer(Answer):
    """The answer.

    ``hits`` are the lines of the text. Without hits, ``text`` says that nothing relevant was found or that memory was
    not searched. The tags around the lines carry the ``receipt``, so that no text can contain the closing tag;
    ``degraded`` is as in ``recall``.
    """

    text: str
    hits: tuple[BriefHit, ...]
    receipt: str | None
    degraded: Degraded | None
    view_seq: int


class UsedRequest(Request):
    """Report which hits of a recall reached a prompt.

    A receipt counts once. An entry that is used keeps its importance longer.
    """

    receipt: str = Field(description="The receipt of the recall.")
    entry_ids: tuple[HitId, ...] | None = Field(
        default=None,
        max_length=COLLECTED_MOST,
        description="The `entry_id` of the hits that reached the prompt; all if absent.",
    )


class UsedAnswer(Answer):
    """``counted`` is the number of entries recorded as used; 0 if the receipt had been used ``already``."""

    receipt: str
    counted: int
    already: bool


class ReceiptRequest(Request):
    """Show what a recall returned, who requested it, and which hits reached a prompt.

    For the agent that recalled, and for OWNER and ADMIN.
    """

    receipt: str = Field(description="The receipt of the recall.")


class ShownHit(Answer):
    """A hit of a recall; ``used`` says whether it reached a prompt, null while that is not known.

    A hit that is not an entry has its ``kind`` and its own ``id``: of a drawer, of a fact, or ``<owner>/<file>:<line>``.
    """

    entry_id: str
    score: float | None
    confidence: float | None
    used: bool | None
    kind: HitKind | None = Field(default=None, exclude_if=_is_none)
    id: str | None = Field(default=None, exclude_if=_is_none)


class ReceiptAnswer(Answer):
    """A recall that was answered.

    ``asked_by`` is the id of the token; ``agent_id`` and ``crew_id`` are the caller's, ``of_agent_id`` and
    ``of_crew_id`` own the memories that were searched. ``hits`` are best first; with ``rendered`` they are the lines of
    a block.
    """

    receipt: str
    workspace_id: str
    ts: str
    asked_by: str | None
    agent_id: str | None
    crew_id: str | None
    scope: str
    of_agent_id: str | None
    of_crew_id: str | None
    query: str
    recipe: str
    model: str | None
    mode: str | None
    floor: float | None
    hits: tuple[ShownHit, ...]
    rendered: bool
    used_at: str | None


class RunExpectationsRequest(Request):
    """Run expectations: recalls with what they must and must not return.

    Without `expectations`, those of the workspace are run (setting `expectations`), which also decide whether an embedding
    model may be activated.
    """

    expectations: dict[str, Any] | None = Field(
        default=None, description="Name → expectation; the workspace's if absent.", examples=[None]
    )
    model: str | None = Field(
        default=None, max_length=96, description="Embedding model to try; the workspace's active one if absent."
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ExpectationResult(Answer):
    """One expectation: whether it is met, what does not hold, and the texts of the hits, best first."""

    name: str
    query: str
    met: bool
    problems: tuple[str, ...]
    hits: tuple[str, ...]
    model: str | None


class RunExpectationsAnswer(Answer):
    """The results in the order of the expectations."""

    workspace_id: str
    results: tuple[ExpectationResult, ...]
    passed: int
    failed: int


RECALL: Final = Operation(
    name="recall",
    request=RecallRequest,
    answer=RecallAnswer,
    route="POST /v1/recall",
    effect=Effect.READS,
    errors=(404,),
    decided="index",
)
RENDER: Final = Operation(
    name="render",
    request=RenderRequest,
    answer=RenderAnswer,
    route="POST /v1/recall/render",
    effect=Effect.READS,
    errors=(404,),
    decided="index",
)
RECALL_BRIEF: Final = Operation(
    name="recall_brief",
    request=BriefRequest,
    answer=BriefAnswer,
    route="POST /v1/recall/brief",
    effect=Effect.READS,
    errors=(404,),
    decided="index",
)
USED: Final = Operation(
    name="used",
    request=UsedRequest,
    answer=UsedAnswer,
    route="POST /v1/recall/{receipt}/used",
    effect=Effect.CHANGES,
    errors=(404,),
    command="used",
    decided="anywhere",
)
RECEIPT: Final = Operation(
    name="receipt",
    request=ReceiptRequest,
    answer=ReceiptAnswer,
    route="GET /v1/recall/{receipt}",
    effect=Effect.READS,
    errors=(404,),
    command="receipt",
)
RUN_EXPECTATIONS: Final = Operation(
    name="run_expectations",
    request=RunExpectationsRequest,
    answer=RunExpectationsAnswer,
    route="POST /v1/admin/expectations/run",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(NUDGES_PROJECTION, ENTRIES_PROJECTION),
    errors=(404,),
    decided="index",
)
OPERATIONS: Final = (RECALL, RENDER, RECALL_BRIEF, USED, RECEIPT, RUN_EXPECTATIONS)
