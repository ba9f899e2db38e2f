"""Operations on embedding models: list, add, activate, drop."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, StrictBool

from ..core.entry import WorkspaceId
from ..core.operation import Access, Answer, Effect, Operation, Request

_MODEL: Final = "minilm, the name of a model as `ollama list` prints it, or `openai/` and its name at the endpoint."
_WHY: Final = "The reason; it is recorded."


class ModelsRequest(Request):
    """List the models: where each is active, how many vectors are missing, and the outcome of its last call.

    Counts cover the token's workspace. A token of all workspaces names one, or gets the counts of all.
    """

    workspace_id: WorkspaceId | None = Field(
        default=None, description="The workspace to count; a token of all workspaces may leave it out to count all."
    )


class AddModelRequest(Request):
    """Add a model and compute its vectors in the background.

    The model is tested first. Recall continues to use the active model.
    """

    model: str = Field(min_length=1, max_length=96, description=_MODEL)


class ActivateModelRequest(Request):
    """Make recall use another model at once.

    The vectors of the former model are kept, so activating it again switches back at once. If entries have no vector
    of the new model, recall could not find them by meaning, so the request is refused (409) unless ``force`` is set.
    """

    model: str = Field(min_length=1, max_length=96, description=_MODEL)
    reason: str = Field(default="", max_length=500, description=_WHY)
    force: StrictBool = Field(default=False, description="Switch even if entries have no vector of the model yet.")
    workspace_id: WorkspaceId | None = Field(
        default=None, description="Only in this workspace; if absent, in every workspace without a model of its own."
    )


class DropModelRequest(Request):
    """Delete a model's vectors and stop computing them.

    The active model cannot be dropped. If the model is added again, all its vectors are computed again.
    """

    model: str = Field(min_length=1, max_length=96, description=_MODEL)
    reason: str = Field(default="", max_length=500, description=_WHY)


class ModelShown(Answer):
    """One model.

    ``missing`` counts entries without a vector; null if the model's vectors are not being computed. ``active_in`` and
    ``filling`` are only in answers for all workspaces.
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
    """The models by name; ``workspace_id`` is null if the counts cover all workspaces."""

    workspace_id: str | None
    models: tuple[ModelShown, ...]


class ModelChange(Answer):
    """The new state of a model, and the ``seq`` of the change if there was one."""

    model: str
    changed: bool
    seq: int | None = None
    dim: int | None = None


class ModelActivated(Answer):
    """The active model, the former one, and how many vectors are missing."""

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
    command="model list",
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
    command="model activate",
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
    command="model drop",
    repeatable=False,
)
OPERATIONS: Final = (EMBEDDING_MODELS, ADD_MODEL, ACTIVATE_MODEL, DROP_MODEL)
