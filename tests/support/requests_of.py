"""Raw requests of every operation, made from its declaration: the good one, and the same with one field replaced.

Fields are sent as raw JSON text, so that values which no JSON library writes (``1e400``, lone surrogates) can be sent too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx
from support.tool_calls import Place

from crew_journal.schemas.core.errors import CrewJournalError
from crew_journal.schemas.core.operation import Operation
from crew_journal.services.desk import parse
from crew_journal.services.http.operations import inlined
from crew_journal.services.problem import parse_json

AT_ONCE: Final = 6
"""Requests under way: below the connections that one token may hold."""
DEEP: Final = 100_000
HOSTILE: Final[Mapping[str, str]] = {
    "blank": '" "',
    "empty": '""',
    "strange": '"?!*()[]{}\'\\\\%_;-- ﬃŉΰ a\\u0000b \\u202e\\u0007 ../../etc/passwd"',
    "lone surrogate": '"a\\ud800b"',
    "beyond a float": "1e400",
    "beyond 64 bits": "9" * 30,
    "negative": "-9223372036854775808",
    "not a number": "NaN",
    "deep list": "[" * DEEP + "]" * DEEP,
    "deep object": '{"a":' * DEEP + "1" + "}" * DEEP,
    "very long": '"' + "x" * 300_000 + '"',
    "long word": '"' + "ä" * 5_000 + '"',
    "list": '["a", null, {"b": 1}]',
    "object": '{"a": {"b": [1]}}',
    "true": "true",
    "far year": '"9999-12-31T23:59:59.999999Z"',
    "first year": '"0001-01-01T00:00:00+14:00"',
}
"""JSON text of values that a field may be sent, by what is hostile in them."""
WRONG_URL: Final[Mapping[str, str]] = {
    "NUL": "a%00b",
    "lone surrogate": "a%ED%A0%80b",
    "not UTF-8": "%ff%fe",
    "beyond a float": "1e400",
    "beyond 64 bits": "9" * 30,
}
"""Escaped values of a path or a query string that JSON cannot hold, or holds otherwise."""
NEEDED: Final[Mapping[str, Mapping[str, Any]]] = {
    "layered_write": {"kind": "fact", "subject": "Ada", "predicate": "keeps", "object": "the press"},
    "import_bundle": {"documents": [{"path": "AGENT.md", "content": "- the press needs oil"}]},
    "import_drawers": {
        "drawers": [{"drawer_id": "d_1", "wing": "a", "room": "b", "content": "oil"}],
        "imported_from": "x",
    },
    "memory_file": {"command": "view", "path": "/memories"},
}
"""Fields that make a request good, where the schema does not say it."""
GROWING: Final = "ßİﬃΐ"
"""Letters that become several when their case is folded or their forms are resolved."""
_MOST_GROWN: Final = 4_000
_SCHEMAS: dict[str, Mapping[str, Any]] = {}


def _schema(operation: Operation[Any, Any]) -> Mapping[str, Any]:
    if operation.name not in _SCHEMAS:
        _SCHEMAS[operation.name] = inlined(operation.request.model_json_schema())
    return _SCHEMAS[operation.name]


def fields_of(operation: Operation[Any, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Good values of the required fields."""
    schema = _schema(operation)
    known = {**known, **NEEDED.get(operation.name, {})}
    needed = dict.fromkeys((*schema.get("required", ()), *NEEDED.get(operation.name, ())))
    return {name: known.get(name, _made(schema["properties"][name])) for name in needed}


def good_request(operation: Operation[Any, Any], place: Place) -> dict[str, Any]:
    """A good request to a furnished workspace."""
    known = place.values("", operation.name) | {"agent_id": "ada", "crew_id": "red", "user": "maria", "seq": 1}
    known |= {"kind": "fact", "name": place.fact} if operation.name == "layered_read" else {}
    known.pop("workspace_id")
    return fields_of(operation, known)


def grown(operation: Operation[Any, Any], name: str) -> str:
    """A text as long as the field may be, of letters that folding makes longer."""
    schema = _schema(operation)["properties"][name]
    lengths = [part["maxLength"] for part in (schema, *schema.get("anyOf", ())) if "maxLength" in part]
    most = min(max(lengths, default=70), _MOST_GROWN)
    return (GROWING * most)[:most]


def accepted(operation: Operation[Any, Any], fields: Mapping[str, Any], name: str, raw: str) -> bool:
    """Whether a request with the JSON text ``raw`` in a field reaches the handler; any other fault than a refusal raises.

    What is not accepted here is refused alike over HTTP, NATS and MCP, so that it need not be sent to each field of each.
    """
    try:
        value = parse_json(b'{"value":' + raw.encode() + b"}")["value"]
        parse(operation, {**fields, name: value})
    except CrewJournalError:
        return False
    return True


def _made(field: Mapping[str, Any]) -> Any:
    if "enum" in field:
        return field["enum"][0]
    if "anyOf" in field:
        return _made(field["anyOf"][0])
    kind = field.get("type", "string")
    kind = kind if isinstance(kind, str) else kind[0]
    return {"string": "something", "integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}}[kind]


async def asked(
    http: httpx.AsyncClient, operation: Operation[Any, Any], fields: Mapping[str, Any], name: str = "", raw: str = ""
) -> httpx.Response:
    """Ask with ``fields``; the field ``name`` is sent as ``raw``, JSON in a body and escaped text in a URL."""
    path = operation.path
    for part in operation.path_fields:
        path = path.replace(f"{{{part}}}", raw if part == name else quote(str(fields[part]), safe=""))
    rest = {key: value for key, value in fields.items() if key not in operation.path_fields and key != name}
    in_body = operation.has_body
    if not in_body:
        pairs = [f"{key}={quote(str(value))}" for key, value in rest.items()]
        if name and name not in operation.path_fields:
            pairs.append(f"{name}={raw}")
        return await http.request(operation.method, f"{path}?{'&'.join(pairs)}" if pairs else path)
    parts = [f"{json.dumps(key)}:{json.dumps(value)}" for key, value in rest.items()]
    if name and name not in operation.path_fields:
        parts.append(f"{json.dumps(name)}:{raw}")
    body = "{" + ",".join(parts) + "}"
    return await http.request(
        operation.method, path, content=body.encode(), headers={"Content-Type": "application/json"}
    )


class Verdicts:
    """Asks many requests, some at once, and keeps what is wrong with their answers.

    Args:
        other: A word that only the other workspace's texts hold.
    """

    def __init__(self, other: str) -> None:
        self.asked = 0
        self.wrong: list[str] = []
        self._other = other
        self._room = asyncio.Semaphore(AT_ONCE)

    async def check(self, what: str, request: Callable[[], Awaitable[httpx.Response]], *statuses: int) -> None:
        """Ask; wrong are a server fault, another status than ``statuses`` if there are any, and the other's word."""
        async with self._room:
            try:
                answer = await request()
            except httpx.HTTPError as error:
                self.wrong.append(f"{what}: {error!r}")
                return
        self.asked += 1
        if answer.status_code >= 500 and answer.status_code != 503:
            self.wrong.append(f"{what}: {answer.status_code} {answer.text[:300]}")
        if statuses and answer.status_code not in statuses:
            self.wrong.append(f"{what}: {answer.status_code} instead of {statuses} {answer.text[:300]}")
        if self._other in answer.text:
            self.wrong.append(f"{what}: shows the other workspace {answer.text[:300]}")
