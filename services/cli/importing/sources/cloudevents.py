"""Events in the JSON format of CloudEvents 1.0: one, a batch (an array), or one a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....client.project import slug
from ...foreign_json import NAME
from .found import MAX_TEXT_BYTES, Notes, Record, timed, values

SOURCE = "cloudevents"
_NOT_IN_TYPES = re.compile(r"[^a-z0-9_]+")
_EVENT = {"specversion": NAME, "id": NAME, "source": NAME, "type": NAME, "subject": NAME}
_SAYS = ("summary", "message", "title", "text", "description", "name")


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """Yield an entry for each event; its type is ``event.`` and the last three parts of the event's type."""
    for event in values(path, notes, _EVENT):
        if not isinstance(event, dict) or not all(event.get(name) for name in ("specversion", "id", "source", "type")):
            notes.skip("not a CloudEvent (specversion, id, source and type are required)")
            continue
        data = event.get("data")
        payload = {
            name: value for name, value in event.items() if name not in ("specversion", "id", "time", "data_base64")
        }
        if len(str(data)) > MAX_TEXT_BYTES // 2:
            payload["data"] = str(data)[: MAX_TEXT_BYTES // 2]
            notes.cut += 1
        record = {
            "entry_type": entry_type(str(event["type"])),
            "summary": _summary(event, data),
            "agent_id": slug(str(event["source"])),
            "payload": payload,
            "refs": {"imported_from": SOURCE, "imported_id": f"{event['source']} {event['id']}"},
        }
        yield timed(record, event.get("time"), notes)


def entry_type(given: str) -> str:
    """``com.example.order.created`` → ``event.example.order.created``; never a type that only the service writes."""
    parts = [_NOT_IN_TYPES.sub("_", part).strip("_") for part in given.lower().split(".")]
    return ".".join(["event", *[part for part in parts if part][-3:]])[:48].rstrip("._")


def _summary(event: dict[str, Any], data: Any) -> str:
    texts = [data] if isinstance(data, str) else [data.get(key) for key in _SAYS] if isinstance(data, dict) else []
    text = next((candidate for candidate in texts if isinstance(candidate, str) and candidate.strip()), "")
    line = " ".join(f"{event['type']} {event.get('subject') or ''}".split())
    return f"{line}: {' '.join(text.split())}"[:2_000] if text else line[:2_000]
