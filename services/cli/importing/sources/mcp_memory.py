"""The file of the MCP memory server (``memory.jsonl``): entities with observations, and relations between them.

Nothing in it has a time or an id, so an observation is named by its content.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...foreign_json import NAME, Shape
from .found import Notes, Record, objects, statement, values

SOURCE = "mcp-memory"
_ONE: dict[str, Any] = {
    **dict.fromkeys(("type", "name", "entityType", "from", "relationType", "to"), NAME),
    "observations": [NAME],
}
_GRAPH: Shape = {"entities": [_ONE], "relations": [_ONE], **_ONE}


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """Each observation as ``name (type): observation``, each relation as ``from relation to``."""
    for value in _lines(path, notes):
        kind = value.get("type")
        if kind == "entity":
            name, of = str(value.get("name") or ""), str(value.get("entityType") or "")
            for observation in value.get("observations") or ():
                text = f"{name}{f' ({of})' if of else ''}: {observation}"
                yield statement(SOURCE, text, notes, entity=name, entity_type=of or None)
        elif kind == "relation":
            ends = {name: str(value.get(name) or "") for name in ("from", "relationType", "to")}
            yield statement(SOURCE, " ".join(ends.values()), notes, relation=ends)
        else:
            notes.skip("neither an entity nor a relation")


def _lines(path: Path, notes: Notes) -> Iterator[Record]:
    """Entities and relations of a file of lines, or of one object that lists them (``read_graph``)."""
    for value in values(path, notes, _GRAPH):
        if not isinstance(value, dict):
            continue
        if "type" in value:
            yield value
            continue
        for key, kind in (("entities", "entity"), ("relations", "relation")):
            yield from ({**item, "type": kind} for item in objects(value.get(key)))
