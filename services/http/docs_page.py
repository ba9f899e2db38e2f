"""``/docs``: every route on one page, made of the OpenAPI description.

Invariant: it loads nothing from anywhere, so it works without a network and under the strict content policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "h2{font-size:1.05rem;margin:2rem 0 .3rem}code{font-family:ui-monospace,monospace}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ccc;padding:.2rem .6rem .2rem 0;"
    "text-align:left;vertical-align:top}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
)


def render_docs(openapi: Mapping[str, Any]) -> str:
    """The page of an OpenAPI description."""
    info = openapi["info"]
    body = "".join(
        _route(path, method, route) for path, methods in openapi["paths"].items() for method, route in methods.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        "<p>Send <code>Authorization: Bearer cj_…</code>. Errors are problem+json. The machine-readable description is "
        f"<code>/openapi.json</code>.</p>{body}</html>"
    )


def _route(path: str, method: str, route: Mapping[str, Any]) -> str:
    rows = "".join(_rows(route))
    table = f"<table><tr><th>parameter<th>in<th>meaning</tr>{rows}</table>" if rows else ""
    answers = ", ".join(escape(str(status)) for status in route.get("responses", {}))
    return (
        f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2><p><b>{escape(route.get('summary', ''))}.</b> "
        f"{escape(route.get('description', ''))}</p>{table}<p>Answers: {answers}</p>"
    )


def _rows(route: Mapping[str, Any]) -> Iterator[str]:
    for parameter in route.get("parameters", ()):
        cells = (parameter["name"], parameter["in"], parameter.get("description", ""))
        yield "<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>"
    if "requestBody" in route:
        yield "<tr><td>body<td>JSON<td>see /openapi.json</tr>"
