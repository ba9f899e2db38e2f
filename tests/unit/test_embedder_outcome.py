"""Status tells how the last call ended: never latched, never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from support.ollama_server import OllamaServer

from crew_journal.consumers.adapters.choose import SPARSE_ONLY, ObservedEmbedder
from crew_journal.consumers.adapters.ollama import OllamaEmbedder
from crew_journal.schemas.core.errors import EmbedderError, EmbedderInputRejected, EmbedderUnavailable
from crew_journal.schemas.core.ports import Embedder

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Clock:
    """A minute passes at each look."""

    def __init__(self) -> None:
        self.now = START - timedelta(minutes=1)

    def __call__(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now


class ScriptedEmbedder:
    """Does what `fault` says; None means that it works, `forever` that it hangs."""

    model_id = "scripted"

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.hangs = False
        self.dim: int | None = None
        self.closed = False

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        return [await self.embed_query(text) for text in texts]

    async def embed_query(self, text: str) -> bytes:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fault is not None:
            raise self.fault
        self.dim = 1
        return b"\0\0\x80\x3f"

    async def probe(self) -> None:
        await self.embed_query("?")

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def inner() -> ScriptedEmbedder:
    return ScriptedEmbedder()


@pytest.fixture
def observed(inner: ScriptedEmbedder) -> ObservedEmbedder:
    return ObservedEmbedder(inner, Clock())


async def test_an_embedder_that_was_never_called_is_not_degraded(observed: ObservedEmbedder) -> None:
    assert observed.outcome.mode == "vector"
    assert observed.outcome.error is None
    assert observed.outcome.last_success is None
    assert isinstance(observed, Embedder)


async def test_no_embedder_is_sparse_only() -> None:
    assert SPARSE_ONLY.mode == "sparse-only"
    assert SPARSE_ONLY.model is None


async def test_a_failure_is_reported_with_its_class_hint_beginning_and_count(
    inner: ScriptedEmbedder, observed: ObservedEmbedder
) -> None:
    inner.fault = EmbedderUnavailable("refused", hint="start it")
    for _ in range(3):
        with pytest.raises(EmbedderUnavailable):
            await observed.embed_query("a")
    outcome = observed.outcome
    assert (outcome.mode, outcome.error, outcome.message, outcome.hint) == (
        "vector-degraded",
        "EmbedderUnavailable",
        "refused",
        "start it",
    )
    assert outcome.since == START
    assert outcome.consecutive_failures == 3


@pytest.mark.parametrize("call", ["embed_query", "embed_documents", "probe"])
async def test_one_success_ends_the_degradation_and_the_next_failure_begins_a_new_one(
    inner: ScriptedEmbedder, observed: ObservedEmbedder, call: str
) -> None:
    async def once() -> None:
        if call == "embed_query":
            await observed.embed_query("a")
        elif call == "embed_documents":
            await observed.embed_documents(["a"])
        else:
            await observed.probe()

    inner.fault = EmbedderUnavailable("refused")
    with pytest.raises(EmbedderUnavailable):
        await once()
    inner.fault = None
    await once()
    well = observed.outcome
    assert (well.mode, well.error, well.since, well.consecutive_failures) == ("vector", None, None, 0)
    assert well.last_success == START + timedelta(minutes=1)
    inner.fault = EmbedderUnavailable("refused again")
    with pytest.raises(EmbedderUnavailable):
        await once()
    ill = observed.outcome
    assert ill.mode == "vector-degraded"
    assert ill.since == START + timedelta(minutes=2)
    assert ill.consecutive_failures == 1
    assert ill.last_success == well.last_success


@pytest.mark.parametrize("failing_before", [False, True])
async def test_the_callers_cancellation_is_no_evidence(
    inner: ScriptedEmbedder, observed: ObservedEmbedder, failing_before: bool
) -> None:
    if failing_before:
        inner.fault = EmbedderUnavailable("refused")
        with pytest.raises(EmbedderUnavailable):
            await observed.embed_query("a")
    before = observed.outcome
    inner.hangs = True
    call = asyncio.ensure_future(observed.embed_query("b"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert observed.outcome == before


async def test_a_refused_text_is_counted_but_does_not_degrade(
    inner: ScriptedEmbedder, observed: ObservedEmbedder
) -> None:
    inner.fault = EmbedderInputRejected("too long")
    with pytest.raises(EmbedderInputRejected):
        await observed.embed_documents(["a"])
    assert (observed.outcome.mode, observed.outcome.rejected_inputs) == ("vector", 1)
    inner.fault = None
    await observed.embed_query("a")
    assert observed.outcome.rejected_inputs == 1


async def test_a_refused_probe_degrades_because_its_text_is_harmless(
    inner: ScriptedEmbedder, observed: ObservedEmbedder
) -> None:
    inner.fault = EmbedderInputRejected("never")
    with pytest.raises(EmbedderInputRejected):
        await observed.probe()
    assert observed.outcome.mode == "vector-degraded"


async def test_an_error_outside_the_tree_is_reported_and_passed_on(
    inner: ScriptedEmbedder, observed: ObservedEmbedder
) -> None:
    inner.fault = RuntimeError("a bug")
    with pytest.raises(RuntimeError):
        await observed.embed_query("a")
    assert observed.outcome.error == "RuntimeError"
    assert not isinstance(inner.fault, EmbedderError)


async def test_an_empty_batch_changes_no_outcome(inner: ScriptedEmbedder, observed: ObservedEmbedder) -> None:
    inner.fault = EmbedderUnavailable("refused")
    with pytest.raises(EmbedderUnavailable):
        await observed.embed_query("a")
    assert await observed.embed_documents([]) == []
    assert observed.outcome.mode == "vector-degraded"


async def test_the_dimension_shows_once_it_is_known_and_closing_closes_the_inner_one(
    inner: ScriptedEmbedder, observed: ObservedEmbedder
) -> None:
    assert observed.outcome.dim is None
    await observed.probe()
    assert (observed.outcome.dim, observed.outcome.model, observed.model_id) == (1, "scripted", "scripted")
    await observed.close()
    assert inner.closed


async def test_one_that_answers_queries_too_late_is_degraded_since_the_first_until_it_is_in_time(
    observed: ObservedEmbedder,
) -> None:
    await observed.embed_query("a")
    observed.query_answered(2.0)
    observed.query_answered(2.0)
    await observed.embed_documents(["a document has all the time it needs"])
    outcome = observed.outcome
    assert (outcome.mode, outcome.error, outcome.consecutive_failures) == ("vector-degraded", "EmbedderSlow", 2)
    assert outcome.message is not None
    assert "2 s" in outcome.message
    assert outcome.since == START + timedelta(minutes=1)
    assert outcome.last_success is not None
    observed.query_answered(None)
    assert (observed.outcome.mode, observed.outcome.since) == ("vector", None)


async def test_a_failure_is_reported_before_lateness(inner: ScriptedEmbedder, observed: ObservedEmbedder) -> None:
    observed.query_answered(2.0)
    inner.fault = EmbedderUnavailable("refused")
    with pytest.raises(EmbedderUnavailable):
        await observed.embed_query("a")
    assert observed.outcome.error == "EmbedderUnavailable"


async def test_a_call_under_way_gets_its_answer_although_the_embedder_is_closed() -> None:
    with OllamaServer(dim=8) as server:
        observed = ObservedEmbedder(OllamaEmbedder(server.url), Clock())
        server.fail("slow")
        call = asyncio.create_task(observed.embed_query("the valve is stuck"))
        await asyncio.to_thread(server.wait_for_requests, 1)
        await observed.close()
        server.fail("ok")
        assert len(await call) == 8 * 4
        with pytest.raises(RuntimeError, match="closed"):
            await observed.embed_query("too late")
