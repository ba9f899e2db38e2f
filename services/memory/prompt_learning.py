"""What crews have learned, as prompts show it, kept in memory: two queries would take most of a block's time.

Invariant: memory equals the views; after a commit that changes rules, lessons or retractions they are read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...schemas.ports import CommittedBatch, ViewReader
from ...schemas.rules.lessons import LearnedRule, Lesson
from ...schemas.rules.tiers import Scope, owner_of
from ...schemas.views import RETRACTIONS
from ...schemas.views.learning import LESSONS, RULE_MARKS, RULES
from .learned import NOW, Learned

KEPT: Final = 1_000
"""Crews that are kept, some 10 KB each."""
_TABLES: Final = frozenset(table.name for table in (LESSONS, RULE_MARKS, RULES, RETRACTIONS))


@dataclass(frozen=True, slots=True)
class CrewLearning:
    """What a crew has learned, for its prompts: rules, and for a lead the outcomes of missions."""

    rules: tuple[LearnedRule, ...] = ()
    outcomes: tuple[Lesson, ...] = ()


class PromptLearning:
    """What crews have learned.

    Args:
        views: Read once for each crew, then followed; ``close`` ends that.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views
        self._learned = Learned(views)
        self._known: dict[tuple[str, str], CrewLearning] = {}
        self._generation = views.generation
        self._unsubscribe: Callable[[], None] = views.subscribe(self._follow)

    def close(self) -> None:
        """Stop following the views."""
        self._unsubscribe()

    async def of(self, workspace_id: str, crew_id: str) -> CrewLearning:
        """What a crew has learned, as new as the views."""
        if self._views.generation != self._generation or len(self._known) > KEPT:
            self._generation, self._known = self._views.generation, {}
        known = self._known
        if (found := known.get((workspace_id, crew_id))) is None:
            found = await asyncio.to_thread(self.at, workspace_id, crew_id, NOW)
            known[workspace_id, crew_id] = found  # of a dict that no longer counts if something was learned meanwhile
        return found

    def at(self, workspace_id: str, crew_id: str, seq: int) -> CrewLearning:
        """What a crew had learned right after ``seq``; blocking."""
        rules = self._learned.rules(workspace_id, crew_id, seq)
        outcomes = self._learned.outcomes(workspace_id, owner_of(Scope.CREW, crew_id), seq)
        return CrewLearning(tuple(rules), tuple(outcomes))

    def _follow(self, batch: CommittedBatch) -> None:
        if not _TABLES.isdisjoint(batch.changes):
            self._known = {}
