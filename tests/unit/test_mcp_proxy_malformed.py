"""A malformed message on stdin is answered with an error, and the proxy goes on."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from crew_journal.services.client import mcp_proxy
from crew_journal.services.client.find import ServiceAddress
from crew_journal.services.client.mcp_proxy import Proxy

LIST = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}\n'
DEEP = b"[" * 100_000 + b"]" * 100_000
MALFORMED = {
    "deep JSON": b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ' + DEEP + b"}",
    "open brackets": b"[" * 100_000,
    "open objects": b'{"a":' * 100_000,
    "a long line": b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * 40_000 + b'"}',
    "a long line without an end": b"x" * 40_000,
    "not UTF-8": b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}',
    "a number of many digits": b'{"jsonrpc": "2.0", "id": ' + b"7" * 5_000 + b"}",
    "a list": b"[1]",
    "a text": b'"text"',
}
SENT_ON = {
    "half a surrogate pair": b'{"jsonrpc": "2.0", "id": "\\ud83d", "method": "ping", "params": {"a": "\\ud83d"}}',
    "a method that no header holds": (
        b'{"jsonrpc": "2.0", "id": 1, "method": "a\\r\\nX-Evil: 1", "params": {"_meta": '
        b'{"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}}'
    ),
    "a name of half a pair": (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\\ud83d", "_meta": '
        b'{"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}}'
    ),
    "900 levels": b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b"[" * 900 + b"]" * 900 + b"}",
}


def answers(given: bytes, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the proxy of a service that is down writes for a message and a list of tools after it."""
    out = io.BytesIO()
    monkeypatch.setattr(mcp_proxy, "MAX_LINE_BYTES", 16_384 if given.count(b"x") > 20_000 else 1 << 20)
    monkeypatch.setattr(mcp_proxy, "RETRY_S", 0.0)
    Proxy(lambda: ServiceAddress("http://127.0.0.1:9", "cj_none"), {}, out).run(io.BytesIO(given + b"\n" + LIST))
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("given", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_message_is_an_error_and_the_next_one_is_answered(
    given: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, listed = sorted(answers(given, monkeypatch), key=lambda one: "result" in one)
    assert refused["error"]["code"] in (-32700, -32600)
    assert (listed["id"], listed["result"]["tools"]) == (7, [])


@pytest.mark.parametrize("given", SENT_ON.values(), ids=SENT_ON)
def test_a_message_that_cannot_be_sent_unchanged_gets_an_answer(given: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers(given, monkeypatch)
    assert len(found) == 2
    assert {one.get("id") for one in found} >= {7}
