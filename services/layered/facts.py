"""Facts of layered memory: writing, ranking by salience, verification, conflicts.

Invariant: decay and salience rank and mark, they never hide; a conflict changes nothing, it is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...schemas.errors import NotFound
from ...schemas.events.facts import FactVerified, VerificationRequested
from ...schemas.events.payload import ControlPayload
from ...schemas.operations.facts import KgAddRequest
from ...schemas.operations.layered import (
    FactConflict,
    FactConflictsAnswer,
    FactConflictsRequest,
    FactVerificationRequest,
    FactVerifyAnswer,
    FactVerifyRequest,
    LayeredFact,
    LayeredQueryAnswer,
    LayeredQueryRequest,
    LayeredWriteAnswer,
    LayeredWriteRequest,
    SalienceParts,
)
from ...schemas.ports import ViewReader
from ...schemas.rules.assembler import cut_to
from ...schemas.rules.documents import finding_in
from ...schemas.rules.interference import Conflict
from ...schemas.rules.render import one_line
from ...schemas.rules.salience import Remembered, SalienceValues, Weights, freshness, parts_of, salience, state_of
from ...schemas.timestamps import format_ms
from ...schemas.views import FACTS_PROJECTION, IMPORTANCE_PROJECTION
from ..desk import Caller
from ..journal.intake.recorder import Recorder
from ..kept import Kept
from ..palace.graph import KnowledgeGraph, Layered, fact_fields
from ..query.query_embedding import QueryVector
from ..shown import until_shown
from .choices import LayeredChoices
from .fact_index import FactIndex, FactIndexes, KnownFact
from .moment import Moments
from .uses import NEVER, UseCounts, Uses

CANDIDATES: Final = 200
"""Facts that are found by words and vectors and then ranked by salience."""

CONTRADICTED_CHARS: Final = 80
"""Characters of the fact that contradicts another one, beside that one."""

Embed = Callable[[str, str], Awaitable[QueryVector | None]]
"""From workspace and text to the vector of the text."""


@dataclass(frozen=True, slots=True)
class RankedFact:
    """A fact with its salience.

    Attributes:
        fresh: Its freshness; 1 where facts do not decay.
    """

    fact: KnownFact
    uses: Uses
    fresh: float
    parts: SalienceValues
    salience: float


def ranked(
    facts: Sequence[tuple[KnownFact, float]],
    uses: Mapping[str, Uses],
    weights: Weights,
    now_ms: int,
    *,
    decays: bool,
) -> list[RankedFact]:
    """Facts with their similarity, most salient first, then by id."""
    found = []
    for fact, similarity in facts:
        row = fact.row
        verified_ms = row.verified_ms or row.asserted_ms
        fresh = freshness(verified_ms, row.fact_type, row.half_life_hours, now_ms) if decays else 1.0
        used = uses.get(row.entry_id, NEVER)
        memory = Remembered(
            similarity, verified_ms, used.last_ms, row.confidence, used.count, fresh if decays else None
        )
        parts = parts_of(memory, weights, now_ms)
        found.append(RankedFact(fact, used, fresh, parts, salience(parts, weights)))
    return sorted(found, key=lambda one: (-one.salience, one.fact.row.fact_id))


class LayeredFacts:
    """The use-cases.

    Args:
        views: The views.
        journal: Records verifications.
        graph: Records facts.
        indexes: The facts in memory.
        choices: Settings of a workspace.
        uses: How often entries were used.
        moments: The time of a request.
        embed: The vector of a query in a workspace; None without a model.
    """

    def __init__(
        self,
        views: ViewReader,
        journal: Recorder,
        graph: KnowledgeGraph,
        indexes: FactIndexes,
        choices: Kept[str, LayeredChoices],
        uses: UseCounts,
        moments: Moments,
        embed: Embed,
    ) -> None:
        self._views = views
        self._embed = embed
        self._journal = journal
        self._graph = graph
        self._indexes = indexes
        self._choices = choices
        self._uses = uses
        self._moments = moments

    async def write(self, caller: Caller, asked: LayeredWriteRequest) -> LayeredWriteAnswer:
        """Assert a fact, or verify it if it is known; returns once it can be read."""
        said = KgAddRequest(
            subject=asked.subject or "",
            predicate=asked.predicate,
            object=asked.object or "",
            valid_from=asked.valid_from,
            valid_to=asked.valid_to,
            confidence=asked.confidence,
            source_closet=asked.source_drawer_id,
            source_entry_id=asked.source_entry_id,
        )
        also = Layered(asked.namespace, asked.text, asked.fact_type, asked.half_life_hours, asked.single_valued)
        added = await self._graph.add(caller, said, also)
        seq = added.seq
        if not added.added:
            confidence = asked.confidence if "confidence" in asked.model_fields_set else None
            verified = FactVerified(fact_id=added.triple_id, confidence=confidence)
            seq = await self._record(caller, added.triple_id, verified, "verified")
        await until_shown(self._views, seq, FACTS_PROJECTION)
        found = await self.conflicts(caller, FactConflictsRequest())
        own = tuple(one for one in found.conflicts if added.triple_id in one.fact_ids)
        return LayeredWriteAnswer(kind="fact", id=added.triple_id, added=added.added, seq=seq, conflicts=own)

    async def read(self, caller: Caller, fact_id: str) -> LayeredFact:
        """A fact, whether it holds or not.

        Raises:
            NotFound: If there is none.
        """
        now_ms, workspace_id = self._moments.ms(None), caller.workspace_id
        fact = await asyncio.to_thread(self._get, workspace_id, fact_id)
        if fact is None:
            raise NotFound(f"no fact {fact_id[:64]}", hint="take the id from `layered query fact`")
        [one] = await self._ranked(workspace_id, [(fact, 0.0)], now_ms)
        return _shown(one).model_copy(update={"salience": None, "parts": None})

    async def query(self, caller: Caller, asked: LayeredQueryRequest) -> LayeredQueryAnswer:
        """Facts that hold, by salience; with a text those that are like it in words or in meaning."""
        now_ms = self._moments.ms(asked.now)
        view_seq = self._views.view_seq(FACTS_PROJECTION, IMPORTANCE_PROJECTION)
        facts = await self.candidates(caller.workspace_id, asked.text, asked.namespace, now_ms)
        found = await self._ranked(caller.workspace_id, facts, now_ms)
        shown = tuple(_shown(one) for one in found[: asked.limit])
        return LayeredQueryAnswer(kind="fact", facts=shown, truncated=len(found) > asked.limit, view_seq=view_seq)

    async def candidates(
        self, workspace_id: str, text: str | None, namespace: str | None, now_ms: int, *, ended: bool = False
    ) -> list[tuple[KnownFact, float]]:
        """Facts that hold, with their similarity to a text, the most similar first; all without one.

        With ``ended`` and a text, also facts that have ended.
        """
        vector = None if text is None else await self._embed(workspace_id, text)
        return await asyncio.to_thread(self._candidates, workspace_id, text, vector, namespace, now_ms, ended)

    async def contradictions(self, workspace_id: str, now_ms: int) -> dict[str, str]:
        """Fact → the beginning of the fact that contradicts it, of several the one that holds since the latest time."""
        return await asyncio.to_thread(self._contradictions, workspace_id, now_ms)

    def _contradictions(self, workspace_id: str, now_ms: int) -> dict[str, str]:
        latest: dict[str, KnownFact] = {}
        with self._indexes.lock:
            index = self._indexes.fresh(workspace_id)
            for conflict in index.conflicts(now_ms):
                for one_id, other_id in ((conflict.first, conflict.second), (conflict.second, conflict.first)):
                    other = index.get(other_id)
                    if other is not None:
                        known = latest.get(one_id, other)
                        latest[one_id] = max(known, other, key=lambda fact: (fact.since_ms, fact.row.fact_id))
        return {fact_id: _quoted(fact) for fact_id, fact in latest.items()}

    def _candidates(
        self,
        workspace_id: str,
        text: str | None,
        vector: QueryVector | None,
        namespace: str | None,
        now_ms: int,
        ended: bool,
    ) -> list[tuple[KnownFact, float]]:
        with self._indexes.lock:
            index = self._indexes.fresh(workspace_id)
            if text is None:
                return [(fact, 0.0) for fact in index.all(namespace) if fact.holds(now_ms)]
            found = index.search(text, vector, namespace, now_ms, CANDIDATES, ended=ended)
            return [(one.fact, one.similarity) for one in found]

    async def _ranked(
        self, workspace_id: str, facts: Sequence[tuple[KnownFact, float]], now_ms: int
    ) -> list[RankedFact]:
        choices = await self._choices.of(workspace_id)
        return ranked(facts, await self._uses.of(workspace_id), choices.weights, now_ms, decays=choices.decays)

    async def verify(self, caller: Caller, asked: FactVerifyRequest) -> FactVerifyAnswer:
        """Record that a fact holds; returns once it can be read.

        Raises:
            NotFound: If there is no such fact.
        """
        await self.read(caller, asked.fact_id)
        said = FactVerified(fact_id=asked.fact_id, confidence=asked.confidence, note=asked.note)
        return await self._changed(caller, asked.fact_id, said, "verified")

    async def request_verification(self, caller: Caller, asked: FactVerificationRequest) -> FactVerifyAnswer:
        """Record that a verification is wanted; returns once it can be read.

        Raises:
            NotFound: If there is no such fact.
        """
        await self.read(caller, asked.fact_id)
        said = VerificationRequested(fact_ids=(asked.fact_id,), cause="asked", note=asked.note)
        return await self._changed(caller, asked.fact_id, said, "to be verified")

    async def conflicts(self, caller: Caller, asked: FactConflictsRequest) -> FactConflictsAnswer:
        """Conflicts among the facts that hold, and facts whose verification is wanted."""
        view_seq = self._views.view_seq(FACTS_PROJECTION)
        now_ms = self._moments.ms(asked.now)
        found, asked_for = await asyncio.to_thread(self._conflicts, caller.workspace_id, now_ms, asked.namespace)
        wanted = await self._ranked(caller.workspace_id, [(fact, 0.0) for fact in asked_for], now_ms)
        wanted.sort(key=lambda one: (one.fact.row.verify_asked_ms or 0, one.fact.row.fact_id))
        return FactConflictsAnswer(conflicts=tuple(found), wanted=tuple(map(_shown, wanted)), view_seq=view_seq)

    async def _changed(self, caller: Caller, fact_id: str, said: ControlPayload, what: str) -> FactVerifyAnswer:
        seq = await self._record(caller, fact_id, said, what)
        await until_shown(self._views, seq, FACTS_PROJECTION)
        return FactVerifyAnswer(fact=await self.read(caller, fact_id), seq=seq)

    def _get(self, workspace_id: str, fact_id: str) -> KnownFact | None:
        with self._indexes.lock:
            return self._indexes.fresh(workspace_id).get(fact_id)

    def _conflicts(
        self, workspace_id: str, now_ms: int, namespace: str | None
    ) -> tuple[list[FactConflict], list[KnownFact]]:
        """Conflicts among facts that hold, and facts that hold and are to be verified."""
        with self._indexes.lock:
            index = self._indexes.fresh(workspace_id)
            found = shown_conflicts(index, index.conflicts(now_ms), namespace)
            return found, [fact for fact in index.all(namespace) if fact.row.verify_asked_ms and fact.holds(now_ms)]

    async def _record(self, caller: Caller, fact_id: str, said: ControlPayload, what: str) -> int:
        recorded = await self._journal.record(
            caller.workspace_id,
            said,
            summary=f"fact {fact_id} {what}",
            **caller.author_fields,
        )
        return recorded.seq


def shown_conflicts(index: FactIndex, found: Iterable[Conflict], namespace: str | None) -> list[FactConflict]:
    """Conflicts as an answer, with the texts of their facts."""
    shown = []
    for conflict in found:
        one, other = index.get(conflict.first), index.get(conflict.second)
        if one is not None and other is not None and namespace in (None, conflict.namespace):
            shown.append(
                FactConflict(
                    fact_ids=(conflict.first, conflict.second),
                    texts=(one.text, other.text),
                    namespace=conflict.namespace,
                    subject=one.subject,
                    kind=conflict.kind,
                )
            )
    return shown


def _quoted(fact: KnownFact) -> str:
    """The beginning of a fact in quotes; its id if the scanners block its text."""
    text = one_line(fact.text)
    return fact.row.fact_id if finding_in(text) is not None else f'"{cut_to(text, CONTRADICTED_CHARS)}"'


def _shown(one: RankedFact) -> LayeredFact:
    row = one.fact.row
    return LayeredFact(
        **fact_fields(row, one.fact.subject, one.fact.object),
        namespace=row.namespace,
        text=one.fact.text,
        fact_type=row.fact_type,
        half_life_hours=row.half_life_hours,
        single_valued=row.single_valued,
        last_verified_at=None if row.verified_ms is None else format_ms(row.verified_ms),
        verification_wanted=None if row.verify_asked_ms is None else format_ms(row.verify_asked_ms),
        freshness=one.fresh,
        state=state_of(one.fresh).value,
        uses=one.uses.count,
        salience=one.salience,
        parts=SalienceParts.model_validate(one.parts, from_attributes=True),
    )
