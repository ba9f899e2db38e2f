"""The operation that sets the live priority of an entry."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from ..entry import Priority
from ..views import ENTRIES_PROJECTION, STANDINGS_PROJECTION
from .operation import Access, Answer, Effect, MinSeq, Operation, Request, Visible, Workspace


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
OPERATIONS: Final = (SET_PRIORITY,)
