"""What crews have learned, as prompts show it, kept in memory: two queries would take most of a block's time.

Invariant: memory equals the views; after a commit that changes rules, lessons or retractions they are read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ...schemas.ports import ViewReader
from ...schemas.rules.lessons import RULES_SHOWN, LearnedRule, Lesson
from ...schemas.rules.publishers import is_publisher
from ...schemas.rules.tiers import Scope, owner_of
from ...schemas.views import RETRACTIONS
from ...schemas.views.learning import LESSONS, PROPOSAL_DECISIONS, PROPOSALS, RULE_MARKS, RULES
from ..kept import KeptValues, in_thread
from .learned import NOW, Learned

KEPT: Final = 1_000
"""Crews that are kept, some 10 KB each."""
_TABLES: Final = (LESSONS, PROPOSAL_DECISIONS, PROPOSALS, RULE_MARKS, RULES, RETRACTIONS)


@dataclass(frozen=True, slots=True)
class CrewLearning:
    """What a crew has learned, for its prompts.

    Attributes:
        rules: Its rules.
        outcomes: Outcomes of missions, for a lead.
        waiting: What one agent alone reported, for the prompts of that agent.
    """

    rules: tuple[LearnedRule, ...] = ()
    outcomes: tuple[Lesson, ...] = ()
    waiting: tuple[LearnedRule, ...] = ()

    def rules_for(self, agent_id: str | None) -> list[LearnedRule]:
        """The rules of the crew, and what waits for a review that the agent alone reported; at most ``RULES_SHOWN``."""
        own = [rule for rule in self.waiting if agent_id is not None and is_publisher(rule.publishers, agent_id)]
        return [*self.rules, *(replace(rule, is_own=True) for rule in own)][:RULES_SHOWN]


class PromptLearning:
    """What crews have learned.

    Args:
        views: Read once for each crew, then followed; ``close`` ends that.
    """

    def __init__(self, views: ViewReader) -> None:
        self._learned = Learned(views)
        self._kept = KeptValues(views, _TABLES, in_thread(self._now), most=KEPT)
        self.close = self._kept.close

    async def of(self, workspace_id: str, crew_id: str) -> CrewLearning:
        """What a crew has learned, as new as the views."""
        return await self._kept.of((workspace_id, crew_id))

    def _now(self, crew: tuple[str, str]) -> CrewLearning:
        return self.at(*crew, NOW)

    def at(self, workspace_id: str, crew_id: str, seq: int) -> CrewLearning:
        """What a crew had learned right after ``seq``; blocking."""
        rules = self._learned.rules(workspace_id, crew_id, seq)
        outcomes = self._learned.outcomes(workspace_id, owner_of(Scope.CREW, crew_id), seq)
        return CrewLearning(tuple(rules), tuple(outcomes), tuple(self._learned.waiting(workspace_id, crew_id, seq)))
