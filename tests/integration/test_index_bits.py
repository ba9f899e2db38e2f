"""An index sweep publishes what the embed reactor would: the token bits of a turn beside its vector, each once."""

from __future__ import annotations

from typing import Any

import pytest
from support.embedding import until
from support.memory_node import MemoryNode, TokenThemes

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


async def test_a_turn_that_a_sweep_embeds_gets_its_token_bits_too(live: MemoryNode, themes: TokenThemes) -> None:
    themes.quantiser = 1
    await say(live, t1="the disk is full", t2="a token for the queue")
    await live.append("e1", "the disk is broken")
    await live.start_index()
    assert await sweep(live) == {"proposed": 3, "written": 3}
    await until_bits(live, ("t1", 1), ("t2", 1))
    assert await sweep(live) == {}


async def test_a_sweep_writes_nothing_twice_that_the_embed_reactor_has_written(
    live: MemoryNode, themes: TokenThemes
) -> None:
    themes.quantiser = 1
    await say(live, t1="the disk is full", t2="the queue is full")
    await live.start_embed()
    await live.until_vectors(2)
    await live.start_index()
    assert await sweep(live) == {}
    assert (await facts(live, "vector"), await facts(live, "token_bits")) == (2, 2)
