"""Spans of OpenTelemetry as OTLP/JSON: ``{"resourceSpans": [{"scopeSpans": [{"spans": […]}]}]}``, one or a line each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....client.project import slug
from ...foreign_json import NAME, OBJECT, Shape
from .found import MAX_TEXT_BYTES, Notes, Record, objects, timed, values

SOURCE = "otel"
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


def read(path: Path, notes: Notes) -> Iterator[Record]:
    """Each span: its trace, its step, what failed, how long it took, and its attributes."""
    for document in values(path, notes, _DOCUMENT):
        for resource in objects(document.get("resourceSpans") if isinstance(document, dict) else None):
            about = _attributes((resource.get("resource") or {}).get("attributes"))
            agent = about.get("service.name")
            for scope in objects(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")):
                for span in objects(scope.get("spans")):
                    yield _entry(span, slug(str(agent)) if agent else SOURCE, notes)


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
        "refs": {"imported_from": SOURCE, "parent_span_id": span.get("parentSpanId") or None},
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
