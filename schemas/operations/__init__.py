"""All operations of the service: one tuple per family, joined in ``ALL``."""

from typing import Any, Final

from . import (
    agents,
    conversation,
    document_search,
    documents,
    embeddings,
    facts,
    files,
    health,
    learning,
    letters,
    memory_block,
    memory_settings,
    palace,
    palace_graph,
    priorities,
    recall,
    relations,
    remembering,
    retractions,
    sweeps,
    tokens,
    tunnels,
    workspaces,
)
from .operation import Operation

ALL: Final[tuple[Operation[Any, Any], ...]] = (
    *recall.OPERATIONS,
    *remembering.OPERATIONS,
    *document_search.OPERATIONS,
    *conversation.OPERATIONS,
    *priorities.OPERATIONS,
    *retractions.OPERATIONS,
    *health.OPERATIONS,
    *relations.OPERATIONS,
    *agents.OPERATIONS,
    *documents.OPERATIONS,
    *memory_block.OPERATIONS,
    *files.OPERATIONS,
    *memory_settings.OPERATIONS,
    *facts.OPERATIONS,
    *palace.OPERATIONS,
    *palace_graph.OPERATIONS,
    *tunnels.OPERATIONS,
    *learning.OPERATIONS,
    *sweeps.OPERATIONS,
    *embeddings.OPERATIONS,
    *workspaces.OPERATIONS,
    *tokens.OPERATIONS,
    *letters.OPERATIONS,
)
"""All operations, in the order of docs/operations.md."""
