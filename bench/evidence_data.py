"""Questions with and without an answer, and the figures of what each recipe finds for them: what confidence is fitted on.

Without an answer: the questions of each development conversation put to the two others, the speakers' names exchanged, and
those of the conversations put to the sample journal. With one: each conversation's own, and 110 of our own about the
sample journal.

Invariant: figures come out of the search and the figures of the product; nothing is computed a second way.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.quality_index import Asked, K, Set, embedded_set, index_of, lines_of, own, recorded
from crew_journal.services.query.evidence.figures import Figures, figures_of
from crew_journal.services.query.hot.index import HotIndex
from crew_journal.services.query.hot.scope import Scope, ScopeKind
from crew_journal.services.query.recipes import Recipe
from crew_journal.services.query.search import searched

PROJECT: Final = Path(__file__).resolve().parents[1]
SHARED: Final = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data"))
LOCOMO: Final = SHARED / "locomo_dev"
VEHICLE: Final = SHARED / "vehicle_dev"
SAMPLE: Final = PROJECT / "services" / "cli" / "sample" / "journal.jsonl"
SAMPLE_QUESTIONS: Final = Path(__file__).parent / "data" / "mixed_questions.jsonl"
SPEAKERS: Final = 2


@dataclass(frozen=True, slots=True)
class Case:
    """A question and what a recipe finds.

    Attributes:
        asked: The question; nothing is relevant to a foreign one.
        figures: Of the first ten hits and of the answer.
        relevant: (n,) bool: which hits answer it.
    """

    asked: Asked
    figures: Figures
    relevant: npt.NDArray[np.bool_]

    @property
    def own(self) -> bool:
        """Whether the question is about this memory at all."""
        return bool(self.asked.relevant)

    @property
    def answered(self) -> bool:
        """Whether one of the hits answers it."""
        return bool(self.relevant.any())


async def conversations() -> Set:
    """The development conversations with their own questions first, then each one's put to the others."""
    records = lines_of(LOCOMO / "journal.jsonl")
    asked = [
        Asked(q["query"], own(q["agent_id"]), q["agent_id"], q["category"], frozenset(q["relevant_ids"]))
        for q in lines_of(LOCOMO / "queries.jsonl")
    ]
    heard: dict[str, Counter[str]] = {}
    for record in records:
        heard.setdefault(record["agent_id"], Counter())[record["actor_id"]] += 1
    names = {agent: [name for name, _ in count.most_common(SPEAKERS)] for agent, count in heard.items()}
    foreign = [
        Asked(_renamed(one.text, names[one.cluster], names[other]), own(other), other, "foreign", frozenset())
        for one in asked
        for other in names
        if other != one.cluster
    ]
    return await embedded_set(recorded(records, "precision"), [*asked, *foreign])


async def situations() -> Set:
    """The histories of ``vehicle_dev`` with their own situations first, then each one's put to the next history."""
    asked = [
        Asked(q["query"], own(q["agent_id"]), q["agent_id"], q["category"], frozenset(q["relevant_ids"]))
        for q in lines_of(VEHICLE / "queries.jsonl")
    ]
    agents = list(dict.fromkeys(one.cluster for one in asked))
    following = dict(zip(agents, agents[1:] + agents[:1], strict=True))
    foreign = [
        Asked(one.text, own(following[one.cluster]), following[one.cluster], "foreign", frozenset()) for one in asked
    ]
    return await embedded_set(recorded(lines_of(VEHICLE / "journal.jsonl"), "situations"), [*asked, *foreign])


async def sample_journal(foreign: Sequence[str]) -> Set:
    """The sample journal with our questions about it, and with foreign ones."""
    scope = Scope(ScopeKind.WORKSPACE)
    asked = [
        Asked(q["query"], scope, "sample", "mixed", frozenset(q["relevant_ids"])) for q in lines_of(SAMPLE_QUESTIONS)
    ]
    asked += [Asked(text, scope, "sample", "foreign", frozenset()) for text in foreign]
    return await embedded_set(recorded(lines_of(SAMPLE), "sample"), asked)


def cases(journal: Set, recipe: Recipe, *, vectors: bool = True) -> list[Case]:
    """What a recipe finds for every question; ``vectors``: whether entries and queries have any."""
    index = index_of(journal, None if vectors else np.zeros(len(journal.events), bool))
    found = []
    for asked, query in zip(journal.questions, journal.queries, strict=True):
        if not vectors:
            query = replace(query, vector=None, late=None if query.late is None else replace(query.late, tokens=None))
        result = searched(index, asked.scope, query, recipe, K)
        found.append(Case(asked, figures_of(index, query, result), _relevant(index, asked, result.docs[result.order])))
    return found


def _relevant(index: HotIndex, asked: Asked, docs: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    return np.array([index.documents.id_of(int(doc)) in asked.relevant for doc in docs], bool)


def _renamed(text: str, names: Sequence[str], others: Sequence[str]) -> str:
    other_of = dict(zip(names, others, strict=True))
    return re.sub("|".join(map(re.escape, names)), lambda found: other_of[found[0]], text)
