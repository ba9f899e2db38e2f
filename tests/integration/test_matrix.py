"""Every declared operation × tokens, workspaces, roles and hostile values: 0 answers of another workspace, 0 server faults.

The requests are made from the declarations (``support.requests_of``), so that a new operation is covered without a new test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import httpx
import pytest
from support.memory_node import SWIFT
from support.requests_of import HOSTILE, WRONG_URL, Verdicts, accepted, asked, good_request, grown
from support.stack import Stack
from support.tool_calls import Place, furnished

from crew_journal.consumers.health.reactor import HealthReactor
from crew_journal.consumers.models.missing_reactor import IndexReactor
from crew_journal.schemas.core.errors import ViewsBehind
from crew_journal.schemas.core.operation import Access, Effect, Operation
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.operations import ALL
from crew_journal.services.http.app import App
from crew_journal.services.journal.broker.connection import BrokerConnection
from crew_journal.services.journal.broker.streams import stream_head
from crew_journal.services.journal.intake.ingest import Ingest

MINE, OTHER = "zirconium", "palladium"
PLAIN = {what: raw for what, raw in HOSTILE.items() if not what.startswith("deep")}
"""Without those whose depth is refused before a field is looked at."""
MOST_URL = 8_000
"""Characters of a URL: a longer one is refused by the server itself."""
WAITS = {"sweep"}
"""Ends only when reactors that this node lacks have swept."""
DEPENDS = {"document_search", "layered_query", "memory_block", "run_expectations", "why", "diff", "replay"}
"""Operations that read texts in memory only with fields that a good request lacks, or for a model."""
OPEN = {"/healthz", "/readyz", "/metrics"}
"""Routes without a token; none names a workspace (test_isolation_node)."""
Anything = Operation[Any, Any]


@dataclass(frozen=True)
class World:
    """Two furnished workspaces, and a token of each role for the first one."""

    stack: Stack
    mine: Place
    other: Place
    tokens: dict[str, str]
    last: int

    def good(self, operation: Anything, place: Place | None = None) -> dict[str, Any]:
        """A good request."""
        return good_request(operation, place or self.mine)


@pytest.fixture(scope="module")
async def world(stack: Stack) -> AsyncIterator[World]:
    mine, other = await furnished(stack, "acme", MINE), await furnished(stack, "globex", OTHER)
    bound = {"agent": "ada", "crew": "red"}
    tokens = {
        "ADMIN": (await stack.token(Role.ADMIN, "acme")).plaintext,
        "LEAD": (await stack.token(Role.LEAD, "acme", **bound)).plaintext,
        "AGENT": (await stack.token(Role.AGENT, "acme", **bound)).plaintext,
        "garbage": "cj_" + "A" * 43,
        "not ASCII": "ÿ",
    }
    async with stack.client() as owner:
        gone = await owner.create_token(role="AGENT", workspace_id="acme", agent_id="ada", crew_id="red")
        await owner.revoke_token(gone.token_id)
        tokens["revoked"] = gone.token
        last = (await owner.append({"workspace_id": "acme", "entry_type": "run.completed", "summary": "ready"})).seq
        await owner.count(workspace_id="acme", min_seq=last)
    reactors = [kind(stack.context(), stack.store, limits=SWIFT) for kind in (HealthReactor, IndexReactor)]
    for reactor in reactors:
        await reactor.start()
    yield World(stack, mine, other, tokens, last)
    for reactor in reactors:
        await reactor.stop()


async def _all(checks: Sequence[Awaitable[None]]) -> None:
    await asyncio.gather(*checks)


@pytest.mark.parametrize("token", ["garbage", "not ASCII", "revoked", ""])
async def test_no_route_answers_a_token_that_is_not_valid(world: World, token: str) -> None:
    verdicts = Verdicts(OTHER)
    headers = {b"Authorization": b"Bearer " + world.tokens[token].encode()} if token else {}
    async with httpx.AsyncClient(base_url=world.stack.url, headers=headers, timeout=60) as http:  # type: ignore[arg-type]
        await _all([
            verdicts.check(operation.name, lambda op=operation: asked(http, op, world.good(op)), 401)
            for operation in ALL
        ])  # fmt: skip
        assert verdicts.asked == len(ALL)
        declared = {(operation.path, operation.method.lower()) for operation in ALL}
        for path, methods in cast(App, world.stack.app).openapi()["paths"].items():
            for method in methods:
                if path in OPEN or (path, method) in declared:
                    continue
                where = path.format_map(dict.fromkeys(_names(path), "1"))
                await verdicts.check(f"{method} {path}", lambda m=method, w=where: http.request(m, w), 401)
        await verdicts.check("mcp", lambda: http.post("/mcp", json={}), 401)
    assert not verdicts.wrong, "\n".join(verdicts.wrong)


def _names(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


@pytest.mark.parametrize("role", ["AGENT", "LEAD", "ADMIN"])
async def test_no_operation_answers_a_role_that_is_too_low(world: World, role: str) -> None:
    lowest = {Access.ADMINISTRATOR: {"AGENT", "LEAD"}, Access.NODE_OWNER: {"AGENT", "LEAD", "ADMIN"}}
    refused = [operation for operation in ALL if role in lowest.get(operation.access, ())]
    assert refused
    verdicts = Verdicts(OTHER)
    async with world.stack.http(world.tokens[role]) as http:
        await _all([
            verdicts.check(operation.name, lambda op=operation: asked(http, op, world.good(op)), 403)
            for operation in refused
        ])  # fmt: skip
    assert not verdicts.wrong, "\n".join(verdicts.wrong)


@pytest.mark.parametrize("role", ["AGENT", "ADMIN", pytest.param("LEAD", marks=pytest.mark.nightly)])
async def test_no_operation_answers_for_another_workspace_or_with_its_ids(world: World, role: str) -> None:
    verdicts = Verdicts(OTHER)
    async with world.stack.http(world.tokens[role]) as http:
        checks = []
        for operation in ALL:
            good, theirs = world.good(operation), world.good(operation, world.other)
            if "workspace_id" in operation.request.model_fields:
                for name in ("globex", "never-heard-of"):
                    named = {**good, "workspace_id": name}
                    checks.append(
                        verdicts.check(
                            f"{operation.name} in {name}", lambda op=operation, of=named: asked(http, op, of), 403
                        )
                    )
            if theirs != good and operation.name not in WAITS:
                checks.append(
                    verdicts.check(
                        f"{operation.name} with ids of the other", lambda op=operation, of=theirs: asked(http, op, of)
                    )
                )
        await _all(checks)
    assert verdicts.asked > len(ALL)
    assert not verdicts.wrong, "\n".join(verdicts.wrong)


async def test_no_operation_of_an_agent_shows_the_other_workspace(world: World) -> None:
    verdicts = Verdicts(OTHER)
    async with world.stack.http(world.tokens["AGENT"]) as http:
        reading = [operation for operation in ALL if operation.effect is Effect.READS]
        await _all([
            verdicts.check(operation.name, lambda op=operation: asked(http, op, world.good(op))) for operation in reading
        ])  # fmt: skip
        for operation in reading:
            if "query" in operation.request.model_fields:
                fields = {**world.good(operation), "query": OTHER[:-1]}
                await verdicts.check(operation.name, lambda op=operation, of=fields: asked(http, op, of))
    assert not verdicts.wrong, "\n".join(verdicts.wrong)


async def test_what_reads_texts_in_memory_says_so(world: World) -> None:
    """Such an operation goes to the node that keeps the texts; else each node would load them."""
    cache, undeclared, idle = world.stack.recall.cache, [], []
    async with world.stack.http(world.tokens["ADMIN"]) as http:
        for operation in ALL:
            if operation.effect is not Effect.READS or operation.access is Access.NODE_OWNER:
                continue
            fields = world.good(operation)
            fields |= {"query": "the press"} if "query" in operation.request.model_fields else {}
            cache.keep(lambda _workspace: False)
            await asked(http, operation, fields)
            if cache.slots() and operation.decided != "index":
                undeclared.append(operation.name)
            if operation.decided == "index" and not cache.slots():
                idle.append(operation.name)
    assert not undeclared, ", ".join(undeclared)
    assert set(idle) <= DEPENDS


@pytest.mark.parametrize("what", HOSTILE)
async def test_no_hostile_value_is_a_server_fault_on_any_way_in(world: World, what: str) -> None:
    raw, verdicts = HOSTILE[what], Verdicts(OTHER)
    async with world.stack.http(world.tokens["AGENT"]) as http:
        publish = next(operation for operation in ALL if operation.name == "publish_entry")
        for name in ("summary", "payload", "entry_type"):
            await verdicts.check(name, lambda n=name: asked(http, publish, world.good(publish), n, raw))
        entry = f'{{"entry_type":"note.taken","summary":"a","payload":{raw}}}'
        call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"remember","arguments":{"text":%s}}}'
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        for path, body in (("/v1/journal", entry), ("/v1/journal", f"[{entry}]"), ("/mcp", call % raw)):
            await verdicts.check(
                path, lambda p=path, b=body: http.post(p, content=b.encode("utf-8", "replace"), headers=headers)
            )
    await world.stack.services.mcp.recorded()
    assert not verdicts.wrong, "\n".join(verdicts.wrong)


@pytest.mark.parametrize("which", ["texts", pytest.param("all", marks=pytest.mark.nightly)])
async def test_no_field_of_any_operation_is_a_server_fault_whatever_it_holds(world: World, which: str) -> None:
    plain = {what: HOSTILE[what] for what in ("blank", "strange")} if which == "texts" else PLAIN
    verdicts, fields = Verdicts(OTHER), 0
    async with world.stack.http(world.tokens["ADMIN"]) as http:
        checks = []
        for operation in ALL:
            good = world.good(operation)
            for name in operation.request.model_fields:
                if name == "min_seq" or operation.name in WAITS:
                    continue  # it would only wait
                in_url = not operation.has_body or name in operation.path_fields
                values = {**plain, "growing": json.dumps(grown(operation, name), ensure_ascii=False)}
                fields += 1
                if which == "texts":  # each field gets one of them, in turn
                    values = dict([list(values.items())[fields % len(values)]])
                sent = {what: raw for what, raw in values.items() if accepted(operation, good, name, raw)}
                if in_url:
                    texts = {what: json.loads(raw) for what, raw in sent.items()}
                    sent = {what: quote(value, safe="") for what, value in texts.items() if isinstance(value, str)}
                    sent = {what: value for what, value in sent.items() if len(value) <= MOST_URL}
                    wrong = list(dict(WRONG_URL).items())
                    sent |= dict(wrong if which == "all" else [wrong[fields % len(wrong)]])
                for what, raw in sent.items():
                    checks.append(
                        verdicts.check(
                            f"{operation.name}.{name} {what}",
                            lambda op=operation, of=good, n=name, r=raw: asked(http, op, of, n, r),
                        )
                    )
        await _all(checks)
    assert fields > 500
    assert verdicts.asked > (500 if which == "all" else 300)
    assert not verdicts.wrong, "\n".join(verdicts.wrong)


async def test_a_request_over_nats_is_a_problem_and_no_fault_whatever_it_holds(world: World) -> None:
    answers: list[bytes] = []

    class Broker:
        """The connection of the service: what would be sent to the broker is kept."""

        is_connected, max_payload = True, 1 << 20
        state = SimpleNamespace(connected=True, last_error=None)

        async def divert(self, _subject: str, take: Any, queue: str) -> None:
            self.take = take

        def send(self, data: bytes) -> None:
            answers.append(data)

    broker = Broker()
    ingest = Ingest(cast(BrokerConnection, broker), world.stack.services.journal)
    await ingest.start()
    subjects = ["acme.red.ada", "globex.red.ada", "acme._.ada", "_.red.ada", "acme.red.ÿ", "..", "acme.red.a b"]
    for raw in HOSTILE.values():
        entry = f'{{"entry_type":"note.taken","summary":"a","payload":{raw}}}'
        for body in (raw, entry, f"[{entry}]", entry.replace('"payload":{', '"workspace_id":"globex","payload":{')):
            broker.take(b"ingest.acme.red.ada", b"_INBOX.a.b", body.encode("utf-8", "replace"), None)
            await _drained(ingest)
    for subject in subjects:
        broker.take(f"ingest.{subject}".encode(), b"_INBOX.a.b", b'{"entry_type":"note.taken","summary":"a"}', None)
        await _drained(ingest)
    assert len(answers) == 4 * len(HOSTILE) + len(subjects)
    faults = [answer[:300] for answer in answers if b'"status":500' in answer]
    assert not faults, faults
    assert not any(OTHER.encode() in answer for answer in answers)


async def _drained(ingest: Ingest) -> None:
    while ingest.figures().in_hand:  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(0)


async def test_a_call_that_names_another_workspace_than_its_connection_is_refused_and_recorded(world: World) -> None:
    """Issue 28.13: with a workspace in the URL and another as the argument, the call was in no audit."""
    arguments = {"entry_type": "note.taken", "summary": "the press was sold"}
    body: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "journal_publish", "arguments": {**arguments, "workspace_id": "acme"}},
    }
    mcp = "/mcp?tools=crew"
    headers = {"Accept": "application/json, text/event-stream"}

    async def recorded(workspace: str) -> int:
        await world.stack.services.mcp.recorded()
        async with world.stack.client() as owner:
            last = await owner.append({"workspace_id": workspace, "entry_type": "run.completed", "summary": "later"})
            counted = await owner.count(types=["audit.tool_called"], workspace_id=workspace, min_seq=last.seq)
            return counted.count

    before = await recorded("acme")
    async with world.stack.http(world.tokens["ADMIN"]) as http:
        refused = await http.post(f"{mcp}&workspace_id=globex", json=body, headers=headers)
        assert (refused.status_code, OTHER in refused.text) == (403, False)
        assert (await http.post(f"{mcp}&workspace_id=acme", json=body, headers=headers)).status_code == 200
    assert await recorded("acme") == before + 1
    there = await recorded("globex")
    async with world.stack.http() as http:
        answer = await http.post(f"{mcp}&workspace_id=globex", json=body, headers=headers)
        assert "the call names another" in answer.text
        named = {**body, "params": {**body["params"], "arguments": {**arguments, "workspace_id": "globex"}}}
        assert (await http.post(mcp, json=named, headers=headers)).status_code == 200
    assert (await recorded("acme"), await recorded("globex")) == (before + 2, there + 1)


async def test_a_call_whose_arguments_cannot_be_stored_is_recorded_and_does_not_end_the_records(world: World) -> None:
    surrogate = (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
        '{"name":"re\\ud800","arguments":{"t\\ud800":"\\udfff"}}}'
    )
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    audit = world.stack.services.mcp._tools._audit
    async with world.stack.http(world.tokens["AGENT"]) as http:
        await http.post("/mcp", content=surrogate.encode(), headers=headers)
        await audit.recorded()
        before = audit.figures()
        call = surrogate.replace("\\ud800", "member").replace("\\udfff", "oil")
        await http.post("/mcp", content=call.encode(), headers=headers)
        await audit.recorded()
    assert audit.figures()["recorded"] == before["recorded"] + 1
    assert audit.figures()["not_recorded"] == 0


async def test_no_operation_that_stored_something_is_answered_with_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 28.7: with views that are late, what was stored was answered 503."""

    async def late(seq: int, _wait_s: float, *_projections: str) -> int:
        raise ViewsBehind(f"the views have not reached {seq}", hint="try again")

    unfinished = WAITS | {
        "measure_health",
        "sweep_embeddings",
        "export_person",
    }  # their answer is the result of the sweep, which is not there, or the data, whose export is recorded before it
    changing = [one for one in ALL if one.effect is not Effect.READS and one.name not in unfinished]
    wrong, stored = [], 0
    async with world.stack.http(world.tokens["ADMIN"]) as http:
        for operation in changing:
            fields = world.good(operation)
            if {"agent_id", "scope"} <= operation.request.model_fields.keys():
                fields |= {"agent_id": "ada"}
            monkeypatch.setattr(world.stack.store, "wait_for", late)
            before = await stream_head(world.stack.client_of_broker)
            answer = await asked(http, operation, fields)
            after = await stream_head(world.stack.client_of_broker)
            monkeypatch.undo()
            stored += after > before
            if after > before and answer.status_code >= 400:
                wrong.append(f"{operation.name}: {answer.status_code} {answer.text[:200]}")
    assert stored > 15
    assert not wrong, "\n".join(wrong)
