"""Reads what crews have learned from the views: rules and lessons, now or as of a sequence; blocking.

Invariant: retracted rules and lessons are left out.
"""

from __future__ import annotations

import json
from typing import Final

from ...schemas.ports import ViewReader
from ...schemas.rules.agreement import MIN_DAYS
from ...schemas.rules.lessons import (
    MISSION_OUTCOME,
    OUTCOMES_SHOWN,
    RULES_SHOWN,
    LearnedRule,
    Lesson,
    kept,
    outcomes_shown,
    rules_shown,
)
from ...schemas.views import RETRACTIONS
from ...schemas.views.learning import (
    LESSONS,
    PROPOSAL_DECISIONS,
    PROPOSALS,
    RULE_MARKS,
    RULES,
    ProposalRow,
    RuleRow,
)
from ...schemas.views.table import as_of

NOW: Final = 2**62
"""A sequence after every event."""
RULES_LISTED: Final = 500


def _counts(column: str, seq: int) -> str:
    """The condition that the entry named in ``column`` is not retracted."""
    return f"""NOT EXISTS (SELECT 1 FROM {RETRACTIONS} WHERE workspace_id = r.workspace_id AND kind = 'entry'
        AND target_id = r.{column} AND {as_of(seq)})"""


def _waiting(seq: int) -> str:
    """Selects pending proposals of one publisher."""
    return f"""SELECT {PROPOSALS.names} FROM {PROPOSALS} r
        WHERE workspace_id = $workspace AND crew_id = $crew AND seq <= $seq AND skill_of IS NULL
        AND days >= {MIN_DAYS} AND json_array_length(publishers) = 1
        AND coalesce((SELECT arg_max(d.decision, d.seq) FROM {PROPOSAL_DECISIONS} d WHERE d.workspace_id = r.workspace_id
            AND d.proposal_id = r.proposal_id AND d.seq <= $seq), '') <> 'rejected'
        AND NOT EXISTS (SELECT 1 FROM {RULES} l WHERE l.workspace_id = r.workspace_id AND l.seq <= $seq
            AND r.proposal_id IN (l.proposal_id, l.settles))
        AND {_counts("proposal_id", seq)} ORDER BY seq DESC LIMIT {RULES_LISTED}"""


class Learned:
    """Reads rules and lessons.

    Args:
        views: The views.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    def rows(
        self, workspace_id: str, crew_id: str | None, *, seq: int = NOW, limit: int = RULES_LISTED
    ) -> list[tuple[RuleRow, bool]]:
        """Rules of a crew (of all if None) and whether each is promoted; those first, then the newest."""
        sql = f"""SELECT {RULES.names}, EXISTS (SELECT 1 FROM {RULE_MARKS} m WHERE m.workspace_id = r.workspace_id
                AND m.rule_id = r.rule_id AND m.mark = 'promoted' AND m.seq <= $seq) AS promoted
            FROM {RULES} r WHERE r.workspace_id = $workspace AND ($crew IS NULL OR r.crew_id = $crew) AND r.seq <= $seq
            AND {_counts("rule_id", seq)} ORDER BY promoted DESC, r.seq DESC LIMIT $limit"""
        params = {"workspace": workspace_id, "crew": crew_id, "seq": seq, "limit": limit}
        return [(RuleRow(*row), promoted) for *row, promoted in self._views.rows(sql, params)]

    def rules(self, workspace_id: str, crew_id: str, seq: int = NOW) -> list[LearnedRule]:
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
            )
            for row, promoted in self.rows(workspace_id, crew_id, seq=seq)
        ]
        return rules_shown(learned_rules, RULES_SHOWN)

    def waiting(self, workspace_id: str, crew_id: str, seq: int = NOW) -> list[LearnedRule]:
        """What agents of a crew reported on two days, each alone, and no person has decided yet; the newest first.

        It is for the prompts of its author only.
        """
        params = {"workspace": workspace_id, "crew": crew_id, "seq": seq}
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
            for row in (ProposalRow(*row) for row in self._views.rows(_waiting(seq), params))
        ]

    def lessons(self, workspace_id: str, owner: str, seq: int = NOW) -> list[Lesson]:
        """The lessons of an owner, in the order in which they were first recorded."""
        return kept(self._recorded(workspace_id, owner, seq, f"source <> '{MISSION_OUTCOME}'"))

    def outcomes(self, workspace_id: str, owner: str, seq: int = NOW) -> list[Lesson]:
        """The last outcomes of missions, the newest first; each publisher has a share of them."""
        return outcomes_shown(self._recorded(workspace_id, owner, seq, f"source = '{MISSION_OUTCOME}'"), OUTCOMES_SHOWN)

    def _recorded(self, workspace_id: str, owner: str, seq: int, which: str) -> list[Lesson]:
        sql = f"""SELECT lesson_id, kind, captured_ms, source, rule, context, finding, author, publisher FROM (
                SELECT *, min(seq) OVER (PARTITION BY lesson_id) AS first_seq FROM {LESSONS} r
                WHERE workspace_id = $workspace AND owner = $owner AND {which}
                AND seq <= $seq AND {_counts("entry_id", seq)}
                QUALIFY row_number() OVER (PARTITION BY lesson_id ORDER BY seq DESC) = 1)
            ORDER BY first_seq"""
        params = {"workspace": workspace_id, "owner": owner, "seq": seq}
        return [Lesson(*row) for row in self._views.rows(sql, params)]
