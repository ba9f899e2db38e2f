"""Measures how healthy each memory is when a health sweep is due, and records it.

Invariant: one ``memory.health_recorded`` a tick for the workspace and for each crew with embeddable entries, its id
derived from the tick, its time the tick's ``due``; a failure of the embedder counts only if it existed at that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from ...schemas.core.derived import OutgoingMessage
from ...schemas.core.entry import Severity
from ...schemas.core.ids import derived_id
from ...schemas.core.ports import ViewReader
from ...schemas.core.timestamps import DAY_MS, format_ms, parse_ts, to_ms
from ...schemas.entries.tables import ARCHIVED, ENTRIES, ENTRIES_PROJECTION
from ...schemas.health import rules as health
from ...schemas.health.events import HealthRecorded
from ...schemas.health.rules import SAMPLE, SEARCH_DAYS, EmbedderFailure, LegacyFigures, MemoryFigures
from ...schemas.models.tables import EMBEDDINGS, VECTORS_PROJECTION, active_in, read_active_models
from ...schemas.recall.tables import RECEIPTS
from ...schemas.relations.tables import RELATIONS, RELATIONS_PROJECTION
from ...schemas.sweeps.rules import HEALTH, Sweep
from ..reacting.control_facts import encode_control
from ..reacting.sweeping import SweepReactor, Swept, Tick

# Reads the figures of a memory's health, for a workspace and each of its crews: counts by SQL, nearest cosines by
# numpy.


CHUNK: Final = 4_096
"""Number of vectors that are compared with a sample at once: 16 MiB of cosines."""
_FLOAT32: Final = np.dtype("<f4")
_WEEK_DAYS: Final = 7
_MONTH_DAYS: Final = 30

_COUNTS: Final = f"""
WITH e AS (
    SELECT seq, id, crew_id, ts_ms, entry_type, embeddable, control FROM {ENTRIES}
    WHERE workspace_id = $workspace AND seq < $seq AND published_ms <= $due),
v AS (
    SELECT entry_seq, dim FROM {EMBEDDINGS}
    WHERE workspace_id = $workspace AND model = $model AND indexed_at <= $due),
edge AS (
    SELECT src_entry_id, dst_entry_id FROM {RELATIONS}
    WHERE workspace_id = $workspace AND state <> 'retracted' AND created_at <= $due),
linked AS (SELECT src_entry_id AS id FROM edge UNION SELECT dst_entry_id FROM edge)
SELECT GROUPING(e.crew_id) = 1, e.crew_id,
    count(*) FILTER (WHERE embeddable),
    count(*) FILTER (WHERE embeddable AND dim > 0),
    count(*) FILTER (WHERE embeddable AND dim = 0),
    count(*) FILTER (WHERE dim > 0),
    count(*) FILTER (WHERE dim > 0 AND linked.id IS NOT NULL),
    median(greatest(0, $due - ts_ms)) FILTER (WHERE dim > 0),
    count(*) FILTER (WHERE NOT control AND ts_ms > $due - {DAY_MS} AND ts_ms <= $due),
    count(*) FILTER (WHERE NOT control AND ts_ms > $due - {_WEEK_DAYS * DAY_MS} AND ts_ms <= $due),
    count(DISTINCT entry_type) FILTER (WHERE NOT control AND ts_ms > $due - {_MONTH_DAYS * DAY_MS} AND ts_ms <= $due),
    count(*) FILTER (WHERE NOT control)
FROM e LEFT JOIN v ON e.seq = v.entry_seq LEFT JOIN linked ON e.id = linked.id
GROUP BY GROUPING SETS ((e.crew_id), ())
"""
_ARCHIVED: Final = f"""
SELECT GROUPING(crew_id) = 1, crew_id, count(*) FROM {ARCHIVED}
WHERE workspace_id = $workspace AND seq < $seq AND published_ms <= $due GROUP BY GROUPING SETS ((crew_id), ())
"""
_EDGES: Final = f"""
SELECT GROUPING(crew_id) = 1, crew_id, count(*) FILTER (WHERE relation = 'similar' AND state <> 'retracted'),
    count(*) FILTER (WHERE relation = 'contradicts' AND state = 'proposed')
FROM {RELATIONS} WHERE workspace_id = $workspace AND created_at <= $due GROUP BY GROUPING SETS ((crew_id), ())
"""
_SEARCHES: Final = f"""
SELECT GROUPING(of_crew_id) = 1, of_crew_id, count(*), avg(mean_cosine) FROM {RECEIPTS}
WHERE workspace_id = $workspace AND seq < $seq AND published_ms <= $due AND model = $model AND mean_cosine IS NOT NULL
  AND ts_ms > $due - {SEARCH_DAYS * DAY_MS} AND ts_ms <= $due
GROUP BY GROUPING SETS ((of_crew_id), ())
"""
_PLACES: Final = f"""
SELECT e.crew_id, v.entry_seq::BIGINT AS entry_seq, v.key, v.dim FROM {EMBEDDINGS} v JOIN {ENTRIES} e ON e.seq = v.entry_seq
WHERE v.workspace_id = $workspace AND e.workspace_id = $workspace AND v.model = $model AND v.dim > 0
  AND v.indexed_at <= $due AND e.seq < $seq AND e.published_ms <= $due ORDER BY v.key
"""
_VECTORS: Final = f"""
SELECT entry_seq::BIGINT AS entry_seq, vector FROM {EMBEDDINGS}
WHERE workspace_id = $workspace AND model = $model AND dim = $dim AND entry_seq IN (SELECT unnest($seqs::BIGINT[]))
"""

Floats = npt.NDArray[np.float32]
Seqs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class At:
    """The scope of a measurement: its time in milliseconds since the epoch, and the sequence before which entries count."""

    workspace_id: str
    seq: int
    due_ms: int
    model: str | None

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of the queries; an impossible name means no model."""
        return {"workspace": self.workspace_id, "seq": self.seq, "due": self.due_ms, "model": self.model or ""}


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a crew, or (None) of the workspace as a whole."""

    crew_id: str | None
    figures: MemoryFigures
    legacy: LegacyFigures


@dataclass(frozen=True, slots=True)
class _Coherence:
    """The mean nearest cosine of a crew's sample, and the number of the crew's embeddings that it represents."""

    mean: float
    weight: int


def measure_workspace(views: ViewReader, workspace_id: str, seq: int, due_ms: int) -> list[Measured]:
    """The workspace as a whole, then each crew that has embeddable entries, by name; blocking.

    Args:
        views: The views, past ``seq``.
        workspace_id: The workspace.
        seq: Only entries before it in the journal count.
        due_ms: Only events recorded up to this time count, milliseconds since the epoch.
    """
    at = At(workspace_id, seq, due_ms, active_in(read_active_models(views), workspace_id))
    coherence = _coherence(views, at)
    workspace = Measured(None, MemoryFigures(model=at.model), LegacyFigures())
    crews: dict[str, Measured] = {}
    for is_whole, crew, *counts in _rows(views, _COUNTS, at):
        row = Measured(None if is_whole else crew, *_figures(counts, at))
        if is_whole:
            workspace = replace(row, figures=replace(row.figures, nearest_cosine=_mean(list(coherence.values()))))
        elif crew is not None and row.figures.embeddable:
            cosines = [coherence[crew]] if crew in coherence else []
            crews[crew] = replace(row, figures=replace(row.figures, nearest_cosine=_mean(cosines)))
    edges = {(is_whole, crew): counts for is_whole, crew, *counts in _rows(views, _EDGES, at)}
    archived = {(is_whole, crew): count for is_whole, crew, count in _rows(views, _ARCHIVED, at)}
    searches = {(is_whole, crew): counts for is_whole, crew, *counts in _rows(views, _SEARCHES, at)}
    measured = [workspace, *(crews[name] for name in sorted(crews))]
    return [
        _completed(figures, edges.get(at, ()), searches.get(at, ()), archived.get(at, 0))
        for figures, at in zip(measured, map(_place, measured), strict=True)
    ]


def _place(measured: Measured) -> tuple[bool, str | None]:
    return measured.crew_id is None, measured.crew_id


def _rows(views: ViewReader, sql: str, at: At) -> list[tuple[Any, ...]]:
    used = {name: value for name, value in at.params.items() if f"${name}" in sql}
    return views.rows(sql, used)


def _figures(counts: Sequence[Any], at: At) -> tuple[MemoryFigures, LegacyFigures]:
    embeddable, indexed, refused, embeddings, linked, age_ms, day, week, types, live = counts
    figures = MemoryFigures(
        embeddable=embeddable,
        indexed=indexed,
        refused=refused,
        embeddings=embeddings,
        linked=linked,
        median_age_days=None if age_ms is None else age_ms / DAY_MS,
        model=at.model,
    )
    legacy = LegacyFigures(last_day=day, last_week=week, types=types, embeddings=embeddings, linked=linked, live=live)
    return figures, legacy


def _completed(measured: Measured, edges: Sequence[Any], searches: Sequence[Any], archived: int) -> Measured:
    similar, contradictions = edges or (0, 0)
    count, cosine = searches or (0, None)
    return Measured(
        measured.crew_id,
        replace(measured.figures, contradictions=contradictions, searches=count, search_cosine=cosine),
        replace(measured.legacy, similar=similar, archived=archived),
    )


def _mean(parts: Sequence[_Coherence]) -> float | None:
    weight = sum(part.weight for part in parts)
    return sum(part.mean * part.weight for part in parts) / weight if weight else None


def _coherence(views: ViewReader, at: At) -> dict[str | None, _Coherence]:
    """The coherence of every crew with at least two embeddings; None stands for entries without a crew."""
    if at.model is None:
        return {}
    table = views.columns(_PLACES, at.params)
    if table.num_rows == 0:
        return {}
    dims = table.column("dim").to_numpy()
    dim = int(
        np.bincount(dims).argmax()
    )  # a model may have changed its dimensions; only vectors of the most frequent dimension are compared
    crew_names = table.column("crew_id").to_pylist()
    seqs = table.column("entry_seq").to_numpy()
    members: dict[str | None, list[int]] = {}
    for row in np.flatnonzero(dims == dim).tolist():
        members.setdefault(crew_names[row], []).append(int(seqs[row]))
    return {
        crew: _Coherence(_nearest(views, at, dim, of_crew), len(of_crew))
        for crew, of_crew in members.items()
        if len(of_crew) > 1
    }


def _nearest(views: ViewReader, at: At, dim: int, seqs: list[int]) -> float:
    """Mean over the sample (the first by hash) of the cosine to the nearest other embedding among ``seqs``, in [0, 1]."""
    sample_seqs, sample = _vectors(views, at, dim, seqs[:SAMPLE])
    best = np.zeros(len(sample), np.float32)  # a negative cosine counts as 0
    ordered = sorted(seqs)
    for start in range(0, len(ordered), CHUNK):
        chunk_seqs, chunk = _vectors(views, at, dim, ordered[start : start + CHUNK])
        if not len(chunk):
            continue
        cosines = sample @ chunk.T
        cosines[sample_seqs[:, None] == chunk_seqs[None, :]] = -1.0
        np.maximum(best, cosines.max(axis=1), out=best)
    return float(np.minimum(best, 1.0).mean(dtype=np.float64)) if len(best) else 0.0


def _vectors(views: ViewReader, at: At, dim: int, seqs: list[int]) -> tuple[Seqs, Floats]:
    """Sequences and vectors, (n,) and (n, dim), in the same order."""
    params = {"workspace": at.workspace_id, "model": at.model, "dim": dim, "seqs": seqs}
    table = views.columns(_VECTORS, params)
    entry_seqs: Seqs = table.column("entry_seq").to_numpy()
    data = b"".join(table.column("vector").to_pylist())
    return entry_seqs, np.frombuffer(data, _FLOAT32).reshape(len(entry_seqs), dim)


_SEVERITY: Final = {"red": Severity.WARN, "yellow": Severity.NOTICE}
_DATE_CHARS: Final = 10
"""``YYYY-MM-DD`` of a stored time, which is UTC."""


class HealthReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the health sweep."""

    name: ClassVar[str] = "health"
    version: ClassVar[int] = 1
    sweep: ClassVar[Sweep] = HEALTH
    needs: ClassVar[tuple[str, ...]] = (ENTRIES_PROJECTION, VECTORS_PROJECTION, RELATIONS_PROJECTION)

    async def work(self, tick: Tick) -> Swept:
        """Measure, judge, record."""
        measured = await asyncio.to_thread(measure_workspace, self._views, tick.workspace_id, tick.seq, tick.due_ms)
        trouble = at_that_time(self._context.embedder_trouble(measured[0].figures.model), tick.due_ms)
        counts = {"measured": len(measured), "red": 0, "yellow": 0, "green": 0, "no_data": 0}
        for figures in measured:
            recorded = judged(figures, tick, trouble)
            counts[recorded.band or "no_data"] += 1
            await self.publish(self._fact(recorded, tick))
        return Swept(counts)

    def _fact(self, recorded: HealthRecorded, tick: Tick) -> OutgoingMessage:
        cause = f"{tick.workspace_id}/{tick.entry_id}"
        subject = f"crew {recorded.crew_id}" if recorded.crew_id is not None else "the workspace"
        result = "no data" if recorded.band is None else f"{recorded.band}, {recorded.score:.1f} of 100"
        return encode_control(
            tick.workspace_id,
            recorded,
            fact_id=derived_id(self.name, self.version, cause, f"crew/{recorded.crew_id or ''}"),
            cause=tick.entry_id,
            reactor=self.identity,
            summary=f"memory health of {subject}: {result}",
            severity=_SEVERITY.get(recorded.band or "", Severity.INFO),
            ts_ms=tick.due_ms,
            crew_id=recorded.crew_id,
        )


def at_that_time(trouble: EmbedderFailure | None, due_ms: int) -> EmbedderFailure | None:
    """The failure if it had begun by that time; a sweep of an earlier night ignores later failures."""
    if trouble is None or (trouble.since and to_ms(parse_ts(trouble.since)) > due_ms):
        return None
    return trouble


def judged(measured: Measured, tick: Tick, trouble: EmbedderFailure | None) -> HealthRecorded:
    """The event about a crew or workspace."""
    figures, legacy = measured.figures, health.measure_legacy(measured.legacy)
    verdict = health.judge(figures, trouble)
    return HealthRecorded(
        crew_id=measured.crew_id,
        date=format_ms(tick.due_ms)[:_DATE_CHARS],
        rules=health.VERSION,
        metrics=health.measure(figures),
        score=verdict.score,
        band=verdict.band,
        legacy=legacy,
        legacy_score=health.composite(legacy),
        reasons=verdict.reasons,
        next_step=verdict.next_step,
        counts={
            "embeddable": figures.embeddable,
            "indexed": figures.indexed,
            "refused": figures.refused,
            "missing": figures.missing,
            "embeddings": figures.embeddings,
            "linked": figures.linked,
            "searches": figures.searches,
            "contradictions": figures.contradictions,
            "similar": measured.legacy.similar,
            "entries": measured.legacy.live,
            "entries_day": measured.legacy.last_day,
            "entries_week": measured.legacy.last_week,
            "types_month": measured.legacy.types,
            "archived": measured.legacy.archived,
        },
        model=figures.model,
    )


REACTORS: Final = {"health": HealthReactor.create}
