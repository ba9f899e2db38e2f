"""Reads rules, lessons, operator models, peer cards and consent from the views; blocking.

Invariant: retracted rules and lessons are left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import is_publisher
from ...schemas.core.table import PRESENT
from ...schemas.documents.rules import Scope, owner_of
from ...schemas.learning.agreement import MIN_DAYS
from ...schemas.learning.lessons import (
    MISSION_OUTCOME,
    OUTCOMES_SHOWN,
    RULES_SHOWN,
    LearnedRule,
    Lesson,
    kept,
    outcomes_shown,
    rules_shown,
)
from ...schemas.learning.tables import (
    LESSONS,
    PROPOSAL_DECISIONS,
    PROPOSALS,
    RULE_MARKS,
    RULE_STATES,
    RULES,
    ProposalRow,
    RuleRow,
)
from ...schemas.operators.rules import as_markdown, facts_of, slug_of
from ...schemas.operators.tables import (
    OPERATOR_CONSENTS,
    OPERATOR_KEY,
    OPERATOR_NAMES,
    OPERATOR_PROFILES,
    OPERATOR_TURNS,
    OperatorConsentRow,
    OperatorProfileRow,
)
from ...schemas.standing.tables import RETRACTIONS
from ..kept import KeptValues, in_thread

RULES_LISTED: Final = 500


def _counts(column: str) -> str:
    """The condition that the entry named in ``column`` is not retracted."""
    return f"""NOT EXISTS (SELECT 1 FROM {RETRACTIONS} WHERE workspace_id = r.workspace_id AND kind = 'entry'
        AND target_id = r.{column} AND {PRESENT})"""


_WAITING: Final = f"""SELECT {PROPOSALS.names} FROM {PROPOSALS} r
    WHERE workspace_id = $workspace AND crew_id = $crew AND skill_of IS NULL
    AND days >= {MIN_DAYS} AND json_array_length(publishers) = 1
    AND coalesce((SELECT arg_max(d.decision, d.seq) FROM {PROPOSAL_DECISIONS} d WHERE d.workspace_id = r.workspace_id
        AND d.proposal_id = r.proposal_id), '') <> 'rejected'
    AND NOT EXISTS (SELECT 1 FROM {RULES} l WHERE l.workspace_id = r.workspace_id
        AND r.proposal_id IN (l.proposal_id, l.settles))
    AND {_counts("proposal_id")} ORDER BY seq DESC LIMIT {RULES_LISTED}"""
"""Selects pending proposals of one publisher."""


class Learned:
    """Reads rules and lessons.

    Args:
        views: The views.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    def rows(
        self, workspace_id: str, crew_id: str | None, *, limit: int = RULES_LISTED
    ) -> list[tuple[RuleRow, bool, str]]:
        """Rules of a crew (None for all crews), whether each is promoted, and its state.

        Evidence, days and authors follow what was found since. Contradicted and expired rules are left out. Promoted rules
        come first, then the newest.
        """
        columns = ", ".join(
            f"coalesce(state.{name}, r.{name}) AS {name}"
            if name in ("evidence", "occurrences", "days", "publishers")
            else f"CASE WHEN state.state = 'confirmed' THEN state.authors ELSE r.authors END AS {name}"
            if name == "authors"
            else f"r.{name}"
            for name in RuleRow._fields
        )
        sql = f"""WITH state AS (SELECT * FROM {RULE_STATES} WHERE workspace_id = $workspace
                QUALIFY row_number() OVER (PARTITION BY rule_id ORDER BY seq DESC) = 1)
            SELECT {columns}, EXISTS (SELECT 1 FROM {RULE_MARKS} m WHERE m.workspace_id = r.workspace_id
                AND m.rule_id = r.rule_id AND m.mark = 'promoted') AS promoted,
                coalesce(state.state, 'learned') AS state
            FROM {RULES} r LEFT JOIN state ON state.rule_id = r.rule_id
            WHERE coalesce(state.state, '') NOT IN ('contradicted', 'expired')
            AND r.workspace_id = $workspace AND ($crew IS NULL OR r.crew_id = $crew)
            AND {_counts("rule_id")} ORDER BY promoted DESC, r.seq DESC LIMIT $limit"""
        params = {"workspace": workspace_id, "crew": crew_id, "limit": limit}
        return [(RuleRow(*row), promoted, state) for *row, promoted, state in self._views.rows(sql, params)]

    def rules(self, workspace_id: str, crew_id: str) -> list[LearnedRule]:
        """The rules of a crew for a prompt; each publisher has a share of them."""
        learned_rules = [
            LearnedRule(
                rule_id=row.rule_id,
                pattern=row.pattern,
                action=row.action,
                confidence=row.confidence,
                occurrences=row.occurrences,
                days=row.days,
                promoted=promoted,
                finding=row.finding,
                authors=tuple(json.loads(row.authors)),
                publishers=tuple(json.loads(row.publishers)),
                reviewed=row.proposal_id is not None,
                disputed=state == "disputed",
                unhelpful=state == "unhelpful",
            )
            for row, promoted, state in self.rows(workspace_id, crew_id)
        ]
        return rules_shown(learned_rules, RULES_SHOWN)

    def waiting(self, workspace_id: str, crew_id: str) -> list[LearnedRule]:
        """Pending rules that a single agent of a crew reported on two days; the newest first.

        Each is only for the prompts of the agent that reported it.
        """
        params = {"workspace": workspace_id, "crew": crew_id}
        return [
            LearnedRule(
                rule_id=row.proposal_id,
                pattern=row.pattern,
                action=row.action,
                confidence=row.confidence,
                occurrences=len(json.loads(row.evidence)),
                days=row.days,
                promoted=False,
                finding=row.finding,
                authors=tuple(json.loads(row.authors)),
                publishers=tuple(json.loads(row.publishers)),
            )
            for row in (ProposalRow(*row) for row in self._views.rows(_WAITING, params))
        ]

    def lesson_owners(self, workspace_id: str) -> list[str]:
        """The agents and crews that have lessons."""
        sql = f"SELECT DISTINCT owner FROM {LESSONS} WHERE workspace_id = $1 ORDER BY owner"
        return [owner for (owner,) in self._views.rows(sql, [workspace_id])]

    def lessons(self, workspace_id: str, owner: str) -> list[Lesson]:
        """The lessons of an owner, in the order in which they were first recorded."""
        return kept(self._recorded(workspace_id, owner, f"source <> '{MISSION_OUTCOME}'"))

    def outcomes(self, workspace_id: str, owner: str) -> list[Lesson]:
        """The last outcomes of missions, the newest first; each publisher has a share of them."""
        return outcomes_shown(self._recorded(workspace_id, owner, f"source = '{MISSION_OUTCOME}'"), OUTCOMES_SHOWN)

    def _recorded(self, workspace_id: str, owner: str, which: str) -> list[Lesson]:
        sql = f"""SELECT lesson_id, kind, captured_ms, source, rule, context, finding, author, publisher,
                entry_id FROM (
                SELECT *, min(seq) OVER (PARTITION BY lesson_id) AS first_seq FROM {LESSONS} r
                WHERE workspace_id = $workspace AND owner = $owner AND {which}
                AND {_counts("entry_id")}
                QUALIFY row_number() OVER (PARTITION BY lesson_id ORDER BY seq DESC) = 1)
            ORDER BY first_seq"""
        params = {"workspace": workspace_id, "owner": owner}
        return [Lesson(*row) for row in self._views.rows(sql, params)]


# A cache of what crews have learned, for prompts: two queries would take most of the time of a block.


KEPT: Final = 1_000
"""Maximum number of cached crews, about 10 KB each."""
_TABLES: Final = (LESSONS, PROPOSAL_DECISIONS, PROPOSALS, RULE_MARKS, RULE_STATES, RULES, RETRACTIONS)


@dataclass(frozen=True, slots=True)
class CrewLearning:
    """What a crew has learned, for its prompts.

    Attributes:
        rules: Its rules.
        outcomes: Outcomes of missions, for a lead.
        waiting: Rules that only one agent reported, for the prompts of that agent.
        lessons: Its lessons.
    """

    rules: tuple[LearnedRule, ...] = ()
    outcomes: tuple[Lesson, ...] = ()
    waiting: tuple[LearnedRule, ...] = ()
    lessons: tuple[Lesson, ...] = ()

    def rules_for(self, agent_id: str | None) -> list[LearnedRule]:
        """The rules of the crew, and unreviewed rules that only this agent reported; at most ``RULES_SHOWN``."""
        own = [rule for rule in self.waiting if agent_id is not None and is_publisher(rule.publishers, agent_id)]
        return [*self.rules, *(replace(rule, is_own=True) for rule in own)][:RULES_SHOWN]


class PromptLearning:
    """What crews have learned.

    Args:
        views: Read once for each crew, then followed until ``close``.
    """

    def __init__(self, views: ViewReader) -> None:
        self._learned = Learned(views)
        self._kept = KeptValues(views, _TABLES, in_thread(self._read), most=KEPT)
        self._lessons = KeptValues(views, (LESSONS, RETRACTIONS), in_thread(self._read_own), most=KEPT)

    def close(self) -> None:
        """Stop following the views."""
        self._kept.close()
        self._lessons.close()

    async def of(self, workspace_id: str, crew_id: str) -> CrewLearning:
        """What a crew has learned, up to date with the views."""
        return await self._kept.of((workspace_id, crew_id))

    async def own(self, workspace_id: str, agent_id: str) -> tuple[Lesson, ...]:
        """The lessons of an agent, up to date with the views."""
        return await self._lessons.of((workspace_id, agent_id))

    def _read_own(self, agent: tuple[str, str]) -> tuple[Lesson, ...]:
        workspace_id, agent_id = agent
        return tuple(self._learned.lessons(workspace_id, owner_of(Scope.AGENT, agent_id)))

    def _read(self, crew: tuple[str, str]) -> CrewLearning:
        workspace_id, crew_id = crew
        rules = self._learned.rules(workspace_id, crew_id)
        outcomes = self._learned.outcomes(workspace_id, owner_of(Scope.CREW, crew_id))
        waiting = self._learned.waiting(workspace_id, crew_id)
        lessons = self._learned.lessons(workspace_id, owner_of(Scope.CREW, crew_id))
        return CrewLearning(tuple(rules), tuple(outcomes), tuple(waiting), tuple(lessons))


# Reads operator models, peer cards and consent from the views; blocking.


PROFILES_LISTED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Opener:
    """The person who opened a session.

    Attributes:
        user: The name as given.
        slug: The name of the person's documents.
        model: The text of the model; empty if there is none, or the caller may not read it.
        card: The text of the agent's card, likewise.
        opted_out: Whether consent was withdrawn.
        verified: Whether the caller may read what is known about the person.
        entry_ids: The entries that state the facts of model and card.
    """

    user: str
    slug: str
    model: str = ""
    card: str = ""
    opted_out: bool = False
    verified: bool = True
    entry_ids: tuple[str, ...] = ()


class Profiles:
    """Reads profiles.

    Args:
        views: The views.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    def of(self, workspace_id: str, slug: str) -> list[OperatorProfileRow]:
        """The model, then the cards by agent."""
        sql = f"""SELECT {OPERATOR_PROFILES.names} FROM {OPERATOR_PROFILES} WHERE workspace_id = ? AND slug = ?
            AND {PRESENT} ORDER BY agent_id NULLS FIRST"""
        return [OperatorProfileRow(*row) for row in self._views.rows(sql, [workspace_id, slug])]

    def models(self, workspace_id: str) -> list[OperatorProfileRow]:
        """The models of a workspace, the newest first."""
        sql = f"""SELECT {OPERATOR_PROFILES.names} FROM {OPERATOR_PROFILES} WHERE workspace_id = ? AND agent_id IS NULL
            AND {PRESENT} ORDER BY updated_ms DESC, slug LIMIT {PROFILES_LISTED}"""
        return [OperatorProfileRow(*row) for row in self._views.rows(sql, [workspace_id])]

    def consent(self, workspace_id: str, slug: str) -> OperatorConsentRow | None:
        """The person's consent; None if not recorded."""
        sql = f"SELECT {OPERATOR_CONSENTS.names} FROM {OPERATOR_CONSENTS} WHERE workspace_id = ? AND slug = ?"
        rows = self._views.rows(sql, [workspace_id, slug])
        return OperatorConsentRow(*rows[0]) if rows else None

    def model_text(self, workspace_id: str, crew_id: str, slug: str) -> str:
        """The document ``users/<slug>.md`` of a crew; empty if the crew has no model of the person."""
        rows = (row for row in self.of(workspace_id, slug) if row.agent_id is None and row.crew_id == crew_id)
        return next((text_of(row) for row in rows), "")

    def card_text(self, workspace_id: str, agent_id: str, slug: str) -> str:
        """The rendered document ``peers/<slug>.md`` of an agent; empty if there is no card."""
        rows = (row for row in self.of(workspace_id, slug) if row.agent_id == agent_id)
        return next((text_of(row) for row in rows), "")

    def person_hash(self, workspace_id: str, hashed: str) -> str:
        """The hash of the person, even if ``hashed`` is the hash of a further name."""
        sql = f"SELECT person_hash FROM {OPERATOR_NAMES} WHERE workspace_id = ? AND slug = ?"
        rows = self._views.rows(sql, [workspace_id, slug_of(hashed)])
        return rows[0][0] if rows else hashed

    def key_in_use(self) -> str | None:
        """The id of the key with which the journal hashes people's names; None if it names no person yet."""
        rows = self._views.rows(f"SELECT key_id FROM {OPERATOR_KEY}")
        return rows[0][0] if rows else None

    def opener_of(self, workspace_id: str, session: str, agent_id: str | None) -> str | None:
        """The person who opened a session with an agent: the first author who is a person; None without such an author."""
        sql = f"""SELECT person FROM {OPERATOR_TURNS} WHERE workspace_id = ? AND trace_id = ?
            AND agent_id IS NOT DISTINCT FROM ? ORDER BY seq LIMIT 1"""
        rows = self._views.rows(sql, [workspace_id, session, agent_id])
        return rows[0][0] if rows else None

    def opener(self, workspace_id: str, user: str, slug: str, agent_id: str | None) -> Opener:
        """The profile of the person who opened the session, for a prompt."""
        rows = {row.agent_id: row for row in self.of(workspace_id, slug) if row.agent_id in (None, agent_id)}
        texts = {of: text_of(row) for of, row in rows.items()}
        stated = dict.fromkeys(fact.entry_id for row in rows.values() for fact in facts_of(row.facts))
        card = "" if agent_id is None else texts.get(agent_id, "")
        opted_out = self.opted_out(workspace_id, slug)
        return Opener(user, slug, texts.get(None, ""), card, opted_out, entry_ids=tuple(stated))

    def opted_out(self, workspace_id: str, slug: str) -> bool:
        """Whether the person's consent was withdrawn."""
        consent = self.consent(workspace_id, slug)
        return consent is not None and not consent.granted


def text_of(row: OperatorProfileRow) -> str:
    """A profile as Markdown."""
    return as_markdown(facts_of(row.facts))
