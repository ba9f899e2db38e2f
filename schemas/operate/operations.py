"""Operations on dead letters: events that a projection could not fold."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, StrictBool, StrictInt

from ..core.operation import MAX_SEQ, Access, Answer, Effect, Operation, Request, Workspace


class DeadLettersRequest(Request):
    """List events that could not be folded, newest first, each with its reason.

    Covers the token's workspace. A token for all workspaces may name a workspace; otherwise the answer covers all.
    """

    state: Literal["parked", "folded", "retried", "discarded"] | None = Field(
        default=None, description="Only those in this state: parked, folded, retried or discarded."
    )
    workspace_id: Workspace = None


class RetryRequest(Request):
    """Publish a dead letter again, as a new event at the end of the journal.

    If only one view failed to fold the event, retrying would apply it twice to the others; then the request is refused
    (409) unless ``force`` is set. Repair that view and raise its version instead: it then folds the event in its
    original place.
    """

    seq: StrictInt = Field(ge=1, le=MAX_SEQ, description="Sequence of the dead letter.")
    force: StrictBool = Field(
        default=False, description="Retry even if only one view failed to fold it; the other views then apply it twice."
    )
    workspace_id: Workspace = None


class DiscardRequest(Request):
    """Discard a dead letter.

    It stays in the stream DEADLETTER and no longer counts as open.
    """

    seq: StrictInt = Field(ge=1, le=MAX_SEQ, description="Sequence of the dead letter.")
    reason: str = Field(default="", max_length=500, description="The reason; it is recorded.")
    workspace_id: Workspace = None


class DeadLetter(Answer):
    """An event that a projection could not fold; ``body`` is the beginning of its content, null once it is settled."""

    projection: str
    version: int
    seq: int
    subject: str
    reason: str
    parked_ms: int
    state: str
    workspace_id: str
    body: str | None = None


class DeadLettersAnswer(Answer):
    """Dead letters, newest first."""

    dead_letters: tuple[DeadLetter, ...]


class DeadLetterAnswer(Answer):
    """The new state of a dead letter; ``new_seq`` if it was published again."""

    seq: int
    state: str
    new_seq: int | None = None


DEAD_LETTERS: Final = Operation(
    name="dead_letters",
    request=DeadLettersRequest,
    answer=DeadLettersAnswer,
    route="GET /v1/admin/dlq",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    command="dlq list",
)
RETRY_DEAD_LETTER: Final = Operation(
    name="retry_dead_letter",
    request=RetryRequest,
    answer=DeadLetterAnswer,
    route="POST /v1/admin/dlq/{seq}/retry",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(404, 409),
    repeatable=False,
)
DISCARD_DEAD_LETTER: Final = Operation(
    name="discard_dead_letter",
    request=DiscardRequest,
    answer=DeadLetterAnswer,
    route="POST /v1/admin/dlq/{seq}/discard",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(404,),
    repeatable=False,
)
OPERATIONS: Final = (DEAD_LETTERS, RETRY_DEAD_LETTER, DISCARD_DEAD_LETTER)
