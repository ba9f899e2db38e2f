"""All operations of the service: one tuple per family, joined in ``ALL``."""

from typing import Any, Final

from .access import operations as access
from .chain import operations as chain
from .cluster import operations as cluster
from .context import operations as context
from .core.operation import Operation
from .documents import operations as documents
from .entries import operations as entries
from .erasure import operations as erasure
from .facts import operations as facts
from .health import operations as health
from .learning import operations as learning
from .lineage import operations as lineage
from .models import operations as models
from .operate import operations as operate
from .operators import operations as operators
from .palace import operations as palace
from .recall import operations as recall
from .relations import operations as relations
from .standing import operations as standing
from .sweeps import operations as sweeps

ALL: Final[tuple[Operation[Any, Any], ...]] = (
    *recall.OPERATIONS,
    *entries.OPERATIONS,
    *documents.OPERATIONS,
    *standing.OPERATIONS,
    *health.OPERATIONS,
    *relations.OPERATIONS,
    *access.OPERATIONS,
    *context.OPERATIONS,
    *facts.OPERATIONS,
    *palace.OPERATIONS,
    *learning.OPERATIONS,
    *operators.OPERATIONS,
    *sweeps.OPERATIONS,
    *models.OPERATIONS,
    *operate.OPERATIONS,
    *erasure.OPERATIONS,
    *chain.OPERATIONS,
    *cluster.OPERATIONS,
    *lineage.OPERATIONS,
)
"""All operations, in the order of docs/operations.md."""
