"""Reads for a sweep of operator models: the people who talked, their turns, the known facts about them; blocking.

Invariant: as of the tick, so a repeated sweep reads the same. Only the people's own turns are read (``chat.user_message``
whose actor is a named user), without retracted ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...schemas.events.operators import StatedFact
from ...schemas.ports import ViewReader
from ...schemas.rules.actors import USER_MESSAGE
from ...schemas.rules.operators import WINDOW_DAYS, OwnTurn, facts_of
from ...schemas.rules.turns import USER_NAMES
from ...schemas.timestamps import DAY_MS
from ...schemas.views import ENTRIES, RETRACTIONS
from ...schemas.views.operators import OPERATOR_CONSENTS, OPERATOR_FORGOTTEN, OPERATOR_PROFILES
from ...schemas.views.table import PRESENT
from ..reacting.sweeping import Tick

PEOPLE_MAX: Final = 1_000
"""People of one sweep, those who spoke last; the next sweep reads those who speak again."""
TURNS_MAX: Final = 500
"""Newest turns of a person that are read: at 20,000 characters each, 10 MB."""
_TURNS: Final = f"""{ENTRIES} e WHERE e.workspace_id = $workspace AND e.seq < $seq AND e.entry_type = '{USER_MESSAGE}'
    AND e.actor_type = 'user' AND e.actor_id IS NOT NULL AND lower(e.actor_id) NOT IN
        ({", ".join(f"'{name}'" for name in sorted(USER_NAMES))})
    AND e.ts_ms > $since AND e.ts_ms <= $due
    AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} r WHERE r.workspace_id = e.workspace_id AND r.kind = 'entry'
        AND r.target_id = e.id AND r.{PRESENT})"""
_PEOPLE: Final = f"""WITH turns AS (SELECT e.actor_id, {{agent}} AS agent, e.crew_id, e.trace_id, e.seq, e.ts_ms,
        e.published_ms FROM {_TURNS}),
    sessions AS (SELECT actor_id, agent, trace_id, max(ts_ms) - min(ts_ms) AS span FROM turns WHERE trace_id IS NOT NULL
        GROUP BY ALL),
    spans AS (SELECT actor_id, agent, sum(span)::BIGINT AS span FROM sessions GROUP BY ALL)
    SELECT t.actor_id, t.agent, mode(t.crew_id ORDER BY t.crew_id), count(*), coalesce(any_value(s.span), 0)
    FROM turns t LEFT JOIN spans s ON s.actor_id = t.actor_id AND s.agent IS NOT DISTINCT FROM t.agent
    GROUP BY t.actor_id, t.agent HAVING max(greatest(t.ts_ms, t.published_ms)) > $new ORDER BY max(t.seq) DESC"""
_OF_PERSON: Final = f"""SELECT e.id, e.seq, e.summary, e.payload ->> '$.text' FROM {_TURNS}
    AND e.actor_id = $user AND ($agent IS NULL OR e.agent_id = $agent) ORDER BY e.seq DESC LIMIT {TURNS_MAX}"""
_FACTS: Final = f"""SELECT facts FROM {OPERATOR_PROFILES} WHERE workspace_id = $1 AND slug = $2
    AND agent_id IS NOT DISTINCT FROM $3 AND {PRESENT}"""
_CONSENT: Final = f"SELECT granted FROM {OPERATOR_CONSENTS} WHERE workspace_id = $1 AND slug = $2"
_FORGOTTEN: Final = f"SELECT key, seq FROM {OPERATOR_FORGOTTEN} WHERE workspace_id = $1 AND slug = $2"


@dataclass(frozen=True, slots=True)
class Person:
    """Who talked: with which agent (None: with all), mostly in which crew, how many turns, and how long, in ms."""

    user: str
    agent_id: str | None
    crew_id: str | None
    messages: int
    session_ms: int


@dataclass(frozen=True, slots=True)
class Known:
    """What the views hold of a person; ``forgotten`` as in ``rules/operators.remembered``."""

    opted_out: bool
    facts: tuple[StatedFact, ...]
    forgotten: dict[str, int]


def people_of(views: ViewReader, tick: Tick, *, of_agents: bool) -> list[Person]:
    """The people with a turn in the day before the tick, by person, or by person and agent; the last to speak first."""
    agent = "e.agent_id" if of_agents else "NULL::VARCHAR"
    named = {**_window(tick), "new": tick.due_ms - DAY_MS}
    found = [Person(*row) for row in views.rows(_PEOPLE.format(agent=agent), named)]
    return [one for one in found if one.agent_id is not None or not of_agents]


def turns_of(views: ViewReader, tick: Tick, person: Person) -> list[OwnTurn]:
    """The person's newest turns, in stream order."""
    rows = views.rows(_OF_PERSON, {**_window(tick), "user": person.user, "agent": person.agent_id})
    return [OwnTurn(entry_id, seq, text or summary) for entry_id, seq, summary, text in reversed(rows)]


def known_of(views: ViewReader, tick: Tick, slug: str, agent_id: str | None) -> Known:
    """What is known of a person."""
    of_person = [tick.workspace_id, slug]
    facts = views.rows(_FACTS, [*of_person, agent_id])
    consent = views.rows(_CONSENT, of_person)
    return Known(
        opted_out=bool(consent) and not consent[0][0],
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
