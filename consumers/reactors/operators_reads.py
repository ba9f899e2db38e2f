"""Reads for a sweep of operator models: the people who talked, their turns, the known facts about them; blocking.

Invariant: as of the tick, so a repeated sweep reads the same. Only the people's own turns are read (``operator_turns``: a
token that speaks for the person submitted them), without retracted ones; what an agent reports is not read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ...schemas.events.operators import StatedFact
from ...schemas.ports import ViewReader
from ...schemas.rules.operators import WINDOW_DAYS, OwnTurn, facts_of, slug_of, subject_hash
from ...schemas.timestamps import DAY_MS
from ...schemas.views import ENTRIES, RETRACTIONS
from ...schemas.views.operators import (
    OPERATOR_CONSENTS,
    OPERATOR_FORGOTTEN,
    OPERATOR_KEY,
    OPERATOR_NAMES,
    OPERATOR_PROFILES,
    OPERATOR_TURNS,
)
from ...schemas.views.table import PRESENT
from ..reacting.sweeping import Tick

PEOPLE_MAX: Final = 1_000
"""People of one sweep, those who spoke last; the next sweep reads those who speak again."""
TURNS_MAX: Final = 500
"""Newest turns of a person that are read: at 20,000 characters each, 10 MB."""
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
        names: The names under which the person talked, as ``persons.person_of`` writes them.
        user: The name of the last turn, as it was submitted.
        agent_id: The agent they talked with; None for all.
        crew_id: The crew of most turns.
        messages: How many turns.
        session_ms: How long in all, milliseconds.
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
    """What the views hold of a person; ``forgotten`` as in ``rules/operators.remembered``.

    Attributes:
        consent: Whether the person opted in (True) or out (False); None if they did neither.
    """

    consent: bool | None
    facts: tuple[StatedFact, ...]
    forgotten: dict[str, int]


def key_in_use(views: ViewReader) -> str | None:
    """The id of the key by which the journal names people; None if it names none yet."""
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
    """What is known of a person."""
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
