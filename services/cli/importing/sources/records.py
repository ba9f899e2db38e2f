"""Records of other memories and of tracing: mem0, the MCP memory server, CloudEvents, OpenTelemetry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....client.project import slug
from ...foreign_files import NAME, OBJECT, Shape
from .found import MAX_TEXT_BYTES, Notes, Record, objects, statement, timed, values

# Memories of mem0, as ``get_all`` returns them or an export holds them: ``{"results": [{"id", "memory", …}]}``.
#
# A memory that mem0 has changed since an earlier import becomes a new entry, which does not supersede the earlier one.


MEM0 = "mem0"
_MEMORY = dict.fromkeys(("id", "memory", "text", "data", "agent_id", "user_id"), NAME)
_PAGE: Shape = {"results": [_MEMORY], "memories": [_MEMORY], **_MEMORY}
_KEPT = ("user_id", "run_id", "app_id", "categories")


def read_mem0(path: Path, notes: Notes) -> Iterator[Record]:
    """Each memory; ``user_id`` becomes the person whose data it is."""
    for value in values(path, notes, _PAGE):
        page = objects(value.get("results") or value.get("memories") or [value]) if isinstance(value, dict) else []
        for record in page:
            text = str(record.get("memory") or record.get("text") or record.get("data") or "").strip()
            if not text:
                notes.skip("without text")
                continue
            kept = {name: record.get(name) or None for name in _KEPT}
            entry = statement(MEM0, text, notes, named=str(record.get("id") or ""), at=record.get("created_at"), **kept)
            if record.get("agent_id"):
                entry["agent_id"] = slug(str(record["agent_id"]))
            if record.get("user_id"):
                entry["data_subject_id"] = " ".join(str(record["user_id"]).split())[:128]
            yield entry


# The file of the MCP memory server (``memory.jsonl``): entities with observations, and relations between them.
#
# Nothing in it has a time or an id, so an observation is named by its content.


MCP_MEMORY = "mcp-memory"
_ONE: dict[str, Any] = {
    **dict.fromkeys(("type", "name", "entityType", "from", "relationType", "to"), NAME),
    "observations": [NAME],
}
_GRAPH: Shape = {"entities": [_ONE], "relations": [_ONE], **_ONE}


def read_mcp_memory(path: Path, notes: Notes) -> Iterator[Record]:
    """Each observation as ``name (type): observation``, each relation as ``from relation to``."""
    for value in _lines(path, notes):
        kind = value.get("type")
        if kind == "entity":
            name, of = str(value.get("name") or ""), str(value.get("entityType") or "")
            for observation in value.get("observations") or ():
                text = f"{name}{f' ({of})' if of else ''}: {observation}"
                yield statement(MCP_MEMORY, text, notes, entity=name, entity_type=of or None)
        elif kind == "relation":
            ends = {name: str(value.get(name) or "") for name in ("from", "relationType", "to")}
            yield statement(MCP_MEMORY, " ".join(ends.values()), notes, relation=ends)
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


# Events in the JSON format of CloudEvents 1.0: one, a batch (an array), or one a line.


CLOUDEVENTS = "cloudevents"
_NOT_IN_TYPES = re.compile(r"[^a-z0-9_]+")
_EVENT = {"specversion": NAME, "id": NAME, "source": NAME, "type": NAME, "subject": NAME}
_SAYS = ("summary", "message", "title", "text", "description", "name")


def read_cloudevents(path: Path, notes: Notes) -> Iterator[Record]:
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
            "refs": {"imported_from": CLOUDEVENTS, "imported_id": f"{event['source']} {event['id']}"},
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


# Spans of OpenTelemetry as OTLP/JSON: ``{"resourceSpans": [{"scopeSpans": [{"spans": […]}]}]}``, one or a line each.


OTEL = "otel"
SPAN = "run.agent_span"
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_ERROR = (2, "STATUS_CODE_ERROR")
_NS_OF_S = 1_000_000_000
_NS_OF_MS = 1_000_000
_ATTRIBUTE_CHARS = 4_000
_LATEST_NS = 2**63
_ATTRIBUTES: Shape = [{"key": NAME, "value": OBJECT}]
_SPANS: Shape = [
    {
        **dict.fromkeys(("name", "traceId", "spanId", "parentSpanId", "startTimeUnixNano", "endTimeUnixNano"), NAME),
        "status": {"code": NAME, "message": NAME},
        "attributes": _ATTRIBUTES,
    }
]
_SCOPES: Shape = [{"spans": _SPANS}]
_DOCUMENT: Shape = {
    "resourceSpans": [
        {"resource": {"attributes": _ATTRIBUTES}, "scopeSpans": _SCOPES, "instrumentationLibrarySpans": _SCOPES}
    ]
}


def read_otel(path: Path, notes: Notes) -> Iterator[Record]:
    """Each span: its trace, its step, what failed, how long it took, and its attributes."""
    for document in values(path, notes, _DOCUMENT):
        for resource in objects(document.get("resourceSpans") if isinstance(document, dict) else None):
            about = _attributes((resource.get("resource") or {}).get("attributes"))
            agent = about.get("service.name")
            for scope in objects(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")):
                for span in objects(scope.get("spans")):
                    yield _entry(span, slug(str(agent)) if agent else OTEL, notes)


def _entry(span: dict[str, Any], agent: str, notes: Notes) -> Record:
    status, attributes = span.get("status") or {}, _attributes(span.get("attributes"))
    failed = status.get("code") in _ERROR
    began, ended = _nanoseconds(span.get("startTimeUnixNano")), _nanoseconds(span.get("endTimeUnixNano"))
    name = " ".join(str(span.get("name") or "span").split())
    details = [str(attributes[key]) for key in ("gen_ai.request.model", "gen_ai.tool.name") if attributes.get(key)]
    details += [f"failed: {status.get('message') or 'no reason given'}"] if failed else []
    payload: dict[str, Any] = {"name": name, "attributes": attributes}
    if began and ended:
        payload["duration_ms"] = (ended - began) / _NS_OF_MS
    if len(str(attributes)) > MAX_TEXT_BYTES // 4:
        payload["attributes"] = {key: str(value)[:200] for key, value in list(attributes.items())[:100]}
        notes.cut += 1
    record = {
        "entry_type": SPAN,
        "summary": ": ".join([name, *details])[:2_000],
        "agent_id": slug(str(attributes.get("gen_ai.agent.name") or agent)),
        "severity": "error" if failed else "info",
        "payload": payload,
        "refs": {"imported_from": OTEL, "parent_span_id": span.get("parentSpanId") or None},
        "trace_id": str(span.get("traceId") or ""),
        "span_id": str(span.get("spanId") or ""),
    }
    return timed(record, began / _NS_OF_S if began else None, notes)


def _nanoseconds(value: Any) -> int:
    try:
        number = int(value or 0)
    except ValueError:
        return 0
    return number if 0 < number < _LATEST_NS else 0


def _attributes(pairs: Any) -> dict[str, Any]:
    return {str(pair.get("key")): _value(pair.get("value")) for pair in objects(pairs)}


def _value(value: Any) -> Any:
    """An OTLP value (``{"stringValue": …}``) as JSON; a long text is cut."""
    if not isinstance(value, dict) or not value:
        return None
    kind, inner = next(iter(value.items()))
    if kind == "arrayValue":
        return [_value(item) for item in objects(inner.get("values"))] if isinstance(inner, dict) else None
    if kind == "kvlistValue":
        return _attributes(inner.get("values")) if isinstance(inner, dict) else None
    if kind == "intValue" and isinstance(inner, str) and _WHOLE.fullmatch(inner):
        return int(inner)
    return inner[:_ATTRIBUTE_CHARS] if isinstance(inner, str) else inner
