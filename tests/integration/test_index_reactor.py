"""The index sweep over a real journal: what was missed is embedded once, and nothing in its way holds it up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.embedding import until
from support.memory_node import ADMIN, WORKSPACE, MemoryNode, Themes, memory_node

from crew_journal.consumers.models.embed_reactor import EmbedReactor
from crew_journal.consumers.models.missing_rows import missing_after
from crew_journal.schemas.core.derived import encode_vector
from crew_journal.schemas.core.errors import EmbedderBadAnswer, EmbedderInputRejected
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.models import rules as embed_policy
from crew_journal.schemas.models.events import ReindexRequested
from crew_journal.schemas.models.rules import EMBEDDABLE, Policy
from crew_journal.schemas.recall.operations import RECALL
from crew_journal.schemas.settings import EMBED_BATCH
from crew_journal.schemas.sweeps.operations import ReindexRequest
from crew_journal.services.desk import Caller, parse
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.sweeps.use_cases import Reindexing

VECTORS = "SELECT entry_id, dim FROM journal_embeddings ORDER BY entry_id"
FACTS = "derived.>"


async def facts(live: MemoryNode) -> int:
    info = await live.client.jetstream().stream_info("JOURNAL", subjects_filter=FACTS)
    return sum((info.state.subjects or {}).values())


async def sweep(live: MemoryNode, **later: float) -> dict[str, int]:
    """The counts of an index sweep that is due after so long."""
    live.advance(**(later or {"seconds": 1}))
    finished = await live.swept("index", await live.tick("index"))
    assert finished["error"] is None
    counts: dict[str, int] = finished["counts"]
    return counts


async def test_a_sweep_embeds_what_is_missing_and_only_what_the_policy_selects(
    live: MemoryNode, themes: Themes
) -> None:
    """Contract §3: entries that do not qualify never reach the embedder."""
    await live.append("e1", "the disk is full", payload={"question": "who owns it?", "reason": "backup", "other": "x"})
    await live.append("n1", "chunk", "exec.output_chunk", refs={"episodic": True})
    await live.append("k1", "allowed", "keeper.decision", severity="info")
    await live.append("c1", "a plain question", "peer.conversation")
    await live.append("c2", "a flagged one", "peer.conversation", refs={"episodic": True})
    await live.start_index()
    counts = await sweep(live)
    assert (counts["proposed"], counts["written"], counts["refused"]) == (2, 2, 0)
    assert sorted(themes.asked) == ["a flagged one", "the disk is full :: who owns it? :: backup"]
    await live.until_vectors(2)
    again = await sweep(live)
    assert (again["proposed"], again["written"]) == (0, 0)


async def test_the_sweep_and_the_embed_reactor_write_each_vector_once(live: MemoryNode) -> None:
    for n in range(30):
        await live.append(f"e{n}", f"queue {n}")
    await live.start_index()
    await live.start_embed()
    counts = await sweep(live)
    await live.until_vectors(30)
    assert await facts(live) == 30
    assert counts["written"] + counts["repeated"] == counts["proposed"], (
        "what it came to, not what was missing at first"
    )
    assert counts["proposed"] + counts["pending"] <= 30, "the others came from the embed reactor"


async def test_proposed_counts_what_a_sweep_came_to_and_not_what_others_wrote_meanwhile(
    broker: ManagedBroker, tmp_path: Path
) -> None:
    class Overtaken(Themes):
        """Its first call takes until somebody else has written the vector of the youngest entry."""

        async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
            if not self.asked:
                vector = self._vector(youngest.text)
                fact = encode_vector(youngest.vector("themes", vector, "embed@1"), 1, 0)
                await live.writer.publish(fact.subject, fact.body, fact.headers)
                await live.until_vectors(1)
            return await super().embed_documents(texts)

    async with memory_node(broker, Overtaken(), tmp_path) as live:
        for n in range(EMBED_BATCH):
            await live.append(f"e{n:03}", f"queue {n}")
        seq = await live.append("youngest", "the disk is full")
        await live.caught_up(seq)
        sought = live.store, WORKSPACE, seq + 1, [], "themes"
        last = missing_after(*sought, (0, ""))[-1]
        [youngest] = missing_after(*sought, (last.ts_ms, last.entry.id))
        await live.start_index()
        counts = await sweep(live)
        assert (counts["proposed"], counts["written"], counts["repeated"]) == (EMBED_BATCH, EMBED_BATCH, 0)


async def test_what_the_embed_reactor_has_still_to_come_to_is_left_to_it(live: MemoryNode, themes: Themes) -> None:
    """It does not look for vectors: hours later, beyond the window for repeats, it would write each a second time."""
    await live.append("e1", "the disk is full")
    embed = await live.start_embed()
    await live.until_vectors(1)

    async def acked() -> object:
        return (await embed.status()).pending == 0

    await until(acked, "the embed reactor has acked its first entry")
    await embed.stop()
    await live.append("e2", "the queue is stuck")
    await live.append("e3", "a token is lost")
    await live.start_index()
    themes.asked.clear()
    counts = await sweep(live)
    assert (counts["pending"], counts["proposed"], counts["written"]) == (2, 0, 0)
    assert themes.asked == []
    await live.start_embed()
    await live.until_vectors(3)
    assert await facts(live) == 3


def put_poison_off(themes: Themes) -> None:
    """The model breaks on poison, which the embed reactor gives up after a day."""
    themes.refuse = lambda text: EmbedderBadAnswer("half an answer") if "poison" in text else None


async def with_poison_ahead(live: MemoryNode, monkeypatch: pytest.MonkeyPatch) -> EmbedReactor:
    """A text that the embed reactor has put off, and behind it one that only a reindex made embeddable: it never comes."""
    monkeypatch.setitem(embed_policy.POLICIES, 4, Policy(EMBEDDABLE | {"run.completed"}, lambda *_: True))
    await live.append("p1", "poison")
    embed = await live.start_embed()

    async def put_off() -> object:
        return (await embed.status()).counts["put_off"] == 1

    await until(put_off, "the text that is put off")
    await live.append("run1", "the nightly queue run is done", "run.completed")
    await live.journal.record(WORKSPACE, ReindexRequested(policy=4), summary="reindex by policy 4")
    return embed


async def test_a_text_that_the_embed_reactor_put_off_does_not_delay_later_ones(
    live: MemoryNode, themes: Themes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_poison_off(themes)
    await with_poison_ahead(live, monkeypatch)
    await live.start_index()
    counts = await sweep(live)
    assert (counts["proposed"], counts["written"], counts["pending"]) == (1, 1, 1)
    themes.refuse = lambda _text: None
    await live.until_vectors(2)
    assert await facts(live) == 2, "the text that was put off is written by the embed reactor alone"
    again = await sweep(live)
    assert (again["proposed"], again["pending"]) == (0, 0)


async def test_a_text_that_was_put_off_is_proposed_once_the_embed_reactor_has_lost_it(
    live: MemoryNode, themes: Themes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_poison_off(themes)
    embed = await with_poison_ahead(live, monkeypatch)
    await live.start_index()
    await embed.stop()
    await live.client.jetstream().delete_consumer("JOURNAL", embed.durable)
    counts = await sweep(live)
    assert (counts["proposed"], counts["written"], counts["failed"], counts["pending"]) == (2, 1, 1, 0)
    themes.refuse = lambda _text: None
    assert (await sweep(live, hours=6))["written"] == 1


async def test_what_an_embed_reactor_of_another_process_put_off_is_unknown_and_all_behind_it_waits(
    live: MemoryNode, themes: Themes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_poison_off(themes)
    await with_poison_ahead(live, monkeypatch)
    monkeypatch.setattr(live, "embed_unsettled", lambda _durable: None)
    await live.start_index()
    counts = await sweep(live)
    assert (counts["proposed"], counts["pending"]) == (0, 2)
    themes.refuse = lambda _text: None
    await live.until_vectors(1)


async def test_poison_at_the_head_of_the_queue_is_put_off_and_the_rest_is_handled(
    live: MemoryNode, themes: Themes
) -> None:
    """Contract §3 [TRAP]: 64 failing rows at the head were retried for ever, and nothing behind them was embedded."""
    themes.refuse = lambda text: EmbedderBadAnswer("half an answer") if "poison" in text else None
    for n in range(66):
        await live.append(f"p{n}", f"poison {n}")
    for n in range(10):
        await live.append(f"e{n}", f"queue {n}")
    await live.start_index()
    counts = await sweep(live)
    assert (counts["proposed"], counts["written"], counts["failed"]) == (76, 10, 66)
    themes.asked.clear()
    soon = await sweep(live, seconds=10)
    assert (soon["put_off"], soon["failed"]) == (66, 0)
    themes.refuse = lambda _text: None
    later = await sweep(live, hours=6)
    assert later["written"] == 66


async def test_a_text_the_model_refuses_gets_a_tombstone_in_the_end(live: MemoryNode, themes: Themes) -> None:
    themes.refuse = lambda text: EmbedderInputRejected("too strange") if "poison" in text else None
    await live.append("p1", "poison")
    await live.start_index()
    outcomes = [await sweep(live, hours=6) for _ in range(3)]
    assert [(outcome["failed"], outcome["refused"]) for outcome in outcomes] == [(1, 0), (1, 0), (0, 1)]
    last = await sweep(live, hours=6)
    assert last["proposed"] == 0, "a tombstone says that it was judged"
    assert live.store.rows(VECTORS) == [("p1", 0)]


async def test_a_sweep_without_the_embedder_says_so_and_the_next_one_catches_up(
    live: MemoryNode, themes: Themes
) -> None:
    await live.append("e1", "the disk is full")
    await live.start_index()
    themes.down = True
    live.advance(seconds=1)
    finished = await live.swept("index", await live.tick("index"))
    assert "does not answer" in finished["error"]
    assert finished["_severity"] == "warn"
    assert (finished["counts"]["proposed"], finished["counts"]["written"]) == (1, 0)
    themes.down = False
    assert (await sweep(live, hours=6))["written"] == 1


async def test_a_sweep_looks_only_at_what_came_before_its_tick(live: MemoryNode) -> None:
    await live.append("e1", "the disk is full")
    live.advance(seconds=1)
    due = await live.tick("index")
    seq = await live.append("e2", "the queue is stuck")
    await live.caught_up(seq)
    await live.start_index()
    assert (await live.swept("index", due))["counts"]["proposed"] == 1


async def test_after_a_reindex_a_refused_text_is_tried_again(live: MemoryNode, themes: Themes) -> None:
    """Contract §3 [TRAP]: a tombstone is permanent there."""
    themes.refuse = lambda text: EmbedderInputRejected("too strange") if "poison" in text else None
    await live.append("p1", "poison")
    await live.start_index()
    for _ in range(3):
        await sweep(live, hours=6)
    themes.refuse = lambda _text: None
    assert (await sweep(live, hours=6))["proposed"] == 0
    live.advance(seconds=1)
    asked = await Reindexing(live.shared).request(
        Caller.of(ADMIN, WORKSPACE), ReindexRequest(model="themes", reason="mended")
    )
    assert (asked.refused, asked.missing) == (1, 0)
    finished = await live.swept("index", asked.due)
    assert (finished["counts"]["proposed"], finished["counts"]["written"]) == (1, 1)
    await live.until_vectors(1)


async def test_a_policy_that_a_reindex_puts_in_force_embeds_and_shares_what_it_selects(
    live: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lead sees of its crew what the policy in force embeds: the index in memory follows the reindex."""
    fourth = Policy(EMBEDDABLE | {"run.completed"}, lambda *_: True)
    monkeypatch.setitem(embed_policy.POLICIES, 4, fourth)
    lead = Principal(token_id="t", role=Role.LEAD, workspace_id=WORKSPACE, crew_id="red", agent_id="liz")

    async def seen(min_seq: int) -> list[str]:
        asked = parse(RECALL, {"query": "nightly queue run", "min_seq": min_seq})
        answer = await live.recall_service.recall(lead, asked)
        return [hit.entry_id for hit in answer.hits]

    seq = await live.append("run1", "the nightly queue run is done", "run.completed", agent_id="ada")
    await live.start_index()
    assert await seen(seq) == []
    assert (await sweep(live))["proposed"] == 0
    payload = ReindexRequested(policy=4)
    done = await live.journal.record(WORKSPACE, payload, summary="reindex by policy 4")
    assert await seen(done.seq) == ["run1"]
    assert (await sweep(live))["written"] == 1
    later = await live.append("run2", "another nightly queue run", "run.completed", agent_id="ada")
    assert set(await seen(later)) == {"run1", "run2"}, "what follows is judged by the same policy"
