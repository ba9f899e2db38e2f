"""Operations that retract, restore and correct, and the state of an entry that no longer counts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictInt, StringConstraints, field_validator

from ..core.entry import Id, Priority
from ..core.operation import Access, Answer, Effect, MinSeq, Operation, Request, Visible, Workspace
from ..documents.tables import DOCUMENTS_PROJECTION
from ..entries.tables import ENTRIES_PROJECTION
from ..facts.tables import FACTS_PROJECTION
from ..learning.tables import LEARNING_PROJECTION
from ..palace.tables import DRAWERS_PROJECTION
from ..relations.tables import RELATIONS_PROJECTION
from .tables import STANDINGS_PROJECTION

CORRECTED_CHARS: Final = 10_000
"""Most characters of a corrected text: those of a drawer."""
ALSO_MAX: Final = 100
CORRECTIONS_DEFAULT: Final = 20
CORRECTIONS_MAX: Final = 200


class State(StrEnum):
    """Why an entry does not count as it is."""

    RETRACTED = "retracted"
    STALE = "stale"
    SUPERSEDED = "superseded"
    CONTRADICTED = "contradicted"
    DISPUTED = "disputed"


class Standing(Answer):
    """Why an entry does not count as it is; null for an entry that counts.

    ``state``: ``retracted`` and ``stale`` were decided by an actor; ``superseded``: a later entry replaces it;
    ``contradicted``: a later statement says otherwise, by assertion or by the same agent; ``disputed``: a reactor
    proposes that a later statement of another agent contradicts it. ``by`` is the id of the actor for ``retracted`` and
    ``stale``, else the id of the other entry; ``at`` is the time of the retraction, or the time from which the other
    entry holds.
    """

    state: State
    by: str | None
    at: str
    reason: str


def _not_blank(reason: str) -> str:
    if not reason.strip():
        raise ValueError("must not be blank")
    return reason


Reason = Annotated[
    str, Field(min_length=1, max_length=1_000, description="The reason; it is recorded."), AfterValidator(_not_blank)
]


class RetractRequest(Request):
    """Retract an entry: it stays in the journal and no longer counts.

    For OWNER and ADMIN, for a LEAD of the entry's crew, and for the agent that wrote the entry. ``recall`` marks the
    entry and ranks it last; ``mode: inject`` leaves it out.
    """

    entry_id: str = Field(description="The entry.")
    reason: Reason
    stale: StrictBool = Field(default=False, description="The entry was true and is out of date.")
    superseded_by: Id | None = Field(default=None, description="Id of the entry that replaces it.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class RestoreRequest(Request):
    """Restore an entry that was retracted or that the update rule found outdated, so that it counts again.

    For OWNER and ADMIN. A LEAD may restore entries that agents of its crew retracted, an agent entries that it
    retracted itself. Reactors do not report the same update again.
    """

    entry_id: str = Field(description="The entry.")
    reason: Reason
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class RetractionAnswer(Answer):
    """Whether the entry is retracted now, and the ``seq`` of the change; null if nothing changed."""

    entry_id: str
    retracted: bool
    changed: bool
    seq: int | None
    visible: Visible = True


RETRACT: Final = Operation(
    name="retract",
    request=RetractRequest,
    answer=RetractionAnswer,
    route="POST /v1/journal/{entry_id}/retract",
    effect=Effect.CHANGES,
    views=(ENTRIES_PROJECTION, STANDINGS_PROJECTION),
    errors=(404,),
    command="retract",
)
RESTORE: Final = Operation(
    name="restore",
    request=RestoreRequest,
    answer=RetractionAnswer,
    route="POST /v1/journal/{entry_id}/restore",
    effect=Effect.CHANGES,
    views=(ENTRIES_PROJECTION, STANDINGS_PROJECTION, RELATIONS_PROJECTION),
    errors=(404,),
)


# The operation that sets the live priority of an entry.


class PriorityRequest(Request):
    """Set the live priority of an entry.

    Recorded as ``memory.priority_changed``; the entry itself does not change. The new priority affects the entry's
    importance from the next decay on (`crew-journal sweep decay` runs one now).
    """

    entry_id: str = Field(description="The entry.")
    priority: Priority = Field(description="normal, high, pin or permanent.", examples=["pin"])
    reason: str = Field(
        min_length=1,
        max_length=1_000,
        description="The reason; it is recorded.",
        examples=["production deploys follow this rule"],
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None

    @field_validator("reason")
    @classmethod
    def _says_why(cls, reason: str) -> str:
        if not reason.strip():
            raise ValueError("must not be blank")
        return reason


class PriorityAnswer(Answer):
    """An entry's live priority, and the ``seq`` of the change; null if the entry already had that priority."""

    entry_id: str
    priority: Priority
    previous_priority: Priority
    changed: bool
    seq: int | None
    visible: Visible = True


SET_PRIORITY: Final = Operation(
    name="set_priority",
    request=PriorityRequest,
    answer=PriorityAnswer,
    route="POST /v1/journal/{entry_id}/priority",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    views=(ENTRIES_PROJECTION, STANDINGS_PROJECTION),
    errors=(404,),
    command="priority",
)

# Corrections: another statement in the place of a wrong one.


StatementKind = Literal["entry", "drawer", "fact", "rule", "lesson"]
NamedStatement = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class CorrectRequest(Request):
    """Correct a statement: the new text takes its place, and what repeats it is retired or listed.

    The statement is an entry, a drawer, a fact, a rule or a lesson. It stays in the history, marked as replaced, and what
    was derived from it follows. For OWNER and ADMIN, for a LEAD of the crew, and for the agent that wrote it. What a person
    said is corrected by a token that may speak for that person; rules, lessons and what an OWNER or ADMIN recorded or gave
    a priority, by OWNER and ADMIN. The same request again changes nothing.
    """

    id: NamedStatement = Field(description="Id of the entry, drawer, fact, rule or lesson.", examples=["j_old"])
    text: str = Field(
        min_length=1,
        max_length=CORRECTED_CHARS,
        description="What is right, in full. Of a fact: the new value, or the whole sentence.",
        examples=["The staging port is 9090."],
    )
    reason: str = Field(default="", max_length=1_000, description="The reason; it is recorded.")
    also: tuple[NamedStatement, ...] = Field(
        default=(),
        max_length=ALSO_MAX,
        description="Ids of further statements that say the same and are retired with it.",
    )
    documents: StrictBool = Field(
        default=False,
        description="Write the new text into the documents that hold the old one, as far as the token may.",
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None

    @field_validator("text")
    @classmethod
    def _not_blank(cls, text: str) -> str:
        return _not_blank(text)


class CorrectionsRequest(Request):
    """List corrections, the newest first, with what is still to be reviewed of each."""

    limit: Annotated[StrictInt, Field(ge=1, le=CORRECTIONS_MAX)] = Field(
        default=CORRECTIONS_DEFAULT, description="Most corrections."
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class RetiredStatement(Answer):
    """A statement that was retired, what replaces it (null if nothing does), and why: corrected, same, derived or named."""

    kind: str
    id: str
    replaced_by: str | None
    why: str


class StatementToReview(Answer):
    """A text that may make the same claim; ``suggestion`` is what it would become, null if that does not follow.

    ``id`` of a line of a document is ``<owner>/<file>:<line>``. ``why`` says why it was not changed.
    """

    kind: str
    id: str
    text: str
    suggestion: str | None
    why: str


class CorrectAnswer(Answer):
    """What takes the place of the statement, what was retired with it, and what is to be reviewed.

    ``changed`` is false, and ``seq`` is that of the first correction, if the same correction was recorded before.
    """

    id: str
    kind: StatementKind
    replaced_by: str
    changed: bool
    seq: int
    retired: tuple[RetiredStatement, ...]
    review: tuple[StatementToReview, ...]
    documents: tuple[str, ...] = ()
    visible: Visible = True


class CorrectionShown(Answer):
    """A correction; ``review`` is what makes the old claim now."""

    id: str
    kind: str
    replaced_by: str | None
    old: str
    new: str
    by: str | None
    at: str
    reason: str
    retired: tuple[str, ...]
    review: tuple[StatementToReview, ...]
    seq: int


class CorrectionsAnswer(Answer):
    """Corrections, the newest first."""

    corrections: tuple[CorrectionShown, ...]
    view_seq: int


_CORRECTED_IN: Final = (
    ENTRIES_PROJECTION,
    STANDINGS_PROJECTION,
    DRAWERS_PROJECTION,
    FACTS_PROJECTION,
    DOCUMENTS_PROJECTION,
    LEARNING_PROJECTION,
)
CORRECT: Final = Operation(
    name="correct",
    request=CorrectRequest,
    answer=CorrectAnswer,
    route="POST /v1/corrections",
    effect=Effect.CHANGES,
    views=_CORRECTED_IN,
    errors=(404, 409),
    command="correct",
)
CORRECTIONS: Final = Operation(
    name="corrections",
    request=CorrectionsRequest,
    answer=CorrectionsAnswer,
    route="GET /v1/corrections",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=_CORRECTED_IN,
    command="corrections",
)

OPERATIONS: Final = (
    RETRACT,
    RESTORE,
    SET_PRIORITY,
    CORRECT,
    CORRECTIONS,
)
