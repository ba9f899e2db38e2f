"""``eval DIR``: how well recall finds what is known to be relevant, on any journal with questions.

Invariant: the journal goes through the same import, service and recall as any other; nothing is read around them. The
figures are computed by ``services/query/evaluation`` alone.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from crew_journal.services.cli.options import FALLBACK_DATA_DIR, DataDir, Embedder, Json, Token, Url, Workspace

if TYPE_CHECKING:
    from crew_journal.services.cli.connection import Target

RECIPES: Final = "rrf,robust,dense,lexical"
ENTRIES_FILE: Final = "journal.jsonl"
QUERIES_FILE: Final = "queries.jsonl"
VECTORS_PATIENCE_S: Final = 120.0
"""Seconds without a further vector until it measures without; MiniLM does 60 a second on one core, and a large model
on a processor may need a minute for its first batch of 64."""
ASKED_AT_ONCE: Final = 4
SESSION_K: Final = 5


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
    """

    qid: str
    agent_id: str
    workspace_id: str | None
    category: str
    query: str
    relevant_ids: tuple[str, ...]


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


def evaluate(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", exists=True, file_okay=False, help="Holds journal.jsonl and queries.jsonl."),
    ],
    recipes: Annotated[str, typer.Option("--recipes", help="Which, separated by commas.")] = RECIPES,
    k: Annotated[int, typer.Option("--k", "-k", min=1, max=50, help="Hits per question.")] = 10,
    embedder: Embedder = None,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the running journal, which has the entries, not a scratch one.")
    ] = False,
    workspace: Workspace = None,
    data_dir: DataDir = FALLBACK_DATA_DIR,
    url: Url = None,
    token: Token = None,
    json_output: Json = False,
) -> None:
    """Measure recall on a journal with questions: recall@k, nDCG, MRR and session recall@5, by recipe and category.

    Imports DIR/journal.jsonl into a scratch journal, waits for its vectors, and asks each question of
    DIR/queries.jsonl ({"qid", "agent_id", "category", "query", "relevant_ids"}) in scope own of its agent.
    """
    from crew_journal.services.cli.connection import Where, embedder_kind, target
    from crew_journal.services.cli.output import emit

    for name in (ENTRIES_FILE, QUERIES_FILE):
        if not (directory / name).is_file():
            raise typer.BadParameter(f"there is no {name} in {directory}", param_hint="DIR")
    chosen = [name.strip() for name in recipes.split(",") if name.strip()]
    questions = read_questions(directory, workspace)
    with ExitStack() as stack:
        if live:
            there, last_seq = stack.enter_context(target(Where(data_dir, url, token), embedder=embedder or "auto")), 0
        else:
            there, last_seq = stack.enter_context(_scratch(directory, embedder_kind(embedder), workspace))
        report = _measure(there, directory, questions, chosen, k, last_seq)
    if json_output:
        emit(report)
    else:
        _print_report(report, k)


def read_questions(directory: Path, workspace: str | None = None) -> list[Question]:
    """The questions of a folder; each in the workspace of its agent's entries.

    Raises:
        typer.BadParameter: At a line that is no question.
    """
    home = _workspaces(directory / ENTRIES_FILE)
    questions = []
    with (directory / QUERIES_FILE).open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                said = json.loads(line)
                agent = str(said["agent_id"])
                questions.append(
                    Question(
                        str(said.get("qid") or number),
                        agent,
                        workspace or home.get(agent),
                        str(said.get("category") or "all"),
                        str(said["query"]),
                        tuple(str(name) for name in said["relevant_ids"]),
                    )
                )
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise typer.BadParameter(
                    f"line {number} is no question: {type(error).__name__} {error}", param_hint=QUERIES_FILE
                ) from None
    return questions


@contextmanager
def _scratch(directory: Path, embedder: Any, workspace: str | None) -> Iterator[tuple[Target, int]]:
    """A journal of its own below a temporary folder, with the entries imported, and their last sequence."""
    from crew_journal.schemas.settings import Settings
    from crew_journal.services.cli.connection import ANY_PORT, Target, Where
    from crew_journal.services.cli.importing import ImportOptions, import_file
    from crew_journal.services.cli.local import LocalRuntime

    with tempfile.TemporaryDirectory(prefix="crew-journal-eval-") as folder:
        data_dir = Path(folder)
        settings = Settings(
            data_dir=data_dir, http=ANY_PORT, embedder=embedder, durability="interval", log_level="error", nats=None
        )
        with LocalRuntime(settings) as runtime:
            there = Target(runtime.http_url, runtime.owner_token, data_dir, local=True)
            options = ImportOptions(workspace=workspace)
            _, state = import_file(str(directory / ENTRIES_FILE), there, Where(data_dir), options)
            yield there, state.last_seq


def _measure(
    there: Target, directory: Path, questions: Sequence[Question], recipes: Sequence[str], k: int, last_seq: int
) -> dict[str, Any]:
    from crew_journal.services.cli.connection import sync_client
    from crew_journal.services.cli.output import say
    from crew_journal.services.cli.vectors import wait_for_vectors

    began = time.monotonic()
    with sync_client(there) as journal:
        vectors = wait_for_vectors(journal, last_seq, VECTORS_PATIENCE_S)
    if not vectors.embeds:
        say("there is no embedder: dense finds nothing, rrf and robust go by words alone")
    elif vectors.missing:
        say(f"{vectors.missing} vectors are missing: see `embedder status` of a journal with this embedder")
    report: dict[str, Any] = {
        "directory": str(directory),
        "questions": len(questions),
        "k": k,
        "model": vectors.model,
        "embeddable": vectors.embeddable,
        "vectors": vectors.count,
        "embedding_seconds": round(time.monotonic() - began, 1),
        "recipes": {},
    }
    sessions = {
        str(entry.get("id")): str(entry["trace_id"])
        for entry in _records(directory / ENTRIES_FILE)
        if entry.get("trace_id")
    }
    for recipe in recipes:
        report["recipes"][recipe] = asyncio.run(_ask_all(there, questions, recipe, k, sessions))
    return report


async def _ask_all(
    there: Target, questions: Sequence[Question], recipe: str, k: int, sessions: Mapping[str, str]
) -> dict[str, Any]:
    """Ask every question with one recipe: ``k`` deep for the entries, and as deep as it goes for the sessions.

    Two requests, as a recipe's lanes may depend on ``k``, and ten entries often lie in fewer than five sessions.
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
    return {
        **scores(answered, k, sessions),
        "p50_ms": round(1_000 * statistics.median(seconds), 2) if seconds else None,
    }


def scores(answered: Sequence[Answered], k: int, sessions: Mapping[str, str]) -> dict[str, Any]:
    """Means over all questions and over those of each category.

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


def _means(group: Sequence[Answered], k: int, sessions: Mapping[str, str]) -> dict[str, Any]:
    from crew_journal.services.query.evaluation import ndcg_at, recall_at, reciprocal_rank, session_recall_at

    sums = dict.fromkeys(("recall", "ndcg", "mrr", "session_recall"), 0.0)
    for one in group:
        relevant = frozenset(one.question.relevant_ids)
        sums["recall"] += recall_at(one.ranked, relevant, k)
        sums["ndcg"] += ndcg_at(one.ranked, relevant, k)
        sums["mrr"] += reciprocal_rank(one.ranked, relevant)
        sums["session_recall"] += session_recall_at(one.deep, relevant, sessions, SESSION_K)
    means = {name: round(total / len(group), 4) if group else None for name, total in sums.items()}
    return {"questions": len(group), **means}


def _workspaces(path: Path) -> dict[str, str | None]:
    """The workspace of each agent's entries."""
    return {str(entry["agent_id"]): entry.get("workspace_id") for entry in _records(path) if entry.get("agent_id")}


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue  # the import names it
                if isinstance(record, dict):
                    yield record


def _print_report(report: Mapping[str, Any], k: int) -> None:
    from crew_journal.services.cli.output import print_table, say

    say(
        f"{report['questions']} questions, model {report['model'] or 'none'}, {report['vectors']} vectors "
        f"of {report['embeddable']} embeddable entries"
    )
    columns = ("recipe", "category", "questions", f"recall@{k}", "nDCG", "MRR", f"session@{SESSION_K}")
    rows = []
    for recipe, found in report["recipes"].items():
        for category, figures in (("all", found["overall"]), *found["categories"].items()):
            rows.append(
                (
                    recipe,
                    category,
                    figures["questions"],
                    *(_figure(figures[name]) for name in ("recall", "ndcg", "mrr", "session_recall")),
                )
            )
    print_table("", columns, rows, right=columns[2:])


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
