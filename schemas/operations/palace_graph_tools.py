"""The tools of the knowledge graph and of the graph of rooms in the toolset ``palace``, under the names of the MemPalace."""

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
PALACE_NAVIGATION_TOOLS: Final = (
    Tool(
        "memory_traverse",
        "traverse",
        "Walk from a room to the rooms that share a wing with it.",
        ("start_room", "max_hops"),
        narrated=True,
    ),
    Tool(
        "memory_find_tunnels",
        "find_tunnels",
        "Find the rooms that are in several wings.",
        ("wing_a", "wing_b"),
        narrated=True,
    ),
    Tool("memory_graph_stats", "palace_graph", "Show figures of the graph of rooms and wings.", (), narrated=True),
)
"""Offered once their operations are bound to the drawers of the palace."""
