"""The catalogue of entry types (contract §1): clients' types from ``catalogue.json``, the service's from payload classes.

Invariant: a type that is not in the catalogue is accepted, stored and listed. A key that ends in ``.*`` stands for all
types with this prefix; the longest match counts.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from .. import schemas
from .core.entry import JournalEntry
from .core.ids import SERVICE_ID_PATTERN, WORKSPACE_PATTERN
from .core.payload import SERVICE_ALONE, ControlPayload, EntryTypeInfo, PublisherKind

# Finds the payload class of every control entry that the service publishes.
#
# Invariant: a class is found by its location alone: a module of ``schemas`` that is called ``events`` or lies in a
# folder of that name. There is no list of classes.


@cache
def control_payloads() -> dict[str, type[ControlPayload]]:
    """Entry type → its payload class, in the order of the types."""
    root = Path(schemas.__path__[0])
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if "events" in parts and parts[-1] != "__init__":
            importlib.import_module(".".join((schemas.__name__, *parts)))
    own = (model for model in ControlPayload.__subclasses__() if model.__module__.startswith(schemas.__name__))
    return {model.ENTRY_TYPE: model for model in sorted(own, key=lambda model: model.ENTRY_TYPE)}


_DECIDING: Final = frozenset({PublisherKind.SERVICE, PublisherKind.OPERATORS})
_RESERVED: Final = EntryTypeInfo(group="control", publisher=PublisherKind.RESERVED)
_SERVICE: Final = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE)
_NOISE: Final = {"noise": True}
_NAMES_OF_SERVICE: Final = {
    "archive.* chain.* document.* drawer.* fact.* kg.* lesson.* operator.* partition.* procedure.* quarantine.* recall.* "
    "retraction.* rule.* tunnel.* working.*": _RESERVED,
    "proposal.*": _RESERVED.model_copy(update=_NOISE),
    "skill.*": _RESERVED.model_copy(update={"group": "other"}),
    "system.compaction": _RESERVED.model_copy(update={"group": "system"}),
    "memory.updated": _RESERVED.model_copy(update=_NOISE | {"group": "memory"}),
    "consent.* erasure.* projection.*": _SERVICE,
    "embeddings.* token.*": _SERVICE.model_copy(update=_NOISE),
    "sweep.*": _SERVICE.model_copy(update=_NOISE | {"quiet": True}),
}
"""Names that are reserved for the service although no payload class has them: all types below a prefix, including
future ones, and ``memory.updated``, the type under which document writes are listed.
"""
UNKNOWN: Final = EntryTypeInfo(group="other")


@cache
def catalogue() -> dict[str, EntryTypeInfo]:
    """The catalogue: type or ``prefix.*`` → its properties. A type whose prefix has the same properties is left out."""
    text = resources.files("crew_journal.schemas").joinpath("catalogue.json").read_text("utf-8")
    known = {name: EntryTypeInfo.model_validate(info) for name, info in json.loads(text).items()}
    known |= {name: info for names, info in _NAMES_OF_SERVICE.items() for name in names.split()}
    own = {name: payload.INFO for name, payload in control_payloads().items()}
    return known | {name: info for name, info in own.items() if _found(known, name) != info}


@lru_cache(maxsize=4_096)
def info_of(entry_type: str) -> EntryTypeInfo:
    """Properties of ``entry_type``; ``UNKNOWN`` if the catalogue does not hold it."""
    return _found(catalogue(), entry_type)


def _found(known: Mapping[str, EntryTypeInfo], entry_type: str) -> EntryTypeInfo:
    if entry_type in known:
        return known[entry_type]
    parts = entry_type.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if (info := known.get(".".join(parts[:end]) + ".*")) is not None:
            return info
    return UNKNOWN


def is_control_type(entry_type: str) -> bool:
    """Whether the type records a decision and is therefore accepted on ``control.`` only."""
    return info_of(entry_type).publisher in _DECIDING


def publishers_of(pattern: str) -> frozenset[PublisherKind]:
    """Publishers of all types that a type or ``prefix.*`` covers, unknown types included."""
    if not pattern.endswith(".*"):
        return frozenset({info_of(pattern).publisher})
    below = (info.publisher for name, info in catalogue().items() if name.startswith(pattern.removesuffix("*")))
    return frozenset({info_of(pattern).publisher, *below})


def why_not_granted(pattern: str) -> str | None:
    """Why a pattern cannot be granted (agents can publish none of its types); None if it can be granted."""
    publishers = publishers_of(pattern)
    if publishers & {PublisherKind.AGENTS, PublisherKind.VOUCHED}:
        return None
    who = "the service" if publishers <= SERVICE_ALONE else "the service, OWNER and ADMIN"
    return f"{pattern}: only {who} can publish {'these types' if pattern.endswith('.*') else 'this type'}"


# The JSON Schemas of an entry, committed as ``schemas/*.schema.json`` (``make generate``).


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
