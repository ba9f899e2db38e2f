"""Lineage, receipts and notices on a real node: what a run is told, who was given a memory, and what it was made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
from support.running import running_node

from crew_journal.services.runtime.node import Runtime

DEADLINE_S = 30.0
POLL_S = 0.05
SOON_S = 3.0
"""A second on an idle machine; tests share theirs."""


class Person:
    """The owner, and agents under tokens of their own."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.seq = 0

    async def post(self, path: str, run: str | None = None, **fields: Any) -> dict[str, Any]:
        headers = {} if run is None else {"Crew-Run": run}
        answer = await self.client.post(path, json=fields, headers=headers)
        assert answer.is_success, answer.text
        body = dict(answer.json())
        self.seq = max(self.seq, body.get("seq") or 0)
        return body

    async def get(self, path: str, run: str | None = None, **fields: Any) -> dict[str, Any]:
        headers = {} if run is None else {"Crew-Run": run}
        answer = await self.client.get(path, params=fields, headers=headers)
        assert answer.is_success, answer.text
        return dict(answer.json())

    async def entry(self, **fields: Any) -> str:
        entry = {"entry_type": "memory.remembered", "agent_id": "a1", "crew_id": "c1", **fields}
        [stored] = (await self.post("/v1/journal", **entry))["entries"]
        self.seq = max(self.seq, stored["seq"])
        return str(stored["id"])

    async def notices(self, run: str, **fields: Any) -> list[dict[str, Any]]:
        return list((await self.get("/v1/notices", run=run, min_seq=self.seq, **fields))["notices"])

    async def saw(self, name: str, receipts: int, **fields: Any) -> dict[str, Any]:
        """Who saw it, once that many receipts are folded."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                seen = await self.post("/v1/admin/who-saw", name=name, **fields)
                if seen["total"] >= receipts:
                    return seen
                await asyncio.sleep(POLL_S)


@asynccontextmanager
async def owner(node: Runtime) -> AsyncIterator[Person]:
    headers = {"authorization": f"Bearer {node.owner_token}"}
    async with httpx.AsyncClient(base_url=node.http_url, headers=headers, timeout=DEADLINE_S) as client:
        yield Person(client)


async def test_notice_reaches_the_run_that_was_given_the_memory_once_and_across_a_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, owner(node) as person:
        note = await person.entry(summary="the quagga cage opens at nine")
        await person.entry(summary="bread is baked on tuesday")
        recalled = {"query": "quagga cage", "min_seq": person.seq}
        assert note in [hit["entry_id"] for hit in (await person.post("/v1/recall", "r1", **recalled))["hits"]]
        await person.post("/v1/recall", "r2", query="bread tuesday", min_seq=person.seq)
        await person.post("/v1/recall/render", "r3", **recalled)
        seen = await person.saw(note, 2)
        assert seen["runs"] == ["r1", "r3"]
        assert await person.notices("r1") == []

        began = perf_counter()
        await person.post(f"/v1/journal/{note}/retract", reason="wrong")
        [told] = await person.notices("r1")
        assert perf_counter() - began < SOON_S
        assert (told["id"], told["why"]) == (note, "retracted")
        assert "quagga" not in str(told)
        assert await person.notices("r1") == []
        assert await person.notices("r2") == []
        assert [notice["id"] for notice in await person.notices("r1", again=True)] == [note]
        hinted = await person.client.get("/v1/status", headers={"Crew-Run": "r3"})
        assert hinted.headers["Crew-Notices"] == "1"
    async with running_node(tmp_path) as node, owner(node) as person:
        assert await person.notices("r1") == []
        assert [notice["id"] for notice in await person.notices("r3")] == [note]
        assert await person.notices("r3") == []


async def test_block_names_the_writes_and_notes_that_it_holds_and_its_run_is_told_of_an_erasure(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, owner(node) as person:
        note = await person.entry(summary="the quagga cage opens at nine")
        write = {"tier": "AGENT", "agent_id": "a1", "crew_id": "c1", "mode": "append"}
        first = await person.post("/memory/write", content="- quaggas eat hay", **write)
        second = await person.post("/memory/write", content="- the key is under the mat", **write)
        asked = {"agent_id": "a1", "crew_id": "c1", "min_seq": person.seq}
        block = await person.get("/v1/memory/block", run="b1", **asked)
        assert "hay" in block["text"]
        assert "quagga cage" in block["text"]
        for name in (note, first["write_id"], second["write_id"]):
            seen = await person.saw(name, 1)
            assert [(row["run"], row["prompt"], row["receipt"]) for row in seen["prompts"]] == [
                ("b1", "memory_block", block["receipt"])
            ]
        begun = await person.post("/v1/admin/forget", ids=[second["write_id"]], reason="asked")
        async with asyncio.timeout(DEADLINE_S):
            while True:
                erasure = await person.client.get(f"/v1/admin/erasures/{begun['erasure_id']}")
                if erasure.is_success and erasure.json()["state"] == "completed":
                    break
                await asyncio.sleep(POLL_S)
        told = await person.notices("b1")
        assert [(notice["id"], notice["why"]) for notice in told] == [(second["write_id"], "erased")]
        assert await person.notices("b1") == []
        assert (await person.saw(second["write_id"], 1))["runs"] == ["b1"]


async def test_authors_are_those_by_whose_name_an_erasure_takes_the_memory(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, owner(node) as person:
        said = await person.entry(summary="said by a person about an agent", actor_type="user")
        noted = await person.entry(summary="noted by the agent", actor_type="agent")
        authors = {}
        for name in (said, noted):
            shown = await person.get(f"/v1/lineage/{name}", min_seq=person.seq)
            [authors[name]] = shown["authors"]
        assert authors == {said: "user", noted: "agent:a1"}
        planned = await person.post("/v1/admin/forget", author="a1", reason="left", dry_run=True)
        assert planned["messages"] == 1


async def test_rewritten_document_goes_with_a_line_that_it_repeats(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, owner(node) as person:
        write = {"tier": "AGENT", "agent_id": "a1", "crew_id": "c1"}
        ana = await person.post(
            "/memory/write", content="- Ana likes quaggas", mode="append", data_subject_id="ana", **write
        )
        await person.post("/memory/write", content="- Ben drinks tea", mode="append", data_subject_id="ben", **write)
        text = "# Notes\n- Ana likes quaggas\n- Ben drinks green tea\n"
        whole = await person.post("/memory/write", content=text, mode="replace", **write)
        shown = await person.get(f"/v1/lineage/{whole['write_id']}", min_seq=person.seq)
        assert [step["name"] for step in shown["made_of"]] == [ana["write_id"]]
        assert shown["subjects"] == ["ana"]
        planned = await person.post("/v1/admin/forget", subject="ana", reason="asked", dry_run=True)
        assert {whole["write_id"], ana["write_id"]} <= {example["id"] for example in planned["examples"]}


async def test_model_is_told_with_the_answer_of_its_next_tool_call(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, owner(node) as person:
        note = await person.entry(summary="the quagga cage opens at nine")

        async def called(query: str) -> dict[str, Any]:
            params = {"name": "recall", "arguments": {"query": query}}
            answer = await person.client.post(
                "/mcp?agent_id=a1&crew_id=c1",
                json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
                headers={
                    "Accept": "application/json, text/event-stream",
                    "MCP-Protocol-Version": "2025-06-18",
                    "Crew-Run": "m1",
                },
            )
            assert answer.is_success, answer.text
            return dict(answer.json()["result"])

        await person.notices("m1")
        assert note in (await called("quagga cage"))["content"][0]["text"]
        await person.saw(note, 1)
        await person.post(f"/v1/journal/{note}/retract", reason="wrong")
        await person.notices("other")
        told = await called("bread")
        assert [notice["id"] for notice in told["structuredContent"]["notices"]] == [note]
        assert f"{note}: retracted" in told["content"][0]["text"]
        assert "notices" not in (await called("bread"))["structuredContent"]
