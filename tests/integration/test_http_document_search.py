"""Search of memory documents over HTTP, against a real broker and real views."""

from __future__ import annotations

from typing import Any

import pytest
from support.stack import Stack, until

from crew_journal.schemas.core.errors import InvalidQuery, NoSuchMemory, NotAllowed
from crew_journal.schemas.core.principal import Role

TOPIC = "# Deployment\n\nKubernetes runs every deployment; charts live in deploy/charts.\n"


async def _seeded(stack: Stack, workspace: str) -> int:
    """Documents of agent ada and crew red, and of others; returns the last sequence."""
    seq = 0
    async with stack.client() as owner:
        written: list[tuple[str, dict[str, Any], str]] = [
            ("AGENT", {"agent_id": "ada"}, "# Facts\n\nThe deployment of Maria uses Postgres 16.\n"),
            ("CREW", {"crew_id": "red"}, "All deployments are announced.\n"),
            ("topics", {"crew_id": "red", "key": "deployment"}, TOPIC),
            ("AGENT", {"agent_id": "eve"}, "The deployment password hint of Eve.\n"),
            ("CREW", {"crew_id": "blue"}, "The deployment of the blue crew.\n"),
        ]
        for tier, fields, text in written:
            done = await owner.document_write(tier, "replace", text, workspace_id=workspace, **fields)
            seq = max(seq, done.seq)
        other = await owner.document_write(
            "AGENT", "replace", "A deployment elsewhere.\n", workspace_id=f"{workspace}-other", agent_id="ada"
        )
        return max(seq, other.seq)


async def test_an_agent_finds_its_own_documents_and_those_of_its_crew(stack: Stack) -> None:
    seq = await _seeded(stack, "find")
    token = await stack.token(Role.AGENT, "find", agent="ada", crew="red")
    async with stack.client(token.plaintext) as client:
        own = await client.document_search("deployment", min_seq=seq)
        assert [(hit.file, hit.source, hit.line, hit.heading) for hit in own.results] == [
            ("AGENT.md", "agent", 1, "Facts")
        ]
        assert "Postgres 16" in own.results[0].snippet
        crew = await client.document_search("where do deployment charts live?", scope="crew")
        assert [hit.file for hit in crew.results] == ["topics/deployment.md", "CREW.md"]
        both = await client.document_search("deployment", scope="both")
        assert {(hit.file, hit.source) for hit in both.results} == {
            ("AGENT.md", "agent"), ("CREW.md", "crew"), ("topics/deployment.md", "crew")
        }  # fmt: skip
        scores = [hit.score for hit in both.results]
        assert scores == sorted(scores)
        assert max(scores) < 0
        assert both.count == 3
        assert (await client.document_search("astronomy")).count == 0
        with pytest.raises(NotAllowed):
            await client.document_search("deployment", agent_id="eve")
        with pytest.raises(NotAllowed):
            await client.document_search("deployment", scope="crew", crew_id="blue")


async def test_the_routes_of_the_sidecar_answer_as_their_contract_says(stack: Stack) -> None:
    seq = await _seeded(stack, "sidecar")
    token = (await stack.token(Role.AGENT, "sidecar", agent="ada", crew="red")).plaintext
    solo = (await stack.token(Role.AGENT, "sidecar", agent="ada")).plaintext
    async with stack.http(token) as client:
        body = {"query": "deployment", "limit": 1_000, "scope": "both", "min_seq": seq}
        answer = await client.post("/memory/search", json=body)
        assert answer.status_code == 200
        assert answer.json()["count"] == len(answer.json()["results"]) == 3
        assert {"file", "snippet", "score", "source"} <= set(answer.json()["results"][0])
        for wrong in (
            {},
            {"query": ""},
            {"query": "  "},
            {"query": "x", "scope": "all"},
            {"query": "x", "limit": "many"},
        ):
            assert (await client.post("/memory/search", json=wrong)).status_code == 400
        assert (await client.post("/memory/search", content=b"{")).status_code == 400
        assert (await client.post("/memory/search", json={"query": '"AND (* OR'})).status_code == 200
        state = (await client.get("/memory/status", params={"scope": "crew"})).json()
        assert (state["total_files"], state["total_chunks"], state["search_ready"]) == (2, 2, True)
        assert (state["total_size_kb"], state["indexed_at"] is not None) == (1, True)
        again = await client.post("/memory/reindex", params={"scope": "crew"})
        assert again.status_code == 200
        assert again.json()["total_chunks"] == 2
        assert (await client.get("/memory/status", params={"scope": "all"})).status_code == 400
        headers = {"Authorization": f"Bearer {solo}"}
        for method, path in (("GET", "/memory/status?scope=crew"), ("POST", "/memory/reindex?scope=crew")):
            assert (await client.request(method, path, headers=headers)).status_code == 503
        asked = {"query": "deployment", "scope": "crew"}
        assert (await client.post("/memory/search", json=asked, headers=headers)).status_code == 503
        asked["scope"] = "both"
        only = await client.post("/memory/search", json=asked, headers=headers)
        assert [hit["source"] for hit in only.json()["results"]] == ["agent"]
        assert (await client.post("/memory/search", json=asked, headers={"Authorization": ""})).status_code == 401


async def test_an_operator_names_whose_documents_and_sees_which_are_blocked(stack: Stack) -> None:
    async with stack.client() as owner:
        for tier, text in (("AGENT", "The parser is green.\n"), ("pins", "The parser is pinned.\n")):
            done = await owner.document_write(tier, "replace", text, workspace_id="oper", agent_id="ada", scope="agent")
        with pytest.raises(InvalidQuery):
            await owner.document_search("parser", workspace_id="oper")
        found = await owner.document_search("parser", agent_id="ada", workspace_id="oper", min_seq=done.seq)
        assert ({hit.file for hit in found.results}, found.quarantined) == ({"AGENT.md", "pins.md"}, ())


async def test_what_is_written_is_found_by_the_next_search(stack: Stack) -> None:
    token = await stack.token(Role.AGENT, "fresh", agent="ada", crew="red")
    async with stack.client(token.plaintext) as client:
        assert (await client.document_search("zebra")).count == 0
        for number in range(5):
            await client.append_daily(f"zebra {number} was seen")
            found = await client.document_search(f"zebra {number}")
            assert f"zebra {number}" in found.results[0].snippet


async def test_an_agent_whose_memory_is_off_searches_no_documents(stack: Stack) -> None:
    seq = await _seeded(stack, "off")
    async with stack.client() as owner:
        await owner.register_agent("ada", memory_enabled=False, workspace_id="off")
    token = await stack.token(Role.AGENT, "off", agent="ada", crew="red")
    async with stack.client(token.plaintext) as client:
        with pytest.raises(NoSuchMemory):
            await client.document_search("deployment", min_seq=seq)
        assert (await client.search_memory("deployment Maria Postgres", min_seq=seq)).count == 0


async def test_documents_and_entries_are_ranked_together_and_name_their_origin(stack: Stack) -> None:
    seq = await _seeded(stack, "both")
    lead = await stack.token(Role.LEAD, "both", agent="ada", crew="red")
    plain = await stack.token(Role.AGENT, "both", agent="ada", crew="red")
    solo = await stack.token(Role.AGENT, "both", agent="ada")
    async with stack.client(lead.plaintext) as client:
        for number in range(3):
            done = await client.remember(f"Note {number}: the deployment of checkout waits for Maria")
        found = await client.search_memory("deployment checkout", min_seq=max(seq, done.seq))
        assert found.scope == "crew_shared"
        origins = [hit.origin for hit in found.results]
        assert origins == ["entry"] * 3 + ["document"] * 3  # the entries hold both words
        sure = [hit.confidence or 0.0 for hit in found.results]
        assert sure == sorted(sure, reverse=True)
        assert all((hit.file is None) == (hit.origin == "entry") for hit in found.results)
        assert found.results[0].score == found.results[3].score == 1 / 61
        with pytest.raises(NotAllowed):
            await client.search_memory("deployment", crew_id="blue")
        assert found.receipt is not None
        shown = await client.receipt(found.receipt)
        assert [hit.entry_id for hit in shown.hits] == [h.entry_id for h in found.results if h.origin == "entry"]
    async with stack.client(plain.plaintext) as client:
        crew = await client.search_memory("deployment", scope="crew_shared")
        assert (crew.scope, {"crew", "agent"} <= {hit.source for hit in crew.results}) == ("own", True)
        with pytest.raises(NotAllowed):
            await client.search_memory("deployment", scope="workspace")
    async with stack.client(solo.plaintext) as client:
        with pytest.raises(InvalidQuery):
            await client.search_memory("deployment", scope="crew_shared")
    async with stack.client() as owner:
        every = await owner.search_memory("deployment", workspace_id="both", limit=50)
        assert every.scope == "workspace"
        assert {hit.file for hit in every.results if hit.origin == "document"} == {
            "AGENT.md", "CREW.md", "topics/deployment.md"
        }  # fmt: skip


async def test_a_search_that_finds_is_recorded_with_its_chunks_and_is_no_recall(stack: Stack) -> None:
    seq = await _seeded(stack, "log")
    token = await stack.token(Role.AGENT, "log", agent="ada", crew="red")
    async with stack.client(token.plaintext) as client:
        await client.document_search("astronomy", min_seq=seq)
        await client.document_search("postgres", scope="both")
    async with stack.client() as owner:
        listed = "SELECT count(*) FROM journal_entries WHERE entry_type = 'memory.searched' AND workspace_id = 'log'"
        await until(lambda: stack.store.rows(listed) != [(0,)])
        (recorded,) = (await owner.list(types=["memory.searched"], workspace_id="log")).entries
        payload = recorded.payload
        assert payload["chunks"] == ["a-ada/AGENT.md:1"]
        assert (payload["hit_ids"], payload["scope"], payload["recipe"]) == ([], "crew_shared", "documents")
    assert stack.store.rows("SELECT count(*) FROM memory_receipts WHERE workspace_id = 'log'") == [(0,)]
