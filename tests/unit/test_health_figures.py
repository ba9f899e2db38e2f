"""What health is measured from, on folded journals: per crew and whole, as of an instant, compared as instants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.events import EPOCH_MS, at, control, entry
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.health import reactor as health_figures
from crew_journal.consumers.health.reactor import Measured, measure_workspace
from crew_journal.schemas.core.derived import OutgoingMessage, encode_link, encode_vector
from crew_journal.schemas.core.envelope import LinkDerived, VectorDerived
from crew_journal.schemas.core.timestamps import DAY_MS
from crew_journal.schemas.models.events import EmbeddingsActivated
from crew_journal.schemas.recall.events import MemorySearched
from crew_journal.schemas.relations.events import RelationAsserted, RelationRetracted

MODEL = "mini"
NOW = EPOCH_MS + DAY_MS
ACTIVE = control(EmbeddingsActivated(model=MODEL, embedder="minilm", dim=2), "active")


def escalation(name: str, *, crew: str | None = "red", age_days: float = 1.0, entry_type: str = "peer.escalation"):
    return entry(
        name, crew=crew, entry_type=entry_type, ts_ms=NOW - round(age_days * DAY_MS), summary=f"trouble {name}"
    )


def vector(name: str, entry_seq: int, values: Sequence[float], crew: str | None = "red") -> OutgoingMessage:
    data = np.array(values, "<f4")
    if len(data):
        data /= np.linalg.norm(data)
    fact = VectorDerived(
        10**6, "w1", name, entry_seq, MODEL, len(data), data.tobytes(), "ab", "peer.escalation", "info", "normal", crew,
        "a1", EPOCH_MS, EPOCH_MS, "embed@1",
    )  # fmt: skip
    return encode_vector(fact, 1)


def link(src: str, src_seq: int, dst: str, dst_seq: int, relation: str = "similar", weight: float = 0.9):
    fact = LinkDerived(10**6, "w1", src, src_seq, dst, dst_seq, relation, weight, EPOCH_MS, "link@1", "red")
    return encode_link(fact, 1)


def searched(name: str, cosine: float | None, *, age_days: float = 1.0, crew: str = "red", model: str = MODEL):
    payload = MemorySearched(
        query="what broke", scope="crew_shared", crew_id=crew, recipe="robust", model=model, mean_cosine=cosine
    )
    return control(payload, name, workspace="w1", ts_ms=NOW - round(age_days * DAY_MS))


async def measured(
    path: Path, messages: Sequence[OutgoingMessage], *, due_ms: int = NOW, until: int = 10**9
) -> dict[str | None, Measured]:
    """What is measured of w1 when the messages stand at 1, 2, 3 …; all were published before ``NOW``."""
    stream: list[RawMessage] = [at(seq, message) for seq, message in enumerate(messages, 1)]
    async with node(path / "views.duckdb", discover_projections()) as live:
        await live.host.fold(stream)
        assert live.dead.names() == set()
        return {one.crew_id: one for one in measure_workspace(live.store, "w1", until, due_ms)}


async def test_counts_are_those_of_each_crew_and_of_the_whole(tmp_path: Path) -> None:
    found = await measured(
        tmp_path,
        [
            ACTIVE,
            escalation("e2", age_days=2),
            escalation("e3", age_days=4),
            escalation("e4", age_days=100),
            escalation("e5", crew="blue", age_days=10),
            escalation("e6", crew=None, age_days=1),
            entry("e7", crew="green", entry_type="exec.output_chunk", ts_ms=NOW - 5),
            vector("e2", 2, [1, 0]),
            vector("e3", 3, [0.8, 0.6]),
            vector("e4", 4, []),
            vector("e5", 5, [0, 1], "blue"),
            link("e3", 3, "e2", 2),
        ],
    )
    assert set(found) == {None, "red", "blue"}, "a crew without embeddable entries has no health"
    whole, red, blue = found[None].figures, found["red"].figures, found["blue"].figures
    assert (whole.embeddable, whole.indexed, whole.refused, whole.missing) == (5, 3, 1, 1)
    assert (red.embeddable, red.indexed, red.refused, red.linked) == (3, 2, 1, 2)
    assert (blue.embeddable, blue.indexed, blue.linked) == (1, 1, 0)
    assert red.median_age_days == pytest.approx(3.0)
    assert whole.median_age_days == pytest.approx(4.0)
    assert red.nearest_cosine == pytest.approx(0.8, abs=1e-6)
    assert blue.nearest_cosine is None, "one embedding has no neighbour"
    assert whole.nearest_cosine == pytest.approx(0.8, abs=1e-6), "neighbours are looked for in the same crew"
    assert whole.model == MODEL
    assert (found["red"].legacy.similar, found["red"].legacy.last_week, found[None].legacy.live) == (1, 2, 6)


async def test_what_came_after_the_instant_does_not_count(tmp_path: Path) -> None:
    """A night that is caught up is measured as of its own time."""
    messages = [ACTIVE, escalation("e2"), escalation("e3"), vector("e2", 2, [1, 0]), vector("e3", 3, [1, 0])]
    messages += [link("e3", 3, "e2", 2), searched("s7", 0.5)]
    early = await measured(tmp_path / "early", messages, due_ms=EPOCH_MS + 40)  # the broker's time of message 4
    assert (early[None].figures.embeddable, early[None].figures.indexed) == (2, 1)
    assert (early[None].figures.linked, early[None].figures.searches) == (0, 0)
    before = await measured(tmp_path / "before", messages, until=3)
    assert before[None].figures.embeddable == 1


async def test_recalls_count_for_seven_days_to_the_millisecond_and_only_with_the_active_model(tmp_path: Path) -> None:
    """Contract §9 [TRAP]: a window that compares text stretches to the start of the calendar day."""
    found = await measured(
        tmp_path,
        [
            ACTIVE,
            escalation("e2"),
            searched("s1", 0.4, age_days=0.1),
            searched("s2", 0.6, age_days=7 - 1 / DAY_MS),
            searched("s3", 0.9, age_days=7),
            searched("s4", 0.9, model="other"),
            searched("s5", None),
            searched("s6", 0.1, crew="blue"),
            entry("s7", entry_type="memory.searched", payload={"mean_cosine": 1.0, "model": MODEL}, ts_ms=NOW - 9),
        ],
    )
    red, whole = found["red"].figures, found[None].figures
    assert (red.searches, red.search_cosine) == (2, pytest.approx(0.5))
    assert (whole.searches, whole.search_cosine) == (3, pytest.approx(1.1 / 3)), "an agent's own claim is not believed"


async def test_the_legacy_windows_are_instants_too(tmp_path: Path) -> None:
    """Contract §9 [TRAP]: a "24 h" window of texts with different separators reaches back to midnight."""
    hours = [0.5, 23.9, 24.0, 24.1, 167.9, 168.0]
    found = await measured(tmp_path, [ACTIVE, *(escalation(f"h{n}", age_days=h / 24) for n, h in enumerate(hours))])
    legacy = found[None].legacy
    assert (legacy.last_day, legacy.last_week, legacy.live, legacy.types) == (2, 5, 6, 1)


async def test_a_retracted_edge_connects_no_entries_and_an_unjudged_contradiction_is_counted(tmp_path: Path) -> None:
    pair = {"src_entry_id": "e3", "src_seq": 3, "dst_entry_id": "e2", "dst_seq": 2}
    base = [ACTIVE, escalation("e2"), escalation("e3"), vector("e2", 2, [1, 0]), vector("e3", 3, [1, 0])]
    similar = link("e3", 3, "e2", 2)
    proposed = link("e3", 3, "e2", 2, "contradicts", 0.7)
    found = await measured(tmp_path / "proposed", [*base, similar, proposed])
    assert (found[None].figures.linked, found[None].figures.contradictions) == (2, 1)
    retracted = control(RelationRetracted(**pair, relation="similar"), "r8", workspace="w1")
    settled = control(RelationAsserted(**pair, relation="contradicts"), "r9", workspace="w1")
    found = await measured(tmp_path / "settled", [*base, similar, proposed, retracted, settled])
    assert found[None].figures.contradictions == 0
    assert found[None].legacy.similar == 0
    gone = control(RelationRetracted(**pair, relation="contradicts"), "r10", workspace="w1")
    found = await measured(tmp_path / "gone", [*base, similar, proposed, retracted, gone])
    assert found[None].figures.linked == 0


async def test_a_workspace_without_entries_measures_nothing(tmp_path: Path) -> None:
    found = await measured(tmp_path, [ACTIVE])
    assert set(found) == {None}
    assert found[None].figures.embeddable == 0


async def test_coherence_by_sample_and_chunks_is_the_mean_nearest_cosine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_figures, "CHUNK", 7)
    vectors = np.random.default_rng(7).standard_normal((40, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    names = [f"v{n}" for n in range(40)]
    messages = [ACTIVE, *map(escalation, names)]
    messages += [vector(name, seq, vectors[seq - 2].tolist()) for seq, name in enumerate(names, 2)]
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    nearest = np.clip(cosines.max(axis=1), 0, 1)
    found = await measured(tmp_path / "all", messages)
    assert found[None].figures.nearest_cosine == pytest.approx(float(nearest.mean()), abs=1e-5)
    monkeypatch.setattr(health_figures, "SAMPLE", 10)
    sampled = await measured(tmp_path / "some", messages)
    again = await measured(tmp_path / "again", messages)
    assert sampled[None].figures.nearest_cosine == again[None].figures.nearest_cosine, "the same sample every time"
