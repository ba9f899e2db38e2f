"""The client against a real service: both flavours, retries, resuming tails."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.flaky import flaky_proxy
from support.patience import impatient
from support.stack import Stack, until

from crew_journal.schemas.api import TailGap
from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.errors import (
    EntryConflict,
    InvalidEntry,
    InvalidQuery,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Unavailable,
    ViewsBehind,
)
from crew_journal.schemas.core.principal import Role
from crew_journal.services.client import AsyncCrewJournal, CrewJournal
from crew_journal.services.data_dir import lock

ENTRY = {"entry_type": "run.completed", "summary": "Built the report"}
DEADLINE_S = 120.0


async def test_the_sync_client_does_what_the_async_one_does(stack: Stack) -> None:
    def use() -> list[str]:
        with stack.sync_client() as client:
            first = client.append(ENTRY | {"workspace_id": "sync", "summary": "one"})
            more = client.append_batch([ENTRY | {"workspace_id": "sync", "summary": f"b{n}"} for n in range(3)])
            many = list(
                client.append_many((ENTRY | {"workspace_id": "sync", "summary": f"m{n}"} for n in range(5)), batch=2)
            )
            last = many[-1].seq
            assert client.get(first.id, min_seq=last, workspace_id="sync").summary == "one"
            assert client.count(workspace_id="sync", q="b1").count == 1
            page = client.list(workspace_id="sync", limit=4)
            assert len(page.entries) == 4
            rest = client.list(workspace_id="sync", limit=500, cursor=page.next_cursor)
            assert len(rest.entries) == 1 + len(more) + len(many) - 4
            assert client.recall("report", workspace_id="sync", k=3).recipe == "robust"
            assert client.status(workspace_id="sync")["workspace_id"] == "sync"
            tail = client.tail(workspace_id="sync", after=first.seq)
            seen = [next(tail).summary for _ in range(3)]
            tail.close()  # type: ignore[attr-defined]  # it is a generator
            made = client.create_token(role="AGENT", workspace_id="sync", agent_id="ada")
            assert made.token_id in {token.token_id for token in client.tokens(workspace_id="sync").tokens}
            client.revoke_token(made.token_id)
            assert list(client.verify())[-1] == {"result": {"same": True}}
            assert client.broker().user == "crew-journal"
            assert client.embedder_status()["mode"] == "sparse-only"
            return seen + [entry.summary for entry in client.entries(workspace_id="sync", types=["run.completed"])]

    summaries = await asyncio.to_thread(use)
    assert summaries[:3] == ["b0", "b1", "b2"]
    assert set(summaries[3:]) == {"one", "b0", "b1", "b2", "m0", "m1", "m2", "m3", "m4"}


async def test_the_async_client_appends_pages_and_counts(stack: Stack) -> None:
    async with stack.client() as client:
        records = [ENTRY | {"workspace_id": "pages", "ts": "2026-11-20T10:00:00Z"} for _ in range(7)]
        receipts = [receipt async for receipt in client.append_many(records, batch=3)]
        last = receipts[-1].seq
        found = [entry.id async for entry in client.entries(workspace_id="pages", min_seq=last)]
        assert found == sorted((receipt.id for receipt in receipts), reverse=True)
        assert (await client.count(workspace_id="pages", types=["run.completed", "x.y"])).count == 7
        assert await client.append_batch([]) == ()


async def test_an_entry_that_was_read_back_can_be_appended_elsewhere(stack: Stack) -> None:
    async with stack.client() as client:
        receipt = await client.append(ENTRY | {"workspace_id": "from", "payload": {"text": "\u2028"}})
        entry = await client.get(receipt.id, min_seq=receipt.seq, workspace_id="from")
        assert isinstance(entry, JournalEntry)
        copied = await client.append(entry.model_copy(update={"workspace_id": "to"}))
        assert copied.id == receipt.id
        assert (await client.get(copied.id, min_seq=copied.seq, workspace_id="to")).payload == {"text": "\u2028"}


async def test_appending_many_takes_more_than_one_request_may_hold(stack: Stack) -> None:
    large = (ENTRY | {"workspace_id": "large", "payload": {"n": n, "text": "x" * 200_000}} for n in range(180))
    async with stack.client() as client:  # 36 MB; a request may have 32 MiB
        receipts = [receipt async for receipt in client.append_many(large)]
        assert len({receipt.seq for receipt in receipts}) == 180
        with pytest.raises(InvalidEntry) as refused:
            _ = [receipt async for receipt in client.append_many([ENTRY, ENTRY, {"entry_type": "a.b"}], batch=2)]
        assert {problem.field for problem in refused.value.problems} == {"entries[2].summary"}


async def test_a_time_may_be_a_datetime_and_one_without_an_offset_is_named(stack: Stack) -> None:
    async with stack.client() as client:
        at = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
        receipt = await client.append(ENTRY | {"workspace_id": "times", "ts": at})
        assert (await client.get(receipt.id, min_seq=receipt.seq, workspace_id="times")).ts == at
        with pytest.raises(InvalidEntry, match="ts"):
            await client.append(ENTRY | {"ts": at.replace(tzinfo=None)})


@pytest.mark.parametrize("entry_id", ["count", "stream", "entry", "graph", "relations", "priority"])
async def test_an_entry_whose_id_is_the_name_of_a_route_is_read_like_any_other(stack: Stack, entry_id: str) -> None:
    async with stack.client() as client, stack.http() as http, asyncio.timeout(DEADLINE_S):
        receipt = await client.append(ENTRY | {"id": entry_id, "workspace_id": "names"})
        entry = await client.get(entry_id, min_seq=receipt.seq, workspace_id="names")
        assert (entry.id, entry.seq) == (entry_id, receipt.seq)
        answer = await http.get(f"/v1/journal/{entry_id}/entry", params={"workspace_id": "names"})
        assert answer.json()["id"] == entry_id
        graph = await client.graph(entry_id, workspace_id="names")
        assert [node.id for node in graph.nodes] == [entry_id]


@pytest.mark.parametrize("entry_id", ["", ".", "..", "_", "a b", "nothing/../here?x=1", "x" * 65])
async def test_what_can_be_no_id_is_not_found_and_asks_no_other_route(stack: Stack, entry_id: str) -> None:
    async with stack.client() as client:
        await client.append(ENTRY | {"id": "entry", "workspace_id": "none"})  # what /v1/journal/./entry would be
        with pytest.raises(NotFound, match="no entry"):
            await client.get(entry_id, workspace_id="none")


async def test_an_append_whose_answer_is_lost_counts_once(stack: Stack) -> None:
    async with flaky_proxy(stack.url) as proxy, AsyncCrewJournal(proxy.url, stack.owner) as client:
        proxy.lose_answers = 2
        receipt = await client.append(ENTRY | {"workspace_id": "lost"})
        assert receipt.duplicate
        assert proxy.lose_answers == 0
        proxy.lose_answers = 1
        batch = await client.append_batch([ENTRY | {"workspace_id": "lost"}] * 3)
        assert (await client.count(workspace_id="lost", min_seq=batch[-1].seq)).count == 4


async def test_the_sync_client_retries_too(stack: Stack) -> None:
    async with flaky_proxy(stack.url) as proxy:
        proxy.lose_answers = 2

        def use() -> int:
            with CrewJournal(proxy.url, stack.owner) as client:
                receipt = client.append(ENTRY | {"workspace_id": "lost-sync"})
                return client.count(workspace_id="lost-sync", min_seq=receipt.seq).count

        assert await asyncio.to_thread(use) == 1


async def test_what_may_not_be_done_twice_is_not_retried(stack: Stack) -> None:
    async with flaky_proxy(stack.url) as proxy, AsyncCrewJournal(proxy.url, stack.owner) as client:
        proxy.lose_answers = 1
        with pytest.raises(Unavailable, match="does not answer"):
            await client.create_token(role="ADMIN", workspace_id="once")
        assert len((await client.tokens(workspace_id="once")).tokens) == 1


async def test_a_tail_comes_back_by_itself_without_loss_or_repetition(stack: Stack) -> None:
    async with (
        flaky_proxy(stack.url) as proxy,
        AsyncCrewJournal(proxy.url, stack.owner) as client,
        stack.client() as other,
    ):
        seen: list[str] = []

        async def watch() -> None:
            async for entry in client.tail(workspace_id="broken"):
                seen.append(entry.summary)  # noqa: PERF401  # the list grows while the test looks at it

        watching = asyncio.create_task(watch())
        try:
            await until(lambda: stack.services.tail.watchers > 0)
            for n in range(4):
                await other.append(ENTRY | {"workspace_id": "broken", "summary": f"n{n} \u00e9"})
                await until(lambda n=n: len(seen) == n + 1)
                proxy.break_connections()
            assert seen == [f"n{n} \u00e9" for n in range(4)]
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def test_a_tail_tells_of_a_gap(stack: Stack) -> None:
    gaps: list[TailGap] = []
    async with stack.client() as client:
        receipts = await client.append_batch([ENTRY | {"workspace_id": "gaps"}] * 510)
        await client.count(workspace_id="gaps", min_seq=receipts[-1].seq)
        async with asyncio.timeout(DEADLINE_S):
            async for entry in client.tail(workspace_id="gaps", after=receipts[0].seq, on_gap=gaps.append):
                assert entry.seq == receipts[10].seq
                break
    assert [gap.missed for gap in gaps] == [9]


async def test_problems_become_the_errors_of_the_tree(stack: Stack) -> None:
    async with stack.client() as client:
        with pytest.raises(InvalidEntry) as invalid:
            await client.append_batch([ENTRY, {"entry_type": "X"}])
        assert {problem.field for problem in invalid.value.problems} == {"entries[1].entry_type", "entries[1].summary"}
        assert "trace_id" in invalid.value.__notes__[0]
        await client.append(ENTRY | {"id": "taken"})
        with pytest.raises(EntryConflict):
            await client.append(ENTRY | {"id": "taken", "summary": "Other"})
        with pytest.raises(NotFound):
            await client.get("nothing/../here?x=1")
        with pytest.raises(InvalidQuery):
            await client.list(limit=501)
        with impatient(), pytest.raises(ViewsBehind):  # the service waited; the client does not ask again and again
            async with asyncio.timeout(DEADLINE_S):
                await client.count(min_seq=2**40)
        with pytest.raises(InvalidQuery):
            await client.list(colour="red")
        with pytest.raises(NotAllowed):
            await client.append(ENTRY | {"entry_type": "token.created"})
    async with stack.client("cj_" + "A" * 43) as stranger:
        with pytest.raises(NotAuthenticated):
            await stranger.count()
        with pytest.raises(NotAuthenticated):
            _ = [entry async for entry in stranger.tail()]


async def test_a_service_that_is_not_there_is_unavailable() -> None:
    async with AsyncCrewJournal("http://127.0.0.1:9", "cj_" + "A" * 43) as client:
        with pytest.raises(Unavailable, match="does not answer"):
            await client.count()


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("CREW_JOURNAL_URL", "CREW_JOURNAL_TOKEN", "CREW_JOURNAL_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def test_the_service_is_found_by_arguments_environment_or_data_directory(
    stack: Stack, tmp_path: Path, no_environment: pytest.MonkeyPatch
) -> None:
    release = lock(tmp_path)  # as a running `up` does
    (tmp_path / "runtime.json").write_text(json.dumps({"http": stack.url, "nats": "nats://x", "pid": 1}))
    (tmp_path / "admin.token").write_text(stack.owner + "\n")
    async with AsyncCrewJournal(data_dir=tmp_path) as client:
        assert (await client.count()).count >= 0  # the service answers
    no_environment.setenv("CREW_JOURNAL_DATA_DIR", str(tmp_path))
    async with AsyncCrewJournal() as client:
        assert (await client.count()).count >= 0  # the service answers
    agent = await stack.token(Role.AGENT, "found", agent="ada")
    no_environment.setenv("CREW_JOURNAL_URL", stack.url)
    no_environment.setenv("CREW_JOURNAL_TOKEN", agent.plaintext)
    async with AsyncCrewJournal() as client:
        assert (await client.status())["workspace_id"] == "found"
    release()


def test_without_a_service_the_error_says_what_to_do(tmp_path: Path, no_environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match="crew-journal up"):
        CrewJournal(data_dir=tmp_path)
    with pytest.raises(NotAuthenticated, match="CREW_JOURNAL_TOKEN"):
        CrewJournal("http://127.0.0.1:1")
    with pytest.raises(InvalidQuery):
        CrewJournal("127.0.0.1:1", "cj_x")
    (tmp_path / "admin.token").write_text("cj_" + "A" * 43)
    with pytest.raises(NotAuthenticated):  # the owner's token is not sent to a service that was named
        CrewJournal("http://127.0.0.1:1", data_dir=tmp_path)
