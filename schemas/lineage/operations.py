"""Operations that show what a memory was made of, what was made of it, who was given it, and notices about its end."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, StrictBool

from ..core.operation import Access, Answer, AsOf, Effect, MinSeq, Operation, Request, Workspace
from ..documents.tables import DOCUMENTS_PROJECTION
from ..entries.tables import ENTRIES_PROJECTION
from ..recall.events import HIT_ID_CHARS
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
    importance or relations changed). ``by`` is the memory that replaces or contradicts it.
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
OPERATIONS: Final = (SHOW_LINEAGE, WHO_SAW, WHY, NOTICES)
