"""The reactor that embeds texts of memory documents and facts: each once, whatever is written, also after another model."""

from __future__ import annotations

from typing import Any

from Stemmer import Stemmer
from support.embedding import until
from support.events import document
from support.memory_node import SWIFT_CHUNKS, WORKSPACE, MemoryNode, Themes

from crew_journal.consumers.models.missing_reactor import EmbedChunksReactor
from crew_journal.schemas.core.errors import EmbedderInputRejected
from crew_journal.schemas.core.ids import SYSTEM_WORKSPACE
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.timestamps import to_ms
from crew_journal.schemas.documents.rules import chunks_of
from crew_journal.schemas.facts.events import FactAsserted, FactEntity
from crew_journal.schemas.facts.names import entity_id
from crew_journal.schemas.models.events import EmbeddingsActivated, EmbeddingsAdded, EmbeddingsDropped
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.documents.search import document_indexes
from crew_journal.services.facts.index import fact_indexes
from crew_journal.services.recall.evidence import LEAST_VECTORS

LACKING = """SELECT count(DISTINCT text_hash) FROM chunk_texts c WHERE NOT EXISTS (
    SELECT 1 FROM memory_chunk_vectors v WHERE v.text_hash = c.text_hash AND v.workspace_id = c.workspace_id
    AND v.model = ?)"""
TEXT = "# Parser\n\n" + "".join(f"- parser note {n} about lexers and more of it\n" for n in range(40))


async def write(live: MemoryNode, write_id: str, content: str, action: str = "replace") -> None:
    message = document(
        write_id, workspace=WORKSPACE, owner="a-ada", tier="daily", key="2026-11-21", action=action, content=content
    )
    done = await live.writer.publish(message.subject, message.body, message.headers)
    await live.caught_up(done.seq)


async def start(live: MemoryNode, *, with_model: bool = True) -> EmbedChunksReactor:
    parts: dict[str, Any] = {} if with_model else {"embedder_for": lambda _model: None}
    return await live.react(EmbedChunksReactor, limits=SWIFT_CHUNKS, **parts)


async def until_embedded(live: MemoryNode, model: str) -> None:
    async def complete() -> object:
        [(chunks,)] = live.store.rows("SELECT count(*) FROM chunk_texts")
        return chunks and live.store.rows(LACKING, [model]) == [(0,)]

    await until(complete, "a vector of every chunk")


async def test_an_append_embeds_only_what_it_changed_and_a_search_finds_by_meaning(
    live: MemoryNode, themes: Themes
) -> None:
    await start(live)
    await write(live, "w_1", TEXT)
    await until_embedded(live, themes.model_id)
    before = list(themes.asked)
    assert sorted(before) == sorted({chunk.indexed for chunk in chunks_of(TEXT)})
    await write(live, "w_2", "- one line more\n", "append")
    await until_embedded(live, themes.model_id)
    assert len(themes.asked) - len(before) <= 2
    await write(live, "w_3", TEXT)
    await write(live, "w_4", "- and another day\n", "append")
    await until_embedded(live, themes.model_id)
    assert len(set(themes.asked)) == len(themes.asked)
    index = await document_indexes(live.recall_service.cache).get(WORKSPACE)
    assert all(index.vector_of(slot) is not None for slot in index.live.nonzero()[0].tolist())


async def test_a_model_that_is_away_is_waited_for_and_a_refused_text_gets_a_tombstone(
    live: MemoryNode, themes: Themes
) -> None:
    themes.down = True
    reactor = await start(live)
    await write(live, "w_1", "The parser is green.\n")

    async def waits() -> object:
        return (await reactor.status()).state == "waiting" and (await reactor.status()).last_error

    await until(waits, "the reactor to wait for its model")
    themes.refuse = lambda text: EmbedderInputRejected("too odd") if "parser" in text else None
    themes.down = False
    await until_embedded(live, themes.model_id)
    assert live.store.rows("SELECT dim, octet_length(vector) FROM memory_chunk_vectors") == [(0, 0)]


async def decide(live: MemoryNode, payload: ControlPayload) -> None:
    done = await live.journal.record(SYSTEM_WORKSPACE, payload, summary="decided")
    await live.caught_up(done.seq)


async def test_a_model_that_is_dropped_and_added_again_embeds_every_text_again(
    live: MemoryNode, themes: Themes
) -> None:
    await start(live)
    await write(live, "w_1", TEXT)
    await until_embedded(live, themes.model_id)
    await decide(live, EmbeddingsDropped(model=themes.model_id))
    assert live.store.rows("SELECT count(*) FROM memory_chunk_vectors") == [(0,)]
    await decide(live, EmbeddingsAdded(model=themes.model_id, embedder="minilm"))
    await decide(live, EmbeddingsActivated(model=themes.model_id, embedder="minilm", dim=themes.dim))
    await until_embedded(live, themes.model_id)


async def test_a_fact_is_embedded_when_it_is_asserted_and_found_by_meaning(live: MemoryNode, themes: Themes) -> None:
    await start(live)
    words = [f"Server {n} works on its queue" for n in range(LEAST_VECTORS)] + ["Server 99 has a slow disk"]
    for n, text in enumerate(words):
        named = [FactEntity(entity_id=entity_id(name), name=name) for name in (f"Server {n}", f"thing {n}")]
        said = FactAsserted(
            fact_id=f"t_{n}", subject=named[0], predicate="is", object=named[1], text=text, confidence=1.0
        )
        done = await live.journal.record(WORKSPACE, said, summary=text)
    await live.caught_up(done.seq)
    indexes = fact_indexes(live.recall_service.cache, Analyzer(Stemmer))
    vector = await live.recall_service.queries.embed("disk", themes.model_id)

    async def like() -> list[tuple[str, float]]:
        hits = (await indexes.get(WORKSPACE)).search("storage", vector, None, to_ms(live.clock()), 5)
        return [(hit.fact.row.fact_id, hit.similarity) for hit in hits]

    await until(like, "the fact about a disk")
    assert await like() == [(f"t_{LEAST_VECTORS}", 1.0)]
    facts = [text for text in themes.asked if text in words]  # entities are embedded, too
    assert sorted(facts) == sorted(words)


async def test_what_was_written_without_a_model_is_embedded_at_the_next_start(live: MemoryNode, themes: Themes) -> None:
    without = await start(live, with_model=False)
    await write(live, "w_1", TEXT)

    async def idle() -> bool:
        status = await without.status()
        return status.state == "running" and status.pending == 0

    await until(idle, "the write to be acked")
    await without.stop()
    await start(live)
    await until_embedded(live, themes.model_id)
