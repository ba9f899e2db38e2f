"""What else was tried for conversations, each idea held to conversations its weight was not chosen on.

Of an idea's three weights the best on two of the three development conversations (by recall@10 + recall@5) is scored on the
third. The interval is of the paired gain over all questions. Beside it the gain on messages of eight turns joined, with the
middle weight: a stand-in for chats of long messages. ``../shared/data/locomo_dev`` is said plainly when absent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.figures import Report, say
from bench.ideas import IDEAS, Answered, Idea, Memory
from bench.quality import LOCOMO, PROJECT
from bench.quality_index import DEPTH, Asked, K, Set, embedded_set, index_of, lines_of, own, recorded
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.recall.recipes import CONVERSATIONAL, ConversationWeights, Recipe
from crew_journal.services.recall.search import search

JOINED: Final = 8
MAX_SUMMARY: Final = 2_000
DRAWS: Final = 4_000
SEED: Final = 20_260
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Exam:
    """A set with its index and what the ideas see of it."""

    journal: Set
    index: HotIndex
    memory: Memory

    @property
    def clusters(self) -> npt.NDArray[np.str_]:
        """(q,) the conversation of each question."""
        return np.array([question.cluster for question in self.journal.questions])

    def answers(self, recipe: Recipe) -> list[Answered]:
        """The recipe's best hits of each question."""
        answered = []
        for question, query in zip(self.journal.questions, self.journal.queries, strict=True):
            hits = search(self.index, question.scope, query, recipe, DEPTH)
            docs, scores = np.array([hit.doc for hit in hits], np.int32), np.array([hit.score for hit in hits])
            answered.append(Answered(question, query, docs, scores))
        return answered

    def recalls(self, answers: Sequence[Answered], scores: Sequence[Floats] | None = None) -> Floats:
        """(q, 2) recall@10 and recall@5, in the order of ``scores`` if given."""
        rows = []
        for at, hits in enumerate(answers):
            ranked = hits.docs if scores is None else hits.docs[np.argsort(-scores[at], kind="stable")]
            right = [self.index.documents.id_of(int(doc)) in hits.asked.relevant for doc in ranked[:K]]
            rows.append([sum(right) / len(hits.asked.relevant), sum(right[:5]) / len(hits.asked.relevant)])
        return np.array(rows)


async def run(quick: bool, folder: Path) -> Report:
    """All ideas; ``quick`` does nothing, as there is nothing smaller to ask."""
    del folder
    report = Report("further", quick)
    path = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data")) / LOCOMO
    if quick or not path.is_dir():
        say("quick: the development conversations are left out" if quick else f"{path} is absent: nothing is measured")
        return report
    turns, questions = lines_of(path / "journal.jsonl"), lines_of(path / "queries.jsonl")
    short, long = await _exam(turns, questions), await _exam(*joined(turns, questions))
    for name, variants in _parts().items():
        tried = [_gain_of_recipe(short, recipe) for recipe in variants]
        middle = _gain_of_recipe(long, variants[len(variants) // 2])
        _figure(report, f"without {name}" if len(variants) == 1 else name, tried, middle, short)
    answers, long_answers = short.answers(CONVERSATIONAL), long.answers(CONVERSATIONAL)
    for idea, weights in IDEAS.items():
        tried = [_gain(short, answers, idea, weight) for weight in weights]
        _figure(report, idea.__name__, tried, _gain(long, long_answers, idea, weights[1]), short)
    return report


def joined(
    turns: Sequence[Mapping[str, Any]], questions: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages of ``JOINED`` turns of a session each, and the questions about them."""
    sessions: dict[str, list[Mapping[str, Any]]] = {}
    for turn in turns:
        sessions.setdefault(turn["trace_id"], []).append(turn)
    messages: list[dict[str, Any]] = []
    message_of: dict[str, str] = {}
    for session in sessions.values():
        for start in range(0, len(session), JOINED):
            run_of = session[start : start + JOINED]
            text = "\n".join(turn["summary"] for turn in run_of)
            rest = {"text": text[MAX_SUMMARY:]} if len(text) > MAX_SUMMARY else {}
            messages.append({**run_of[0], "summary": text[:MAX_SUMMARY], "payload": rest})
            message_of |= {turn["id"]: run_of[0]["id"] for turn in run_of}
    joined_questions = [
        {**q, "relevant_ids": sorted({message_of[turn_id] for turn_id in q["relevant_ids"]})} for q in questions
    ]
    return messages, joined_questions


async def _exam(turns: Sequence[Mapping[str, Any]], questions: Sequence[Mapping[str, Any]]) -> Exam:
    exam_questions = [
        Asked(q["query"], own(q["agent_id"]), q["agent_id"], q["category"], frozenset(q["relevant_ids"]))
        for q in questions
    ]
    journal = await embedded_set(recorded(turns, "further"), exam_questions)
    index = index_of(journal)
    return Exam(journal, index, Memory.of(journal, index))


def _parts() -> dict[str, list[Recipe]]:
    """The recipe with the parts that further work brought taken out, one by one, and at other values."""

    def with_turns(**changed: Any) -> Recipe:
        turns = CONVERSATIONAL.turns
        assert turns is not None
        return replace(CONVERSATIONAL, turns=replace(turns, **changed))

    turns = CONVERSATIONAL.turns
    assert isinstance(turns, ConversationWeights)
    plain = replace(turns.context, even=0.0)
    return {
        "pieces and context together": [with_turns(late_static=0.0)],
        "a soft minimum in context": [with_turns(context=plain)],
        "weights of the query's words": [with_turns(idf_power=0.0)],
        "all three": [with_turns(late_static=0.0, context=plain, idf_power=0.0)],
        "share of pieces .25, .33, .5": [with_turns(late_static=share) for share in (0.25, 0.33, 0.5)],
        "soft minimum 1, 3, 4": [with_turns(context=replace(plain, even=even)) for even in (1.0, 3.0, 4.0)],
    }


def _gain_of_recipe(exam: Exam, recipe: Recipe) -> Floats:
    return exam.recalls(exam.answers(recipe)) - exam.recalls(exam.answers(CONVERSATIONAL))


def _gain(exam: Exam, answers: Sequence[Answered], idea: Idea, weight: float) -> Floats:
    """(q, 2) what an idea gains on each question."""
    return exam.recalls(answers, [idea(exam.memory, hits, weight) for hits in answers]) - exam.recalls(answers)


def held_out(tried: Sequence[Floats], clusters: npt.NDArray[np.str_]) -> Floats:
    """(q, 2) gains on each conversation with the weight that is best on the others."""
    gains = np.zeros_like(tried[0])
    for cluster in np.unique(clusters):
        is_held_out = clusters == cluster
        best = max(range(len(tried)), key=lambda at: float(tried[at][~is_held_out].sum()))
        gains[is_held_out] = tried[best][is_held_out]
    return gains


def _figure(report: Report, name: str, tried: Sequence[Floats], long: Floats, exam: Exam) -> None:
    clusters = exam.clusters
    gains = held_out(tried, clusters)
    drawn = np.random.default_rng(SEED).integers(0, len(gains), (DRAWS, len(gains)))
    low, high = np.quantile(gains[drawn].mean(axis=1), (0.025, 0.975), axis=0)
    each = ", ".join(f"{gains[clusters == cluster, 0].mean():+.3f}" for cluster in np.unique(clusters))
    note = f"95 % [{low[0]:+.3f}, {high[0]:+.3f}]; by conversation {each}; recall@5 {gains[:, 1].mean():+.3f}"
    note += f" [{low[1]:+.3f}, {high[1]:+.3f}]; eight turns joined {long[:, 0].mean():+.3f} / {long[:, 1].mean():+.3f}"
    report.figure(name, float(gains[:, 0].mean()), "gain in recall@10", None, note)
