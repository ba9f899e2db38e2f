"""Credentials do not enter the journal, whichever way a text comes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.stack import Stack, running_stack

from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.core.subjects import JOURNAL_STREAM
from crew_journal.services.journal.intake.append import append_submitted

KEY = "AKIA" + "QWERTYUIOPASDFGH"
TEXT = f"The deployment reads its key {KEY} from the environment."
SAFE = "The deployment reads its key [redacted: aws key] from the environment."
LONG_PEM = (
    "-----BEGIN " + "PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 8 + "\n-----END " + "PRIVATE KEY-----"
)
TEXTS: dict[str, dict[str, Any]] = {
    "POST /v1/journal": {
        "entry_type": "note.taken",
        "summary": TEXT,
        "payload": {"deep": [{KEY: TEXT}]},
        "refs": {"x": [TEXT]},
    },
    "POST /v1/journal/entry": {"entry_type": "note.taken", "summary": TEXT},
    "POST /v1/memory/remember": {"text": TEXT, "about": TEXT},
    "POST /memory/write": {"tier": "AGENT", "mode": "replace", "content": TEXT, "reason": TEXT},
    "POST /v1/memory/daily": {"entry": TEXT},
    "POST /v1/memory/file": {"command": "create", "path": "/memories/notes.md", "file_text": TEXT},
    "POST /v1/kg/facts": {"subject": "deployment", "predicate": "reads", "object": f"key {KEY}"},
    "POST /v1/palace/drawers": {"wing": "team", "room": "ops", "content": TEXT, "source_file": f"{KEY}.md"},
    "PUT /v1/palace/drawers/phone-1": {"content": f"{TEXT} Put."},
    "PUT /v1/palace/identity": {"content": TEXT},
    "POST /v1/palace/diary": {"agent_name": "ada", "entry": TEXT},
    "POST /v1/layered": {
        "kind": "fact",
        "namespace": "n",
        "subject": "deployment",
        "predicate": "needs",
        "object": "key",
        "text": TEXT,
    },
    "POST /v1/recall": {"query": TEXT},
}
BY_OPERATORS: dict[str, dict[str, Any]] = {
    "POST /v1/palace/import": {
        "imported_from": "notes", "drawers": [{"drawer_id": "n1", "wing": "w", "room": "r", "content": f"{TEXT} Imported."}],
    },
    "PUT /v1/agents/bob": {"name": f"Bob {KEY}"},
    "POST /v1/memory/lessons": {"crew_id": "red", "rule": TEXT, "context": TEXT},
}  # fmt: skip


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path) as started:
        yield started


async def stored(stack: Stack) -> bytes:
    """The bodies of all messages of the journal."""
    messages = stack.client_of_broker.jetstream()
    last = (await messages.stream_info(JOURNAL_STREAM)).state.last_seq
    return b"\n".join([(await messages.get_msg(JOURNAL_STREAM, seq=seq)).data or b"" for seq in range(1, last + 1)])


async def send(stack: Stack, token: str, route: str, body: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Any]:
    method, _, path = route.partition(" ")
    async with stack.http(token) as http:
        answer = await http.request(method, path, json=body)
    assert answer.status_code < 300, f"{route}: {answer.text}"
    return dict(answer.json())


async def test_a_credential_is_redacted_on_every_way_in(stack: Stack) -> None:
    lead = (await stack.token(Role.LEAD, "acme", agent="ada", crew="red")).plaintext
    admin = (await stack.token(Role.ADMIN, "acme")).plaintext
    for token, texts in ((lead, TEXTS), (admin, BY_OPERATORS)):
        for route, body in texts.items():
            await send(stack, token, route, body)
    batch = await send(stack, lead, "POST /v1/journal", [TEXTS["POST /v1/journal"]] * 2)
    assert batch["entries"][1]["warnings"] == ["removed from the content: aws key"]
    by_nats = Principal(token_id="t", role=Role.AGENT, workspace_id="acme", agent_id="ada")
    journal = stack.services.journal
    [receipt] = await append_submitted(journal, by_nats, {"entry_type": "note.taken", "summary": TEXT})
    assert receipt["warnings"] == ("removed from the content: aws key",)
    bodies = await stored(stack)
    assert KEY.encode() not in bodies
    assert KEY.lower().encode() not in bodies.lower()
    assert bodies.count(b"[redacted: aws key]") >= len(TEXTS) + len(BY_OPERATORS) + 3
    async with stack.client(lead) as client:
        assert (await client.document_read("AGENT")).content == SAFE
        again = await client.add_drawer("team", "ops", TEXT)
        assert not again.added, "the id follows from the text as it is stored"
        assert (await client.drawer(again.drawer_id)).content == SAFE


async def test_a_retry_of_a_redacted_entry_is_the_same_entry(stack: Stack) -> None:
    token = (await stack.token(Role.AGENT, "acme", agent="ada")).plaintext
    body = {
        "id": "e1",
        "entry_type": "note.taken",
        "summary": TEXT,
        "payload": {"password": "Tr0ub4dor&3", "pem": LONG_PEM},
    }
    first = await send(stack, token, "POST /v1/journal", body)
    again = await send(stack, token, "POST /v1/journal", body)
    assert again["entries"][0]["duplicate"]
    assert again["entries"][0]["seq"] == first["entries"][0]["seq"]
    async with stack.client(token) as client:
        entry = await client.get("e1", min_seq=first["entries"][0]["seq"])
    assert entry.summary == SAFE
    assert entry.payload == {"password": "[redacted: password]", "pem": "[redacted: private key]"}


async def test_a_workspace_refuses_keeps_or_redacts_credentials(stack: Stack) -> None:
    token = (await stack.token(Role.AGENT, "acme", agent="ada")).plaintext
    note = {"entry_type": "note.taken", "summary": TEXT, "payload": {"text": TEXT}}
    async with stack.client((await stack.token(Role.ADMIN, "acme")).plaintext) as admin:
        assert (await admin.memory_config()).scrubber == "redact"
        await admin.configure_memory(scrubber="block")
        for route, body in (
            ("/v1/journal", note),
            ("/v1/journal", [note]),
            ("/v1/palace/drawers", TEXTS["POST /v1/palace/drawers"]),
        ):
            async with stack.http(token) as http:
                answer = await http.post(route, content=json.dumps(body))
            assert answer.status_code == 422
            assert "aws key" in answer.text
            assert KEY not in answer.text
        assert KEY.encode() not in await stored(stack)
        await admin.configure_memory(scrubber="warn")
        warned = await send(stack, token, "POST /v1/journal", note)
        assert "replace them" in warned["entries"][0]["warnings"][0]
        assert await stored(stack) != b""
        assert KEY.encode() in await stored(stack)
        assert (await admin.configure_memory(reset=("scrubber",))).scrubber == "redact"
        await send(stack, token, "POST /v1/journal", {**note, "id": "last"})
        last = (await stored(stack)).rpartition(b"\n")[2]
        assert b"[redacted: aws key]" in last
        assert KEY.encode() not in last
