"""Reflects on facts when a reflection is due: which contradict each other, and which are stale.

Invariant: nothing is changed or deleted: a conflict becomes one ``fact.conflict_found``, whose id follows from the two
facts, and doubtful facts become one ``fact.verification_requested`` a tick and cause. A fact with a pending request gets no
second one. Facts are those that hold at the tick's ``due``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from ...schemas.context.salience import STALE_BELOW, freshness
from ...schemas.core.entry import Severity
from ...schemas.core.ids import derived_id
from ...schemas.core.ports import ViewReader
from ...schemas.core.table import as_of
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION
from ...schemas.facts.events import FactConflictFound, VerificationRequested
from ...schemas.facts.rules import Claim, Conflict, conflicts
from ...schemas.facts.tables import FACTS, FACTS_PROJECTION, KG_ENTITIES, FactRow
from ...schemas.sweeps.rules import REFLECTION, Sweep
from ..reacting.sweeping import SweepReactor, Swept, Tick

MOST_ASKED: Final = 1_000
"""Facts of one request; the longest stale go first, the others are asked for at the next tick."""
_SECOND_MS: Final = 1_000
_HOLDING: Final = f"""WITH known AS (SELECT * FROM {KG_ENTITIES} WHERE workspace_id = $ws AND ({{as_of}})),
    named AS (SELECT e.entity_id, coalesce(r.entity_id, e.entity_id) AS root, coalesce(r.name, e.name) AS name
        FROM known e LEFT JOIN known r ON r.entity_id = e.alias_of)
    SELECT s.name, s.root, o.name, o.root, {", ".join(f"f.{column.name}" for column in FACTS.columns)}
    FROM (FROM {FACTS} WHERE workspace_id = $ws AND ({{as_of}})
        AND (from_ms IS NULL OR from_ms <= $now) AND (to_ms IS NULL OR $now < to_ms + {_SECOND_MS})) f
    JOIN named s ON s.entity_id = f.subject_id JOIN named o ON o.entity_id = f.object_id ORDER BY f.fact_id"""
_KNOWN: Final = f"SELECT id FROM {ENTRIES} WHERE control AND workspace_id = ? AND entry_type = ?"


@dataclass(frozen=True, slots=True)
class _KnownFact:
    row: FactRow
    subject: str
    claim: Claim

    def fresh(self, now_ms: int) -> float:
        row = self.row
        return freshness(row.verified_ms or row.asserted_ms, row.fact_type, row.half_life_hours, now_ms)


class ReflectReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the reflection."""

    name: ClassVar[str] = "reflect"
    version: ClassVar[int] = 1
    sweep: ClassVar[Sweep] = REFLECTION
    needs: ClassVar[tuple[str, ...]] = (ENTRIES_PROJECTION, FACTS_PROJECTION)

    async def work(self, tick: Tick) -> Swept:
        """Record new conflicts, and request verifications of stale or contradicted facts."""
        facts, known = await asyncio.to_thread(_read, self._views, tick)
        by_id = {fact.row.fact_id: fact for fact in facts}
        found_conflicts = conflicts(fact.claim for fact in facts)
        new = [conflict for conflict in found_conflicts if self._conflict_id(tick, conflict) not in known]
        for conflict in new:
            await self._conflict(tick, conflict, by_id[conflict.first].subject)
        doubted = sorted({fact_id for conflict in new for fact_id in (conflict.first, conflict.second)})
        contradicted = [by_id[fact_id] for fact_id in doubted if by_id[fact_id].row.verify_asked_ms is None]
        stale = [
            fact
            for fact in facts
            if fact.row.verify_asked_ms is None
            and fact.fresh(tick.due_ms) < STALE_BELOW
            and fact.row.fact_id not in set(doubted)
        ]
        stale.sort(key=lambda fact: (fact.fresh(tick.due_ms), fact.row.fact_id))
        await self._ask(tick, "conflict", contradicted[:MOST_ASKED])
        await self._ask(tick, "stale", stale[:MOST_ASKED])
        return Swept(
            {"facts": len(facts), "conflicts": len(found_conflicts), "new_conflicts": len(new), "stale": len(stale)}
        )

    async def _ask(self, tick: Tick, cause: str, facts: Sequence[_KnownFact]) -> None:
        if not facts:
            return
        ids = tuple(fact.row.fact_id for fact in facts)
        payload = VerificationRequested.model_validate({"fact_ids": ids, "cause": cause})
        why = "contradict each other" if cause == "conflict" else "are stale"
        summary = f"{len(ids)} facts {why}: verify them"
        await self.record_of(tick, payload, cause, summary, ts_ms=tick.due_ms)

    async def _conflict(self, tick: Tick, conflict: Conflict, subject: str) -> None:
        payload = FactConflictFound(
            fact_ids=(conflict.first, conflict.second),
            namespace=conflict.namespace,
            subject=subject,
            kind=conflict.kind,
        )
        problem = "has two values" if conflict.kind == "values" else "is affirmed and negated"
        summary = f"facts about {subject} contradict each other: {conflict.predicate!r} {problem}"
        pair = f"{conflict.first}/{conflict.second}"
        await self.record(
            tick.workspace_id,
            payload,
            "conflict",
            cause=tick.entry_id,
            summary=summary,
            key=pair,
            severity=Severity.NOTICE,
            ts_ms=tick.due_ms,
        )

    def _conflict_id(self, tick: Tick, conflict: Conflict) -> str:
        pair = f"{tick.workspace_id}/{conflict.first}/{conflict.second}"
        return derived_id(self.name, self.version, pair, "conflict")


def _read(views: ViewReader, tick: Tick) -> tuple[list[_KnownFact], set[str]]:
    """The facts that hold, and the ids of the conflicts that are recorded."""
    sql = _HOLDING.format(as_of=as_of(tick.seq))
    facts = []
    for subject, subject_root, object_, object_root, *rest in views.rows(
        sql, {"ws": tick.workspace_id, "now": tick.due_ms}
    ):
        row = FactRow(*rest)
        text = row.text or f"{subject} {row.predicate} {object_}"
        claim = Claim(
            row.fact_id,
            row.namespace,
            subject_root,
            row.predicate.casefold(),
            object_root,
            text,
            row.single_valued,
        )
        facts.append(_KnownFact(row, subject, claim))
    known = views.rows(_KNOWN, [tick.workspace_id, FactConflictFound.ENTRY_TYPE])
    return facts, {fact_id for (fact_id,) in known}


REACTORS: Final = {"reflect": ReflectReactor.create}
