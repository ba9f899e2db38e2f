"""Facts of layered memory: writing, ranking by salience, verification, conflicts.

Invariant: decay and salience rank and mark, they never hide; a conflict changes nothing, it is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...schemas.context import operations as ops
from ...schemas.context.salience import Remembered, SalienceValues, Weights, freshness, parts_of, salience, state_of
from ...schemas.core.errors import NotFound
from ...schemas.core.payload import ControlPayload
from ...schemas.core.timestamps import format_ms
from ...schemas.facts.events import FactVerified, VerificationRequested
from ...schemas.facts.operations import KgAddRequest
from ...schemas.facts.rules import Conflict
from ...schemas.facts.tables import FACTS_PROJECTION
from ...schemas.prompt.assembler import cut, one_line
from ...schemas.standing.tables import IMPORTANCE_PROJECTION
from ...schemas.text.injection import finding_in
from ..desk import Caller
from ..facts.index import FactIndex, KnownFact
from ..facts.use_cases import KnowledgeGraph, LayeredFields, fact_fields
from ..index.query_embedding import QueryVector
from ..node import Answers, Decided, Node
from .state import NEVER, LayeredState, Uses

CANDIDATES: Final = 200
"""Facts that are found by words and vectors and then ranked by salience."""

CONTRADICTED_CHARS: Final = 80
"""Characters of the fact that contradicts another one, beside that one."""


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
    ranked_facts = []
    for fact, similarity in facts:
        row = fact.row
        verified_ms = row.verified_ms or row.asserted_ms
        fresh = freshness(verified_ms, row.fact_type, row.half_life_hours, now_ms) if decays else 1.0
        used = uses.get(row.entry_id, NEVER)
        memory = Remembered(
            similarity, verified_ms, used.last_ms, row.confidence, used.count, fresh if decays else None
        )
        parts = parts_of(memory, weights, now_ms)
        ranked_facts.append(RankedFact(fact, used, fresh, parts, salience(parts, weights)))
    return sorted(ranked_facts, key=lambda fact: (-fact.salience, fact.fact.row.fact_id))


class LayeredFacts:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._graph = node.use(KnowledgeGraph)
        state = node.use(LayeredState)
        self._indexes = state.indexes
        self._choices = state.choices
        self._uses = state.uses
        self._moments = state.moments

    async def write(self, caller: Caller, request: ops.LayeredWriteRequest) -> ops.LayeredWriteAnswer:
        """Assert a fact, or verify it if it is known; returns once it can be read."""
        request_ = KgAddRequest(
            subject=request.subject or "",
            predicate=request.predicate,
            object=request.object or "",
            valid_from=request.valid_from,
            valid_to=request.valid_to,
            confidence=request.confidence,
            source_closet=request.source_drawer_id,
            source_entry_id=request.source_entry_id,
        )
        also = LayeredFields(
            request.namespace, request.text, request.fact_type, request.half_life_hours, request.single_valued
        )
        added = await self._graph.add(caller, request_, also)
        seq = added.seq
        if not added.added:
            confidence = request.confidence if "confidence" in request.model_fields_set else None
            verified = FactVerified(fact_id=added.triple_id, confidence=confidence)
            seq = (await self._record(caller, added.triple_id, verified, "verified")).seq
        visible = await self._node.shows(seq, FACTS_PROJECTION)
        answer = await self.conflicts(caller, ops.FactConflictsRequest())
        own = tuple(fact_conflict for fact_conflict in answer.conflicts if added.triple_id in fact_conflict.fact_ids)
        return ops.LayeredWriteAnswer(
            kind="fact", id=added.triple_id, added=added.added, seq=seq, conflicts=own, visible=visible
        )

    async def read(self, caller: Caller, fact_id: str) -> ops.LayeredFact:
        """A fact, whether it holds or not.

        Raises:
            NotFound: If there is none.
        """
        now_ms, workspace_id = self._moments.ms(None), caller.workspace_id
        fact = await asyncio.to_thread(self._get, workspace_id, fact_id)
        if fact is None:
            raise NotFound(f"no fact {fact_id[:64]}", hint="take the id from `layered query fact`")
        [fact_read] = await self._ranked(workspace_id, [(fact, 0.0)], now_ms)
        return _shown(fact_read).model_copy(update={"salience": None, "parts": None})

    async def query(self, caller: Caller, request: ops.LayeredQueryRequest) -> ops.LayeredQueryAnswer:
        """Facts that hold, by salience; with a text those that are like it in words or in meaning."""
        now_ms = self._moments.ms(request.now)
        view_seq = self._views.view_seq(FACTS_PROJECTION, IMPORTANCE_PROJECTION)
        facts = await self.candidates(caller.workspace_id, request.text, request.namespace, now_ms)
        ranked_facts = await self._ranked(caller.workspace_id, facts, now_ms)
        shown = tuple(_shown(fact) for fact in ranked_facts[: request.limit])
        return ops.LayeredQueryAnswer(
            kind="fact", facts=shown, truncated=len(ranked_facts) > request.limit, view_seq=view_seq
        )

    async def candidates(
        self, workspace_id: str, text: str | None, namespace: str | None, now_ms: int, *, ended: bool = False
    ) -> list[tuple[KnownFact, float]]:
        """Facts that hold, with their similarity to a text, the most similar first; all without one.

        With ``ended`` and a text, also facts that have ended.
        """
        vector = None if text is None else await self._node.recall.embed(workspace_id, text)
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
            hits = index.search(text, vector, namespace, now_ms, CANDIDATES, ended=ended)
            return [(hit.fact, hit.similarity) for hit in hits]

    async def _ranked(
        self, workspace_id: str, facts: Sequence[tuple[KnownFact, float]], now_ms: int
    ) -> list[RankedFact]:
        choices = await self._choices.of(workspace_id)
        return ranked(facts, await self._uses.of(workspace_id), choices.weights, now_ms, decays=choices.decays)

    async def verify(self, caller: Caller, request: ops.FactVerifyRequest) -> ops.FactVerifyAnswer:
        """Record that a fact holds; returns once it can be read.

        Raises:
            NotFound: If there is no such fact.
        """
        await self.read(caller, request.fact_id)
        fact_verified = FactVerified(fact_id=request.fact_id, confidence=request.confidence, note=request.note)
        return await self._changed(caller, request.fact_id, fact_verified, "verified")

    async def request_verification(self, caller: Caller, request: ops.FactVerificationRequest) -> ops.FactVerifyAnswer:
        """Record that a verification is wanted; returns once it can be read.

        Raises:
            NotFound: If there is no such fact.
        """
        await self.read(caller, request.fact_id)
        verification_requested = VerificationRequested(fact_ids=(request.fact_id,), cause="asked", note=request.note)
        return await self._changed(caller, request.fact_id, verification_requested, "to be verified")

    async def conflicts(self, caller: Caller, request: ops.FactConflictsRequest) -> ops.FactConflictsAnswer:
        """Conflicts among the facts that hold, and facts whose verification is wanted."""
        view_seq = self._views.view_seq(FACTS_PROJECTION)
        now_ms = self._moments.ms(request.now)
        found_conflicts, asked_for = await asyncio.to_thread(
            self._conflicts, caller.workspace_id, now_ms, request.namespace
        )
        wanted = await self._ranked(caller.workspace_id, [(fact, 0.0) for fact in asked_for], now_ms)
        wanted.sort(key=lambda ranked_fact: (ranked_fact.fact.row.verify_asked_ms or 0, ranked_fact.fact.row.fact_id))
        return ops.FactConflictsAnswer(
            conflicts=tuple(found_conflicts), wanted=tuple(map(_shown, wanted)), view_seq=view_seq
        )

    async def _changed(self, caller: Caller, fact_id: str, payload: ControlPayload, what: str) -> ops.FactVerifyAnswer:
        decided = await self._record(caller, fact_id, payload, what)
        fact = await self.read(caller, fact_id)
        return ops.FactVerifyAnswer(fact=fact, seq=decided.seq, visible=decided.visible)

    def _get(self, workspace_id: str, fact_id: str) -> KnownFact | None:
        with self._indexes.lock:
            return self._indexes.fresh(workspace_id).get(fact_id)

    def _conflicts(
        self, workspace_id: str, now_ms: int, namespace: str | None
    ) -> tuple[list[ops.FactConflict], list[KnownFact]]:
        """Conflicts among facts that hold, and facts that hold and are to be verified."""
        with self._indexes.lock:
            index = self._indexes.fresh(workspace_id)
            fact_conflicts = shown_conflicts(index, index.conflicts(now_ms), namespace)
            return fact_conflicts, [
                fact for fact in index.all(namespace) if fact.row.verify_asked_ms and fact.holds(now_ms)
            ]

    async def _record(self, caller: Caller, fact_id: str, payload: ControlPayload, what: str) -> Decided:
        return await self._node.decide(
            caller, payload, f"fact {fact_id} {what}", FACTS_PROJECTION, **caller.author_fields
        )


def shown_conflicts(index: FactIndex, conflicts: Iterable[Conflict], namespace: str | None) -> list[ops.FactConflict]:
    """Conflicts as an answer, with the texts of their facts."""
    shown = []
    for conflict in conflicts:
        first, second = index.get(conflict.first), index.get(conflict.second)
        if first is not None and second is not None and namespace in (None, conflict.namespace):
            shown.append(
                ops.FactConflict(
                    fact_ids=(conflict.first, conflict.second),
                    texts=(first.text, second.text),
                    namespace=conflict.namespace,
                    subject=first.subject,
                    kind=conflict.kind,
                )
            )
    return shown


def _quoted(fact: KnownFact) -> str:
    """The beginning of a fact in quotes; its id if the scanners block its text."""
    text = one_line(fact.text)
    return fact.row.fact_id if finding_in(text) is not None else f'"{cut(text, CONTRADICTED_CHARS)}"'


def _shown(fact: RankedFact) -> ops.LayeredFact:
    row = fact.fact.row
    return ops.LayeredFact(
        **fact_fields(row, fact.fact.subject, fact.fact.object),
        namespace=row.namespace,
        text=fact.fact.text,
        fact_type=row.fact_type,
        half_life_hours=row.half_life_hours,
        single_valued=row.single_valued,
        last_verified_at=None if row.verified_ms is None else format_ms(row.verified_ms),
        verification_wanted=None if row.verify_asked_ms is None else format_ms(row.verify_asked_ms),
        freshness=fact.fresh,
        state=state_of(fact.fresh).value,
        uses=fact.uses.count,
        salience=fact.salience,
        parts=ops.SalienceParts.model_validate(fact.parts, from_attributes=True),
    )


ANSWERS: Final[Answers] = (
    (ops.FACT_VERIFY, LayeredFacts.verify),
    (ops.FACT_REQUEST_VERIFICATION, LayeredFacts.request_verification),
    (ops.FACT_CONFLICTS, LayeredFacts.conflicts),
)
