"""Asking a journal the questions whose answers are known, and what that says of its recall.

Invariant: a set of entries goes through the import, service and recall of any journal; questions are asked over HTTP in
scope ``own`` of their agent. The measures are those of ``services/query/measures``; a mean over no question has no value.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from ...schemas.limits import RECALL_K_MAX
from ...schemas.operations.recall import INJECT, Mode
from .connection import ANY_PORT, Target, async_client, local_runtime
from .exam_set import ENTRIES_FILE, ExamQuestion, ExamSet, listed
from .importing.command import ImportOptions, import_file
from .options import Where, settings_from
from .output import progress_bar, say

ASKED_AT_ONCE: Final = 4
"""Questions under way; the journal answers on as many threads."""
SHALLOW_K: Final = 5
"""Depth of the recall that is reported beside the one asked for."""
SESSION_K: Final = 5
"""Sessions that count for session recall (facts: session R@5)."""
FIGURES: Final = ("recall", "recall_at_5", "ndcg", "mrr", "session_recall")
Sessions = Mapping[str | None, Mapping[str, str]]
"""Workspace → entry id → session."""


@dataclass(frozen=True, slots=True)
class ExamAnswer:
    """A question and what was recalled.

    Attributes:
        question: The question.
        ranked: Entry ids for ``k``, best first.
        deep: The same as deep as recall goes.
        injected: What mode ``inject`` answers for ``k``; None if it was not asked.
        foreign: What it answers to a question of another agent; None if there is no other agent.
    """

    question: ExamQuestion
    ranked: Sequence[str]
    deep: Sequence[str]
    injected: Sequence[str] | None = None
    foreign: Sequence[str] | None = None

    def recall(self, k: int) -> float:
        """Share of the relevant entries among the first ``k``."""
        from ..query.measures.evaluation import recall_at

        return recall_at(self.ranked, frozenset(self.question.relevant_ids), k)


@contextmanager
def scratch_journal(**given: Any) -> Iterator[Target]:
    """A running journal without entries, with these settings, below a temporary folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="crew-journal-eval-") as folder:
        own = {"data_dir": Path(folder), "http": ANY_PORT, "durability": "interval", "log_level": "error"}
        settings = settings_from(**own, **given).model_copy(update={"nats": None})
        with local_runtime(settings) as runtime:
            yield Target(runtime.http_url, runtime.owner_token, settings.data_dir, local=True)


def import_set(directory: Path, there: Target, workspace: str | None) -> int:
    """Import the entries of a set into a scratch journal, all into ``workspace`` if given; returns the last sequence."""
    options = ImportOptions(workspace=workspace)
    return import_file(str(directory / ENTRIES_FILE), there, Where(), options).last_seq


def recipes_named(names: str, option: str) -> list[str]:
    """The recipes of a list separated by commas, each once, in its order.

    Raises:
        click.BadParameter: If a recipe is unknown or the list is empty; names the option.
    """
    from ..query.recipes import RECIPES

    chosen = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    unknown = [name for name in chosen if name not in RECIPES]
    if unknown or not chosen:
        wrong = f"recipe {unknown[0]} is not known" if unknown else "the list names no recipe"
        raise click.BadParameter(f"{wrong}; use one or more of {', '.join(sorted(RECIPES))}", param_hint=option)
    return chosen


def report_unanswerable(exam_set: ExamSet) -> None:
    """Print on stderr which questions no mean includes, and which can only be answered in part."""
    for questions, why in (
        (exam_set.left_out, "left out of all means, because no entry answers them"),
        (exam_set.partly, "with relevant entries that cannot be recalled, which count as not found"),
    ):
        if questions:
            say(f"questions {why}: {len(questions):,}: {listed(questions)}")


async def ask_all(there: Target, questions: ExamSet, recipe: str, k: int) -> tuple[dict[str, Any], list[ExamAnswer]]:
    """Ask every question with one recipe: ``k`` deep for the entries, and as deep as it goes for the sessions.

    Two requests, as a recipe's lanes may depend on ``k``, and ten entries often lie in fewer than five sessions. Two more in
    mode ``inject``: the question itself, and that of another agent in its place, which nothing here should answer.

    Returns:
        The figures, with the ``interval`` of recall@k (cluster bootstrap over agents), and the answers themselves.
    """
    import asyncio

    gate = asyncio.Semaphore(ASKED_AT_ONCE)
    seconds = list[float]()
    async with async_client(there) as journal:
        with progress_bar(recipe, len(questions.questions), unit="questions") as bar:

            async def ask(
                question: ExamQuestion, depth: int, mode: Mode = "search", text: str | None = None
            ) -> list[str]:
                answer = await journal.recall(
                    text or question.query,
                    k=depth,
                    scope="own",
                    agent_id=question.agent_id,
                    recipe=recipe,
                    workspace_id=question.workspace_id,
                    asked_at=question.asked_at,
                    mode=mode,
                )
                return [hit.entry_id for hit in answer.hits]

            async def answer(question: ExamQuestion, other: ExamQuestion | None) -> ExamAnswer:
                async with gate:
                    began = time.perf_counter()
                    ranked = await ask(question, k)
                    seconds.append(time.perf_counter() - began)
                    deep = ranked if k == RECALL_K_MAX else await ask(question, RECALL_K_MAX)
                    injected = await ask(question, k, INJECT)
                    foreign = None if other is None else await ask(question, k, INJECT, other.query)
                bar(len(seconds))
                return ExamAnswer(question, ranked, deep, injected, foreign)

            answered = await asyncio.gather(*map(answer, questions.questions, others_of(questions.questions)))
    figures = {
        **scores(answered, k, questions.sessions),
        "interval": interval([answer.recall(k) for answer in answered], answered),
        "p50_ms": round(1_000 * statistics.median(seconds), 2) if seconds else None,
    }
    return figures, answered


def others_of(questions: Sequence[ExamQuestion]) -> list[ExamQuestion | None]:
    """For each question one of another agent, taken in turn; None where there is no other agent."""
    size = len(questions)
    return [
        next(
            (other for n in range(1, size) if (other := questions[(at * 2 + n) % size]).agent_id != question.agent_id),
            None,
        )
        for at, question in enumerate(questions)
    ]


def interval(values: Sequence[float], answered: Sequence[ExamAnswer]) -> dict[str, float] | None:
    """The mean of a value for each question with its interval: cluster bootstrap over agents (conversations)."""
    from ..query.measures.intervals import cluster_bootstrap

    interval = cluster_bootstrap(
        values, [f"{answer.question.workspace_id}/{answer.question.agent_id}" for answer in answered]
    )
    return None if interval is None else interval.as_dict()


def scores(answered: Sequence[ExamAnswer], k: int, sessions: Sessions) -> dict[str, Any]:
    """Means over all questions and over those of each category; None where there is nothing to take the mean of.

    Recall and nDCG are those of the first ``k``; session recall is the mean over the questions that a session answers.
    """
    groups: dict[str, list[ExamAnswer]] = {}
    for answer in answered:
        groups.setdefault(answer.question.category, []).append(answer)
    return {
        "overall": _means(answered, k, sessions),
        "categories": {name: _means(group, k, sessions) for name, group in sorted(groups.items())},
    }


def averaged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of each number over reports of the same shape, of counts a whole one; other values are those of the first."""
    means = dict(reports[0])
    for name, value in reports[0].items():
        values: list[Any] = [report[name] for report in reports]
        if isinstance(value, dict):
            means[name] = averaged(values)
        elif isinstance(value, int | float):
            means[name] = round(statistics.fmean(values), 4 if isinstance(value, float) else None)
    return means


def _means(group: Sequence[ExamAnswer], k: int, sessions: Sessions) -> dict[str, Any]:
    from ..query.measures.evaluation import ndcg_at, reciprocal_rank, session_recall_at

    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    for answer in group:
        relevant = frozenset(answer.question.relevant_ids)
        values["recall"].append(answer.recall(k))
        values["recall_at_5"].append(answer.recall(SHALLOW_K))
        values["ndcg"].append(ndcg_at(answer.ranked, relevant, k))
        values["mrr"].append(reciprocal_rank(answer.ranked, relevant))
        session_of = sessions.get(answer.question.workspace_id, {})
        if not relevant.isdisjoint(session_of):
            values["session_recall"].append(session_recall_at(answer.deep, relevant, session_of, SESSION_K))
    values |= precision_of(group)
    means = {name: round(statistics.fmean(values), 4) if values else None for name, values in values.items()}
    return {"questions": len(group), **means}


def precision_of(group: Sequence[ExamAnswer]) -> dict[str, list[float]]:
    """By question, in mode ``inject``: precision (where something is returned), recall, hits, and silence on a foreign one.

    ``wrongly_silent``: whether a question that recall answers gets nothing.
    """
    values: dict[str, list[float]] = {
        name: [] for name in ("precision", "inject_recall", "inject_hits", "silence", "wrongly_silent")
    }
    for answer in group:
        if answer.injected is None:
            continue
        relevant = frozenset(answer.question.relevant_ids)
        right = len(relevant.intersection(answer.injected))
        values["inject_recall"].append(right / len(relevant))
        values["inject_hits"].append(len(answer.injected))
        if answer.injected:
            values["precision"].append(right / len(answer.injected))
        if answer.foreign is not None:
            values["silence"].append(float(not answer.foreign))
        if not relevant.isdisjoint(answer.ranked):
            values["wrongly_silent"].append(float(not answer.injected))
    return values


def figure(value: float | None) -> str:
    """A mean with three decimals; a hyphen for None."""
    return "-" if value is None else f"{value:.3f}"
