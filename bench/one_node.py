"""Nodes of a few parts, for single use-cases."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import Stemmer

from crew_journal.schemas.core.ports import ViewReader
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.documents.search import no_record
from crew_journal.services.node import Node


def node_of(views: ViewReader, **parts: Any) -> Node:
    """A node over views; a use-case that needs a part which is not given fails."""
    given: dict[str, Any] = {
        **dict.fromkeys(("journal", "writer", "queries", "recall", "embedders")),
        "analyzer": Analyzer(Stemmer.Stemmer),
        "record_search": no_record,
        "settings": Settings(),
        "clock": lambda: datetime.now(UTC),
        "subject_key": b"",
        "ends": AsyncExitStack(),
        **parts,
    }
    return Node(views=views, **given)
