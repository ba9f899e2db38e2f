"""Asking a journal the questions whose answers are known, and what that says of its recall.

Invariant: questions are asked over HTTP in scope ``own`` of their agent; the measures themselves are those of
``services/query/measures/evaluation``, and a mean over no question is no figure.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from ...schemas.operations.recall import Mode
    from .connection import Target
    from .exam_question import Question
    from .exam_set import ExamSet

ASKED_AT_ONCE: Final = 4
"""Questions under way; the journal answers on as many threads."""
SHALLOW_K: Final = 5
"""Depth of the recall that is reported beside the one asked for."""
SESSION_K: Final = 5
"""Sessions that count for session recall (facts: session R@5)."""
Sessions = Mapping[str | None, Mapping[str, str]]
"""Workspace → entry id → session."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A question and what was recalled.

    Attributes:
        question: The question.
        ranked: Entry ids for ``k``, best first.
        deep: The same as deep as recall goes.
        injected: What mode ``inject`` answers for ``k``; None if it was not asked.
        foreign: What it answers to a question of another agent; None if there is no other agent.
    """

    question: Question
    ranked: Sequence[str]
    deep: Sequence[str]
    injected: Sequence[str] | None = None
    foreign: Sequence[str] | None = None


def recipes_named(names: str, option: str) -> list[str]:
    """The recipes of a list separated by commas, each once, in its order.

    Raises:
        typer.BadParameter: If one is not known or none is named, naming the option.
    """
    from ...schemas.errors import InvalidQuery
    from ..query.recipes import RECIPES, recipe_named

    chosen = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not chosen:
        raise typer.BadParameter(f"it names no recipe: use some of {', '.join(sorted(RECIPES))}", param_hint=option)
    for name in chosen:
        try:
            recipe_named(name)
        except InvalidQuery as error:
            raise typer.BadParameter(f"{name}: {error.message} ({error.hint})", param_hint=option) from None
    return chosen


def tell(asked: ExamSet) -> None:
    """Say on stderr which questions are in no mean, and which can be answered in part only."""
    from .exam_set import told
    from .output import say

    if asked.left_out:
        say(
            f"questions left out of all means, as no entry answers them: {len(asked.left_out):,}: {told(asked.left_out)}"
        )
    if asked.partly:
        say(
            "questions of which some entries cannot be recalled, which count as not found (recall is a share of all that is "
            f"relevant): {len(asked.partly):,}: {told(asked.partly)}"
        )


async def ask_all(there: Target, asked: ExamSet, recipe: str, k: int) -> tuple[dict[str, Any], list[Answered]]:
    """Ask every question with one recipe: ``k`` deep for the entries, and as deep as it goes for the sessions.

    Two requests, as a recipe's lanes may depend on ``k``, and ten entries often lie in fewer than five sessions. Two more in
    mode ``inject``: the question itself, and that of another agent in its place, which nothing here should answer.

    Returns:
        The figures, with the ``interval`` of recall@k (cluster bootstrap over agents), and the answers themselves.
    """
    from ...schemas.operations.recall import INJECT
    from ...schemas.settings import RECALL_K_MAX
    from .connection import async_client
    from .output import plain, progress_bar

    questions = asked.questions
    gate = asyncio.Semaphore(ASKED_AT_ONCE)
    done, seconds = 0, list[float]()

    async with async_client(there) as journal:
        with progress_bar(recipe, len(questions), unit="questions") as bar:

            async def ask(question: Question, depth: int, mode: Mode = "search", text: str | None = None) -> list[str]:
                answer = plain(
                    await journal.recall(
                        text or question.query,
                        k=depth,
                        scope="own",
                        agent_id=question.agent_id,
                        recipe=recipe,
                        workspace_id=question.workspace_id,
                        asked_at=question.asked_at,
                        mode=mode,
                    )
                )
                return [str(hit["entry_id"]) for hit in answer["hits"]]

            async def answer(question: Question, other: Question | None) -> Answered:
                nonlocal done
                async with gate:
                    began = time.perf_counter()
                    ranked = await ask(question, k)
                    seconds.append(time.perf_counter() - began)
                    deep = ranked if k == RECALL_K_MAX else await ask(question, RECALL_K_MAX)
                    injected = await ask(question, k, INJECT)
                    foreign = None if other is None else await ask(question, k, INJECT, other.query)
                done += 1
                bar.update(done, len(questions))
                return Answered(question, ranked, deep, injected, foreign)

            answered = await asyncio.gather(*map(answer, questions, others_of(questions)))
    figures = {
        **scores(answered, k, asked.sessions),
        "interval": _interval(answered, k),
        "p50_ms": round(1_000 * statistics.median(seconds), 2) if seconds else None,
    }
    return figures, answered


def others_of(questions: Sequence[Question]) -> list[Question | None]:
    """For each question one of another agent, taken in turn; None where there is no other agent."""
    size = len(questions)
    return [
        next(
            (other for n in range(1, size) if (other := questions[(at * 2 + n) % size]).agent_id != one.agent_id), None
        )
        for at, one in enumerate(questions)
    ]


def _recalls(answered: Sequence[Answered], k: int) -> list[float]:
    from ..query.measures.evaluation import recall_at

    return [recall_at(one.ranked, frozenset(one.question.relevant_ids), k) for one in answered]


def _clusters(answered: Sequence[Answered]) -> list[str]:
    """The conversation of each: an agent in a workspace."""
    return [f"{one.question.workspace_id or ''}/{one.question.agent_id}" for one in answered]


def _interval(answered: Sequence[Answered], k: int) -> dict[str, float] | None:
    from ..query.measures.intervals import cluster_bootstrap

    found = cluster_bootstrap(_recalls(answered, k), _clusters(answered))
    return None if found is None else found.as_dict()


def gain_over(answered: Sequence[Answered], baseline: Sequence[Answered], k: int) -> dict[str, float] | None:
    """How much more recall@k than another recipe on the same questions: paired, cluster bootstrap over agents."""
    from ..query.measures.intervals import cluster_bootstrap

    pairs = zip(_recalls(answered, k), _recalls(baseline, k), strict=True)
    found = cluster_bootstrap([one - other for one, other in pairs], _clusters(answered))
    return None if found is None else found.as_dict()


def scores(answered: Sequence[Answered], k: int, sessions: Sessions) -> dict[str, Any]:
    """Means over all questions and over those of each category; None where there is nothing to take the mean of.

    Session recall is the mean over the questions that a session answers.

    Args:
        answered: Questions with what was recalled.
        k: Depth of recall and nDCG.
        sessions: Workspace → entry id → session (``trace_id``).
    """
    groups: dict[str, list[Answered]] = {}
    for one in answered:
        groups.setdefault(one.question.category, []).append(one)
    return {
        "overall": _means(answered, k, sessions),
        "categories": {name: _means(group, k, sessions) for name, group in sorted(groups.items())},
    }


def averaged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of each figure over reports of the same shape; what is no number is taken from the first."""
    first = reports[0]
    return {
        name: averaged([one[name] for one in reports])
        if isinstance(value, dict)
        else round(statistics.fmean(one[name] for one in reports), 4)
        if isinstance(value, float)
        else value
        for name, value in first.items()
    }


def _means(group: Sequence[Answered], k: int, sessions: Sessions) -> dict[str, Any]:
    from ..query.measures.evaluation import ndcg_at, recall_at, reciprocal_rank, session_recall_at

    found: dict[str, list[float]] = {name: [] for name in ("recall", "recall_at_5", "ndcg", "mrr", "session_recall")}
    for one in group:
        relevant = frozenset(one.question.relevant_ids)
        found["recall"].append(recall_at(one.ranked, relevant, k))
        found["recall_at_5"].append(recall_at(one.ranked, relevant, SHALLOW_K))
        found["ndcg"].append(ndcg_at(one.ranked, relevant, k))
        found["mrr"].append(reciprocal_rank(one.ranked, relevant))
        session_of = sessions.get(one.question.workspace_id, {})
        if not relevant.isdisjoint(session_of):
            found["session_recall"].append(session_recall_at(one.deep, relevant, session_of, SESSION_K))
    found |= precision_of(group)
    means = {name: round(sum(values) / len(values), 4) if values else None for name, values in found.items()}
    return {"questions": len(group), **means}


def precision_of(group: Sequence[Answered]) -> dict[str, list[float]]:
    """By question, in mode ``inject``: precision (where something is returned), recall, hits, and silence on a foreign one.

    ``wrongly_silent``: whether a question that recall answers gets nothing.
    """
    found: dict[str, list[float]] = {
        name: [] for name in ("precision", "inject_recall", "inject_hits", "silence", "wrongly_silent")
    }
    for one in group:
        if one.injected is None:
            continue
        relevant = frozenset(one.question.relevant_ids)
        right = len(relevant.intersection(one.injected))
        found["inject_recall"].append(right / len(relevant))
        found["inject_hits"].append(len(one.injected))
        if one.injected:
            found["precision"].append(right / len(one.injected))
        if one.foreign is not None:
            found["silence"].append(float(not one.foreign))
        if not relevant.isdisjoint(one.ranked):
            found["wrongly_silent"].append(float(not one.injected))
    return found


def figure(value: float | None) -> str:
    """A mean as it is shown; a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"
