"""Refreshes the models of operators once a day from statements about themselves in their own turns.

Invariant: only facts with a quote from the person's own turns are stored; a turn is the person's own only if it was
submitted with a token that speaks for the person. A fact stays if new turns do not mention its key. If a person has not
opted in, no turn is read and nothing is published; the same applies to all people while the node's key differs from the
journal's. The published events depend on the tick alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from ...schemas.core.errors import Unavailable
from ...schemas.core.ports import ViewReader
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import DAY_MS
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION
from ...schemas.models.chat import ChatError
from ...schemas.operators.events import OperatorForgotten, OperatorProfileUpdated, StatedFact
from ...schemas.operators.rules import (
    ALL_KEYS,
    KEY_CHANGED,
    KEY_CHANGED_FIX,
    WINDOW_DAYS,
    OwnTurn,
    Proposed,
    changes_in,
    current,
    facts_of,
    is_eligible,
    key_id,
    merged,
    proposed_facts,
    remembered,
    slug_of,
    stated,
    subject_hash,
)
from ...schemas.operators.tables import (
    OPERATOR_CONSENTS,
    OPERATOR_FORGOTTEN,
    OPERATOR_KEY,
    OPERATOR_NAMES,
    OPERATOR_PROFILES,
    OPERATOR_TURNS,
    OPERATORS_PROJECTION,
)
from ...schemas.standing.tables import RETRACTIONS, STANDINGS_PROJECTION
from ...schemas.sweeps.rules import OPERATORS, Sweep
from ..reacting.sweeping import SweepReactor, Swept, Tick
from .prompt import Facts, question

# Reads the data for a sweep of operator models: the people who talked, their turns, the known facts about them;
# blocking.


PEOPLE_MAX: Final = 1_000
"""Maximum people of one sweep, the most recent speakers; others are read by the next sweep when they speak again."""
TURNS_MAX: Final = 500
"""Maximum number of a person's newest turns: 10 MB at 20,000 characters each."""
_TURNS: Final = f"""{ENTRIES} e JOIN {OPERATOR_TURNS} own ON own.workspace_id = e.workspace_id AND own.seq = e.seq
    WHERE e.workspace_id = $workspace AND e.seq < $seq AND e.ts_ms > $since AND e.ts_ms <= $due
    AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} r WHERE r.workspace_id = e.workspace_id AND r.kind = 'entry'
        AND r.target_id = e.id AND r.{PRESENT})"""
_PEOPLE: Final = f"""WITH turns AS (SELECT own.person, {{agent}} AS agent, e.actor_id, e.crew_id, e.trace_id, e.seq, e.ts_ms,
        e.published_ms FROM {_TURNS}),
    sessions AS (SELECT person, agent, trace_id, max(ts_ms) - min(ts_ms) AS span FROM turns WHERE trace_id IS NOT NULL
        GROUP BY ALL),
    spans AS (SELECT person, agent, sum(span)::BIGINT AS span FROM sessions GROUP BY ALL)
    SELECT t.person, t.agent, arg_max(t.actor_id, t.seq), mode(t.crew_id ORDER BY t.crew_id), count(*),
        coalesce(any_value(s.span), 0)
    FROM turns t LEFT JOIN spans s ON s.person = t.person AND s.agent IS NOT DISTINCT FROM t.agent
    GROUP BY t.person, t.agent HAVING max(greatest(t.ts_ms, t.published_ms)) > $new ORDER BY max(t.seq) DESC"""
_OF_PERSON: Final = f"""SELECT e.id, e.seq, e.summary, e.payload ->> '$.text' FROM {_TURNS}
    AND own.person IN (SELECT unnest($names::VARCHAR[])) AND ($agent IS NULL OR e.agent_id = $agent) AND e.seq > $after
    ORDER BY e.seq DESC LIMIT {TURNS_MAX}"""
_FACTS: Final = f"""SELECT facts FROM {OPERATOR_PROFILES} WHERE workspace_id = $1 AND slug = $2
    AND agent_id IS NOT DISTINCT FROM $3 AND {PRESENT}"""
_CONSENT: Final = f"SELECT granted FROM {OPERATOR_CONSENTS} WHERE workspace_id = $1 AND slug = $2"
_FORGOTTEN: Final = f"SELECT key, seq FROM {OPERATOR_FORGOTTEN} WHERE workspace_id = $1 AND slug = $2"


_NAMES: Final = f"SELECT slug, person_hash FROM {OPERATOR_NAMES} WHERE workspace_id = ?"
_KEY: Final = f"SELECT key_id FROM {OPERATOR_KEY}"


@dataclass(frozen=True, slots=True)
class Talker:
    """A person who talked.

    Attributes:
        hashed: The keyed hash that names the person.
        names: The names under which the person talked, normalised by ``schemas/core/grants.person_of``.
        user: The name of the last turn, as it was submitted.
        agent_id: The agent they talked with; None for all.
        crew_id: The crew of most turns.
        messages: Number of turns.
        session_ms: Total time in milliseconds.
    """

    hashed: str
    names: tuple[str, ...]
    user: str
    agent_id: str | None
    crew_id: str | None
    messages: int
    session_ms: int


@dataclass(frozen=True, slots=True)
class KnownPerson:
    """The data about a person in the views; ``forgotten`` as in ``schemas/operators/rules.remembered``.

    Attributes:
        consent: Whether the person opted in (True) or out (False); None if the person has not decided.
    """

    consent: bool | None
    facts: tuple[StatedFact, ...]
    forgotten: dict[str, int]


def key_in_use(views: ViewReader) -> str | None:
    """The id of the key with which the journal hashes people's names; None if it names no person yet."""
    rows = views.rows(_KEY)
    return rows[0][0] if rows else None


def people_of(views: ViewReader, tick: Tick, key: bytes, *, of_agents: bool) -> list[Talker]:
    """The people with a turn in the day before the tick, by person, or by person and agent; the most recent speaker first.

    Args:
        views: The views.
        tick: The sweep.
        key: The key of the hash that names people.
        of_agents: Whether a person is counted once with each agent.
    """
    agent = "e.agent_id" if of_agents else "NULL::VARCHAR"
    params = {**_window(tick), "new": tick.due_ms - DAY_MS}
    further = dict(views.rows(_NAMES, [tick.workspace_id]))
    people: dict[tuple[str, str | None], Talker] = {}
    for name, agent_id, user, crew_id, messages, session_ms in views.rows(_PEOPLE.format(agent=agent), params):
        if agent_id is None and of_agents:
            continue
        hashed = subject_hash(key, tick.workspace_id, name)
        hashed = further.get(slug_of(hashed), hashed)
        hashed_and_agent = hashed, agent_id
        known = people.get(hashed_and_agent)
        people[hashed_and_agent] = (
            Talker(hashed, (name,), user, agent_id, crew_id, messages, session_ms)
            if known is None
            else replace(
                known,
                names=(*known.names, name),
                crew_id=known.crew_id if known.messages >= messages else crew_id,
                messages=known.messages + messages,
                session_ms=known.session_ms + session_ms,
            )
        )
    return list(people.values())


def turns_of(views: ViewReader, tick: Tick, person: Talker, after: int) -> list[OwnTurn]:
    """The person's newest turns after a sequence, in stream order."""
    params = {"names": list(person.names), "agent": person.agent_id, "after": after}
    rows = views.rows(_OF_PERSON, {**_window(tick), **params})
    return [OwnTurn(entry_id, seq, text or summary) for entry_id, seq, summary, text in reversed(rows)]


def known_of(views: ViewReader, tick: Tick, slug: str, agent_id: str | None) -> KnownPerson:
    """The known data about a person."""
    of_person = [tick.workspace_id, slug]
    facts = views.rows(_FACTS, [*of_person, agent_id])
    consent = views.rows(_CONSENT, of_person)
    return KnownPerson(
        consent=bool(consent[0][0]) if consent else None,
        facts=facts_of(facts[0][0]) if facts else (),
        forgotten=dict(views.rows(_FORGOTTEN, of_person)),
    )


def _window(tick: Tick) -> dict[str, str | int]:
    return {
        "workspace": tick.workspace_id,
        "seq": tick.seq,
        "since": tick.due_ms - WINDOW_DAYS * DAY_MS,
        "due": tick.due_ms,
    }


REFUSALS: Final = ("key", "value", "quote", "injection", "secret")


class OperatorsReactor(SweepReactor):
    """Consumes ``sweep.ticked`` of the models of operators.

    Without ``chat``, or when it gives no answer, rules propose facts.
    """

    name: ClassVar[str] = "operators"
    version: ClassVar[int] = 1
    sweep: ClassVar[Sweep] = OPERATORS
    needs: ClassVar[tuple[str, ...]] = (ENTRIES_PROJECTION, STANDINGS_PROJECTION, OPERATORS_PROJECTION)
    of_agents: ClassVar[bool] = False
    """Whether each agent has a separate card of a person."""
    uses_chat = True

    async def work(self, tick: Tick) -> Swept:
        """Process each person with a new turn; counts proposed and refused facts, and written profiles.

        Raises:
            Unavailable: If the journal uses another key.
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
            await self._publish(tick, person, facts) if facts else await self._withdraw(tick, person, known)
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
        return current(merged(known.facts, remembered(new, known.forgotten)), changes_in(turns))

    async def _propose(
        self, tick: Tick, person: Talker, turns: Sequence[OwnTurn], counts: dict[str, int]
    ) -> list[Proposed]:
        """The facts that the chat model proposes; without a model or after its failure, facts found by rules."""
        if self._chat is not None:
            try:
                answer = await self._chat.complete(
                    tick.workspace_id, self.sweep.name, question(turns), Facts, crew_id=person.crew_id
                )
            except ChatError:
                counts["model_failed"] += 1
            else:
                return answer.proposed()
        return await asyncio.to_thread(lambda: list(proposed_facts(turns)))

    async def _withdraw(self, tick: Tick, person: Talker, known: KnownPerson) -> None:
        """Record that nothing of a person's model or card holds any more."""
        for key in sorted({fact.key for fact in known.facts}):
            await self.record_of(
                tick,
                OperatorForgotten.model_validate({"subject_hash": person.hashed, "key": key}),
                f"withdrawn/{person.agent_id}/{person.hashed}/{key}",
                f"{slug_of(person.hashed)} withdrew {key}",
                ts_ms=tick.due_ms,
            )

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
        await self.record_of(
            tick,
            payload,
            f"{subject}/{person.hashed}",
            f"{subject} of {slug_of(person.hashed)}: {', '.join(fact.key for fact in facts)}",
            ts_ms=tick.due_ms,
            crew_id=person.crew_id,
            data_subject_id=person.user,
            refs={"derived_from": list(dict.fromkeys([tick.entry_id, *(fact.entry_id for fact in facts)]))},
        )


REACTORS: Final = {"operators": OperatorsReactor.create}
