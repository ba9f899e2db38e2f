"""Binds every operation to the method that answers it: a loop over the answers of the families.

Invariant: every operation has exactly one answer, whose types are those of the operation (a test).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from ...schemas.operations.operation import Operation
from ..access import tokens
from ..desk import Desk, Handler
from ..layered import assembling
from ..layered import facts as layered_facts
from ..layered import use_cases as layered
from ..memory import (
    agents,
    block,
    bundles,
    calibration,
    conversation,
    files,
    health,
    learning,
    models,
    nudges,
    operators,
    priorities,
    proposals,
    recalls,
    receipts,
    reindex,
    relations,
    remembering,
    retractions,
    sweep_now,
    workspace_settings,
)
from ..memory.documents import administration
from ..memory.documents import reading as document_reading
from ..memory.documents import use_cases as documents
from ..memory.providers.choosing import DocumentStores
from ..node import Answers, Node
from ..operating import letters
from ..palace import filing, graph, importing, navigation, reading, tunnels
from ..query.chunks import combined
from ..query.chunks import documents as document_search
from . import link

FAMILIES: Final[tuple[Answers, ...]] = (
    recalls.ANSWERS,
    receipts.ANSWERS,
    remembering.ANSWERS,
    conversation.ANSWERS,
    priorities.ANSWERS,
    health.ANSWERS,
    relations.ANSWERS,
    retractions.ANSWERS,
    agents.ANSWERS,
    learning.ANSWERS,
    proposals.ANSWERS,
    operators.ANSWERS,
    sweep_now.ANSWERS,
    reindex.ANSWERS,
    models.ANSWERS,
    nudges.ANSWERS,
    calibration.ANSWERS,
    workspace_settings.ANSWERS,
    graph.ANSWERS,
    reading.ANSWERS,
    filing.ANSWERS,
    importing.ANSWERS,
    navigation.ANSWERS,
    tunnels.ANSWERS,
    layered.ANSWERS,
    layered_facts.ANSWERS,
    assembling.ANSWERS,
    tokens.ANSWERS,
    link.ANSWERS,
    letters.ANSWERS,
    documents.ANSWERS,
    document_reading.ANSWERS,
    administration.ANSWERS,
    block.ANSWERS,
    bundles.ANSWERS,
    files.ANSWERS,
    document_search.ANSWERS,
    combined.ANSWERS,
)


def handlers(node: Node) -> Iterator[tuple[Operation[Any, Any], Handler[Any, Any]]]:
    """Every operation with its handler: the method of the use-case that the node has."""
    for answers in FAMILIES:
        for operation, method in answers:
            of: type[Any] = vars(sys.modules[method.__module__])[method.__qualname__.partition(".")[0]]
            yield operation, getattr(node.use(of), method.__name__)


def desk_of(node: Node) -> Desk:
    """The desk, which answers every operation."""
    desk = Desk(node.views, node.use(DocumentStores).require_journal)
    for operation, handler in handlers(node):
        desk.bind(operation, handler)
    return desk
