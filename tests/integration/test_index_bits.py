"""The index sweep fills in the token bits of turns that have a vector without them, once, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from support.embedding import until
from support.memory_node import MemoryNode, TokenThemes

from crew_journal.schemas.errors import EmbedderBadAnswer

TURN: dict[str, Any] = {"entry_type": "peer.conversation", "refs": {"episodic": True}}
BITS = "SELECT entry_id, quantiser FROM entry_token_bits ORDER BY entry_id"


@pytest.fixture
def themes() -> TokenThemes:
    return TokenThemes()


async def say(live: MemoryNode, **texts: str) -> None:
    for entry_id, text in texts.items():
        await live.append(entry_id, text, **TURN)


async def sweep(live: MemoryNode, **later: float) -> dict[str, int]:
    """The counts of an index sweep that is due after so long, of what is not 0."""
    live.advance(**(later or {"seconds": 1}))
    finished = await live.swept("index", await live.tick("index"))
    assert finished["error"] is None
    return {name: count for name, count in finished["counts"].items() if count}


async def facts(live: MemoryNode, kind: str) -> int:
    info = await live.client.jetstream().stream_info("JOURNAL", subjects_filter=f"derived.*.{kind}")
    return sum((info.state.subjects or {}).values())


async def until_bits(live: MemoryNode, *rows: tuple[str, int]) -> None:
    found: list[tuple[Any, ...]] = []

    async def there() -> object:
        found[:] = live.store.rows(BITS)
        return found == list(rows)

    await until(there, f"the bits {rows}")


async def test_turns_embedded_before_there_were_bits_get_them_from_a_sweep(
    live: MemoryNode, themes: TokenThemes
) -> None:
    await say(live, t1="the disk is full", t2="a token for the queue")
    await live.append("e1", "the disk is broken")
    await live.start_index()
    assert await sweep(live) == {"proposed": 3, "written": 3}
    await live.until_vectors(3)
    assert await facts(live, "token_bits") == 0

    themes.quantiser = 1
    themes.asked.clear()
    assert await sweep(live) == {"bits_proposed": 2, "bits_written": 2}
    await until_bits(live, ("t1", 1), ("t2", 1))
    assert sorted(themes.asked) == ["a token for the queue", "the disk is full"], "no escalation has bits"
    assert await facts(live, "vector") == 3, "the vectors stay as they are"
    assert await sweep(live) == {}


async def test_bits_of_an_older_quantiser_are_made_anew(live: MemoryNode, themes: TokenThemes) -> None:
    """The hot index compares bits of the newest quantiser alone."""
    themes.quantiser = 1
    await say(live, t1="the disk is full")
    await live.start_index()
    assert await sweep(live) == {"proposed": 1, "written": 1}
    await until_bits(live, ("t1", 1))
    await say(live, t2="the queue is full")
    themes.quantiser = 2
    assert await sweep(live) == {"proposed": 1, "written": 1, "bits_proposed": 1, "bits_written": 1}
    await until_bits(live, ("t1", 2), ("t2", 2))
    assert await sweep(live) == {}


async def test_a_turn_whose_words_say_nothing_is_not_asked_for_in_every_sweep(
    live: MemoryNode, themes: TokenThemes
) -> None:
    await say(live, t1="and you?", t2="no theme at all")
    await live.start_index()
    assert await sweep(live) == {"proposed": 2, "written": 2}
    await live.until_vectors(2)
    themes.quantiser = 1
    themes.asked.clear()
    assert await sweep(live) == {"bits_proposed": 1}
    assert themes.asked == ["no theme at all"], "its word pieces count, and the model says that it has no token"
    assert await sweep(live) == {}


async def test_a_turn_that_fails_is_put_off_and_loses_no_vector(live: MemoryNode, themes: TokenThemes) -> None:
    await say(live, t1="poison on the disk", t2="the queue is full")
    await live.start_index()
    assert await sweep(live) == {"proposed": 2, "written": 2}
    await live.until_vectors(2)
    themes.quantiser = 1
    themes.refuse = lambda text: EmbedderBadAnswer("half an answer") if "poison" in text else None
    assert await sweep(live) == {"bits_proposed": 2, "bits_written": 1, "bits_failed": 1}
    await until_bits(live, ("t2", 1))
    assert await sweep(live) == {"bits_proposed": 1, "bits_put_off": 1}
    for _ in range(4):
        assert await sweep(live, hours=24) == {"bits_proposed": 1, "bits_failed": 1}
    assert live.store.rows("SELECT entry_id FROM journal_embeddings WHERE dim = 0") == [], (
        "no tombstone for want of bits"
    )
    themes.refuse = lambda _text: None
    assert await sweep(live, hours=24) == {"bits_proposed": 1, "bits_written": 1}
    await until_bits(live, ("t1", 1), ("t2", 1))


async def test_bits_that_the_embed_reactor_published_are_not_proposed(live: MemoryNode, themes: TokenThemes) -> None:
    themes.quantiser = 1
    await say(live, t1="the disk is full", t2="the queue is full")
    await live.start_embed()
    await live.until_vectors(2)
    await live.start_index()
    assert await sweep(live) == {}
    assert (await facts(live, "vector"), await facts(live, "token_bits")) == (2, 2)
