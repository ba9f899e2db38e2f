"""The tools of the drawers in the toolset ``palace``, under the names of the MemPalace."""

from __future__ import annotations

from typing import Final

from .tool import Tool

PALACE_DRAWERS: Final = (
    Tool("memory_status", "palace_status", "Count the drawers, by wing and room.", (), narrated=True),
    Tool("memory_list_wings", "palace_wings", "List the wings.", (), narrated=True),
    Tool("memory_list_rooms", "palace_rooms", "List the rooms.", ("wing",), narrated=True),
    Tool("memory_get_taxonomy", "palace_taxonomy", "Show wings, their rooms and counts.", (), narrated=True),
    Tool(
        "memory_search",
        "palace_search",
        "Search the drawers by words; texts are returned verbatim.",
        ("query", "limit", "wing", "room"),
        narrated=True,
    ),
    Tool(
        "memory_check_duplicate",
        "check_duplicate",
        "Check whether a text is filed already.",
        ("content", "threshold"),
        narrated=True,
    ),
    Tool(
        "memory_add_drawer",
        "add_drawer",
        "File a text verbatim under a wing and a room.",
        ("wing", "room", "content", "source_file", "added_by"),
        narrated=True,
    ),
    Tool("memory_delete_drawer", "delete_drawer", "Delete a drawer.", ("drawer_id",), narrated=True),
    Tool("memory_set_identity", "set_identity", "Set the identity of the workspace.", ("content",), narrated=True),
    Tool(
        "memory_diary_write",
        "diary_write",
        "Write into an agent's diary.",
        ("agent_name", "entry", "topic"),
        narrated=True,
    ),
    Tool("memory_diary_read", "diary_read", "Read an agent's diary.", ("agent_name", "last_n"), narrated=True),
)
