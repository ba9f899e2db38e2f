"""``/docs``: every route on one page, made of the OpenAPI description, with a form that sends the request.

Invariants: every text of the description is escaped; the page runs and loads only its own two files, and sends requests only
to this service; the token that is typed in stays in the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_EXAMPLES: Final[dict[str, Any]] = {
    "string": "",
    "integer": 1,
    "number": 1.0,
    "boolean": False,
    "array": [],
    "object": {},
}


def render_docs(openapi: Mapping[str, Any]) -> str:
    """The page of an OpenAPI description."""
    info = openapi["info"]
    body = "".join(
        _route(path, method, route) for path, methods in openapi["paths"].items() for method, route in methods.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/ui/static/docs.css">'
        '<script src="/ui/static/docs.js" defer></script>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        "<p>Send <code>Authorization: Bearer cj_…</code>. Errors are problem+json. The machine-readable description is "
        "<code>/openapi.json</code>.</p>"
        '<p><label>Token for the requests of this page: <input id="token" type="password" autocomplete="off" '
        'placeholder="cj_…"></label> It stays in this page until you close or reload it.</p>'
        f"{body}</html>"
    )


def _route(path: str, method: str, route: Mapping[str, Any]) -> str:
    rows = "".join(_rows(route))
    table = f"<table><tr><th>parameter<th>in<th>meaning<th>value</tr>{rows}</table>" if rows else ""
    answers = ", ".join(escape(str(status)) for status in route.get("responses", {}))
    return (
        f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2><p><b>{_marked(route.get('summary', ''))}.</b> "
        f"{_marked(route.get('description', ''))}</p>"
        f'<form data-method="{escape(method.upper())}" data-path="{escape(path)}">{table}'
        f"<p>Answers: {answers} <button>Send</button></p><pre hidden aria-live=polite></pre></form>"
    )


def _rows(route: Mapping[str, Any]) -> Iterator[str]:
    for parameter in route.get("parameters", ()):
        name, place = escape(parameter["name"]), escape(parameter["in"])
        needed = " required" if parameter.get("required") else ""
        yield (
            f"<tr><td>{name}<td>{place}<td>{_marked(parameter.get('description', ''))}"
            f'<td><input name="{name}" data-in="{place}" aria-label="{name}"{needed}></tr>'
        )
    for media, content in route.get("requestBody", {}).get("content", {}).items():
        text = json.dumps(example_of(content), indent=2, ensure_ascii=False)
        yield (
            f"<tr><td>body<td>JSON<td>an example; all fields are in /openapi.json<td>"
            f'<textarea data-in="body" data-type="{escape(media)}" aria-label="body" rows="{text.count(chr(10)) + 1}">'
            f"{escape(text)}</textarea></tr>"
        )


def _marked(text: str) -> str:
    """The text, escaped; what stands between backticks as code."""
    return re.sub(r"(`{1,2})([^`]+)\1", r"<code>\2</code>", escape(text))


def example_of(content: Mapping[str, Any]) -> Any:
    """The example of a body, completed by a value of its type for each required field that has none."""
    schema = content["schema"]
    given = content.get("example")
    if not isinstance(given, dict | None):
        return given
    fields = schema.get("properties", {})
    needed = {name: _value(fields[name]) for name in schema.get("required", ()) if name in fields}
    return {**needed, **(given or {})}


def _value(schema: Mapping[str, Any]) -> Any:
    for name in ("examples", "enum"):
        if schema.get(name):
            return schema[name][0]
    if "default" in schema:
        return schema["default"]
    if schema.get("anyOf"):
        return _value(schema["anyOf"][0])
    return _EXAMPLES.get(schema.get("type", ""))
