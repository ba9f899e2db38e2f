"""Asking a journal the questions whose answers are known, and what that says of its recall.

Invariant: questions are asked over HTTP in scope ``own`` of their agent; the measures themselves are those of
``services/query/measures/evaluation``, and a mean over no question is no figure.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from crew_journal.services.cli.connection import Target

ENTRIES_FILE: Final = "journal.jsonl"
QUERIES_FILE: Final = "queries.jsonl"
ASKED_AT_ONCE: Final = 4
"""Questions under way; the journal answers on as many threads."""
SHALLOW_K: Final = 5
"""Depth of the recall that is reported beside the one asked for."""
SESSION_K: Final = 5
"""Sessions that count for session recall (facts: session R@5)."""


@dataclass(frozen=True, slots=True)
class Question:
    """A line of ``queries.jsonl``.

    Attributes:
        qid: Its id.
        agent_id: Whose memory is asked, in scope own.
        workspace_id: Where that agent's entries are.
        category: Its kind.
        query: The text.
        relevant_ids: Entries that answer it.
        asked_at: When it is asked, for "last week" (RFC 3339); "unknown" if it does not say, so that figures are the
            same whenever they are measured.
    """

    qid: str
    agent_id: str
    workspace_id: str | None
    category: str
    query: str
    relevant_ids: tuple[str, ...]
    asked_at: str = "unknown"


@dataclass(frozen=True, slots=True)
class Answered:
    """A question and what was recalled.

    Attributes:
        question: The question.
        ranked: Entry ids for ``k``, best first.
        deep: The same as deep as recall goes.
    """

    question: Question
    ranked: Sequence[str]
    deep: Sequence[str]


def check_set(directory: Path, option: str) -> None:
    """That a folder holds a set: entries and questions.

    Raises:
        typer.BadParameter: If a file is missing, naming the option that named the folder.
    """
    for name in (ENTRIES_FILE, QUERIES_FILE):
        if not (directory / name).is_file():
            raise typer.BadParameter(f"there is no {name} in {directory}", param_hint=option)


def read_questions(directory: Path, workspace: str | None = None) -> list[Question]:
    """The questions of a folder; each in the workspace of its agent's entries.

    Raises:
        typer.BadParameter: At a line that is no question, and if there is none.
    """
    from crew_journal.schemas.timestamps import format_ts, parse_ts

    home = _workspaces(directory / ENTRIES_FILE)
    questions = []
    with (directory / QUERIES_FILE).open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                said = json.loads(line)
                agent = str(said["agent_id"])
                if not isinstance(said["relevant_ids"], list):  # a string would be taken for ids of one letter
                    raise TypeError("relevant_ids is no array")
                questions.append(
                    Question(
                        str(said.get("qid") or number),
                        agent,
                        workspace or home.get(agent),
                        str(said.get("category") or "all"),
                        str(said["query"]),
                        tuple(str(name) for name in said["relevant_ids"]),
                        format_ts(parse_ts(said["asked_at"])) if said.get("asked_at") else "unknown",
                    )
                )
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
                raise typer.BadParameter(f"line {number} is no question: {why}", param_hint=QUERIES_FILE) from None
    if not questions:
        raise typer.BadParameter(
            f'{directory / QUERIES_FILE} holds no question: write one a line, as {{"agent_id": "a", "query": "…", '
            '"relevant_ids": ["…"]}',
            param_hint=QUERIES_FILE,
        )
    return questions


async def ask_all(
    there: Target, questions: Sequence[Question], recipe: str, k: int, sessions: Mapping[str, str]
) -> tuple[dict[str, Any], list[Answered]]:
    """Ask every question with one recipe: ``k`` deep for the entries, and as deep as it goes for the sessions.

    Two requests, as a recipe's lanes may depend on ``k``, and ten entries often lie in fewer than five sessions.

    Returns:
        The figures, with the ``interval`` of recall@k (cluster bootstrap over agents), and the answers themselves.
    """
    from crew_journal.schemas.settings import RECALL_K_MAX
    from crew_journal.services.cli.connection import async_client
    from crew_journal.services.cli.output import plain, progress_bar

    gate = asyncio.Semaphore(ASKED_AT_ONCE)
    done, seconds = 0, list[float]()

    async with async_client(there) as journal:
        with progress_bar(recipe, len(questions), unit="questions") as bar:

            async def ask(question: Question, depth: int) -> list[str]:
                answer = plain(
                    await journal.recall(
                        question.query,
                        k=depth,
                        scope="own",
                        agent_id=question.agent_id,
                        recipe=recipe,
                        workspace_id=question.workspace_id,
                        asked_at=question.asked_at,
                    )
                )
                return [str(hit["entry_id"]) for hit in answer["hits"]]

            async def answer(question: Question) -> Answered:
                nonlocal done
                async with gate:
                    began = time.perf_counter()
                    ranked = await ask(question, k)
                    seconds.append(time.perf_counter() - began)
                    deep = ranked if k == RECALL_K_MAX else await ask(question, RECALL_K_MAX)
                done += 1
                bar.update(done, len(questions))
                return Answered(question, ranked, deep)

            answered = await asyncio.gather(*(answer(question) for question in questions))
    figures = {
        **scores(answered, k, sessions),
        "interval": _interval(answered, k),
        "p50_ms": round(1_000 * statistics.median(seconds), 2) if seconds else None,
    }
    return figures, answered


def _recalls(answered: Sequence[Answered], k: int) -> list[float]:
    from crew_journal.services.query.measures.evaluation import recall_at

    return [recall_at(one.ranked, frozenset(one.question.relevant_ids), k) for one in answered]


def _interval(answered: Sequence[Answered], k: int) -> dict[str, float] | None:
    from crew_journal.services.query.measures.intervals import cluster_bootstrap

    found = cluster_bootstrap(_recalls(answered, k), [one.question.agent_id for one in answered])
    return None if found is None else found.as_dict()


def gain_over(answered: Sequence[Answered], baseline: Sequence[Answered], k: int) -> dict[str, float] | None:
    """How much more recall@k than another recipe on the same questions: paired, cluster bootstrap over agents."""
    from crew_journal.services.query.measures.intervals import cluster_bootstrap

    pairs = zip(_recalls(answered, k), _recalls(baseline, k), strict=True)
    found = cluster_bootstrap([one - other for one, other in pairs], [one.question.agent_id for one in answered])
    return None if found is None else found.as_dict()


def with_share_embedded(directory: Path, target: Path, share: float, seed: int) -> None:
    """A copy of the journal in which about ``share`` of the entries flagged ``refs.episodic`` keep the flag.

    So only they are embedded; types that the policy always embeds are left alone.
    """
    draw = random.Random(seed)
    with (target / ENTRIES_FILE).open("w", encoding="utf-8") as file:
        for entry in records(directory / ENTRIES_FILE):
            refs = entry.get("refs")
            if isinstance(refs, dict) and refs.get("episodic") is True and draw.random() >= share:
                entry = {**entry, "refs": {**refs, "episodic": False}}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def scores(answered: Sequence[Answered], k: int, sessions: Mapping[str, str]) -> dict[str, Any]:
    """Means over all questions and over those of each category; None where there is nothing to take the mean of.

    Session recall is the mean over the questions that a session answers.

    Args:
        answered: Questions with what was recalled.
        k: Depth of recall and nDCG.
        sessions: Entry id → session (``trace_id``).
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


def _means(group: Sequence[Answered], k: int, sessions: Mapping[str, str]) -> dict[str, Any]:
    from crew_journal.services.query.measures.evaluation import ndcg_at, recall_at, reciprocal_rank, session_recall_at

    found: dict[str, list[float]] = {name: [] for name in ("recall", "recall_at_5", "ndcg", "mrr", "session_recall")}
    for one in group:
        relevant = frozenset(one.question.relevant_ids)
        found["recall"].append(recall_at(one.ranked, relevant, k))
        found["recall_at_5"].append(recall_at(one.ranked, relevant, SHALLOW_K))
        found["ndcg"].append(ndcg_at(one.ranked, relevant, k))
        found["mrr"].append(reciprocal_rank(one.ranked, relevant))
        if not relevant.isdisjoint(sessions):
            found["session_recall"].append(session_recall_at(one.deep, relevant, sessions, SESSION_K))
    means = {name: round(sum(values) / len(values), 4) if values else None for name, values in found.items()}
    return {"questions": len(group), **means}


def figure(value: float | None) -> str:
    """A mean as it is shown; a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"


def _workspaces(path: Path) -> dict[str, str | None]:
    """The workspace of each agent's entries."""
    return {str(entry["agent_id"]): entry.get("workspace_id") for entry in records(path) if entry.get("agent_id")}


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a JSONL file; lines that are none are the import's to name."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    yield record
