"""The embed reactor on a real broker, with a server that speaks Ollama's API and fails in every way it can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from support.embedders import as_vector
from support.embedding import QUICK, Bench, embedding_bench
from support.ollama_server import Failure, OllamaServer, reference_vector

from crew_journal.consumers.adapters.ollama import OllamaEmbedder
from crew_journal.consumers.models import embed_reactor as embed
from crew_journal.consumers.models.embed_batch import FILTER_SUBJECTS
from crew_journal.consumers.models.embed_reactor import durable_name
from crew_journal.schemas.core.ids import derived_id, message_id
from crew_journal.schemas.core.subjects import JOURNAL_STREAM
from crew_journal.schemas.models.rules import REMEMBERED
from crew_journal.services.journal.broker.broker import ManagedBroker


@pytest.fixture
async def embedder(server: OllamaServer) -> AsyncIterator[OllamaEmbedder]:
    made = OllamaEmbedder(server.url, timeout_s=60.0)
    yield made
    await made.close()


@pytest.fixture
async def impatient(server: OllamaServer) -> AsyncIterator[OllamaEmbedder]:
    """Gives up soon, as often as it takes for a busy machine to answer in time once."""
    made = OllamaEmbedder(server.url, timeout_s=2.0)
    yield made
    await made.close()


@pytest.fixture
async def bench(broker: ManagedBroker, embedder: OllamaEmbedder, impatient: OllamaEmbedder) -> AsyncIterator[Bench]:
    # after the embedders, so that the reactors are stopped before they are closed
    async with embedding_bench(broker) as made:
        yield made


async def test_each_selected_entry_gets_one_vector_that_names_its_cause(bench: Bench, embedder: OllamaEmbedder) -> None:
    payload = {"question": "who holds the key?", "state": "pending"}
    seq = await bench.publish("e1", "peer.escalation", "the vault is shut", severity="warn", payload=payload)
    await bench.publish("noise", "exec.output_chunk", "ok")
    await bench.publish("calm", "keeper.decision", "nothing to see", severity="info")
    await bench.publish_control("rule", "memory.consolidated", "keys are with the night shift", "pin")
    reactor = await bench.reactor(embedder)
    await bench.until_facts(2)
    status = await bench.until_idle(reactor)
    first, second = await bench.facts()
    assert (first.entry_id, first.entry_seq, first.model, first.dim) == ("e1", seq, "nomic-embed-text", 768)
    assert (first.entry_type, first.severity, first.crew_id, first.agent_id) == (
        "peer.escalation",
        "warn",
        "red",
        "ada",
    )
    assert (second.entry_id, second.priority) == ("rule", "pin")
    expected = reference_vector("the vault is shut :: who holds the key?")
    cosine = float(as_vector(first.vector) @ expected) / float(sum(x * x for x in expected)) ** 0.5
    assert cosine == pytest.approx(1.0, abs=1e-5)
    assert (status.name, status.counts["proposed"], status.counts["written"]) == ("embed@1", 2, 2)
    assert status.counts["skipped"] >= 1


async def test_a_model_that_is_absent_at_first_loses_nothing(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    server.stop()
    for n in range(150):
        await bench.escalate(f"e{n}")
    reactor = await bench.reactor(embedder)
    waiting = await bench.until_status(reactor, lambda s: s.last_error is not None, "the error in the status")
    assert waiting.state == "waiting"
    assert "cannot be reached" in str(waiting.last_error)
    assert "ollama serve" in str(waiting.last_error), "says what to do"
    assert waiting.since is not None
    assert waiting.pending == 150
    later = await bench.until_status(reactor, lambda s: s.pending == 150, "the status")
    assert later.since == waiting.since, "the beginning of the outage stays"
    server.start()
    await bench.until_facts(150)
    status = await bench.until_idle(reactor)
    assert (status.last_error, status.since) == (None, None)
    facts = await bench.facts()
    assert [fact.entry_id for fact in facts] == [f"e{n}" for n in range(150)], "in order of age, each once"


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("model-missing", "ollama pull"),
        ("server-error", "500"),
        ("slow", "did not answer within"),
        ("half-answer", "closed the connection before"),
        ("wrong-count", "0 vectors for 1 texts"),
        ("not-json", "not a valid answer of /api/embed"),
        ("nan", "zero or not finite"),
    ],
)
async def test_a_model_that_fails_for_a_while_makes_everything_wait_and_catch_up(
    bench: Bench,
    server: OllamaServer,
    embedder: OllamaEmbedder,
    impatient: OllamaEmbedder,
    failure: Failure,
    said: str,
) -> None:
    await bench.escalate("before")
    if failure == "slow":  # the others wait for the answer, however long a busy machine takes for it
        embedder = impatient
    reactor = await bench.reactor(embedder)
    await bench.until_facts(1)
    server.fail(failure)
    for n in range(3):
        await bench.escalate(f"during{n}")
    waiting = await bench.until_status(reactor, lambda s: s.state == "waiting", "a waiting reactor")
    assert said in str(waiting.last_error)
    assert waiting.pending == 3
    assert waiting.counts["failed"] == 0, "no text is blamed"
    server.fail("ok")
    await bench.until_facts(4)
    status = await bench.until_idle(reactor)
    assert status.last_error is None
    assert set((await bench.embedded()).values()) == {1}


async def test_a_model_that_changed_under_its_name_stops_the_reactor_with_a_hint(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    server.fail("wrong-dimension")  # 769 where the journal has 768
    await bench.escalate("e1")
    reactor = await bench.reactor(embedder, dim=768)
    waiting = await bench.until_status(reactor, lambda s: "768" in str(s.last_error), "the error in the status")
    assert waiting.state == "waiting"
    assert "769" in str(waiting.last_error)
    assert "under its name" in str(waiting.last_error)
    assert await bench.fact_count() == 0


async def test_one_text_the_model_refuses_does_not_hold_up_the_others_and_is_given_up_in_the_end(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    server.rejected = "poison"
    for n in range(200):
        await bench.escalate(f"e{n}", "a poison pill" if n == 70 else None)
    limits = replace(QUICK, give_up_after=3, give_up_refused_s=0.2)
    reactor = await bench.reactor(embedder, limits)
    await bench.until_facts(200)
    status = await bench.until_idle(reactor)
    by_id = {fact.entry_id: fact for fact in await bench.facts()}
    assert len(by_id) == 200
    assert [fact.entry_id for fact in by_id.values() if fact.dim == 0] == ["e70"]
    assert by_id["e70"].seq == max(fact.seq for fact in by_id.values()), "all the others came first"
    assert status.counts["written"] == 199
    assert status.counts["refused"] == 1
    assert status.counts["failed"] >= 3
    assert status.counts["put_off"] == 0
    assert status.last_error is None, "the model works"


async def test_a_text_that_is_mended_before_it_is_given_up_gets_its_vector(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    server.rejected = "poison"
    await bench.escalate("e1", "a poison pill")
    reactor = await bench.reactor(embedder)
    await bench.until_status(reactor, lambda s: s.counts["failed"] >= 2, "a second failure")
    assert (await reactor.status()).counts["put_off"] == 1
    server.rejected = None
    await bench.until_facts(1)
    (fact,) = await bench.facts()
    assert fact.dim == 768


async def test_a_message_that_is_no_entry_is_left_to_the_projections(bench: Bench, embedder: OllamaEmbedder) -> None:
    await bench.js.publish("journal.default.red.ada.peer.escalation", b"not json")
    await bench.escalate("e1")
    reactor = await bench.reactor(embedder)
    await bench.until_facts(1)
    status = await bench.until_idle(reactor)
    assert status.counts["unreadable"] == 1


async def test_another_model_is_filled_from_the_beginning_beside_the_first(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    server.models = ("nomic-embed-text", "mxbai-embed-large")
    for n in range(5):
        await bench.escalate(f"e{n}")
    await bench.reactor(embedder)
    await bench.until_facts(5)
    other = OllamaEmbedder(server.url, "mxbai-embed-large")
    await bench.reactor(other)
    await bench.until_facts(10)
    await other.close()
    models = [(fact.entry_id, fact.model) for fact in await bench.facts()]
    assert sorted(models) == sorted(
        (f"e{n}", model) for n in range(5) for model in ("nomic-embed-text", "mxbai-embed-large")
    )


async def test_a_deleted_durable_is_made_again_and_nothing_is_stored_twice(
    bench: Bench, embedder: OllamaEmbedder
) -> None:
    reactor = await bench.reactor(embedder)
    await bench.escalate("e1")
    await bench.until_facts(1)
    await bench.js.delete_consumer(JOURNAL_STREAM, durable_name(1, embedder.model_id))
    await bench.escalate("e2")
    await bench.until_facts(2)
    status = await bench.until_idle(reactor)
    assert await bench.embedded() == {"e1": 1, "e2": 1}
    assert status.counts["repeated"] == 1, "e1 came again and the broker knew its fact"


async def test_a_type_that_the_policy_gets_later_widens_the_durable_and_embeds_nothing_twice(
    bench: Bench, embedder: OllamaEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(embed, "FILTER_SUBJECTS", tuple(s for s in FILTER_SUBJECTS if not s.endswith(REMEMBERED)))
        first = await bench.reactor(embedder)
        await bench.escalate("e1")
        await bench.until_facts(1)
        await bench.until_idle(first)
        await first.stop()
    second = await bench.reactor(embedder)
    await bench.publish("r1", REMEMBERED, "Maria prefers short mails")
    await bench.until_facts(2)
    await bench.until_idle(second)
    assert await bench.embedded() == {"e1": 1, "r1": 1}


async def test_a_strangers_message_with_the_message_id_of_a_fact_swallows_no_vector(
    bench: Bench, embedder: OllamaEmbedder
) -> None:
    seq = await bench.escalate("e1")
    fact_id = derived_id("embed", 1, f"default/e1/{seq}", embedder.model_id)
    claims = {"Nats-Msg-Id": message_id("default", fact_id)}
    await bench.js.publish("journal.rival.red.mallory.note", b'{"summary": "mine"}', headers=claims)
    reactor = await bench.reactor(embedder)
    await bench.until_facts(1)
    status = await bench.until_idle(reactor)
    assert (status.counts["written"], status.counts.get("repeated", 0)) == (1, 0)
    [fact] = await bench.facts()
    assert (fact.entry_id, fact.entry_seq) == ("e1", seq)
