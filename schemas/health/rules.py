"""Computes the health of a memory: five metrics, a score, a band and the next step (seed 1, "Health scoring").

The seed gives metrics and weights; the formulas are ours (docs/health.md). Invariant: pure; a metric is in [0, 100] or
None if there is nothing to measure. The score is the mean of the measured metrics only, so an empty memory is "no
data", not red.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .events import Band, HealthMetrics

VERSION: Final = 1

WEIGHTS: Final = {"freshness": 0.25, "coverage": 0.25, "coherence": 0.20, "efficiency": 0.15, "reachability": 0.15}
RED_BELOW: Final = 50.0
GREEN_FROM: Final = 75.0
HORIZON_DAYS: Final = 180.0
"""Median age in days at which freshness is 0, as for the recency of importance (contract §6)."""
SEARCH_DAYS: Final = 7
"""Days of logged recalls that efficiency covers: one week, so each weekday counts once."""
SAMPLE: Final = 1_000
"""Number of embeddings of a crew that are sampled for coherence. With a standard deviation of 0.1, the standard error
is 0.003.
"""
LEGACY_TYPES: Final = 8
"""Types of entries in 30 days that count as full coverage in the legacy profile (contract §9)."""
LEGACY_ARCHIVED: Final = 0.5
"""Archived share that counts as full efficiency in the legacy profile (contract §9)."""
_DECIMALS: Final = 4


@dataclass(frozen=True, slots=True)
class EmbedderFailure:
    """A failure of the embedder: its description, and when it began (RFC 3339; empty if it failed from the start)."""

    reason: str
    since: str = ""


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """Figures from which the metrics of one workspace or crew are computed.

    Attributes:
        embeddable: Entries that the embed policy selects.
        indexed: Embeddable entries with a vector of the active model.
        refused: Embeddable entries whose text the model refuses (tombstones); they are not indexed.
        linked: Indexed entries with at least one relation, in either direction, that was not retracted.
        median_age_days: Median age of the indexed entries in days; None without indexed entries.
        nearest_cosine: Mean cosine between an embedding and its nearest neighbour in the same crew; None if no crew has
            two embeddings.
        searches: Logged recalls of the last ``SEARCH_DAYS`` days that used the active model.
        contradictions: Proposed contradictions that no operator has confirmed or rejected.
    """

    embeddable: int = 0
    indexed: int = 0
    refused: int = 0
    embeddings: int = 0
    linked: int = 0
    median_age_days: float | None = None
    nearest_cosine: float | None = None
    searches: int = 0
    search_cosine: float | None = None
    contradictions: int = 0
    model: str | None = None

    @property
    def missing(self) -> int:
        """Embeddable entries without a vector and without a tombstone."""
        return max(0, self.embeddable - self.indexed - self.refused)


@dataclass(frozen=True, slots=True)
class LegacyFigures:
    """Figures from which the legacy metrics are computed.

    Attributes:
        similar: Number of ``similar`` relations; each is stored once.
    """

    last_day: int = 0
    last_week: int = 0
    types: int = 0
    similar: int = 0
    embeddings: int = 0
    linked: int = 0
    live: int = 0
    archived: int = 0


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """Score and band (None for "no data"), reasons, and the next step (empty if absent)."""

    score: float | None
    band: Band | None
    reasons: tuple[str, ...]
    next_step: str


def measure(figures: MemoryFigures) -> HealthMetrics:
    """The five metrics; the formulas are those of docs/health.md.

    freshness = 100 · max(0, 1 - median age / 180 days); coverage = 100 · indexed / embeddable; coherence = 100 · mean
    nearest cosine; efficiency = 100 · mean cosine of recalls; reachability = 100 · linked / embeddings, if there are at
    least two embeddings. Cosines are clamped to [0, 1].
    """
    age = figures.median_age_days
    return HealthMetrics(
        freshness=None if age is None else _percent(1.0 - max(0.0, age) / HORIZON_DAYS),
        coverage=_share(figures.indexed, figures.embeddable),
        coherence=_percent(figures.nearest_cosine),
        efficiency=_percent(figures.search_cosine),
        reachability=_share(figures.linked, figures.embeddings) if figures.embeddings > 1 else None,
    )


def measure_legacy(figures: LegacyFigures) -> HealthMetrics:
    """The metrics by the formulas of the project that seed 1 describes (contract §9, "Code formulas").

    freshness: today's entries against the week's daily mean; coverage: distinct types of 30 days out of 8; coherence:
    ``similar`` rows per embedding, each link counted twice as that project stores it; efficiency: archived share
    relative to one half, 100 without entries; reachability: share of embeddings with a relation. The metrics of an
    empty memory are 100, 0, 0, 100, 0.
    """
    daily = figures.last_week / 7
    kept = figures.live + figures.archived
    embeddings = max(1, figures.embeddings)
    metrics = {
        "freshness": 1.0 if not daily or figures.last_day >= daily else figures.last_day / daily,
        "coverage": figures.types / LEGACY_TYPES,
        "coherence": 2 * figures.similar / embeddings if figures.embeddings else 0.0,
        "efficiency": figures.archived / kept / LEGACY_ARCHIVED if kept else 1.0,
        "reachability": figures.linked / embeddings if figures.embeddings else 0.0,
    }
    return HealthMetrics(**{name: _percent(value) for name, value in metrics.items()})


def composite(metrics: HealthMetrics) -> float | None:
    """The weighted mean of the measured metrics, in [0, 100]; None if nothing was measured."""
    known: dict[str, float] = {name: value for name in WEIGHTS if (value := getattr(metrics, name)) is not None}
    weight = sum(WEIGHTS[name] for name in known)
    if not known:
        return None
    return round(sum(WEIGHTS[name] * value for name, value in known.items()) / weight, _DECIMALS)


def band_of(score: float | None) -> Band | None:
    """Below 50 red, below 75 yellow, else green; None for "no data"."""
    if score is None:
        return None
    return "red" if score < RED_BELOW else "yellow" if score < GREEN_FROM else "green"


def judge(figures: MemoryFigures, trouble: EmbedderFailure | None = None) -> HealthVerdict:
    """Score, band, reasons and next step.

    While the embedder fails, the band is at most yellow, because new entries are not indexed. Below green, every weak
    metric gives a reason. The metric that costs the score most comes first and determines the next step.

    Args:
        figures: What was counted.
        trouble: The failure of the embedder at that instant, or None.
    """
    metrics = measure(figures)
    score = composite(metrics)
    band = band_of(score)
    reasons: list[str] = []
    steps: list[str] = []
    if trouble is not None:
        band = "yellow" if band == "green" else band
        since = f" since {trouble.since}" if trouble.since else ""
        reasons.append(f"new entries are not embedded{since}: {trouble.reason}")
        steps.append("repair the embedder: `crew-journal embedder status` and `crew-journal doctor` show what is wrong")
    if score is not None and score < GREEN_FROM:
        for name in _weak(metrics):
            reason, step = _explain(name, getattr(metrics, name), figures)
            reasons.append(reason)
            steps.append(step)
    if figures.contradictions:
        is_single = figures.contradictions == 1
        waiting = (
            "1 proposed contradiction waits" if is_single else f"{figures.contradictions} proposed contradictions wait"
        )
        reasons.append(f"{waiting} for an operator: only one of the two entries can be right")
        steps.append(
            "judge each pair that `crew-journal health` lists: `crew-journal relate SRC DST --as contradicts` if it holds, "
            "`crew-journal unrelate SRC DST --as contradicts` if not"
        )
    return HealthVerdict(score, band, tuple(reasons), steps[0] if steps else "")


def _weak(metrics: HealthMetrics) -> list[str]:
    """Names of the metrics that are not green; the one that costs the score most comes first."""
    lost = {
        name: weight * (100.0 - value)
        for name, weight in WEIGHTS.items()
        if (value := getattr(metrics, name)) is not None and value < GREEN_FROM
    }
    return sorted(lost, key=lambda name: -lost[name])


def _explain(name: str, value: float, figures: MemoryFigures) -> tuple[str, str]:
    """The reason for a metric's value, and the step that would improve it."""
    if name == "coverage":
        return _explain_coverage(value, figures)
    if name == "freshness":
        reason = f"half of the indexed entries are older than {figures.median_age_days:.0f} days"
        step = "let the agents write summaries of recent work: `crew-journal list --type summary.generated` lists the latest"
    elif name == "coherence":
        reason = f"the nearest neighbour of an embedding has a cosine of {figures.nearest_cosine:.2f} on average"
        step = "let the agents summarise recurring topics (summary.generated), so that entries have near neighbours"
    elif name == "efficiency":
        recalls = "1 recall" if figures.searches == 1 else f"{figures.searches} recalls"
        reason = f"the hits of {recalls} in {SEARCH_DAYS} days have a cosine of {figures.search_cosine:.2f} on average"
        step = "check the hits (`crew-journal recall`) of logged queries (`crew-journal list --type memory.searched`)"
    else:
        reason = f"{figures.linked} of {figures.embeddings} embeddings are linked to another"
        step = (
            "check in `crew-journal status` that the link reactor runs; entries without a similar entry stay unlinked"
        )
    return f"{name} {value:.0f}: {reason}", step


def _explain_coverage(value: float, figures: MemoryFigures) -> tuple[str, str]:
    if figures.model is None:
        reason = (
            f"coverage {value:.0f}: no model is active, so none of {figures.embeddable} embeddable entries is indexed"
        )
        return reason, "install a model (`crew-journal embedder install minilm`) and start `crew-journal up` again"
    parts = []
    if figures.missing:
        parts.append(f"{figures.missing} of {figures.embeddable} embeddable entries have no vector yet")
    if figures.refused:
        parts.append(f"{figures.refused} were refused by the model")
    reason = f"coverage {value:.0f}: {', '.join(parts)}"
    if figures.refused > figures.missing:
        return reason, "when the model is repaired, embed the refused entries again: `crew-journal reindex`"
    return reason, "embed the missing entries: `crew-journal embeddings sweep`"


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100.0 * min(1.0, max(0.0, share)), _DECIMALS)


def _share(part: int, total: int) -> float | None:
    return _percent(part / total) if total else None
