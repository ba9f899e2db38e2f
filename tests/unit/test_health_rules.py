"""Health: the seed's five metrics by our formulas, the legacy profile by the contract's, bands and reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.health.events import HealthMetrics
from crew_journal.schemas.health.rules import (
    WEIGHTS,
    EmbedderFailure,
    LegacyFigures,
    MemoryFigures,
    band_of,
    composite,
    judge,
    measure,
    measure_legacy,
)

HEALTHY = MemoryFigures(
    embeddable=100,
    indexed=100,
    embeddings=100,
    linked=80,
    median_age_days=9.0,
    nearest_cosine=0.8,
    searches=40,
    search_cosine=0.6,
    model="mini",
)
TROUBLE = EmbedderFailure("nomic-embed-text does not answer", "2026-11-21T09:30:00.000Z")


def metrics(**values: float | None) -> HealthMetrics:
    return HealthMetrics(**{name: values.get(name) for name in WEIGHTS})


def test_each_metric_follows_its_documented_formula() -> None:
    """Contract §9, "Seed semantics"; docs/health.md."""
    found = measure(
        MemoryFigures(
            embeddable=8,
            indexed=6,
            refused=1,
            embeddings=6,
            linked=3,
            median_age_days=45.0,
            nearest_cosine=0.7,
            searches=3,
            search_cosine=0.55,
            model="mini",
        )
    )
    assert found == HealthMetrics(freshness=75.0, coverage=75.0, coherence=70.0, efficiency=55.0, reachability=50.0)
    # .25·75 + .25·75 + .20·70 + .15·55 + .15·50
    assert composite(found) == pytest.approx(67.25)


def test_the_weights_are_the_seeds_and_sum_to_one() -> None:
    assert WEIGHTS == {"freshness": 0.25, "coverage": 0.25, "coherence": 0.20, "efficiency": 0.15, "reachability": 0.15}
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)


def test_an_empty_workspace_is_no_data_and_neither_red_nor_green() -> None:
    """Contract §9: "empty workspace must be reported as 'no data', not red or green"."""
    verdict = judge(MemoryFigures())
    assert (verdict.score, verdict.band, verdict.reasons, verdict.next_step) == (None, None, (), "")


def test_what_cannot_be_measured_is_left_out_of_the_score() -> None:
    """One fresh embedding: no neighbour, nothing to be linked to, no recall."""
    figures = MemoryFigures(embeddable=1, indexed=1, embeddings=1, median_age_days=0.0, model="mini")
    assert measure(figures) == metrics(freshness=100.0, coverage=100.0)
    assert judge(figures).score == 100.0
    assert judge(figures).band == "green"


@pytest.mark.parametrize(
    ("score", "band"), [(0, "red"), (49.99, "red"), (50, "yellow"), (74.99, "yellow"), (75, "green"), (100, "green")]
)
def test_bands_begin_where_the_seed_says(score: float, band: str) -> None:
    """Contract §9: <50 red, 50..<75 yellow, >=75 green."""
    assert band_of(score) == band


def test_a_healthy_memory_is_green_and_asks_for_nothing() -> None:
    verdict = judge(HEALTHY)
    assert (verdict.band, verdict.reasons, verdict.next_step) == ("green", (), "")


def test_an_embedder_in_trouble_keeps_the_band_from_green_and_says_since_when() -> None:
    """Contract §3 [TRAP]: 4032 consecutive failures in a day were reported healthy."""
    verdict = judge(HEALTHY, TROUBLE)
    assert verdict.score == judge(HEALTHY).score
    assert verdict.band == "yellow"
    assert "since 2026-11-21T09:30:00.000Z" in verdict.reasons[0]
    assert "does not answer" in verdict.reasons[0]
    assert "embedder status" in verdict.next_step


def test_trouble_makes_no_red_better() -> None:
    poor = replace(HEALTHY, indexed=0, embeddings=0, median_age_days=None, nearest_cosine=None)
    assert judge(poor, TROUBLE).band == "red"


def test_red_names_the_metric_that_costs_most_and_the_command_that_helps() -> None:
    poor = replace(HEALTHY, indexed=3, refused=2, embeddings=3, linked=0, nearest_cosine=0.3)
    verdict = judge(poor)
    assert verdict.band == "red"
    assert verdict.reasons[0].startswith("coverage 3: 95 of 100 embeddable entries have no vector yet")
    assert "2 were refused" in verdict.reasons[0]
    assert verdict.next_step.endswith("`crew-journal embeddings sweep`")


def test_many_refused_texts_point_to_a_reindex() -> None:
    assert "crew-journal reindex" in judge(replace(HEALTHY, indexed=1, embeddings=1, refused=99)).next_step


def test_entries_and_no_model_is_red_and_says_how_to_get_one() -> None:
    verdict = judge(MemoryFigures(embeddable=5))
    assert (verdict.score, verdict.band) == (0.0, "red")
    assert "no model is active" in verdict.reasons[0]
    assert "embedder install" in verdict.next_step


def test_proposed_contradictions_ask_for_an_operator_whatever_the_band() -> None:
    """Contract §9: contradictions > 0 always forces operator review."""
    verdict = judge(replace(HEALTHY, contradictions=2))
    assert verdict.band == "green"
    assert verdict.reasons == (
        "2 proposed contradictions wait for an operator: only one of the two entries can be right",
    )
    assert "unrelate" in verdict.next_step


# the legacy profile


def test_the_legacy_profile_gives_40_for_an_empty_workspace() -> None:
    """Contract §9: 100, 0, 0, 100, 0 → 40."""
    found = measure_legacy(LegacyFigures())
    assert found == HealthMetrics(freshness=100, coverage=0, coherence=0, efficiency=100, reachability=0)
    assert composite(found) == pytest.approx(40.0)


def test_the_legacy_profile_gives_the_seeded_examples_74_375() -> None:
    """Contract §9: 100 / 37.5 / 100 / 33.33 / 100 = 74.375; one link in six rows archived, three types of eight."""
    seeded = LegacyFigures(last_day=4, last_week=7, types=3, similar=1, embeddings=2, linked=2, live=5, archived=1)
    found = measure_legacy(seeded)
    assert found == HealthMetrics(freshness=100, coverage=37.5, coherence=100, efficiency=33.3333, reachability=100)
    assert composite(found) == pytest.approx(74.375)


def test_legacy_coherence_counts_each_link_twice_and_freshness_compares_a_day_with_the_weeks_mean() -> None:
    """Contract §0 row 1: rows are symmetric there; §9: 24 h count against the daily mean of 7 days."""
    found = measure_legacy(LegacyFigures(last_day=1, last_week=14, similar=2, embeddings=10, linked=4, live=10))
    assert found.coherence == 40.0
    assert found.freshness == 50.0
    assert found.reachability == 40.0
    assert found.efficiency == 0.0


# properties

COSINES = st.one_of(st.none(), st.floats(-1, 1))


@st.composite
def figures(draw: st.DrawFn) -> MemoryFigures:
    embeddable = draw(st.integers(0, 50))
    indexed = draw(st.integers(0, embeddable))
    embeddings = draw(st.integers(0, 50))
    return MemoryFigures(
        embeddable=embeddable,
        indexed=indexed,
        refused=draw(st.integers(0, embeddable - indexed)),
        embeddings=embeddings,
        linked=draw(st.integers(0, embeddings)),
        median_age_days=draw(st.one_of(st.none(), st.floats(0, 5_000))) if embeddings else None,
        nearest_cosine=draw(COSINES),
        searches=draw(st.integers(1, 9)),
        search_cosine=draw(COSINES),
        contradictions=draw(st.integers(0, 2)),
        model=draw(st.sampled_from([None, "mini"])),
    )


@given(figures(), st.sampled_from([None, TROUBLE]))
def test_every_memory_gets_a_verdict_within_bounds(some: MemoryFigures, trouble: EmbedderFailure | None) -> None:
    verdict = judge(some, trouble)
    known = [value for name in WEIGHTS if (value := getattr(measure(some), name)) is not None]
    if verdict.score is None:
        assert known == []
        assert verdict.band is None
    else:
        assert min(known) - 1e-3 <= verdict.score <= max(known) + 1e-3
    if verdict.band in ("red", "yellow"):
        assert verdict.reasons
        assert verdict.next_step
    if trouble is not None:
        assert verdict.band != "green"


@given(figures(), st.floats(0, 1_000), st.floats(0, 1_000))
def test_freshness_never_rises_with_age(some: MemoryFigures, left: float, right: float) -> None:
    young, old = sorted((left, right))
    fresh = measure(replace(some, embeddings=3, median_age_days=young)).freshness
    stale = measure(replace(some, embeddings=3, median_age_days=old)).freshness
    assert fresh is not None
    assert stale is not None
    assert fresh >= stale


@given(figures())
def test_one_more_indexed_entry_never_lowers_the_score(some: MemoryFigures) -> None:
    if some.missing == 0:
        return
    before, after = judge(some).score, judge(replace(some, indexed=some.indexed + 1)).score
    assert before is not None
    assert after is not None
    assert after >= before
