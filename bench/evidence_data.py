"""Questions with and without an answer, and the figures of what each recipe finds for them: what confidence is fitted on.

Texts: the reference texts of the product, with questions in their words, paraphrased questions, situations, questions beside
them and prompts that concern none. Turns: the questions of each development conversation, its own and those of the two
others with the speakers' names exchanged; situations of ``vehicle_dev``; statements of our own.

Invariant: figures come out of the search and the figures of the product; nothing is computed a second way.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.quality_index import Asked, K, Set, embedded_set, index_of, lines_of, own, recorded
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.models.rules import REMEMBERED
from crew_journal.schemas.recall.evidence import NEAR_DECISION, decides
from crew_journal.schemas.recall.reference_texts import reference_texts
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.index.records import HitRecord
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.recall.calibration import known_calibration
from crew_journal.services.recall.evidence import Figures, figures_of
from crew_journal.services.recall.recipes import Recipe, default_recipe
from crew_journal.services.recall.search import searched

PROJECT: Final = Path(__file__).resolve().parents[1]
SHARED: Final = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data"))
LOCOMO: Final = SHARED / "locomo_dev"
VEHICLE: Final = SHARED / "vehicle_dev"
SAMPLE: Final = PROJECT / "services" / "cli" / "sample" / "journal.jsonl"
SAMPLE_QUESTIONS: Final = Path(__file__).parent / "data" / "mixed_questions.jsonl"
SPEAKERS: Final = 2
ABSENT: Final = 10
"""Of the reference texts that a journal lacks, about one in so many is asked for."""


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt and what a recipe finds.

    Attributes:
        asked: The prompt; nothing is relevant to a foreign one.
        figures: Of the first ten hits.
        relevant: (n,) bool: which hits answer it.
        decides: (n,) bool: which hits are turns whose gate is lower because they decide something.
    """

    asked: Asked
    figures: Figures
    relevant: npt.NDArray[np.bool_]
    decides: npt.NDArray[np.bool_]

    @property
    def own(self) -> bool:
        """Whether the prompt is about this memory at all."""
        return bool(self.asked.relevant)

    @property
    def answered(self) -> bool:
        """Whether one of the hits answers it."""
        return bool(self.relevant.any())


async def reference() -> Set:
    """The reference texts as journals of 12, 60 and 120, with what is asked of them, of the others and of none.

    The small ones are there because confidence must hold for a person with a dozen notes as well.
    """
    texts = reference_texts()
    records, questions = list[dict[str, Any]](), list[Asked]()
    for journal, chosen in enumerate(_journals(len(texts.memories))):
        agent = f"reference{journal}"
        for at, memory in enumerate(texts.memories):
            ids = frozenset({f"{agent}-{at}"}) if at in chosen else frozenset[str]()
            prompts = [
                ("question", memory.question),
                ("paraphrase", memory.paraphrase),
                ("situation", memory.situation),
            ]
            if ids:
                records.append(
                    {"id": f"{agent}-{at}", "agent_id": agent, "entry_type": REMEMBERED, "summary": memory.text}
                )
                questions += [Asked(text, own(agent), agent, name, ids) for name, text in prompts]
                questions.append(Asked(memory.beside, own(agent), agent, "beside", frozenset()))
            elif at % ABSENT == journal:
                questions += [Asked(text, own(agent), agent, "absent", frozenset()) for _, text in prompts]
        questions += [Asked(text, own(agent), agent, "unrelated", frozenset()) for text in texts.unrelated]
    return await embedded_set(recorded(records, "reference"), questions)


def _journals(count: int) -> list[range]:
    halves = [range(0, count, 2), range(1, count, 2)]
    return [range(0, count, 10), range(3, count, 10), range(7, count, 10), *halves, range(count)]


async def conversations() -> Set:
    """The development conversations with their own questions first, then each one's put to the others."""
    records = lines_of(LOCOMO / "journal.jsonl")
    questions = [
        Asked(q["query"], own(q["agent_id"]), q["agent_id"], q["category"], frozenset(q["relevant_ids"]))
        for q in lines_of(LOCOMO / "queries.jsonl")
    ]
    heard: dict[str, Counter[str]] = {}
    for record in records:
        heard.setdefault(record["agent_id"], Counter())[record["actor_id"]] += 1
    names = {agent: [name for name, _ in count.most_common(SPEAKERS)] for agent, count in heard.items()}
    foreign = [
        Asked(_renamed(question.text, names[question.cluster], names[other]), own(other), other, "foreign", frozenset())
        for question in questions
        for other in names
        if other != question.cluster
    ]
    return await embedded_set(recorded(records, "precision"), [*questions, *foreign])


async def unrelated() -> Set:
    """The development conversations with the prompts of the reference texts to which nothing is relevant."""
    records = lines_of(LOCOMO / "journal.jsonl")
    agents = dict.fromkeys(record["agent_id"] for record in records)
    texts = reference_texts().unrelated
    questions = [Asked(text, own(agent), agent, "unrelated", frozenset()) for agent in agents for text in texts]
    return await embedded_set(recorded(records, "unrelated"), questions)


async def situations() -> Set:
    """The histories of ``vehicle_dev`` with their own situations first, then each one's put to the next history."""
    questions = [
        Asked(q["query"], own(q["agent_id"]), q["agent_id"], q["category"], frozenset(q["relevant_ids"]))
        for q in lines_of(VEHICLE / "queries.jsonl")
    ]
    agents = list(dict.fromkeys(question.cluster for question in questions))
    following = dict(zip(agents, agents[1:] + agents[:1], strict=True))
    foreign = [
        Asked(question.text, own(following[question.cluster]), following[question.cluster], "foreign", frozenset())
        for question in questions
    ]
    return await embedded_set(recorded(lines_of(VEHICLE / "journal.jsonl"), "situations"), [*questions, *foreign])


async def sample_journal(foreign: Sequence[str]) -> Set:
    """The sample journal with our questions about it, and with foreign ones."""
    scope = RecallScope(ScopeKind.WORKSPACE)
    questions = [
        Asked(q["query"], scope, "sample", "mixed", frozenset(q["relevant_ids"])) for q in lines_of(SAMPLE_QUESTIONS)
    ]
    questions += [Asked(text, scope, "sample", "foreign", frozenset()) for text in foreign]
    return await embedded_set(recorded(lines_of(SAMPLE), "sample"), questions)


def cases(journal: Set, recipe: Recipe | None = None, *, vectors: bool = True) -> list[Case]:
    """What a recipe finds for every prompt.

    Args:
        journal: The journal with its prompts.
        recipe: The recipe; None for the default of each scope.
        vectors: Whether entries and queries have any.
    """
    index = index_of(journal, None if vectors else np.zeros(len(journal.events), bool))
    calibration = known_calibration(index.model) if vectors else None
    entries = {event.entry.id: event.entry for event in journal.events}
    all_cases = []
    for question, query in zip(journal.questions, journal.queries, strict=True):
        if not vectors:
            query = replace(query, vector=None, late=None if query.late is None else replace(query.late, tokens=None))
        chosen = recipe or default_recipe(index.scoped(question.scope).turn_count)
        result = searched(index, question.scope, query, chosen, K)
        docs = result.docs[result.order]
        hits = [entries[index.documents.id_of(doc)] for doc in docs.tolist()]
        figures = figures_of(index, query, result, [hit.summary for hit in hits], calibration)
        decided = [
            turn and meaning >= NEAR_DECISION and decides(hit.summary, hit.actor_id)
            for hit, turn, meaning in zip(hits, figures.turns, figures.hits["meaning"], strict=True)
        ]
        all_cases.append(Case(question, figures, _relevant(index, question, docs), np.array(decided, bool)))
    return all_cases


def record_of(event: EntryRecorded) -> HitRecord:
    """An entry as a hit has it."""
    entry = event.entry
    return HitRecord(
        entry.id,
        entry.entry_type,
        entry.summary,
        entry.agent_id,
        entry.crew_id,
        entry.actor_type.value,
        entry.actor_id,
        entry.severity.value,
        entry.priority.value,
        entry.trace_id,
        entry.mission_id,
        dict(entry.payload),
        dict(entry.refs),
        tuple(entry.supersedes),
        None,
    )


def _relevant(index: HotIndex, question: Asked, docs: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    return np.array([index.documents.id_of(int(doc)) in question.relevant for doc in docs], bool)


def _renamed(text: str, names: Sequence[str], others: Sequence[str]) -> str:
    other_of = dict(zip(names, others, strict=True))
    return re.sub("|".join(map(re.escape, names)), lambda match: other_of[match[0]], text)
