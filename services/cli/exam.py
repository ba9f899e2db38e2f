"""Measures recall by asking a journal questions whose relevant entries are known.

Invariant: a set of entries goes through the import, service and recall of any journal; questions are asked over HTTP in
scope ``own`` of their agent. The mean of zero questions is None.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import click
from pydantic import ConfigDict, Field, ValidationError

from ...schemas.core.entry import Id
from ...schemas.core.errors import FieldProblem, InvalidEntry
from ...schemas.core.limits import DEFAULT_WORKSPACE, RECALL_K_MAX
from ...schemas.core.operation import body_problems
from ...schemas.recall.operations import ASKED_UNKNOWN, ENTRIES_ALONE, INJECT, Mode, RecallRequest
from .connection import ANY_PORT, Target, async_client, local_runtime
from .foreign_files import bounded_lines
from .importing.command import ImportOptions, import_file
from .importing.lines import MAX_LINE_BYTES, Line, json_object_of, read_batches
from .options import Where, settings_from
from .output import progress_bar, say

# A set to measure recall with: ``journal.jsonl`` and ``queries.jsonl`` of a folder, read and checked before anything
# runs.


ENTRIES_FILE: Final = "journal.jsonl"
QUERIES_FILE: Final = "queries.jsonl"
SHOWN: Final = 5
"""Lines or questions named in one message; there is one mistake behind most of them."""

Label = Annotated[str, Field(coerce_numbers_to_str=True)]
Agents = dict[str, dict[str | None, str | None]]
"""Entry id → workspace → agent."""


class ExamQuestion(RecallRequest):
    """A line of ``queries.jsonl``: a recall in scope own of an agent, and the entries that answer it.

    Without ``asked_at`` relative dates are ignored, so that figures do not depend on the day they are measured.
    """

    model_config = ConfigDict(extra="ignore")

    qid: Label = ""
    agent_id: Id
    category: Label = "all"
    asked_at: str | None = ASKED_UNKNOWN
    relevant_ids: tuple[Annotated[str, Field(min_length=1)], ...]


@dataclass(frozen=True, slots=True)
class Remark:
    """A question that cannot be answered, or not wholly: its line (from 1), its id, and why."""

    line: int
    qid: str
    why: str


@dataclass(frozen=True, slots=True)
class ExamSet:
    """A set.

    Attributes:
        questions: Questions that can be answered, in the order of the file.
        sessions: Workspace → entry id → session (``trace_id``).
        left_out: Questions that no entry can answer; excluded from all means.
        partly: Questions with relevant entries that cannot be recalled. These entries count as not found: the
            denominator of recall is the number of relevant entries (as in trec_eval), recallable or not.
    """

    questions: Sequence[ExamQuestion]
    sessions: Mapping[str | None, Mapping[str, str]]
    left_out: Sequence[Remark] = ()
    partly: Sequence[Remark] = ()

    def as_dict(self) -> dict[str, Any]:
        """A summary for reports: the number of questions, and the questions that are left out or only partly answerable."""
        return {
            "questions": len(self.questions),
            "left_out": [asdict(question) for question in self.left_out],
            "partly_answerable": [asdict(remark) for remark in self.partly],
        }


def read_set(directory: Path, workspace: str | None = None, option: str = "DIR") -> ExamSet:
    """The set of a folder, with each question in the workspace of the entries that answer it.

    Args:
        directory: Holds both files.
        workspace: Workspace for all entries, overriding the entries' own.
        option: The option that names the folder, for errors.

    Raises:
        click.BadParameter: If a file is missing, a line is not an entry or not a question, or no question can be answered.
    """
    for name in (ENTRIES_FILE, QUERIES_FILE):
        if not (directory / name).is_file():
            raise click.BadParameter(f"there is no {name} in {directory}", param_hint=option)
    agents, sessions = _read_entries(directory / ENTRIES_FILE, workspace)
    questions, left_out, partly = list[ExamQuestion](), list[Remark](), list[Remark]()
    with (directory / QUERIES_FILE).open("rb") as file:
        for number, raw in enumerate(bounded_lines(file, MAX_LINE_BYTES), 1):
            if raw is None:
                raise click.BadParameter(
                    f"line {number} is longer than {MAX_LINE_BYTES:,} bytes", param_hint=QUERIES_FILE
                )
            if not raw.strip():
                continue
            try:
                question = _read_question(number, raw)
                named = workspace or question.workspace_id
                homes = _homes(question, agents, {_home(named)} if named else None)
            except ValueError as error:
                raise click.BadParameter(
                    f"line {number} is not a valid question: {error}", param_hint=QUERIES_FILE
                ) from None
            if not homes:
                left_out.append(Remark(number, question.qid, _why_missing(question.relevant_ids, question, named)))
                continue
            (home,) = homes
            questions.append(question.model_copy(update={"workspace_id": home}))
            missing = [i for i in question.relevant_ids if agents.get(i, {}).get(home) != question.agent_id]
            if missing:
                partly.append(Remark(number, question.qid, _why_missing(missing, question, home)))
    if not questions:
        why = f"no question can be answered: {listed(left_out)}"
        if not left_out:
            example = '{"agent_id": "a", "query": "…", "relevant_ids": ["…"]}'
            why = f"{directory / QUERIES_FILE} holds no question: write one a line, as {example}"
        raise click.BadParameter(why, param_hint=QUERIES_FILE)
    return ExamSet(questions, sessions, left_out, partly)


def listed(remarks: Sequence[Remark]) -> str:
    """The first of them with their lines, and how many more there are."""
    return _first([f"line {remark.line}: {remark.why}" for remark in remarks])


def with_share_embedded(directory: Path, target: Path, share: float, seed: int) -> None:
    """A copy of the journal in which about ``share`` of the entries flagged ``refs.episodic`` keep the flag.

    Only these entries are embedded; types that the policy always embeds are not changed.

    Raises:
        click.BadParameter: If a line is not an entry.
    """
    draw = random.Random(seed)
    with (target / ENTRIES_FILE).open("w", encoding="utf-8") as file:
        for line in _lines(directory / ENTRIES_FILE, None):
            entry, refs = line.record, line.record.get("refs")
            if isinstance(refs, dict) and refs.get("episodic") is True and draw.random() >= share:
                entry = {**entry, "refs": {**refs, "episodic": False}}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def _first(parts: Sequence[str]) -> str:
    return "; ".join(parts[:SHOWN]) + (f"; and {len(parts) - SHOWN:,} more" if len(parts) > SHOWN else "")


def _lines(path: Path, workspace: str | None) -> Iterator[Line]:
    """The lines as the import reads them.

    Raises:
        click.BadParameter: At the first batch with a line that the import would refuse, naming its lines.
    """
    with path.open("rb") as file:
        for batch in read_batches(file, workspace=workspace):
            if batch.bad:
                problems = [f"line {line.number}: {_text(problem)}" for line in batch.bad for problem in line.problems]
                raise click.BadParameter(_first(problems), param_hint=ENTRIES_FILE)
            yield from batch.good


def _text(problem: FieldProblem) -> str:
    return str(problem) + (f" ({problem.fix})" if problem.fix else "")


def _read_entries(path: Path, workspace: str | None) -> tuple[Agents, dict[str | None, dict[str, str]]]:
    """The agent of each entry, and the sessions."""
    agents, sessions = Agents(), dict[str | None, dict[str, str]]()
    lines = dict[tuple[str | None, str], tuple[int, int]]()
    for line in _lines(path, workspace):
        entry = line.record
        home, name = workspace or _home(entry.get("workspace_id")), str(entry["id"])
        content = hash(line.raw)
        first, content_of_first = lines.setdefault((home, name), (line.number, content))
        if content != content_of_first:
            raise click.BadParameter(
                f"line {line.number}: the id {name} is that of another entry, in line {first}", param_hint=ENTRIES_FILE
            )
        agents.setdefault(name, {})[home] = entry.get("agent_id") or None
        if session := entry.get("trace_id"):
            sessions.setdefault(home, {})[name] = str(session)
    return agents, sessions


def _read_question(number: int, raw: bytes) -> ExamQuestion:
    """A line as a question.

    Raises:
        ValueError: If the line is not a valid question.
    """
    try:
        question = ExamQuestion.model_validate(json_object_of(number, raw))
    except InvalidEntry as error:
        raise ValueError(_text(error.problems[0]).removeprefix("entry ")) from None
    except ValidationError as error:
        problem = body_problems(error, ExamQuestion)[0]
        raise ValueError(_text(problem)) from None
    once = tuple(dict.fromkeys(question.relevant_ids))
    return question.model_copy(update={"qid": question.qid or str(number), "relevant_ids": once})


def _home(name: str | None) -> str | None:
    """The workspace of a request: the default workspace may be omitted by entries and questions."""
    return None if name in (None, "", DEFAULT_WORKSPACE) else name


def _homes(question: ExamQuestion, agents: Agents, only: set[str | None] | None) -> set[str | None]:
    """The workspace (``only`` these, if given) in which its agent has entries that answer it; empty if there is none.

    Raises:
        ValueError: If there are several, because a question is asked in one workspace.
    """
    homes_found = {
        home
        for name in question.relevant_ids
        for home, agent in agents.get(name, {}).items()
        if agent == question.agent_id and (only is None or home in only)
    }
    if len(homes_found) > 1:
        homes = " and ".join(sorted(home or DEFAULT_WORKSPACE for home in homes_found))
        raise ValueError(
            f"the entries of {question.agent_id} that answer it are in several workspaces ({homes}), and a question "
            "is asked in one: name it as workspace_id"
        )
    return homes_found


def _why_missing(names: Sequence[str], question: ExamQuestion, home: str | None) -> str:
    if not names:
        return "relevant_ids is empty"
    first, *more = names
    which = f"{first} and {len(more):,} more are not entries" if more else f"{first} is not an entry"
    return f"{which} of {question.agent_id} in {ENTRIES_FILE}" + (f", workspace {home}" if home else "")


ASKED_AT_ONCE: Final = 4
"""Number of concurrent questions, equal to the journal's threads."""
SHALLOW_K: Final = 5
"""Second depth at which recall is reported."""
SESSION_K: Final = 5
"""Sessions that count for session recall (facts: session R@5)."""
FIGURES: Final = ("recall", "recall_at_5", "ndcg", "mrr", "session_recall")
Sessions = Mapping[str | None, Mapping[str, str]]
"""Workspace → entry id → session."""


@dataclass(frozen=True, slots=True)
class ExamAnswer:
    """A question and the recalled entries.

    Attributes:
        question: The question.
        ranked: Entry ids for ``k``, best first.
        deep: Entry ids for the maximum ``k``.
        injected: Entry ids from mode ``inject`` for ``k``; None if not measured.
        foreign: Entry ids from mode ``inject`` for a question of another agent; None if there is no other agent.
    """

    question: ExamQuestion
    ranked: Sequence[str]
    deep: Sequence[str]
    injected: Sequence[str] | None = None
    foreign: Sequence[str] | None = None

    def recall(self, k: int) -> float:
        """Share of the relevant entries among the first ``k``."""
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
    from ..recall.recipes import RECIPES

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

    Two requests are needed, because a recipe may depend on ``k`` and ten entries often lie in fewer than five sessions.
    Two more requests use mode ``inject``: the question itself, and a question of another agent, which nothing here
    should answer.

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
                    kinds=ENTRIES_ALONE,
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
    """For each question a question of another agent, in turn; None if there is no other agent."""
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
    interval = cluster_bootstrap(
        values, [f"{answer.question.workspace_id}/{answer.question.agent_id}" for answer in answered]
    )
    return None if interval is None else interval.as_dict()


def scores(answered: Sequence[ExamAnswer], k: int, sessions: Sessions) -> dict[str, Any]:
    """Means over all questions and over those of each category; None for an empty category.

    Recall and nDCG use the first ``k`` entries; session recall is the mean over questions that a session answers.
    """
    groups: dict[str, list[ExamAnswer]] = {}
    for answer in answered:
        groups.setdefault(answer.question.category, []).append(answer)
    return {
        "overall": _means(answered, k, sessions),
        "categories": {name: _means(group, k, sessions) for name, group in sorted(groups.items())},
    }


def averaged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of each number over reports of the same shape (counts rounded); other values come from the first report."""
    means = dict(reports[0])
    for name, value in reports[0].items():
        values: list[Any] = [report[name] for report in reports]
        if isinstance(value, dict):
            means[name] = averaged(values)
        elif isinstance(value, int | float):
            means[name] = round(statistics.fmean(values), 4 if isinstance(value, float) else None)
    return means


def _means(group: Sequence[ExamAnswer], k: int, sessions: Sessions) -> dict[str, Any]:

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
    """By question, in mode ``inject``: precision (if anything is returned), recall, hits, silence for a foreign question.

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


# Measures of retrieval, as pure functions of ranked ids.


DEPTHS: Final = (5, 10)
"""Depths k that are reported."""
SESSION_DEPTH: Final = 5
OVERALL: Final = "overall"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranking of one question."""

    category: str
    ranked: Sequence[str]
    relevant: frozenset[str]


@dataclass(frozen=True, slots=True)
class MeanFigures:
    """Means over questions.

    Attributes:
        recall: Recall at each depth.
        ndcg: Normalised discounted cumulative gain at each depth.
        mrr: Mean reciprocal rank of the first relevant entry.
        session_recall: Recall of sessions at ``SESSION_DEPTH``.
    """

    questions: int
    recall: dict[int, float]
    ndcg: dict[int, float]
    mrr: float
    session_recall: float

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON, rounded to four decimals."""
        return {
            "questions": self.questions,
            **{f"recall@{k}": round(v, 4) for k, v in self.recall.items()},
            **{f"ndcg@{k}": round(v, 4) for k, v in self.ndcg.items()},
            "mrr": round(self.mrr, 4),
            f"session_recall@{SESSION_DEPTH}": round(self.session_recall, 4),
        }


def recall_at(ranked: Sequence[str], relevant: frozenset[str], k: int) -> float:
    """Share of the relevant ids that are among the first ``k``; 0 if nothing is relevant."""
    return len(relevant.intersection(ranked[:k])) / len(relevant) if relevant else 0.0


def ndcg_at(ranked: Sequence[str], relevant: frozenset[str], k: int) -> float:
    """``DCG@k / ideal DCG@k`` with binary gains and ``1 / log2(rank + 1)`` (Järvelin and Kekäläinen, 2002)."""
    gained = sum(1.0 / math.log2(rank + 1) for rank, entry_id in enumerate(ranked[:k], 1) if entry_id in relevant)
    ideal = sum(1.0 / math.log2(rank + 1) for rank in range(1, min(k, len(relevant)) + 1))
    return gained / ideal if ideal else 0.0


def reciprocal_rank(ranked: Sequence[str], relevant: frozenset[str]) -> float:
    """``1 / rank`` of the first relevant id, 0 if there is none."""
    return next((1.0 / rank for rank, entry_id in enumerate(ranked, 1) if entry_id in relevant), 0.0)


def session_recall_at(ranked: Sequence[str], relevant: frozenset[str], session_of: Mapping[str, str], k: int) -> float:
    """Share of the relevant sessions that are among the first ``k`` distinct sessions of the ranking."""
    wanted = {session_of[entry_id] for entry_id in relevant if entry_id in session_of}
    sessions = list(dict.fromkeys(session_of[entry_id] for entry_id in ranked if entry_id in session_of))[:k]
    return len(wanted.intersection(sessions)) / len(wanted) if wanted else 0.0


def evaluate(rankings: Iterable[Ranking], session_of: Mapping[str, str]) -> dict[str, MeanFigures]:
    """The figures of each category, and of all questions under ``OVERALL``.

    Args:
        rankings: Rankings of at least ``max(DEPTHS)`` entries (50 for session recall); those without relevant ids are
            left out.
        session_of: Entry id → session.
    """
    groups: dict[str, list[Ranking]] = {}
    for ranking in rankings:
        if not ranking.relevant:
            continue
        groups.setdefault(OVERALL, []).append(ranking)
        groups.setdefault(ranking.category, []).append(ranking)
    return {name: _figures(group, session_of) for name, group in groups.items()}


def _figures(group: Sequence[Ranking], session_of: Mapping[str, str]) -> MeanFigures:
    n = len(group)
    return MeanFigures(
        n,
        {k: sum(recall_at(r.ranked, r.relevant, k) for r in group) / n for k in DEPTHS},
        {k: sum(ndcg_at(r.ranked, r.relevant, k) for r in group) / n for k in DEPTHS},
        sum(reciprocal_rank(r.ranked, r.relevant) for r in group) / n,
        sum(session_recall_at(r.ranked, r.relevant, session_of, SESSION_DEPTH) for r in group) / n,
    )


# Cluster-bootstrap intervals over conversations.


DRAWS: Final = 4_000
SEED: Final = 20_260
LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its interval at level ``LEVEL``, over ``clusters`` clusters."""

    mean: float
    low: float
    high: float
    clusters: int

    def as_dict(self) -> dict[str, float]:
        """As JSON, rounded to four decimals."""
        return {"mean": round(self.mean, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


def cluster_bootstrap(values: Sequence[float], clusters: Sequence[str]) -> Interval | None:
    """Percentile interval of a mean by resampling whole clusters (Field and Welsh, 2007); None without values.

    With one cluster, the interval has no width and no meaning.
    """
    if not values:
        return None
    import numpy as np  # here, so that --help does not load it

    names, of_cluster = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.bincount(of_cluster, weights=np.asarray(values, float))
    counts = np.bincount(of_cluster)
    drawn = np.random.default_rng(SEED).integers(0, len(names), (DRAWS, len(names)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Interval(float(sums.sum() / counts.sum()), float(low), float(high), len(names))
