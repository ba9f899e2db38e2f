"""Tokens in context: published by the reactor from the vector's own pass, folded, and rebuilt without a model."""

from __future__ import annotations

from pathlib import Path

from support.embedding import Bench, embedding_bench, until
from support.events import at, control
from support.minilm import minilm_cache
from support.recall import ANALYZER
from support.views import node

from crew_journal.consumers.adapters.minilm import MiniLmEmbedder
from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.schemas.core.subjects import JOURNAL_STREAM
from crew_journal.schemas.models.events import EmbeddingsActivated
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.index.take import load
from crew_journal.services.index.vectors import query_vector
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.recall.asking import query_of
from crew_journal.services.recall.recipes import CONVERSATIONAL
from crew_journal.services.recall.search import search

SAID = {
    "t1": "Maria: I put the violin behind the harbour door",
    "t2": "Ben: We sold two parsers yesterday",
    "t3": "Maria: The weather was lovely all week",
}


async def _messages(bench: Bench) -> list[RawMessage]:
    info = await bench.js.stream_info(JOURNAL_STREAM)
    found = []
    for seq in range(1, info.state.last_seq + 1):
        message = await bench.js.get_msg(JOURNAL_STREAM, seq)
        assert message.subject is not None
        found.append(RawMessage(seq, message.subject, message.headers, message.data or b"", 1_000 + seq))
    return found


async def test_turns_get_token_bits_and_others_do_not_and_a_rebuild_needs_no_model(
    broker: ManagedBroker, tmp_path: Path
) -> None:
    embedder = MiniLmEmbedder(minilm_cache())
    async with embedding_bench(broker) as bench:
        for name, text in SAID.items():
            await bench.publish(name, "peer.conversation", text, refs={"episodic": True}, trace_id="s1")
        await bench.escalate("e1", "the harbour door does not close")
        await bench.reactor(embedder)

        async def enough() -> bool:
            return await bench.fact_count() >= 2 * len(SAID) + 1

        await until(enough, "three turns with two facts each and one escalation with one")
        messages = await _messages(bench)
        kinds = [message.subject.rsplit(".", 1)[1] for message in messages if message.subject.startswith("derived.")]
        assert sorted(kinds) == ["token_bits"] * len(SAID) + ["vector"] * (len(SAID) + 1)
    data, tokens = await embedder.embed_query_tokens("where is the fiddle?")
    await embedder.close()

    digests = []
    for name, step in (("live", 1), ("rebuilt", len(messages))):  # nothing here holds an embedder
        async with node(tmp_path / f"{name}.duckdb", discover_projections()) as made:
            for first in range(0, len(messages), step):
                await made.host.fold(messages[first : first + step])
            digests.append(made.digests())
            index = load(made.store, "default")
    assert digests[0] == digests[1]
    assert index.vectors is None, "no model was activated"

    async with node(tmp_path / "rebuilt.duckdb", discover_projections()) as made:
        activation = control(EmbeddingsActivated(model=embedder.model_id, embedder="minilm", dim=384), "activation")
        await made.host.fold([at(len(messages) + 1, activation)])
        index = load(made.store, "default")
    query = query_of("where is the fiddle?", ANALYZER, query_vector(data), tokens, None)
    best = search(index, RecallScope(ScopeKind.WORKSPACE), query, CONVERSATIONAL, 3, explain=True)[0]
    assert index.documents.id_of(best.doc) == "t1"
    assert best.explanation is not None
    assert best.explanation.shares["late"] > 0
