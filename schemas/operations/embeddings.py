"""Embedding models: filled, switched and dropped."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, StrictBool

from ..entry import WorkspaceId
from .operation import Access, Answer, Effect, Operation, Request

_MODEL: Final = "minilm, or a model's name as `ollama list` shows it."
_WHY: Final = "Why; it is recorded."


class ModelsRequest(Request):
    """List the models: where recall uses them, how far they are filled, and how the last call ended.

    Figures of the token's workspace; of all for a token of all workspaces that names none.
    """

    workspace_id: WorkspaceId | None = Field(
        default=None, description="Figures of this workspace; of all if absent, for a token of all workspaces."
    )


class AddModelRequest(Request):
    """Fill a further model in the background.

    It is tried out first; recall goes on with the active one.
    """

    model: str = Field(min_length=1, max_length=96, description=_MODEL)


class ActivateModelRequest(Request):
    """Let recall use another model, at once.

    The former one stays filled: activate it again to switch back. It is refused (409) while entries have no vector of the
    model, which recall would not find by meaning, unless it is forced.
    """

    model: str = Field(min_length=1, max_length=96, description=_MODEL)
    reason: str = Field(default="", max_length=500, description=_WHY)
    force: StrictBool = Field(default=False, description="Also if entries have no vector of it yet.")
    workspace_id: WorkspaceId | None = Field(
        default=None, description="Only in this workspace; wherever none was activated by name if absent."
    )


class DropModelRequest(Request):
    """Forget a model's vectors and fill it no longer.

    The active model cannot be dropped. One that is added again is filled from the beginning.
    """

    model: str = Field(min_length=1, max_length=96, description=_MODEL)
    reason: str = Field(default="", max_length=500, description=_WHY)


class ModelShown(Answer):
    """One model.

    ``missing`` is null if nothing fills the model. ``active_in`` and ``filling`` are there only with figures of all
    workspaces.
    """

    model: str
    embedder: str
    state: str
    active: bool
    filled: bool
    generation: int = 0
    dim: int | None
    vectors: int
    refused: int
    missing: int | None
    embeddable: int
    outcome: dict[str, Any] | None
    active_in: tuple[str, ...] | None = None
    filling: dict[str, Any] | None = None


class ModelsAnswer(Answer):
    """The models by name; ``workspace_id`` is null with figures of all workspaces."""

    workspace_id: str | None
    models: tuple[ModelShown, ...]


class ModelChange(Answer):
    """What became of a model; ``seq`` of the change if there was one."""

    model: str
    changed: bool
    seq: int | None = None
    dim: int | None = None


class ModelActivated(Answer):
    """The active model, the one before it, and how far it is filled."""

    workspace_id: str | None = None
    model: str
    changed: bool
    seq: int | None = None
    former: str | None = None
    vectors: int = 0
    missing: int = 0
    embeddable: int = 0


EMBEDDING_MODELS: Final = Operation(
    name="embedding_models",
    request=ModelsRequest,
    answer=ModelsAnswer,
    route="GET /v1/admin/embeddings",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    command="embeddings list",
)
ADD_MODEL: Final = Operation(
    name="add_model",
    request=AddModelRequest,
    answer=ModelChange,
    route="POST /v1/admin/embeddings",
    effect=Effect.CHANGES,
    access=Access.NODE_OWNER,
    errors=(404,),
    repeatable=False,
)
ACTIVATE_MODEL: Final = Operation(
    name="activate_model",
    request=ActivateModelRequest,
    answer=ModelActivated,
    route="POST /v1/admin/embeddings/activate",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(404, 409),
    command="embeddings activate",
    repeatable=False,
)
DROP_MODEL: Final = Operation(
    name="drop_model",
    request=DropModelRequest,
    answer=ModelChange,
    route="POST /v1/admin/embeddings/drop",
    effect=Effect.DESTROYS,
    access=Access.NODE_OWNER,
    errors=(404, 409),
    command="embeddings drop",
    repeatable=False,
)
OPERATIONS: Final = (EMBEDDING_MODELS, ADD_MODEL, ACTIVATE_MODEL, DROP_MODEL)
"""In the order of the docs."""
