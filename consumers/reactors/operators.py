"""Refreshes the models of operators once a day from statements about themselves in their own turns.

Invariant: only facts with a quote from the person's own turns are stored, and only turns that a token which speaks for the
person submitted are theirs; a key that the turns do not mention keeps its fact; of a person who has not opted in, no turn is
read and nothing published, nor of anyone while the key that names people is another than the journal's. What is published
depends on the tick alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Final

from ...schemas.chat import ChatError
from ...schemas.errors import Unavailable
from ...schemas.events.operators import OperatorProfileUpdated, StatedFact
from ...schemas.ids import derived_id
from ...schemas.rules.operator_facts import proposed_facts
from ...schemas.rules.operators import (
    ALL_KEYS,
    KEY_CHANGED,
    KEY_CHANGED_FIX,
    OwnTurn,
    Proposed,
    is_eligible,
    key_id,
    merged,
    remembered,
    slug_of,
    stated,
)
from ...schemas.views import ENTRIES_PROJECTION, STANDINGS_PROJECTION
from ...schemas.views.operators import OPERATORS_PROJECTION
from ..prompts.operator_facts import Facts, question
from ..reacting.control_facts import encode_control
from ..reacting.sweeping import SweepReactor, Swept, Tick
from .operators_reads import PEOPLE_MAX, KnownPerson, Talker, key_in_use, known_of, people_of, turns_of

REFUSALS: Final = ("key", "value", "quote", "injection", "secret")


class OperatorsReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the models of operators.

    Without ``chat``, or when it gives no answer, rules propose facts.
    """

    name: ClassVar[str] = "operators"
    version: ClassVar[int] = 1
    sweep: ClassVar[str] = "operators"
    needs: ClassVar[tuple[str, ...]] = (ENTRIES_PROJECTION, STANDINGS_PROJECTION, OPERATORS_PROJECTION)
    of_agents: ClassVar[bool] = False
    """Whether each agent has a card of its own of a person."""
    uses_chat = True

    async def work(self, tick: Tick) -> Swept:
        """Look at each person with a new turn; counts facts proposed and refused, and profiles written.

        Raises:
            Unavailable: If the journal names people by another key.
        """
        counts = dict.fromkeys(
            (
                "people",
                "below_threshold",
                "no_consent",
                "opted_out",
                "unchanged",
                "written",
                "proposed",
                "model_failed",
            ),
            0,
        )
        counts |= {f"refused_{why}": 0 for why in REFUSALS}
        key = self._context.subject_key
        if await asyncio.to_thread(key_in_use, self._views) not in (None, key_id(key)):
            raise Unavailable(KEY_CHANGED, hint=KEY_CHANGED_FIX)
        people = await asyncio.to_thread(people_of, self._views, tick, key, of_agents=self.of_agents)
        for person in people[:PEOPLE_MAX]:
            counts["people"] += 1
            known = await asyncio.to_thread(known_of, self._views, tick, slug_of(person.hashed), person.agent_id)
            if known.consent is not True:
                counts["no_consent" if known.consent is None else "opted_out"] += 1
                continue
            if not is_eligible(person.messages, person.session_ms):
                counts["below_threshold"] += 1
                continue
            facts = await self._facts(tick, person, known, counts)
            if facts == known.facts:
                counts["unchanged"] += 1
                continue
            await self._publish(tick, person, facts)
            counts["written"] += 1
        counts["people_left"] = max(0, len(people) - PEOPLE_MAX)
        return Swept(counts)

    async def _facts(
        self, tick: Tick, person: Talker, known: KnownPerson, counts: dict[str, int]
    ) -> tuple[StatedFact, ...]:
        after = known.forgotten.get(ALL_KEYS, 0)
        turns = await asyncio.to_thread(turns_of, self._views, tick, person, after)
        proposed = await self._propose(tick, person, turns, counts)
        outcomes = [stated(proposal, turns) for proposal in proposed]
        counts["proposed"] += len(outcomes)
        for why in outcomes:
            if isinstance(why, str):
                counts[f"refused_{why}"] += 1
        new = sorted((fact for fact in outcomes if isinstance(fact, StatedFact)), key=lambda fact: fact.seq)
        return merged(known.facts, remembered(new, known.forgotten))

    async def _propose(
        self, tick: Tick, person: Talker, turns: Sequence[OwnTurn], counts: dict[str, int]
    ) -> list[Proposed]:
        """The facts that the chat model proposes; those that rules find if there is no model or it fails."""
        if self._chat is not None:
            try:
                answer = await self._chat.complete(
                    tick.workspace_id, self.sweep, question(turns), Facts, crew_id=person.crew_id
                )
            except ChatError:
                counts["model_failed"] += 1
            else:
                return answer.proposed()
        return await asyncio.to_thread(lambda: list(proposed_facts(turns)))

    async def _publish(self, tick: Tick, person: Talker, facts: tuple[StatedFact, ...]) -> None:
        payload = OperatorProfileUpdated(
            subject_hash=person.hashed,
            agent_id=person.agent_id,
            crew_id=person.crew_id,
            facts=facts,
            messages=person.messages,
            model=None if self._chat is None else self._chat.model_id,
        )
        subject = f"card of agent {person.agent_id}" if person.agent_id is not None else "operator model"
        fact = encode_control(
            tick.workspace_id,
            payload,
            fact_id=derived_id(
                self.name, self.version, f"{tick.workspace_id}/{tick.entry_id}", f"{subject}/{person.hashed}"
            ),
            cause=tick.entry_id,
            reactor=self.identity,
            summary=f"{subject} of {slug_of(person.hashed)}: {', '.join(fact.key for fact in facts)}",
            ts_ms=tick.due_ms,
            crew_id=person.crew_id,
            data_subject_id=person.user,
            refs={"derived_from": list(dict.fromkeys([tick.entry_id, *(fact.entry_id for fact in facts)]))},
        )
        await self.publish(fact)


REACTOR: Final = OperatorsReactor.create
