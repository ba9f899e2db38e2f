"""Several embed reactors on one durable; processes, brokers and connections that go away in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.embedding import COMES_AGAIN, QUICK, Bench, embedding_bench, until
from support.ollama_server import OllamaServer

from crew_journal.consumers.adapters.ollama import OllamaEmbedder
from crew_journal.services.journal.broker.broker import ManagedBroker

TESTS = Path(__file__).parents[1]
PREFIX = "search_document: "
HELD_ACK_WAIT_S = 3.0
"""Renewed three times in it, which must not come too late on a busy machine."""


@pytest.fixture
async def embedder(server: OllamaServer) -> AsyncIterator[OllamaEmbedder]:
    made = OllamaEmbedder(server.url, timeout_s=120.0)
    yield made
    await made.close()


@pytest.fixture
async def bench(broker: ManagedBroker, embedder: OllamaEmbedder) -> AsyncIterator[Bench]:
    # after the embedder, so that the reactors are stopped before it is closed
    async with embedding_bench(broker) as made:
        yield made


def documents(server: OllamaServer) -> list[str]:
    """The entries' texts the model was given, probes left out."""
    return [text.removeprefix(PREFIX) for text in server.embedded if text.startswith(PREFIX)]


@contextmanager
def process(bench: Bench, server: OllamaServer) -> Iterator[subprocess.Popen[bytes]]:
    """A reactor in a process of its own; killed at the end if it still lives."""
    command = [sys.executable, "-m", "support.embed_process", bench.broker.url, bench.broker.user, server.url]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(TESTS)})
    try:
        assert started.stdin is not None
        started.stdin.write(bench.broker.password.encode() + b"\n")
        started.stdin.flush()
        yield started
    finally:
        started.kill()
        started.wait()


async def test_two_reactors_share_the_load_and_no_text_is_embedded_twice(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    limits = replace(QUICK, batch=8, ack_wait_s=60.0)
    first = await bench.reactor(embedder, limits)
    second = await bench.reactor(embedder, limits, own_connection=True)
    for reactor in (first, second):
        await bench.until_idle(reactor)
    for n in range(300):
        await bench.escalate(f"e{n}")
    await bench.until_facts(300)
    for reactor in (first, second):  # acks of the last facts are on their way a moment longer
        await bench.until_idle(reactor)
    written = [(await reactor.status()).counts["written"] for reactor in (first, second)]
    assert sum(written) == 300
    assert min(written) > 0, f"one did nothing: {written}"
    assert Counter(documents(server)) == Counter(f"trouble number e{n}" for n in range(300))


async def test_what_a_killed_process_had_in_hand_is_embedded_by_another_exactly_once(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    with process(bench, server) as doomed:
        await bench.escalate("before")
        await bench.until_facts(1)
        server.fail("slow")
        for n in range(40):
            await bench.escalate(f"e{n}")

        async def in_hand() -> bool:
            return "trouble number e0" in documents(server)

        await until(in_hand, "the process at the model")
        doomed.kill()
        doomed.wait()
    server.fail("ok")
    survivor = await bench.reactor(embedder, COMES_AGAIN)
    await bench.until_facts(41)
    await bench.until_idle(survivor)
    assert await bench.embedded() == Counter(["before", *(f"e{n}" for n in range(40))])


async def test_a_restarted_reactor_goes_on_where_it_stopped(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    first = await bench.reactor(embedder)
    await bench.escalate("e1")
    await bench.until_facts(1)
    await bench.until_idle(first)
    await first.stop()
    assert (await first.status()).state == "stopped"
    await bench.escalate("e2")
    second = await bench.reactor(embedder)
    await bench.until_facts(2)
    await bench.until_idle(second)
    assert documents(server) == ["trouble number e1", "trouble number e2"]


async def test_a_reactor_that_stops_while_the_model_hangs_gives_back_what_it_has(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    limits = replace(QUICK, ack_wait_s=60.0, stop_s=0.1)
    first = await bench.reactor(embedder, limits)
    await bench.until_idle(first)
    server.fail("slow")
    await bench.escalate("e1")

    async def in_hand() -> bool:
        return "trouble number e1" in documents(server)

    await until(in_hand, "the entry at the model")
    await first.stop()
    server.fail("ok")
    await bench.reactor(embedder, limits)
    await bench.until_facts(1)  # long before the ack wait of a minute is over


async def test_an_entry_stays_in_one_hand_while_the_model_takes_longer_than_the_ack_wait(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    limits = replace(QUICK, ack_wait_s=HELD_ACK_WAIT_S)
    first = await bench.reactor(embedder, limits)
    second = await bench.reactor(embedder, limits, own_connection=True)
    for reactor in (first, second):
        await bench.until_idle(reactor)
    server.fail("slow")
    await bench.escalate("e1")

    async def in_hand() -> bool:
        return "trouble number e1" in documents(server)

    await until(in_hand, "the entry at the model")
    other = second if (await first.status()).counts["proposed"] else first
    over = time.monotonic() + 2 * HELD_ACK_WAIT_S

    async def two_ack_waits() -> bool:
        await other.status()
        return time.monotonic() > over  # a request of the idle one lasts 0.3 s

    await until(two_ack_waits, "two ack waits")
    server.fail("ok")
    await bench.until_facts(1)
    assert documents(server) == ["trouble number e1"]


async def test_a_broker_that_restarts_in_the_middle_costs_no_vector(
    bench: Bench, broker: ManagedBroker, embedder: OllamaEmbedder
) -> None:
    reactor = await bench.reactor(embedder, COMES_AGAIN)
    for n in range(50):
        await bench.escalate(f"a{n}")
    await broker.stop()
    lost = await bench.until_status(reactor, lambda s: s.last_error is not None, "a reactor without a broker")
    assert lost.state == "waiting"
    assert "broker" in str(lost.last_error)
    await broker.start()
    await bench.until_status(reactor, lambda s: s.state == "running", "a reactor with a broker again")
    for n in range(50):
        await bench.escalate(f"b{n}")
    await bench.until_facts(100)
    await bench.until_idle(reactor)
    assert set((await bench.embedded()).values()) == {1}


async def test_many_texts_the_model_refuses_do_not_starve_those_behind_them(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    server.rejected = "poison"
    for n in range(70):
        await bench.escalate(f"bad{n}", f"poison {n}")
    for n in range(50):
        await bench.escalate(f"good{n}")
    reactor = await bench.reactor(embedder)
    await bench.until_facts(50)
    status = await bench.until_status(
        reactor,
        lambda s: (
            s.counts["put_off"] == 70 and s.pending == 70
        ),  # acks of the good ones are on their way a moment longer
        "all the bad ones put off, and they alone are still to be tried again",
    )
    assert status.counts["refused"] == 0
    assert {fact.entry_id for fact in await bench.facts()} == {f"good{n}" for n in range(50)}


async def test_the_vector_of_a_late_repeat_does_not_suppress_the_vector_of_the_first(
    bench: Bench, server: OllamaServer, embedder: OllamaEmbedder
) -> None:
    server.rejected = "poison"
    first = await bench.escalate("e1", "a poison pill")
    repeat = await bench.escalate("e1", "something harmless")
    await bench.reactor(embedder)
    await bench.until_facts(1)
    server.rejected = None
    await bench.until_facts(2)
    assert [fact.entry_seq for fact in await bench.facts()] == [repeat, first]
