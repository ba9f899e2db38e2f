"""Everything that can be asked of the service: one tuple of operations per family, all of them in ``ALL``."""

from typing import Any, Final

from . import (
    embeddings,
    health,
    letters,
    priorities,
    recall,
    relations,
    sweeps,
    tokens,
    workspaces,
)
from .operation import Operation

ALL: Final[tuple[Operation[Any, Any], ...]] = (
    *recall.OPERATIONS,
    *priorities.OPERATIONS,
    *health.OPERATIONS,
    *relations.OPERATIONS,
    *sweeps.OPERATIONS,
    *embeddings.OPERATIONS,
    *workspaces.OPERATIONS,
    *tokens.OPERATIONS,
    *letters.OPERATIONS,
)
"""In the order of the docs."""
