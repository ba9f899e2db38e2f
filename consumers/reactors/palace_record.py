"""Publishes the findings of the cold path of the palace: types, facts, links, contradictions and merges.

Invariant: ids follow from the drawer and the kind of finding, so a call that is repeated after a crash adds no second
finding; ``drawer.classified`` or ``drawer.linked`` is the last event of a call, so a drawer that has it needs no second
call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ...schemas.entry import MAX_SUMMARY, ActorType
from ...schemas.events.derived import OutgoingMessage
from ...schemas.events.drawers import (
    DrawerAnswerRejected,
    DrawerClassified,
    DrawerLinked,
    DrawerMerged,
    DrawerSuperseded,
    PipelineTier,
)
from ...schemas.events.facts import FactAsserted, FactEnded, FactEntity, FactVerified
from ...schemas.events.payload import ControlPayload
from ...schemas.facts import MAX_ENTITIES, MAX_FACTS, SECOND_MS, entity_id, second_of
from ...schemas.ids import derived_id
from ...schemas.ports import Published
from ...schemas.rules.palace.classifier import room_of
from ...schemas.rules.palace.exchanges import turns_in
from ...schemas.rules.palace.upkeep import DIARY
from ..prompts.drawers import Understood
from ..reacting.control_facts import encode_control
from .palace_classify_reads import Graph, OpenFact, Triple, Waiting
from .palace_filing import ADDED_BY

ENDED_BY_AGENTS: Final = frozenset({ActorType.AGENT.value, ActorType.SYSTEM.value})
"""Authors whose facts an agent or a reactor may end; those of an OWNER or ADMIN only they end."""
_VERSION: Final = 1


class PalaceRecord:
    """Publishes for one reactor.

    Args:
        publish: Publishes a fact; returns after the ack.
        name: The reactor's name, from which ids are derived.
        reactor: ``name@version``.
        counts: Where ``facts_left_out`` is counted.
    """

    def __init__(
        self,
        publish: Callable[[OutgoingMessage], Awaitable[Published]],
        name: str,
        reactor: str,
        counts: Counter[str],
    ) -> None:
        self._publish = publish
        self._name = name
        self._reactor = reactor
        self._counts = counts

    async def settled(self, workspace_id: str, drawer: Waiting) -> None:
        """The type from the word lists is final."""
        payload = DrawerClassified(
            drawer_id=drawer.drawer_id,
            memory_type=drawer.memory_type,
            importance=drawer.importance,
            pipeline_tier=PipelineTier.HEURISTIC,
        )
        await self._decide(workspace_id, drawer, payload, "settled", f"{drawer.drawer_id} stays {drawer.memory_type}")

    async def classified(self, workspace_id: str, drawer: Waiting, answer: Understood, graph: Graph) -> None:
        """A model classified a drawer; if the type was decided before, only the entities count."""
        triples = await self._facts(workspace_id, drawer, answer, graph)
        linked = DrawerLinked(drawer_id=drawer.drawer_id, entity_count=answer.entities, triple_count=triples)
        await self.linked(workspace_id, drawer, linked)
        if not drawer.raw:
            return
        diary = drawer.memory_type == DIARY
        memory_type = drawer.memory_type if diary else answer.memory_type
        payload = DrawerClassified(
            drawer_id=drawer.drawer_id,
            memory_type=memory_type,
            importance=drawer.importance if diary else answer.importance,
            pipeline_tier=PipelineTier.LLM,
            summary=answer.summary,
            room=room_of(memory_type) if drawer.added_by == ADDED_BY else None,
        )
        await self._decide(
            workspace_id, drawer, payload, "classified", f"{drawer.drawer_id} is classified as {memory_type}"
        )

    async def linked(self, workspace_id: str, drawer: Waiting, payload: DrawerLinked | None = None) -> None:
        """A model looked for a drawer's entities."""
        payload = payload or DrawerLinked(drawer_id=drawer.drawer_id)
        await self._decide(
            workspace_id, drawer, payload, "linked", f"{payload.entity_count} entities in {drawer.drawer_id}"
        )

    async def rejected(self, workspace_id: str, drawers: Sequence[Waiting], *, alone: bool) -> None:
        """An answer about drawers could not be used."""
        first = drawers[0]
        payload = DrawerAnswerRejected(drawer_ids=tuple(drawer.drawer_id for drawer in drawers), alone=alone)
        name = f"rejected/{first.since_seq}/{len(drawers)}/{first.rejected}/{alone}"
        await self._decide(
            workspace_id, first, payload, name, f"An answer about {len(drawers)} drawers could not be used"
        )

    async def superseded(self, workspace_id: str, cause: Waiting, older: str, newer: str, until_ms: int) -> None:
        """A newer drawer contradicts an older one, which held until a time."""
        payload = DrawerSuperseded(drawer_id=older, superseded_by=newer, until_ms=until_ms)
        await self._decide(workspace_id, cause, payload, f"superseded/{older}/{newer}", f"{newer} supersedes {older}")

    async def merged(self, workspace_id: str, into: Waiting, drawer_ids: Sequence[str], summary: str) -> None:
        """Drawers are merged into a newer one that says the same."""
        payload = DrawerMerged(into=into.drawer_id, drawer_ids=tuple(drawer_ids), summary=summary)
        name = f"merged/{'/'.join(sorted(drawer_ids))}"
        await self._decide(
            workspace_id, into, payload, name, f"{len(drawer_ids)} drawers are merged into {into.drawer_id}"
        )

    async def _facts(self, workspace_id: str, drawer: Waiting, answer: Understood, graph: Graph) -> int:
        """Assert statements that are new; returns how many of the statements the graph then has."""
        count = 0
        for statement in answer.statements:
            triple = (entity_id(statement.subject), statement.predicate, entity_id(statement.object))
            ends = {triple[0], triple[2]}
            if (known := graph.open.get(triple)) is not None:
                count += 1
                await self._stated_again(workspace_id, drawer, known)
                continue
            if graph.facts >= MAX_FACTS or len(graph.entities.keys() | ends) > MAX_ENTITIES:
                self._counts["facts_left_out"] += 1
                continue
            fact_id = derived_id(self._name, _VERSION, f"{workspace_id}/{drawer.entry_id}", "/".join(triple))
            until_ms = await self._end_rivals(workspace_id, drawer, triple, graph)
            payload = FactAsserted(
                fact_id=fact_id,
                subject=FactEntity(entity_id=triple[0], name=statement.subject, type=statement.subject_type),
                predicate=statement.predicate,
                object=FactEntity(entity_id=triple[2], name=statement.object, type=statement.object_type),
                valid_from=second_of(drawer.filed_ms),
                valid_to=None if until_ms is None else second_of(until_ms),
                source_drawer_id=drawer.drawer_id,
                source_entry_id=drawer.entry_id,
            )
            text = f"{statement.subject} {statement.predicate} {statement.object}"
            await self._decide(workspace_id, drawer, payload, f"fact/{'/'.join(triple)}", text)
            if until_ms is None:
                graph.open[triple] = OpenFact(fact_id, drawer.filed_ms, ActorType.SYSTEM.value, drawer.drawer_id)
            for end, name in ((triple[0], statement.subject), (triple[2], statement.object)):
                graph.entities.setdefault(end, name)
            graph.facts += 1
            count += 1
        return count

    async def _end_rivals(self, workspace_id: str, drawer: Waiting, triple: Triple, graph: Graph) -> int | None:
        """End the facts that a newer statement replaces; returns the end of the statement itself if it is the older one.

        What an OWNER or ADMIN asserted stays.
        """
        ended, until_ms = [], None
        for rival in graph.rivals(triple, "\n".join(turns_in(drawer.content))):
            known = graph.open[rival]
            if known.from_ms is not None and known.from_ms > drawer.filed_ms:
                until_ms = min(until_ms or known.from_ms, known.from_ms)
            elif known.asserted_by in ENDED_BY_AGENTS:
                ended.append(rival)
        if ended and until_ms is None:
            former = [graph.open.pop(rival) for rival in ended]
            facts = tuple(fact.fact_id for fact in former)
            last_ms = max(drawer.filed_ms - SECOND_MS, *(fact.from_ms or 0 for fact in former))
            payload = FactEnded(
                fact_ids=facts, ended=second_of(last_ms), reason=f"{drawer.drawer_id} states another value"
            )
            await self._decide(workspace_id, drawer, payload, f"ended/{'/'.join(triple)}", f"{len(facts)} facts end")
        return None if until_ms is None else max(until_ms - SECOND_MS, drawer.filed_ms)

    async def _stated_again(self, workspace_id: str, drawer: Waiting, known: OpenFact) -> None:
        """A later drawer states a fact once more: it is the fact's source from now on, so that it outlives the first one."""
        later = known.from_ms is None or known.from_ms <= drawer.filed_ms
        if known.asserted_by == ActorType.SYSTEM.value and known.drawer_id != drawer.drawer_id and later:
            payload = FactVerified(fact_id=known.fact_id, source_drawer_id=drawer.drawer_id)
            await self._decide(
                workspace_id, drawer, payload, f"again/{known.fact_id}", f"{known.fact_id} is stated again"
            )

    async def _decide(
        self, workspace_id: str, drawer: Waiting, payload: ControlPayload, name: str, summary: str
    ) -> None:
        fact = encode_control(
            workspace_id,
            payload,
            fact_id=derived_id(self._name, _VERSION, f"{workspace_id}/{drawer.entry_id}", f"entry/{name}"),
            cause=drawer.entry_id,
            reactor=self._reactor,
            summary=summary[:MAX_SUMMARY],
        )
        await self._publish(fact)
