"""Ollama absent, slow, failing or without the model: the journal and lexical recall go on, and vectors catch up.

One running ``up`` goes through each failure: the failure must not need a restart to begin or to end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.ollama_server import Failure, OllamaServer
from support.processes import Stack, wait_for

CATCH_UP_DEADLINE_S = 120.0
PROMPT_S = 10.0
"""A publish must not wait for a model, which has 15 s and more; on a busy machine a fold and an fsync take a while."""
EMBEDDABLE = "peer.escalation"


def escalation(n: int, word: str) -> dict[str, Any]:
    return {
        "id": f"esc-{word}-{n}",
        "entry_type": EMBEDDABLE,
        "severity": "warn",
        "crew_id": "night",
        "agent_id": "ada",
        "summary": f"escalation {n}: the {word} valve is stuck and the crew needs a decision",
        "payload": {"question": f"shall we replace the {word} valve?", "reason": "pressure rises"},
    }


class Watched:
    """A client of the stack under test."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        headers = {"Authorization": f"Bearer {stack.token}"}
        self.client = httpx.Client(base_url=stack.url, headers=headers, timeout=120, trust_env=False)

    def publish(self, word: str, count: int = 3) -> int:
        """Publish escalations; returns the last sequence. None may wait for the model."""
        began = time.monotonic()
        answer = self.client.post("/v1/journal", json=[escalation(n, word) for n in range(count)])
        assert answer.status_code == 201, answer.text
        assert time.monotonic() - began < PROMPT_S
        return int(answer.json()["entries"][-1]["seq"])

    def recall(self, query: str, recipe: str | None = None, min_seq: int | None = None) -> dict[str, Any]:
        body: dict[str, Any] = {"query": query, "k": 5, "explain": True}
        body |= {"recipe": recipe} if recipe else {}
        body |= {"min_seq": min_seq} if min_seq else {}
        answer = self.client.post("/v1/recall", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def status(self) -> dict[str, Any]:
        answer = self.client.get("/v1/status")
        assert answer.status_code == 200, answer.text
        said: dict[str, Any] = answer.json()
        return said

    def wait_for_vectors(self, count: int) -> None:
        wait_for(
            lambda: self.status()["embeddings"]["count"] >= count, f"{count} vectors", CATCH_UP_DEADLINE_S, poll_s=0.05
        )


@contextmanager
def watched(tmp_path: Path, server: OllamaServer) -> Iterator[Watched]:
    environment = {"OLLAMA_HOST": server.url}
    with Stack(tmp_path / "data", ("--embedder", "ollama", "--durability", "interval"), environment) as stack:
        stack.up()
        under_test = Watched(stack)
        try:
            yield under_test
        finally:
            under_test.client.close()


def wait_degraded(under_test: Watched) -> dict[str, Any]:
    """The embedder's line in the status once it says that the last call failed."""

    def look() -> dict[str, Any] | None:
        said: dict[str, Any] = under_test.status()["embedder"]
        return said if said["mode"] == "vector-degraded" else None

    return wait_for(look, "a degraded embedder", poll_s=0.05)


def check_outage(under_test: Watched, word: str, *, mentions: str) -> None:
    """What must hold while the model is away: publish, lexical and hybrid recall, and what the status says."""
    before = datetime.now(UTC)
    seq = under_test.publish(word)
    lexical = under_test.recall(f"{word} valve", recipe="lexical", min_seq=seq)
    assert [hit["entry_id"] for hit in lexical["hits"]][:1] != []
    assert all(word in hit["summary"] for hit in lexical["hits"][:3])
    hybrid = under_test.recall(f"{word} valve")
    assert hybrid["degraded"] == "lexical-only"
    assert word in hybrid["hits"][0]["summary"]
    said = wait_degraded(under_test)
    assert mentions in f"{said['error']} {said['message']} {said['hint']}".lower()
    since = datetime.fromisoformat(said["since"])
    assert since <= datetime.now(UTC)
    assert said["consecutive_failures"] >= 1
    again = under_test.recall(f"{word} valve")  # one more failure does not begin a new outage
    assert again["degraded"] == "lexical-only"
    later = wait_degraded(under_test)
    assert later["since"] == said["since"]
    assert (datetime.now(UTC) - before).total_seconds() < 600


def check_recovery(under_test: Watched, vectors: int, word: str) -> None:
    """Without a restart: the vectors catch up, recall uses them, and the status forgets the failure."""
    under_test.wait_for_vectors(vectors)

    def with_vectors() -> dict[str, Any] | None:
        """A query whose vector took over 2 s goes on lexically, and the model is left alone for as long."""
        found = under_test.recall(f"shall we replace the {word} valve")
        return found if found["degraded"] is None else None

    assert wait_for(with_vectors, "a recall with vectors", poll_s=0.05)["model"]
    said = under_test.status()["embedder"]
    assert said["mode"] == "vector"
    assert said["since"] is None


def test_an_up_without_ollama_serves_and_embeds_when_ollama_comes(tmp_path: Path) -> None:
    server = OllamaServer()
    server.start()
    server.stop()  # its port is known, and refuses
    try:
        with watched(tmp_path, server) as under_test:
            check_outage(under_test, "crimson", mentions="ollama")
            server.start()
            check_recovery(under_test, 3, "crimson")
    finally:
        server.stop()


FAILURES: tuple[tuple[Failure, str, str], ...] = (
    ("model-missing", "pull", "amber"),
    ("server-error", "runner", "ochre"),
    ("wrong-dimension", "dimension", "indigo"),
)


def test_a_failing_ollama_stops_neither_publishing_nor_recall(tmp_path: Path) -> None:
    with OllamaServer() as server, watched(tmp_path, server) as under_test:
        under_test.publish("before")
        under_test.wait_for_vectors(3)
        for number, (failure, mentions, word) in enumerate(FAILURES, 2):
            server.fail(failure)
            check_outage(under_test, word, mentions=mentions)
            server.fail("ok")
            check_recovery(under_test, 3 * number, word)


@pytest.mark.nightly
def test_a_slow_ollama_delays_no_publish_and_no_lexical_recall(tmp_path: Path) -> None:
    with OllamaServer() as server, watched(tmp_path, server) as under_test:
        under_test.publish("before")
        under_test.wait_for_vectors(3)
        server.fail("slow")
        seq = under_test.publish("violet")
        server.wait_for_requests(2)
        began = time.monotonic()
        found = under_test.recall("violet valve", recipe="lexical", min_seq=seq)
        assert time.monotonic() - began < PROMPT_S
        assert "violet" in found["hits"][0]["summary"]
        hybrid = under_test.recall("violet valve")
        assert hybrid["degraded"] == "lexical-only"
        said = wait_degraded(under_test)
        assert said["since"] is not None
        server.fail("ok")
        check_recovery(under_test, 6, "violet")


@pytest.mark.nightly
def test_an_ollama_too_slow_for_queries_is_reported_although_it_answers(tmp_path: Path) -> None:
    with OllamaServer() as server, watched(tmp_path, server) as under_test:
        under_test.publish("before")
        under_test.wait_for_vectors(3)
        server.fail("slow")
        assert under_test.recall("before valve")["degraded"] == "lexical-only"
        said = under_test.status()["embedder"]
        assert (said["mode"], said["error"]) == ("vector-degraded", "EmbedderSlow")
        assert said["since"] is not None
        server.fail("ok")  # the call that was too late is answered now, and the same question has its vector
        again = wait_for(
            lambda: found if (found := under_test.recall("before valve"))["degraded"] is None else None,
            "the vector that came late",
            poll_s=0.05,
        )
        assert again["model"]


def test_an_outage_of_ollama_and_its_end_are_reported_with_the_time(tmp_path: Path) -> None:
    with OllamaServer() as server, watched(tmp_path, server) as under_test:
        under_test.publish("before")
        under_test.wait_for_vectors(3)
        assert under_test.status()["embedder"]["mode"] == "vector"
        server.stop()
        check_outage(under_test, "indigo", mentions="ollama")
        server.start()
        check_recovery(under_test, 6, "indigo")
