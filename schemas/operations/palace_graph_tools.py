"""The tools of the knowledge graph in the toolset ``palace``, under the names of the MemPalace."""

from __future__ import annotations

from typing import Final

from .tool import Tool

PALACE_GRAPH_TOOLS: Final = (
    Tool(
        "memory_kg_query",
        "kg_query",
        "Show the facts about an entity, incoming, outgoing or both.",
        ("entity", "as_of", "direction"),
        narrated=True,
    ),
    Tool(
        "memory_kg_add",
        "kg_add",
        "Add a fact: subject, predicate, object.",
        ("subject", "predicate", "object", "valid_from", "valid_to", "confidence", "source_closet"),
        narrated=True,
    ),
    Tool(
        "memory_kg_invalidate",
        "kg_invalidate",
        "Record that a fact no longer holds.",
        ("subject", "predicate", "object", "ended", "reason"),
        narrated=True,
    ),
    Tool("memory_kg_timeline", "kg_timeline", "Show facts in order of time.", ("entity",), narrated=True),
    Tool("memory_kg_stats", "kg_stats", "Count the entities and facts.", (), narrated=True),
)
