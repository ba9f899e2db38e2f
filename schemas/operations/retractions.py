"""Operations that retract an entry and restore it, and the state of an entry that no longer counts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StrictBool

from ..entry import Id
from ..views import ENTRIES_PROJECTION, RELATIONS_PROJECTION, STANDINGS_PROJECTION
from .operation import Answer, Effect, MinSeq, Operation, Request, Visible, Workspace


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
    """Retract an entry: it stays in the journal and does not count any more.

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
    """Restore a retracted entry, or one that the update rule found outdated: it counts again.

    For OWNER and ADMIN. A LEAD may restore entries that agents of its crew retracted, an agent those that it
    retracted itself. No reactor finds the same update again.
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
OPERATIONS: Final = (RETRACT, RESTORE)
