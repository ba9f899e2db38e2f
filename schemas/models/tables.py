"""Tables of embedding models, and of the vectors and token bits that they computed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from ..core.ids import SYSTEM_WORKSPACE
from ..core.ports import ViewReader
from ..core.table import Int32, Ms, Seq, Table

VECTORS_PROJECTION: Final = "vectors"
ACTIVATIONS_PROJECTION: Final = "activations"
TOKEN_BITS_PROJECTION: Final = "token_bits"


class ModelState(StrEnum):
    """The decision about an embedding model.

    ``activated``: entries get its vectors while it is active; ``added``: entries get its vectors, active or not;
    ``dropped``: its vectors are deleted and entries get none.
    """

    ACTIVATED = "activated"
    ADDED = "added"
    DROPPED = "dropped"


class EmbeddingRow(NamedTuple):
    """The vector of an entry by a model; ``dim`` 0 is a tombstone: the entry has none."""

    key: Seq  # hash of workspace, entry and model
    entry_seq: Seq
    entry_id: str
    workspace_id: str
    model: str
    dim: Int32
    vector: bytes  # ``4 * dim`` bytes
    text_hash: str
    indexed_at: Ms  # the first vector of this model
    seq: Seq  # the fact's


class ModelRow(NamedTuple):
    """The state that was decided for a model."""

    model: str
    embedder: str
    state: str  # as in ``ModelState``
    dropped_seq: Seq  # the last drop, 0 if none: what is filled after it is filled again
    seq: Seq  # the last decision


class DroppedRow(NamedTuple):
    """A model whose token bits are ignored."""

    model: str


class ActivationRow(NamedTuple):
    """The last activation of a workspace, ``_system`` for the default."""

    workspace_id: str
    model: str
    embedder: str
    dim: Int32 | None
    seq: Seq


class TokenBitsRow(NamedTuple):
    """The tokens of an entry in context by a model, one bit per dimension."""

    key: Seq  # hash of workspace, entry and model
    entry_seq: Seq
    entry_id: str
    workspace_id: str
    model: str
    quantiser: Int32
    dim: Int32
    bits: bytes  # ``dim / 8`` bytes a token
    first_passage: Annotated[int, "USMALLINT"]
    seq: Seq  # the fact's


_NAME: Final = ("key", "workspace_id", "entry_id", "model")

EMBEDDINGS: Final = Table("journal_embeddings", EmbeddingRow, VECTORS_PROJECTION, key=_NAME, document="entry_seq")
EMBEDDING_MODELS: Final = Table("embedding_models", ModelRow, VECTORS_PROJECTION, key=("model",))
ACTIVATIONS: Final = Table("embeddings_active", ActivationRow, ACTIVATIONS_PROJECTION, key=("workspace_id",))
TOKEN_BITS: Final = Table("entry_token_bits", TokenBitsRow, TOKEN_BITS_PROJECTION, key=_NAME, document="entry_seq")
TOKEN_BITS_DROPPED: Final = Table("token_bits_dropped", DroppedRow, TOKEN_BITS_PROJECTION, key=("model",))


# Reads from the views which embedding model recall uses.


_ACTIVE: Final = f"""SELECT a.workspace_id, a.model FROM embeddings_active a
    LEFT JOIN {EMBEDDING_MODELS} m ON m.model = a.model
    WHERE m.state IS DISTINCT FROM '{ModelState.DROPPED.value}'"""


def read_active_models(views: ViewReader) -> dict[str, str]:
    """Active model by workspace (``_system``: the default); without dropped models. Blocking."""
    return {str(workspace_id): str(model) for workspace_id, model in views.rows(_ACTIVE)}


def active_in(models: Mapping[str, str], workspace_id: str) -> str | None:
    """The workspace's own active model, else the default of ``_system``; None if there is neither."""
    return models.get(workspace_id) or models.get(SYSTEM_WORKSPACE)
