"""An erasure on a real node: what goes, what stays, what the receipt says, and that a restart completes it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.minilm import minilm_cache
from support.running import running_node

from crew_journal.consumers.host import rebuild
from crew_journal.consumers.host.faults import FoldingStopped
from crew_journal.consumers.host.rebuild import FoldedApart
from crew_journal.services.erasure import use_cases
from crew_journal.services.erasure.use_cases import Erasures
from crew_journal.services.runtime import views
from crew_journal.services.runtime.erasing import ErasedStream
from crew_journal.services.runtime.folding_apart import fold_apart
from crew_journal.services.runtime.node import Runtime

DEADLINE_S = 120.0
POLL_S = 0.1
CANARY = "quetzalcoatlus"


class Asking:
    """A client with the owner's token."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.seq = 0

    async def get(self, path: str, **fields: str | int) -> dict[str, Any]:
        """The answer, with all that was written so far."""
        answer = await self.client.get(path, params={**fields, "min_seq": self.seq})
        assert answer.is_success, answer.text
        return dict(answer.json())

    async def post(self, path: str, **fields: Any) -> dict[str, Any]:
        """The answer; remembers its sequence."""
        answer = await self.client.post(path, json=fields)
        assert answer.is_success, answer.text
        body = dict(answer.json())
        self.seq = max(self.seq, body.get("seq") or 0)
        return body

    async def entry(self, **fields: Any) -> str:
        """Append an entry; its id."""
        [entry] = (await self.post("/v1/journal", **_entry(fields)))["entries"]
        self.seq = max(self.seq, entry["seq"])
        return str(entry["id"])

    async def refused(self, **fields: Any) -> bool:
        """Whether an entry is refused because its id is taken or erased."""
        return (await self.client.post("/v1/journal", json=_entry(fields))).status_code == httpx.codes.CONFLICT

    async def traces(self) -> dict[str, Any]:
        """Where the node still has the canary."""
        found = await self.post("/v1/admin/prove", canary=CANARY)
        return {"files": found["files"], "views": found["views"]}

    async def completed(self, erasure_id: str) -> dict[str, Any]:
        """The receipt, once the erasure is completed."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.client.get(f"/v1/admin/erasures/{erasure_id}")
                if answer.is_success and answer.json()["state"] == "completed":
                    return dict(answer.json())
                await asyncio.sleep(POLL_S)


def _entry(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"workspace_id": "default", "entry_type": "memory.remembered", "agent_id": "a1", "crew_id": "c1", **fields}


@asynccontextmanager
async def asking(node: Runtime) -> AsyncIterator[Asking]:
    headers = {"authorization": f"Bearer {node.owner_token}"}
    async with httpx.AsyncClient(base_url=node.http_url, headers=headers, timeout=DEADLINE_S) as client:
        yield Asking(client)


async def planted(ask: Asking) -> tuple[str, str]:
    """A note about Ana, much that was made of it, a drawer about her, and neighbours; the note's and drawer's names."""
    note = await ask.entry(summary=f"Ana's badge word is {CANARY}", data_subject_id="ana")
    await ask.entry(summary="Ben likes green tea", data_subject_id="ana.b")
    await ask.entry(
        entry_type="summary.generated", summary=f"badge: {CANARY}", refs={"derived_from": [note]}, payload={"w": CANARY}
    )
    write = {"tier": "AGENT", "agent_id": "a1", "crew_id": "c1", "mode": "append"}
    await ask.post("/memory/write", content="- Ben likes green tea", **write)
    await ask.post("/memory/write", content=f"- the word {CANARY} opens the door", derived_from=[note], **write)
    await ask.post("/v1/kg/facts", subject="Ana", predicate="badge", object=CANARY, source_entry_id=note)
    await ask.post("/v1/kg/facts", subject="Ben", predicate="drinks", object="green tea")
    drawer = await ask.post("/v1/palace/drawers", wing="people", room="ana", content=f"Ana said {CANARY} at the door")
    await ask.post("/v1/palace/drawers", wing="people", room="ben", content="Ben drinks his green tea at four")
    moved = await ask.client.post(f"/v1/palace/drawers/{drawer['drawer_id']}", json={"room": "badges"})
    assert moved.is_success, moved.text
    return note, f"drawer:{drawer['drawer_id']}"


async def test_forget_entry_with_derived_texts_leaves_no_trace_and_the_neighbours(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, asking(node) as ask:
        note, drawer = await planted(ask)
        before = await ask.get("/v1/journal", q=CANARY)
        assert len(before["entries"]) >= 2
        found = await ask.traces()
        assert any("jetstream" in name for name in found["files"])
        assert {name.partition(".")[0] for name in found["views"]} >= {
            "journal_entries",
            "memory_documents",
            "kg_entities",
        }

        planned = await ask.post("/v1/admin/forget", ids=[note, drawer], reason="asked by Ana", dry_run=True)
        assert found["views"].keys() <= (await ask.traces())["views"].keys()  # a reactor may derive more at any time
        assert (await ask.get("/v1/admin/erasures"))["erasures"] == []
        begun = await ask.post("/v1/admin/forget", ids=[note, drawer], reason="asked by Ana")
        receipt = await ask.completed(begun["erasure_id"])

        assert begun["messages"] >= planned["messages"]  # a reactor may derive more at any time
        assert receipt["counts"]["stream"] >= begun["messages"]
        assert receipt["counts"]["views: documents"] >= planned["stores"]["views: documents"] > 0
        assert planned["by_family"]["palace"] >= 2  # filed and moved; a reactor may add more
        assert receipt["not_proven"]
        assert await ask.traces() == {"files": {}, "views": {}}
        assert await ask.refused(id=note, summary=f"Ana's badge word is {CANARY}")
        assert (await ask.get("/v1/journal", q="green tea"))["entries"]
        search = await ask.post("/v1/palace/search", query="green tea", limit=5)
        assert [hit["room"] for hit in search["results"]] == ["ben"]
        document = await ask.get("/v1/memory/document", tier="AGENT", agent_id="a1", crew_id="c1")
        assert document["content"].strip() == "- Ben likes green tea"
        verified = await ask.client.post("/v1/admin/verify")
        assert '"equal": true' in verified.text.replace('":true', '": true')


async def test_forget_subject_with_views_folded_in_another_process_leaves_a_subject_whose_name_is_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[FoldedApart | None] = []

    async def fold(*given: Any) -> FoldedApart | None:
        folded.append(await fold_apart(*given))
        return folded[-1]

    monkeypatch.setattr(rebuild, "APART_FROM", 1)
    monkeypatch.setattr(views, "fold_apart", fold)
    async with running_node(tmp_path) as node, asking(node) as ask:
        _, drawer = await planted(ask)
        for asked in ({"subject": "ana"}, {"ids": [drawer]}):
            begun = await ask.post("/v1/admin/forget", **asked, reason="asked by Ana")
            await ask.completed(begun["erasure_id"])
        assert (await ask.get("/v1/journal", q="green tea"))["entries"]
        assert await ask.traces() == {"files": {}, "views": {}}
        verified = await ask.client.post("/v1/admin/verify")
        assert '"equal": true' in verified.text.replace('":true', '": true')
    assert len(folded) >= 2
    assert all(done is not None and done.missing for done in folded)


async def test_process_that_folds_ends_with_the_node() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", fold_apart.__module__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    assert process.stdin is not None
    nobody = "nats://127.0.0.1:9"
    task = {"nats": [nobody, None, None], "memory_mb": 64, "path": "views", "names": [], "last_seq": 1}
    process.stdin.write(json.dumps(task).encode() + b"\n")
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), DEADLINE_S) != 0


async def test_forget_author_and_source_leave_neighbours_with_longer_names_and_of_the_same_source(
    tmp_path: Path,
) -> None:
    async with running_node(tmp_path) as node, asking(node) as ask:
        chat = {"entry_type": "chat.user_message", "actor_type": "user"}
        slack = {"refs": {"imported_from": "slack"}}
        by_alice = await ask.entry(summary=f"alice writes {CANARY}", actor_id="alice@x", **chat, **slack)
        by_other = await ask.entry(summary="another alice writes of maps", actor_id="alice.b@x", **chat, **slack)
        elsewhere = await ask.entry(
            summary="alice.b writes elsewhere", actor_id="alice.b@x", **chat, refs={"imported_from": "slack.old"}
        )
        text = {"wing": "people", "room": "ana", "drawer_id": "", "content": f"a letter with {CANARY}"}
        await ask.post(
            "/v1/palace/import",
            drawers=[{**text, "drawer_id": "d" * 32, "added_by": "alice@x"}],
            imported_from="slack",
        )
        assert (await ask.traces())["views"]

        begun = await ask.post("/v1/admin/forget", author="alice@x", reason="r")
        await ask.completed(begun["erasure_id"])
        left = {entry["id"] for entry in (await ask.get("/v1/journal"))["entries"]}
        assert by_alice not in left
        assert {by_other, elsewhere} <= left
        assert await ask.traces() == {"files": {}, "views": {}}

        begun = await ask.post("/v1/admin/forget", source="slack", reason="r")
        await ask.completed(begun["erasure_id"])
        left = {entry["id"] for entry in (await ask.get("/v1/journal"))["entries"]}
        assert by_other not in left
        assert elsewhere in left


async def test_forget_refuses_no_criterion_two_and_one_that_nothing_fulfils(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, asking(node) as ask:
        for given, status in (
            ({}, httpx.codes.BAD_REQUEST),
            ({"subject": "ana", "author": "ana"}, httpx.codes.BAD_REQUEST),
            ({"ids": ["j_1"], "source": "slack"}, httpx.codes.BAD_REQUEST),
            ({"ids": ["j_unknown"]}, httpx.codes.NOT_FOUND),
            ({"author": "alice"}, httpx.codes.NOT_FOUND),
            ({"source": "slack"}, httpx.codes.NOT_FOUND),
        ):
            answer = await ask.client.post("/v1/admin/forget", json={**given, "reason": "r"})
            assert (answer.status_code, given) == (status, given)


@pytest.mark.parametrize(
    ("of", "step"),
    [
        (Erasures, "_announce"),
        (ErasedStream, "rebuild"),
        pytest.param(Erasures, "_delete", marks=pytest.mark.nightly),
        pytest.param(ErasedStream, "files", marks=pytest.mark.nightly),
    ],
)
async def test_erasure_interrupted_by_the_end_of_the_node_is_completed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: type[Any], step: str
) -> None:
    async def never(*_given: object, **_more: object) -> None:
        await asyncio.Event().wait()

    async with running_node(tmp_path) as node, asking(node) as ask:
        note, drawer = await planted(ask)
        with monkeypatch.context() as patch:
            patch.setattr(of, step, never)
            begun = await ask.post("/v1/admin/forget", ids=[note, drawer], reason="asked by Ana")
            await asyncio.sleep(1.0)
    async with running_node(tmp_path) as node, asking(node) as ask:
        receipt = await ask.completed(begun["erasure_id"])
        assert receipt["messages"] >= begun["messages"]  # a reactor may have derived more meanwhile
        assert await ask.traces() == {"files": {}, "views": {}}


async def test_forget_with_an_id_that_is_not_there_erases_nothing_and_names_it(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, asking(node) as ask:
        note, drawer = await planted(ask)
        for mistyped in ("j_mistyped", drawer.removeprefix("drawer:")):
            ids = [note, mistyped]
            answer = await ask.client.post("/v1/admin/forget", json={"ids": ids, "reason": "r"})
            assert answer.status_code == httpx.codes.NOT_FOUND
            assert mistyped in answer.text
            assert "drawer:ID" in answer.text
        assert (await ask.get("/v1/admin/erasures"))["erasures"] == []
        for empty in ({"ids": [""]}, {"subject": ""}):
            answer = await ask.client.post("/v1/admin/forget", json={**empty, "reason": "r"})
            assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY


async def test_retry_of_an_erased_write_is_refused_and_an_erased_drawer_can_be_filed_and_erased_again(
    tmp_path: Path,
) -> None:
    async with running_node(tmp_path) as node, asking(node) as ask:
        write = {"tier": "AGENT", "agent_id": "a1", "crew_id": "c1", "mode": "append", "write_id": "w_erased"}
        await ask.post("/memory/write", content=f"- {CANARY}", **write)
        text = {"wing": "people", "room": "ana", "content": f"Ana said {CANARY} at the door"}
        drawer = (await ask.post("/v1/palace/drawers", **text))["drawer_id"]
        begun = await ask.post("/v1/admin/forget", ids=["w_erased", f"drawer:{drawer}"], reason="r")
        await ask.completed(begun["erasure_id"])

        retried = await ask.client.post("/memory/write", json={"content": f"- {CANARY}", **write})
        assert retried.status_code == httpx.codes.CONFLICT
        assert "erased" in retried.text
        assert await ask.traces() == {"files": {}, "views": {}}

        filed = await ask.post("/v1/palace/drawers", **text)  # its id follows from the text, so no fence may know it
        assert (filed["drawer_id"], filed["added"]) == (drawer, True)
        begun = await ask.post("/v1/admin/forget", ids=[f"drawer:{drawer}"], reason="r")
        await ask.completed(begun["erasure_id"])
        imported = await ask.post("/v1/palace/import", drawers=[{"drawer_id": drawer, **text}], imported_from="x")
        assert [answer["outcome"] for answer in imported["drawers"]] == ["added"]
        begun = await ask.post("/v1/admin/forget", source="x", reason="r")
        await ask.completed(begun["erasure_id"])
        assert await ask.traces() == {"files": {}, "views": {}}


async def test_erased_correction_leaves_no_text_and_what_it_corrected_counts_again(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, asking(node) as ask:
        old = await ask.entry(summary="The staging port is 8080.")
        again = await ask.entry(summary="the staging port is 8080")
        text = {"wing": "ops", "room": "ports", "content": "The staging port is 8080."}
        drawer = (await ask.post("/v1/palace/drawers", **text))["drawer_id"]
        done = await ask.post("/v1/corrections", id=old, text=f"The staging port is {CANARY}.", reason="moved")
        assert {one["id"] for one in done["retired"]} == {old, again, drawer}
        ask.seq = done["seq"]
        assert (await ask.get(f"/v1/journal/{old}"))["standing"]["state"] == "superseded"

        begun = await ask.post("/v1/admin/forget", ids=[done["replaced_by"]], reason="r")
        await ask.completed(begun["erasure_id"])
        assert await ask.traces() == {"files": {}, "views": {}}
        for entry_id in (old, again):
            assert (await ask.get(f"/v1/journal/{entry_id}"))["standing"] is None
        [found] = (await ask.post("/v1/palace/search", query="staging port", limit=5))["results"]
        assert found["id"] == drawer
        assert (await ask.get("/v1/corrections"))["corrections"] == []
        verified = await ask.client.post("/v1/admin/verify")
        assert '"equal": true' in verified.text.replace('":true', '": true')


VECTORS = "SELECT count(*) FROM memory_chunk_vectors WHERE dim > 0"
WITHOUT_TEXT = f"""{VECTORS} AND text_hash NOT IN (
    SELECT text_hash FROM chunk_texts UNION ALL SELECT text_hash FROM drawer_texts)"""
WITHOUT_VECTOR = """SELECT count(*) FROM (SELECT text_hash FROM chunk_texts UNION ALL SELECT text_hash FROM drawer_texts) t
    WHERE text_hash NOT IN (SELECT text_hash FROM memory_chunk_vectors)"""


async def test_erasure_takes_vectors_without_a_text_and_embeds_again_what_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Erasures] = []

    async def start(part: Erasures, begin: Any = Erasures.start) -> None:
        started.append(part)
        await begin(part)

    async def until(sql: str, wanted: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while await asyncio.to_thread(started[0]._node.views.rows, sql) != [(wanted,)]:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)

    monkeypatch.setattr(Erasures, "start", start)
    running = running_node(tmp_path / "data", embedder="minilm", cache_dir=minilm_cache().parent)
    async with running as node, asking(node) as ask:
        write = {"tier": "AGENT", "agent_id": "a1", "crew_id": "c1", "mode": "append"}
        await ask.post("/memory/write", content=f"- the word {CANARY} opens the door", write_id="w_1", **write)
        await until(VECTORS, 1)
        await ask.post("/memory/write", content="- roses are pruned in March", write_id="w_2", **write)
        await until(VECTORS, 2)  # the second is that of both lines, and names the write of the last
        twin = {"room": "same", "content": "a twin text about lanterns"}
        drawers = [await ask.post("/v1/palace/drawers", wing=wing, **twin) for wing in ("barn", "stable")]
        await until(VECTORS, 3)
        for name in ("w_1", f"drawer:{drawers[0]['drawer_id']}"):
            begun = await ask.post("/v1/admin/forget", ids=[name], reason="asked by Ana")
            await ask.completed(begun["erasure_id"])
            await until(WITHOUT_TEXT, 0)
            await until(WITHOUT_VECTOR, 0)
        await until(VECTORS, 2)
        verified = await ask.client.post("/v1/admin/verify")
        assert '"equal": true' in verified.text.replace('":true', '": true')


async def test_message_that_comes_after_its_erasure_is_in_no_view_and_deleted_with_a_further_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Erasures] = []

    async def start(part: Erasures, begin: Any = Erasures.start) -> None:
        started.append(part)
        await begin(part)

    monkeypatch.setattr(Erasures, "start", start)
    async with running_node(tmp_path) as node, asking(node) as ask:
        note = await ask.entry(id="j_late", summary=f"the word is {CANARY}")
        begun = await ask.post("/v1/admin/forget", ids=[note], reason="r")
        await ask.completed(begun["erasure_id"])
        body = (
            b'{"id":"j_late","workspace_id":"default","ts":"2026-11-23T00:00:00.000Z","entry_type":"note.written",'
            b'"summary":"%s"}'
        )
        headers = {"Nats-Msg-Id": "default/other", "Crew-Entry-Id": "j_late"}
        writer = started[0]._node.writer
        for number, data in enumerate((body % CANARY.encode(), b"{" + CANARY.encode())):  # the second cannot be decoded
            given = {**headers, "Nats-Msg-Id": f"default/other{number}"}
            await writer.publish("journal.default.c1.a1.note.written", data, given)
        async with asyncio.timeout(DEADLINE_S):
            while (await ask.completed(begun["erasure_id"]))["counts"].get("late messages") != 2:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        assert await ask.traces() == {"files": {}, "views": {}}
        assert (await ask.get("/v1/admin/erasures"))["erasures"][0]["counts"]["stream"] >= 1
        verified = await ask.client.post("/v1/admin/verify")
        assert '"equal": true' in verified.text.replace('":true', '": true')


async def test_erasure_goes_on_when_the_disk_has_room_again_and_is_not_completed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0

    async def counted(stream: ErasedStream, fold: Any = ErasedStream.rebuild) -> None:
        nonlocal tried
        tried += 1
        await fold(stream)

    async def full(*_given: Any) -> None:
        raise FoldingStopped("no space left on device", hint="free some disk")

    monkeypatch.setattr(ErasedStream, "rebuild", counted)
    monkeypatch.setattr(use_cases, "RETRY_S", 0.05)
    async with running_node(tmp_path) as node, asking(node) as ask:
        note, drawer = await planted(ask)
        begun: dict[str, Any] = {}
        for place, value in (
            ("FREE_DISK_FLOOR_BYTES", 1 << 60),
            ("fold_range", full),
        ):  # before the copy, and during it
            with monkeypatch.context() as patch:
                patch.setattr(rebuild, place, value)
                tried = 0
                begun = begun or await ask.post("/v1/admin/forget", ids=[note, drawer], reason="asked by Ana")
                async with asyncio.timeout(DEADLINE_S):
                    while tried < 3:  # noqa: ASYNC110
                        await asyncio.sleep(POLL_S)
                [erasure] = (await ask.get("/v1/admin/erasures"))["erasures"]
                assert (erasure["state"], erasure["completed_at"]) == ("scoped", None)
                assert (await ask.get("/v1/journal", q="green tea"))["entries"]
        await ask.completed(begun["erasure_id"])
        assert await ask.traces() == {"files": {}, "views": {}}
        assert not (await asyncio.to_thread((tmp_path / "views.duckdb.rebuild").exists))


async def test_erasure_during_a_rebuild_a_compaction_and_a_consolidation_is_completed_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(use_cases, "RETRY_S", 0.05)
    works = (
        ("/v1/admin/rebuild", {}),
        ("/v1/admin/sweeps", {"sweep": "compaction"}),
        ("/v1/admin/consolidations", {"crew_id": "c1"}),
    )
    async with running_node(tmp_path) as node, asking(node) as ask:
        for number, (path, body) in enumerate(works):
            old = {"entry_type": "exec.output_chunk", "ts": "2026-01-02T00:00:00Z"}
            names = [await ask.entry(summary=f"chunk {n} says {CANARY}", **old) for n in range(12)]
            for n, agent in enumerate(("a1", "a2", "a1", "a2")):
                said = f"Deploy {n} failed with {CANARY}{number} because the disk is full; free the disk first"
                fields = {"entry_type": "run.failed", "severity": "error", "agent_id": agent, "summary": said}
                names.append(await ask.entry(**fields))
            other, begun = await asyncio.gather(
                ask.client.post(path, json=body), ask.post("/v1/admin/forget", ids=names, reason="r")
            )
            assert other.is_success, other.text
            await ask.completed(begun["erasure_id"])
            assert await ask.traces() == {"files": {}, "views": {}}, path
        verified = await ask.client.post("/v1/admin/verify")
        assert '"equal": true' in verified.text.replace('":true', '": true')
