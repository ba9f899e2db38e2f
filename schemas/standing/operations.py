"""Operations that retract an entry and restore it, and the state of an entry that no longer counts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StrictBool, field_validator

from ..core.entry import Id, Priority
from ..core.operation import Access, Answer, Effect, MinSeq, Operation, Request, Visible, Workspace
from ..entries.tables import ENTRIES_PROJECTION
from ..relations.tables import RELATIONS_PROJECTION
from .tables import STANDINGS_PROJECTION


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

OPERATIONS: Final = (
    RETRACT,
    RESTORE,
    SET_PRIORITY,
)
