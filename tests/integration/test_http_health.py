"""Health over HTTP: read as recorded, measured on request, for whom it is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.memory_node import SWIFT
from support.stack import DEADLINE_S, Stack

from crew_journal.consumers.health.reactor import HealthReactor
from crew_journal.schemas.core.derived import encode_link
from crew_journal.schemas.core.envelope import LinkDerived
from crew_journal.schemas.core.errors import Unavailable
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.models import rules as embed_policy
from crew_journal.schemas.sweeps.rules import HEALTH
from crew_journal.services.sweeps.use_cases import SweepNow


@pytest.fixture
async def reactor(stack: Stack) -> AsyncIterator[HealthReactor]:
    made = HealthReactor(stack.context(), stack.store, limits=SWIFT)
    await made.start()
    yield made
    await made.stop()


async def test_reading_without_a_snapshot_says_so_and_computes_no_figures(stack: Stack) -> None:
    """Contract §0 row 6: GET returns what is stored; only POST measures."""
    async with stack.http() as http:
        for _ in range(2):
            answer = await http.get("/v1/memory/health", params={"workspace_id": "unseen"})
            assert answer.status_code == 200
            assert answer.json()["status"] == "no snapshot yet"
            assert answer.json()["band"] is None
            assert "--recompute" in answer.json()["hint"]
            assert answer.json()["embedder"]["mode"] == "sparse-only"


async def test_a_measurement_on_request_is_a_snapshot_that_reading_returns(
    stack: Stack, reactor: HealthReactor
) -> None:
    async with stack.http() as http:
        place = {"workspace_id": "acme"}
        empty = (await http.post("/v1/memory/health", params=place)).json()
        assert (empty["status"], empty["score"], empty["band"]) == ("no data", None, None)
        entry = {"entry_type": "peer.escalation", "summary": "the disk is full", "crew_id": "core", **place}
        seq = (await http.post("/v1/journal", json=entry)).json()["entries"][0]["seq"]
        await stack.store.wait_for(seq, DEADLINE_S)
        measured = (await http.post("/v1/memory/health", params=place)).json()
        assert (measured["status"], measured["score"], measured["band"]) == ("ok", 0.0, "red")
        assert "no model is active" in measured["reasons"][0]
        assert measured["counts"]["embeddable"] == 1
        assert measured["crews"] == ["core"]
        read = (await http.get("/v1/memory/health", params=place)).json()
        assert read == {**measured, "view_seq": read["view_seq"]}
        crew = (await http.get("/v1/memory/health", params={**place, "crew_id": "core"})).json()
        assert (crew["crew_id"], crew["band"]) == ("core", "red")
        days = (await http.get("/v1/memory/health", params={**place, "history": 3})).json()["history"]
        today = [day["score"] for day in days if day["date"] == measured["date"]]  # the first may be of the day before
        assert today == [0.0], "the last measurement of a day counts"


async def test_the_legacy_profile_shows_the_other_formulas(stack: Stack, reactor: HealthReactor) -> None:
    """Contract §9: an empty workspace gets 40 there, and is red."""
    async with stack.http() as http:
        place = {"workspace_id": "legacy", "profile": "legacy"}
        answer = (await http.post("/v1/memory/health", params=place)).json()
        assert (answer["score"], answer["band"], answer["profile"]) == (40.0, "red", "legacy")
        assert answer["metrics"]["freshness"] == 100.0


async def test_only_owner_and_admin_measure_and_an_agent_reads_its_own_workspace_and_crew(
    stack: Stack, reactor: HealthReactor
) -> None:
    agent = await stack.token(Role.AGENT, "acme", agent="ada", crew="core")
    lead = await stack.token(Role.LEAD, "acme", agent="liz", crew="core")
    for token in (agent, lead):
        async with stack.http(token.plaintext) as http:
            assert (await http.post("/v1/memory/health")).status_code == 403
            mine = await http.get("/v1/memory/health")
            assert mine.status_code == 200
            assert mine.json()["workspace_id"] == "acme"
            assert (mine.json()["crews"], mine.json()["review"]) == (None, None)
            assert (await http.get("/v1/memory/health", params={"crew_id": "core"})).status_code == 200
            assert (await http.get("/v1/memory/health", params={"crew_id": "other"})).status_code == 403
            assert (await http.get("/v1/memory/health", params={"workspace_id": "legacy"})).status_code == 403
    async with stack.http((await stack.token(Role.ADMIN, "acme")).plaintext) as http:
        assert (await http.post("/v1/memory/health")).status_code == 200


@pytest.mark.parametrize(
    "bad", [{"profile": "other"}, {"history": "367"}, {"history": "x"}, {"crew_id": "a b"}, {"k": "1"}]
)
async def test_what_cannot_be_asked_is_refused_with_a_hint(stack: Stack, bad: dict[str, str]) -> None:
    async with stack.http() as http:
        answer = await http.get("/v1/memory/health", params=bad)
        assert answer.status_code == 400
        assert answer.json()["hint"]


async def test_contradictions_that_wait_to_be_judged_are_named_to_administrators(
    stack: Stack, reactor: HealthReactor
) -> None:
    """Contract §9: contradictions > 0 always forces operator review."""
    async with stack.http() as http:
        place = {"workspace_id": "disputed"}
        entries = [
            {
                "id": f"e{n}",
                "entry_type": "peer.escalation",
                "summary": f"the limit is {n} GB",
                "crew_id": "core",
                **place,
            }
            for n in (1, 2)
        ]
        first, second = (entry["seq"] for entry in (await http.post("/v1/journal", json=entries)).json()["entries"])
        fact = LinkDerived(
            0, "disputed", "e2", second, "e1", first, "contradicts", 0.8, 0, "link@1", "core", "1 and 2 GB"
        )
        sent = encode_link(fact, 1)
        await stack.writer.publish(sent.subject, sent.body, sent.headers)
        measured = (await http.post("/v1/memory/health", params=place)).json()
        assert measured["counts"]["contradictions"] == 1
        assert any("contradiction" in reason for reason in measured["reasons"])
        assert measured["review"] == [{"src": "e2", "dst": "e1", "weight": 0.8, "reason": "1 and 2 GB"}]
        other = (await http.get("/v1/memory/health", params={**place, "crew_id": "else"})).json()
        assert other["review"] == []


async def test_a_sweep_nobody_works_off_is_told_instead_of_waited_for_for_ever(stack: Stack) -> None:
    alone = SweepNow(stack.shared, wait_s=0.2)
    with pytest.raises(Unavailable, match="has not finished"):
        await alone.run("alone", HEALTH)


async def test_the_clients_show_it_too(stack: Stack, reactor: HealthReactor) -> None:
    async with stack.client() as client:
        full = {"entry_type": "peer.escalation", "summary": "the disk is full", "workspace_id": "shown"}
        await stack.store.wait_for((await client.append(full)).seq, DEADLINE_S)
        answer = await client.measure_health(workspace_id="shown")
        read = await client.health(workspace_id="shown")
        assert read == answer.model_copy(update={"view_seq": read.view_seq})
        assert answer.band == "red"


async def test_a_reindex_and_an_index_sweep_are_asked_for_by_administrators_only(stack: Stack) -> None:
    lead = await stack.token(Role.LEAD, "acme", agent="liz", crew="core")
    async with stack.http(lead.plaintext) as http:
        assert (await http.post("/v1/admin/reindex")).status_code == 403
        assert (await http.post("/v1/admin/embeddings/sweep")).status_code == 403
    async with stack.http((await stack.token(Role.ADMIN, "acme")).plaintext) as http:
        assert (await http.post("/v1/admin/reindex", json={"workspace_id": "other"})).status_code == 403
        assert (await http.post("/v1/admin/reindex", json={"model": "never-heard-of"})).status_code == 404
        done = await http.post("/v1/admin/reindex", json={"reason": "the model was mended"})
        assert done.status_code == 200
        assert (done.json()["policy"], done.json()["refused"]) == (embed_policy.VERSION, 0)
        await stack.store.wait_for(done.json()["seq"] + 1, DEADLINE_S)
        [(actor, payload)] = stack.store.rows(
            "SELECT actor_type, payload FROM journal_entries WHERE entry_type = 'embeddings.reindex_requested'"
        )
        assert actor == "user"
        assert "the model was mended" in payload
        [(ticked,)] = stack.store.rows(
            "SELECT payload FROM journal_entries WHERE entry_type = 'sweep.ticked' AND seq > ?", [done.json()["seq"]]
        )
        assert "index" in ticked, "the sweep follows at once"
