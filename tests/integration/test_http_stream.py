"""The live tail over HTTP: seed, resume, gap, filters, heartbeats, slow and revoked watchers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from support.stack import Stack, running_stack, until

from crew_journal.schemas.core.errors import InvalidQuery, TooManyTails
from crew_journal.schemas.core.limits import TAIL_REPLAY_MAX, TAIL_SEED
from crew_journal.schemas.core.principal import Role
from crew_journal.services.entries import live_tail
from crew_journal.services.http.route import HttpLimits
from crew_journal.services.http.server import ConnectionBounds

HEARTBEAT_S = 0.1
QUEUE = 20
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    limits = HttpLimits(heartbeat_s=HEARTBEAT_S)
    async with running_stack(tmp_path_factory.mktemp("stream"), limits=limits, tail_queue=QUEUE) as running:
        yield running


@dataclass
class Event:
    kind: str
    data: Any
    id: str | None


@dataclass
class Watch:
    """The events of one stream, read one by one."""

    lines: AsyncIterator[str]
    comments: list[str] = field(default_factory=list)

    async def event(self) -> Event:
        fields: dict[str, str] = {}
        async with asyncio.timeout(DEADLINE_S):
            async for line in self.lines:
                if line.startswith(":"):
                    self.comments.append(line)
                elif line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "event" in fields:
                    return Event(fields["event"], json.loads(fields["data"]), fields.get("id"))
                else:
                    fields = {}
        raise EOFError("the stream ended")

    async def entries(self, count: int) -> list[str]:
        return [(await self.event()).data["summary"] for _ in range(count)]


@asynccontextmanager
async def watching(http: httpx.AsyncClient, last: int | None = None, **params: str) -> AsyncIterator[Watch]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    async with http.stream("GET", "/v1/journal/stream", params=params, headers=headers, timeout=DEADLINE_S) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Watch(answer.aiter_lines())


async def post(http: httpx.AsyncClient, workspace: str, *summaries: str, **fields: object) -> list[int]:
    entries = [
        {"entry_type": "run.completed", "summary": text, "workspace_id": workspace, **fields} for text in summaries
    ]
    answer = await http.post("/v1/journal", json=entries, timeout=DEADLINE_S)
    assert answer.status_code == 201, answer.text
    return [receipt["seq"] for receipt in answer.json()["entries"]]


async def shown(http: httpx.AsyncClient, seq: int, workspace: str) -> None:
    answer = await http.get("/v1/journal/count", params={"min_seq": seq, "workspace_id": workspace}, timeout=DEADLINE_S)
    assert answer.status_code == 200


async def test_a_tail_begins_with_the_newest_fifty_and_goes_on_live(stack: Stack) -> None:
    async with stack.http() as http:
        seqs = await post(http, "seed", *(f"old {n}" for n in range(TAIL_SEED + 5)))
        await shown(http, seqs[-1], "seed")
        async with watching(http, workspace_id="seed") as watch:
            assert await watch.entries(TAIL_SEED) == [f"old {n}" for n in range(5, TAIL_SEED + 5)]
            (seq,) = await post(http, "seed", "new")
            event = await watch.event()
            assert (event.kind, event.id, event.data["summary"]) == ("entry", str(seq), "new")
            listed = await http.get(
                "/v1/journal", params={"workspace_id": "seed", "limit": "1", "types": "run.completed"}
            )
            assert event.data in (await http.get("/v1/journal", params={"workspace_id": "seed"})).json()["entries"]
            assert listed.status_code == 200


async def test_a_tail_resumes_after_its_last_event_without_loss_or_repetition(stack: Stack) -> None:
    async with stack.http() as http:
        seqs = await post(http, "resume", "one", "two", "three")
        await shown(http, seqs[-1], "resume")
        async with watching(http, seqs[0], workspace_id="resume") as watch:
            assert await watch.entries(2) == ["two", "three"]
        await post(http, "resume", "four")
        async with watching(http, seqs[-1], workspace_id="resume") as watch:
            assert await watch.entries(1) == ["four"]


async def test_more_than_the_ceiling_missed_is_said_with_a_gap(stack: Stack) -> None:
    async with stack.http() as http:
        (first,) = await post(http, "gap", "start")
        seqs = await post(http, "gap", *(f"missed {n}" for n in range(TAIL_REPLAY_MAX + 7)))
        await shown(http, seqs[-1], "gap")
        async with watching(http, first, workspace_id="gap") as watch:
            event = await watch.event()
            assert (event.kind, event.data) == ("gap", {"missed": 7, "after": first, "before": seqs[7]})
            assert (await watch.entries(TAIL_REPLAY_MAX))[-1] == f"missed {TAIL_REPLAY_MAX + 6}"
        async with watching(http, seqs[6], workspace_id="gap") as watch:
            assert (await watch.event()).kind == "entry"


async def test_filters_and_quiet_types_hold_for_replay_and_live_alike(stack: Stack) -> None:
    async with stack.http() as http:
        await post(http, "quiet", "old noise", entry_type="container.metrics")
        seqs = await post(http, "quiet", "old unknown", entry_type="brand.new", severity="warn")
        await shown(http, seqs[-1], "quiet")
        async with (
            watching(http, workspace_id="quiet") as loud,
            watching(http, workspace_id="quiet", types="container.metrics") as metrics,
            watching(http, workspace_id="quiet", severity="warn", q="UNKNOWN") as phrase,
        ):
            assert await loud.entries(1) == ["old unknown"]
            assert await metrics.entries(1) == ["old noise"]
            assert await phrase.entries(1) == ["old unknown"]
            await post(http, "quiet", "new noise", entry_type="container.metrics")
            await post(http, "quiet", "new unknown", entry_type="brand.new", severity="warn")
            await post(http, "quiet", "the end")
            assert await loud.entries(2) == ["new unknown", "the end"]
            assert await metrics.entries(1) == ["new noise"]
            assert await phrase.entries(1) == ["new unknown"]


async def test_silence_is_filled_with_heartbeats(stack: Stack) -> None:
    async with stack.http() as http, watching(http, workspace_id="silent") as watch:
        waiting = asyncio.create_task(watch.event())
        await until(lambda: len(watch.comments) >= 2)
        await post(http, "silent", "at last")
        assert (await waiting).data["summary"] == "at last"


async def test_a_watcher_that_does_not_keep_up_is_cut_and_can_resume(stack: Stack) -> None:
    async with stack.http() as http:
        async with watching(http, workspace_id="slow") as watch:
            await post(http, "slow", "first")
            assert await watch.entries(1) == ["first"]
            sent: list[str] = []
            seen: list[str] = []
            event: Event | None = None
            while event is None:  # a busy machine may commit a burst in parts that the watcher keeps up with
                burst = [f"burst {len(sent) + n}" for n in range(QUEUE * 10)]
                seqs = await post(http, "slow", *burst)
                sent += burst
                while event is None and len(seen) < len(sent):
                    came = await watch.event()
                    if came.kind == "entry":
                        seen.append(came.data["summary"])
                    else:
                        event = came
            assert event.kind == "cut"
            assert event.data["reason"] == "slow"
            with pytest.raises(EOFError):
                await watch.event()
        await shown(http, seqs[-1], "slow")
        async with watching(http, event.data["resume_after"], workspace_id="slow") as watch:
            seen += await watch.entries(len(sent) - len(seen))
        assert seen == sent


async def test_a_revoked_token_sees_nothing_more(stack: Stack) -> None:
    agent = await stack.token(Role.AGENT, "revoked", agent="ada")
    async with stack.http(agent.plaintext) as http, stack.http() as owner, watching(http) as watch:
        await post(http, "revoked", "mine")
        assert await watch.entries(1) == ["mine"]
        assert (await owner.delete(f"/v1/admin/tokens/{agent.info.token_id}")).status_code == 200
        assert (await http.get("/v1/journal")).status_code == 401
        event = await watch.event()
        assert (event.kind, event.data["reason"]) == ("cut", "revoked")


async def test_watchers_that_leave_are_forgotten(stack: Stack) -> None:
    async with stack.http() as http:
        async with watching(http, workspace_id="leaving"):
            assert stack.services.tail.watchers >= 1
        await until(lambda: not stack.services.tail.watchers)


async def test_a_watcher_that_does_not_read_at_all_is_let_go(tmp_path_factory: pytest.TempPathFactory) -> None:
    bounds = ConnectionBounds(unread_s=0.3)
    async with running_stack(tmp_path_factory.mktemp("stuck"), connection_bounds=bounds) as running:
        host, port = running.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        request = f"GET /v1/journal/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {running.owner}\r\n\r\n"
        writer.write(request.encode())
        await until(lambda: running.services.tail.watchers == 1)
        big = {"entry_type": "run.completed", "summary": "large", "payload": {"text": "x" * 200_000}}
        async with running.client() as client:
            for _ in range(8):
                await client.append_batch([big] * 10)  # 16 MB: more than the buffers between hold
        await until(lambda: running.services.tail.watchers == 0)
        writer.transport.abort()


async def test_more_live_tails_than_allowed_are_refused(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_tail, "MAX_WATCHERS", 0)
    async with stack.http() as http:
        assert (await http.get("/v1/journal/stream")).status_code == 503


async def test_one_token_cannot_take_the_places_of_the_others(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack.services.tail, "_per_token", 2)
    greedy = await stack.token(Role.AGENT, "places", agent="greedy")
    other = await stack.token(Role.AGENT, "places", agent="other")
    async with stack.http(greedy.plaintext) as http, watching(http), watching(http):
        await until(lambda: stack.services.tail.watchers >= 2)
        refused = await http.get("/v1/journal/stream")
        assert refused.status_code == 429
        assert refused.headers["retry-after"]
        assert refused.json()["title"] == "Too many live tails"
        assert "close some" in refused.json()["hint"]
        async with stack.client(greedy.plaintext) as client:
            with pytest.raises(TooManyTails):
                _ = [entry async for entry in client.tail()]
        async with stack.http(other.plaintext) as theirs, watching(theirs) as watch:
            await post(theirs, "places", "still served")
            assert await watch.entries(1) == ["still served"]
    await until(lambda: not stack.services.tail.watchers)
    async with stack.http(greedy.plaintext) as http, watching(http):
        pass


@pytest.mark.parametrize("last", ["x", "-1", "1.5", str(2**63), "1 2"])
async def test_a_malformed_last_event_id_is_a_400(stack: Stack, last: str) -> None:
    async with stack.http() as http:
        answer = await http.get("/v1/journal/stream", headers={"Last-Event-ID": last})
        assert answer.status_code == 400
        assert answer.json()["field"] == "Last-Event-ID"


async def test_resuming_beyond_the_journals_end_is_refused_and_says_where_it_ends(stack: Stack) -> None:
    async with stack.http() as http, stack.client() as client:
        (last,) = await post(http, "beyond", "the last one")
        beyond = last + 1_000_000
        answer = await http.get("/v1/journal/stream", headers={"Last-Event-ID": str(beyond)})
        assert answer.status_code == 400
        problem = answer.json()
        assert problem["field"] == "Last-Event-ID"
        assert f"ends at {last}" in problem["detail"]
        assert "restored" in problem["hint"]
        with pytest.raises(InvalidQuery, match=str(beyond)):
            _ = [entry async for entry in client.tail(after=beyond)]


async def test_resuming_after_what_was_acked_and_is_not_folded_yet_shows_what_comes_next(stack: Stack) -> None:
    async with stack.http() as http, contextlib.AsyncExitStack() as opened:
        async with stack.host.paused():
            (acked,) = await post(http, "ahead", "acked")
            assert stack.store.view_seq() < acked
            watch = await opened.enter_async_context(watching(http, acked, workspace_id="ahead"))
        await post(http, "ahead", "next")
        assert await watch.entries(1) == ["next"]


async def test_a_stream_of_another_workspace_is_refused_before_it_begins(stack: Stack) -> None:
    agent = await stack.token(Role.AGENT, "acme", agent="ada")
    async with stack.http(agent.plaintext) as http:
        assert (await http.get("/v1/journal/stream", params={"workspace_id": "other"})).status_code == 403
        assert (await http.get("/v1/journal/stream", params={"since": "never"})).status_code == 400


async def test_the_server_ends_although_somebody_watches(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with running_stack(tmp_path_factory.mktemp("closing")) as running:
        async with running.http() as http, watching(http) as watch:
            async with asyncio.timeout(DEADLINE_S):
                stopping = asyncio.create_task(running.server.stop())
                event = await watch.event()
                assert (event.kind, event.data["reason"]) == ("cut", "closing")
        async with asyncio.timeout(DEADLINE_S):
            await stopping
