"""The entry's JSON Schema for agents in other languages; ``schemas/*.schema.json`` are its committed output.

Invariant: the files equal what these functions return (a test keeps them current).
"""

from __future__ import annotations

from typing import Any, Final

from crew_journal.schemas.entry import JournalEntry

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_FILLED_BY_SERVICE: Final = ("id", "workspace_id", "ts")


def stored_json_schema() -> dict[str, Any]:
    """An entry as it is stored and returned: ``id``, ``workspace_id`` and ``ts`` are always there."""
    schema = JournalEntry.model_json_schema(mode="validation")
    return {"$schema": _DIALECT, **schema}


def entry_json_schema() -> dict[str, Any]:
    """An entry as it is submitted: only ``entry_type`` and ``summary`` are required."""
    schema = stored_json_schema()
    schema["title"] = "JournalEntrySubmission"
    schema["required"] = [name for name in schema["required"] if name not in _FILLED_BY_SERVICE]
    schema["description"] = (
        "What an agent publishes. The token decides workspace, crew and agent; id and ts are filled in if absent; "
        "the same id with the same content may be sent again and counts once."
    )
    for name in _FILLED_BY_SERVICE:
        schema["properties"][name] = {"anyOf": [schema["properties"][name], {"type": "null"}], "default": None}
    return schema
