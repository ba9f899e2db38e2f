"""Operations that show what memories were made of and who was given them, and that compare past moments.

A comparison says what changed between two moments, which event changed a recall, or what recalls would have returned.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field, StrictBool

from ..core.entry import Id
from ..core.limits import RECALL_K_MAX
from ..core.operation import MOMENT_HINT, Access, Answer, AsOf, Effect, MinSeq, Moment, Operation, Request, Workspace
from ..documents.tables import DOCUMENTS_PROJECTION
from ..entries.tables import ENTRIES_PROJECTION
from ..recall.events import HIT_ID_CHARS
from ..recall.operations import RecallKind
from ..recall.tables import RECEIPTS_PROJECTION
from ..relations.tables import RELATIONS_PROJECTION
from ..standing.operations import Standing
from ..standing.tables import STANDINGS_PROJECTION
from .rules import Why
from .tables import LINEAGE_PROJECTION

NAME_CHARS: Final = 400
_VIEWS: Final = (LINEAGE_PROJECTION, ENTRIES_PROJECTION, DOCUMENTS_PROJECTION)

Name = Annotated[
    str,
    Field(
        min_length=1,
        max_length=NAME_CHARS,
        description="Id of an entry, document write, rule or lesson, `drawer:ID` or `fact:ID`.",
        examples=["j_0190…"],
    ),
]


class LineageRequest(Request):
    """Show what a memory was made of, and what was made of it.

    Both ways are followed to the end: up to the entries that were made of nothing, with their authors, and down to
    vectors, links and texts that were made of texts. Messages without text of the other (`supersedes`, `corrects`) are
    shown, but not followed.
    """

    name: Name
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class LineageStep(Answer):
    """A message and how it refers to another.

    In ``made_of``, ``of`` is made of this message; in ``made_from_it``, this message is made of ``of``. ``seq`` is null
    if no message with this name is left. ``what`` is the type of an entry, ``document`` and its tier, or ``derived``
    (a vector or a link, as ``how`` says).
    """

    name: str | None
    seq: int | None
    how: str
    of: str
    depth: int
    what: str | None
    author: str | None
    ts: str | None
    data_subject_id: str | None
    root: bool


class LineageAnswer(Answer):
    """Both ways from a memory, the nearest first.

    ``authors`` and ``subjects`` are those of the memory and of all that it was made of: an erasure of one of these
    subjects reaches it. ``prompts`` is the number of receipts that name it. ``truncated``: more than 1,000 messages.
    """

    name: str
    seqs: tuple[int, ...]
    made_of: tuple[LineageStep, ...]
    made_from_it: tuple[LineageStep, ...]
    authors: tuple[str, ...]
    subjects: tuple[str, ...]
    prompts: int
    truncated: bool
    view_seq: int


class WhoSawRequest(Request):
    """Show which agents, runs and prompts were given a memory, from the receipts of recalls and prompts.

    With `subject`, `name` is the `data_subject_id` of a person: that person's messages and everything that was made of
    them.
    """

    name: Annotated[str, Field(min_length=1, max_length=NAME_CHARS, description="Id as in `lineage`, or a person.")]
    subject: StrictBool = Field(default=False, description="`name` is the `data_subject_id` of a person.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class SeenPrompt(Answer):
    """A text that was given to an agent; ``memories`` are the ids that it held of those that were asked for.

    ``prompt`` is the recipe of a recall, or the kind of the text, such as ``memory_block``. ``run`` is null if the
    request named none.
    """

    receipt: str
    ts: str
    prompt: str
    holder: str
    agent_id: str | None
    crew_id: str | None
    run: str | None
    memories: tuple[str, ...]


class WhoSawAnswer(Answer):
    """The prompts, the newest first; ``runs`` and ``agents`` of all of them, also beyond the first 1,000."""

    prompts: tuple[SeenPrompt, ...]
    runs: tuple[str, ...]
    agents: tuple[str, ...]
    total: int
    view_seq: int


class WhyRequest(Request):
    """Show why a memory, a hit or a receipt says what it says: the whole way back to entries and their authors.

    Of a memory: what it was made of, the decisions about it (priority, standing, proposals, approvals, ends) and its
    relations. Of a receipt: who asked what, by which recipe and model, each hit with its scores and what it was made of.
    With `replay`, the recall of the receipt is run again, and the answer says which hits changed and why.

    A token of role AGENT or LEAD sees the messages that it may read or that it was given; `hidden` counts the others.
    """

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=HIT_ID_CHARS,
            description="Receipt, id of an entry, document write, rule or lesson, `drawer:ID`, `fact:ID`, or a place in a "
            "document, `<owner>/<file>:<line>` as in a hit.",
            examples=["r_0190…"],
        ),
    ]
    replay: StrictBool = Field(default=False, description="Run the recall of the receipt again and compare the hits.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class WhyMessage(Answer):
    """An entry or document write, and what it says; ``payload`` is that of the service's own entries, else empty."""

    entry_id: str
    seq: int
    ts: str
    what: str
    author: str
    summary: str
    payload: dict[str, Any]


class WhyRelation(Answer):
    """A relation of the memory to another entry."""

    relation: str
    other: str
    weight: float
    state: str
    reason: str


class WhyHit(Answer):
    """A hit of a receipt; ``made_of`` are the roots: ids and authors of the first entries that it was made of.

    ``gone`` is true if no message of it is left that the caller may see.
    """

    rank: int
    kind: str
    id: str
    entry_id: str
    score: float | None
    confidence: float | None
    summary: str
    gone: bool
    roots: tuple[str, ...]
    authors: tuple[str, ...]


class ChangedHit(Answer):
    """A hit that differs between a receipt and its replay; ranks count from 0, null if it is not among the hits.

    ``why``: ``erased``, ``archived``, ``retracted``, ``superseded``, ``contradicted``, ``corrected``, ``ended``,
    ``deleted``, ``stale``, ``newer`` (written after the receipt), ``model`` (other or missing embedding model),
    ``displaced`` (newer memories took its place), ``moved`` (others went or came), or ``ranking`` (priorities,
    importance or relations changed). ``by`` is the memory that replaces or contradicts it, or the erasure that took what
    ranked the hit.
    """

    id: str
    kind: str
    before: int | None
    after: int | None
    why: str
    by: str | None = None


class Replayed(Answer):
    """A recall that was run again; ``same`` if all hits are the same in the same order.

    ``exact`` is false if the receipt does not record all that was asked (it is older than this version): `k` is then the
    number of its hits.
    """

    same: bool
    exact: bool
    recipe: str
    model: str | None
    model_before: str | None
    hits: int
    changed: tuple[ChangedHit, ...]


class WhyAnswer(Answer):
    """The answer; ``kind`` is ``receipt``, ``document``, ``drawer``, ``fact``, ``rule``, ``lesson`` or ``entry``.

    ``messages`` are those of the memory itself, ``made_of`` as in ``show_lineage``, ``decisions`` the messages about it
    and about its proposal, oldest first. ``asked`` and ``hits`` are those of a receipt. ``hidden`` counts messages that
    the caller may not read.
    """

    name: str
    kind: str
    messages: tuple[WhyMessage, ...]
    live_priority: str | None
    standing: Standing | None
    made_of: tuple[LineageStep, ...]
    authors: tuple[str, ...]
    decisions: tuple[WhyMessage, ...]
    relations: tuple[WhyRelation, ...]
    asked: dict[str, Any] | None
    hits: tuple[WhyHit, ...]
    replay: Replayed | None
    hidden: int
    truncated: bool
    view_seq: int


class NoticesRequest(Request):
    """Show which of the memories that a run was given no longer count; each notice is returned once.

    The run is that of the header `Crew-Run`; without it, the notices are for the caller's prompts without a run.
    """

    again: StrictBool = Field(default=False, description="Also return the notices that were returned before.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class Notice(Answer):
    """A memory that was given to the run and no longer counts; ``by`` names what replaces or contradicts it.

    ``near`` is the refuted memory if this one only says almost the same.
    """

    id: str
    why: Why
    by: str | None
    near: str | None
    seq: int


class NoticesAnswer(Answer):
    """The notices, the oldest first."""

    notices: tuple[Notice, ...]
    run: str | None
    view_seq: int


Family = Literal["entries", "documents", "drawers", "facts", "rules", "lessons", "people", "relations"]
"""A family of what somebody knows."""
ALL_FAMILIES: Final[tuple[Family, ...]] = get_args(Family)
FROM_NOTHING: Final = "0"
"""The moment before the first message."""
MOST_ITEMS: Final = 100_000
_SCOPE: Final = (
    "As in recall: `own`, `crew_shared` or `workspace`; if absent, the role and the named agent or crew decide."
)


class DiffRequest(Request):
    """Show what somebody knows at one moment that they did not know at an earlier one, by family.

    Of an agent, a crew or the workspace, what recall can find for it: entries that count, memory documents, live drawers,
    facts that hold, rules, lessons, what people stated about themselves (for OWNER and ADMIN), and relations between
    entries (without `similar`). What was erased since is at neither moment.
    """

    since: Annotated[
        Moment, Field(description="The earlier moment, a sequence or a time; `0` is before the first message.")
    ]
    until: Moment | None = Field(
        default=None, description="The later moment; now if absent.", json_schema_extra=MOMENT_HINT
    )
    agent_id: Id | None = Field(default=None, description="The agent; only for OWNER and ADMIN.")
    crew_id: Id | None = Field(default=None, description="The crew; only for OWNER and ADMIN.")
    scope: Literal["own", "crew_shared", "workspace"] | None = Field(default=None, description=_SCOPE)
    kinds: tuple[Family, ...] | None = Field(
        default=None,
        min_length=1,
        description=f"The families: {', '.join(ALL_FAMILIES)} (several separated by commas); all if absent.",
    )
    limit: int = Field(
        default=1_000, ge=1, le=MOST_ITEMS, description="Most items in each list; the counts are of all."
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class KnownItem(Answer):
    """Something that is known: its key in the family, and what it says."""

    key: str
    item: dict[str, Any]


class ChangedItem(Answer):
    """Something that says another thing at the later moment."""

    key: str
    before: dict[str, Any]
    after: dict[str, Any]


class CeasedItem(Answer):
    """Something that is not known any more.

    ``why`` is one of the reasons of ``why --replay``, or ``archived``, ``out_of_scope``, ``expired`` or ``forgotten``;
    ``by`` is what replaces or contradicts it.
    """

    key: str
    item: dict[str, Any]
    why: str
    by: str | None = None


class FamilyDiff(Answer):
    """The difference in one family; ``counts`` are those of ``added``, ``changed`` and ``ceased`` beyond the limit too."""

    family: Family
    added: tuple[KnownItem, ...]
    changed: tuple[ChangedItem, ...]
    ceased: tuple[CeasedItem, ...]
    counts: dict[str, int]


class ErasedBetween(Answer):
    """An erasure between the two moments, and how many messages it removed: they are at neither moment."""

    erasure_id: str
    messages: int


class DiffAnswer(Answer):
    """The difference. To apply it to what was known at ``since``, remove ``ceased``, then set ``added`` and ``after``.

    ``erased`` is empty for AGENT and LEAD. ``truncated``: a list has more items than `limit`.
    """

    since_seq: int
    until_seq: int
    scope: str
    agent_id: str | None
    crew_id: str | None
    families: tuple[FamilyDiff, ...]
    erased: tuple[ErasedBetween, ...]
    truncated: bool


class BisectRequest(Request):
    """Find the event that brought a hit into the answer to a query, or took it out of it.

    The query is asked as of `since` and as of `until`. If the hit is in one answer alone, the views between them are
    halved until one event is left. Ages count from `until` everywhere, so that only events make a difference.
    """

    query: str = Field(min_length=1, max_length=4_000, description="The query, as in recall.")
    hit: str | None = Field(
        default=None,
        min_length=1,
        max_length=HIT_ID_CHARS,
        description="The id of the hit: of an entry, drawer or fact, or `<owner>/<file>`.",
    )
    contains: str | None = Field(
        default=None,
        min_length=1,
        max_length=1_000,
        description="A text of the hit instead of its id; case does not count.",
    )
    since: Annotated[Moment, Field(description="The moment before, a sequence or a time.")]
    until: Moment | None = Field(
        default=None, description="The moment after; now if absent.", json_schema_extra=MOMENT_HINT
    )
    k: int = Field(default=10, ge=1, le=RECALL_K_MAX, description="Number of hits.")
    agent_id: Id | None = Field(default=None, description="The agent; only for OWNER and ADMIN.")
    crew_id: Id | None = Field(default=None, description="The crew; only for OWNER and ADMIN.")
    scope: Literal["own", "crew_shared", "workspace"] | None = Field(default=None, description=_SCOPE)
    recipe: str | None = Field(default=None, max_length=64, description="The recipe, as in recall.")
    mode: Literal["search", "inject"] = Field(default="search", description="As in recall.")
    kinds: tuple[RecallKind, ...] | None = Field(default=None, min_length=1, description="As in recall.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class BisectEvent(Answer):
    """The message that made the difference; ``of`` is the message from which a vector or link was made.

    ``what`` is the type of an entry, ``document`` and its tier, or ``derived``.
    """

    seq: int
    entry_id: str | None
    ts: str | None
    what: str
    author: str | None
    summary: str
    of: str | None = None


class BisectAnswer(Answer):
    """``rank_before`` and ``rank_after`` (from 0, null if absent) are those right before and right after the event.

    ``why`` is a reason of ``why --replay`` or ``written``, ``priority``, ``setting``, ``age`` (no event: the passing of
    time), ``hidden`` (an event that the caller may not read), ``same`` (the moments do not differ). ``because`` says it in
    a sentence. ``past_views`` is the number of past views that were folded.
    """

    hit: str
    event: BisectEvent | None
    why: str
    because: str
    by: str | None
    rank_before: int | None
    rank_after: int | None
    since_seq: int
    until_seq: int
    past_views: int


class ReplayRequest(Request):
    """Run recalls of the past again, unchanged or with something changed, and show which answers differ.

    Each recall is asked as of its own moment, by its own asker. Without a change, every receipt must come out the same. With
    `model`, recalls are asked from the views of now, because a model has vectors only since it was added.
    """

    receipts: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] = Field(
        default=(), max_length=1_000, description="The receipts; the latest if none is named."
    )
    latest: int = Field(
        default=50, ge=1, le=1_000, description="How many of the latest recalls, if no receipt is named."
    )
    agent_id: Id | None = Field(default=None, description="Recalls of this agent only.")
    crew_id: Id | None = Field(default=None, description="Recalls of agents of this crew only.")
    without: tuple[Name, ...] = Field(
        default=(),
        max_length=100,
        description="Leave out these messages, and all that was made of them: ids of entries or document writes, "
        "`drawer:ID`, `fact:ID`.",
    )
    recipe: str | None = Field(default=None, max_length=64, description="Use this recipe.")
    model: str | None = Field(default=None, max_length=96, description="Use the vectors of this embedding model.")
    policy: Literal["search", "inject"] | None = Field(
        default=None, description="Judge evidence as for a search or for a text that is injected (`mode` of recall)."
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class CounterfactualHit(Answer):
    """A hit that the change takes away, adds or moves; ranks count from 0, null if it is not among the hits."""

    id: str
    kind: str
    before: int | None
    after: int | None
    summary: str


class ReplayedReceipt(Answer):
    """A recall that was run again.

    ``reproduced``: without the change, all hits are the same in the same order; ``differences`` says what is not, and why.
    ``changed`` compares the recall with the change and without it. ``overlap`` is 1 for the same hits in the same order and
    0 for no common hit: the mean over d of the share of common hits among the first d.
    """

    receipt: str
    ts: str
    query: str
    agent_id: str | None
    exact: bool
    reproduced: bool
    differences: tuple[ChangedHit, ...]
    hits_before: int
    hits_after: int
    changed: tuple[CounterfactualHit, ...]
    overlap: float


class ReplayAnswer(Answer):
    """The recalls, the newest first. ``asked`` says what was changed; ``views`` is ``then`` or ``now``.

    ``left_out`` counts the messages that were left out, those that were made of the named ones included. ``overlap`` is the
    mean.
    """

    receipts: tuple[ReplayedReceipt, ...]
    asked: dict[str, Any]
    views: Literal["then", "now"]
    total: int
    reproduced: int
    changed: int
    overlap: float
    left_out: int


SHOW_LINEAGE: Final = Operation(
    name="show_lineage",
    request=LineageRequest,
    answer=LineageAnswer,
    route="GET /v1/lineage/{name}",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=_VIEWS,
    errors=(404,),
    command="lineage",
)
WHO_SAW: Final = Operation(
    name="who_saw",
    request=WhoSawRequest,
    answer=WhoSawAnswer,
    route="POST /v1/admin/who-saw",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=_VIEWS,
    errors=(404,),
    command="who-saw",
)
WHY: Final = Operation(
    name="why",
    request=WhyRequest,
    answer=WhyAnswer,
    route="POST /v1/why",
    effect=Effect.READS,
    views=(*_VIEWS, RECEIPTS_PROJECTION, RELATIONS_PROJECTION, STANDINGS_PROJECTION),
    errors=(404,),
    command="why",
    decided="index",
)
NOTICES: Final = Operation(
    name="notices",
    request=NoticesRequest,
    answer=NoticesAnswer,
    route="GET /v1/notices",
    effect=Effect.READS,
    views=(LINEAGE_PROJECTION, ENTRIES_PROJECTION),
    errors=(503,),
    repeatable=False,
    command="notices",
)
DIFF: Final = Operation(
    name="diff",
    request=DiffRequest,
    answer=DiffAnswer,
    route="POST /v1/diff",
    effect=Effect.READS,
    views=(*_VIEWS, STANDINGS_PROJECTION),
    command="diff",
    needs_journal="a comparison of two moments",
    decided="index",
)
BISECT: Final = Operation(
    name="bisect",
    request=BisectRequest,
    answer=BisectAnswer,
    route="POST /v1/bisect",
    effect=Effect.READS,
    views=(*_VIEWS, STANDINGS_PROJECTION),
    command="bisect",
    needs_journal="a search through past moments",
)
REPLAY: Final = Operation(
    name="replay",
    request=ReplayRequest,
    answer=ReplayAnswer,
    route="POST /v1/admin/replay",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(*_VIEWS, RECEIPTS_PROJECTION),
    errors=(404,),
    command="replay",
    needs_journal="a replay as of past moments",
    decided="index",
)
OPERATIONS: Final = (SHOW_LINEAGE, WHO_SAW, WHY, NOTICES, DIFF, BISECT, REPLAY)
