"""The JSON Schemas of an entry, committed as ``schemas/*.schema.json`` (``make generate``)."""

from __future__ import annotations

from typing import Any, Final

from .catalogue import catalogue
from .core.entry import JournalEntry
from .core.ids import SERVICE_ID_PATTERN, WORKSPACE_PATTERN
from .core.payload import SERVICE_ALONE

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_FILLED_BY_SERVICE: Final = ("id", "workspace_id", "ts")


def stored_json_schema() -> dict[str, Any]:
    """An entry as stored and returned. Unknown fields are allowed, because a newer version may have written them."""
    schema = JournalEntry.model_json_schema(mode="validation")
    return {"$schema": _DIALECT, **schema, "additionalProperties": True}


def entry_json_schema() -> dict[str, Any]:
    """An entry as submitted: only ``entry_type`` and ``summary`` are required.

    The schema cannot express limits of size, depth and numbers, nor the rights of the token.
    """
    schema = stored_json_schema()
    schema["title"] = "JournalEntrySubmission"
    schema["additionalProperties"] = False
    schema["required"] = [name for name in schema["required"] if name not in _FILLED_BY_SERVICE]
    schema["description"] = (
        "What an agent publishes. The token decides workspace, crew, agent and actor; id and ts are filled in if absent; "
        "the same id with the same content may be sent again and counts once."
    )
    fields = schema["properties"]
    fields["workspace_id"]["pattern"] = WORKSPACE_PATTERN
    fields["id"]["not"] = {"anyOf": [fields["id"]["not"], {"pattern": SERVICE_ID_PATTERN}]}
    fields["entry_type"]["not"] = {"pattern": _service_types()}
    fields["actor_type"].pop("default")  # the token decides it
    for name in _FILLED_BY_SERVICE:
        fields[name] = {"anyOf": [fields[name], {"type": "null"}], "default": None}
    return schema


def _service_types() -> str:
    """A pattern that matches the types that only the service publishes."""
    names = sorted(name for name, info in catalogue().items() if info.publisher in SERVICE_ALONE)
    exact = [name.replace(".", "[.]") for name in names if not name.endswith(".*")]
    below = [name.removesuffix(".*").replace(".", "[.]") + "[.].+" for name in names if name.endswith(".*")]
    return f"^({'|'.join(exact + below)})$"
