"""``eval DIR``: how well recall finds what is known to be relevant, on any journal with questions.

Invariant: the journal goes through the same import, service and recall as any other; nothing is read around them. The
figures are computed by ``services/query/measures/evaluation`` alone.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from . import exam, exam_set
from .groups import grouped
from .options import Embedder, Json, Where, Workspace
from .scratch import import_set, scratch_journal

if TYPE_CHECKING:
    from .connection import Target

RECIPES: Final = "robust,conversational,conversational-static,rrf,dense,lexical"
INJECTED: Final = {
    "precision": "precision",
    "inject_recall": "recall in it",
    "inject_hits": "hits in it",
    "silence": "silence",
    "wrongly_silent": "wrongly",
}
"""Figures of mode ``inject``, and how they are headed."""
VECTORS_PATIENCE_S: Final = 120.0
"""Seconds without a further vector until it measures without; MiniLM does 60 a second on one core, and a large model
on a processor may need a minute for its first batch of 64."""


@grouped
def evaluate(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", exists=True, file_okay=False, help="Holds journal.jsonl and queries.jsonl."),
    ],
    recipes: Annotated[str, typer.Option("--recipes", help="Recipes to compare, separated by commas.")] = RECIPES,
    k: Annotated[int, typer.Option("--k", "-k", min=1, max=50, help="Hits per question.")] = 10,
    vectors: Annotated[
        float,
        typer.Option(
            "--vectors", min=0.0, max=1.0, help="Share of the flagged entries that get a vector, drawn by --seeds."
        ),
    ] = 1.0,
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=1, max=20, help="Number of random draws of --vectors; figures are their means."),
    ] = 1,
    embedder: Embedder = None,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the running journal, which has the entries, not a scratch one.")
    ] = False,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Measure recall on a journal with questions: recall@k, nDCG, MRR and session recall@5, by recipe and category.

    Of mode inject: precision, recall, hits a question, the share of questions of other agents that get nothing (silence),
    and of questions that recall answers which get nothing (wrongly).

    The interval is a cluster bootstrap over agents (conversations); the gain over the first recipe is paired. With
    --vectors 0.1 --seeds 3 only a random share of the entries is embedded, three times, and figures are means.

    Imports DIR/journal.jsonl into a scratch journal, waits for its vectors, and asks each question of
    DIR/queries.jsonl ({"qid", "agent_id", "category", "query", "relevant_ids"}) in scope own of its agent. Relative dates
    in a question ("last week") refer to its "asked_at", and are ignored without it. A question that no entry of its agent
    answers is printed and left out of all means.
    """
    from .connection import embedder_kind, target
    from .output import emit

    exam_set.check_set(directory, "DIR")
    if live and vectors < 1.0:
        raise typer.BadParameter(
            "cannot be combined with --live: the vectors of the running journal are not changed", param_hint="--vectors"
        )
    chosen = exam.recipes_named(recipes, "--recipes")
    asked = exam_set.read_set(directory, workspace)
    exam.tell(asked)
    reports = []
    for seed in range(1, seeds + 1) if vectors < 1.0 else [0]:
        with ExitStack() as stack:
            if live:
                there, last_seq = stack.enter_context(target(where, embedder=embedder or "auto")), 0
            else:
                source = directory
                if seed:
                    source = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crew-journal-eval-")))
                    exam_set.with_share_embedded(directory, source, vectors, seed)
                there = stack.enter_context(scratch_journal(embedder=embedder_kind(embedder)))
                last_seq = import_set(source, there, workspace)
            reports.append(_measure(there, directory, asked, chosen, k, last_seq))
    report = {**averaged_reports(reports, chosen), "vector_share": vectors, "seeds": len(reports)}
    if json_output:
        emit(report)
    else:
        _print_report(report, k)


def averaged_reports(reports: Sequence[dict[str, Any]], recipes: Sequence[str]) -> dict[str, Any]:
    """One report of several draws: counts and figures are means, the rest is the same in each."""
    if len(reports) == 1:
        return reports[0]
    counts = {name: round(statistics.fmean(one[name] for one in reports)) for name in ("embeddable", "vectors")}
    figures = {name: exam.averaged([one["recipes"][name] for one in reports]) for name in recipes}
    return {**reports[0], **counts, "recipes": figures}


def _measure(
    there: Target, directory: Path, asked: exam_set.ExamSet, recipes: Sequence[str], k: int, last_seq: int
) -> dict[str, Any]:
    from .connection import sync_client
    from .output import say
    from .vectors import wait_for_vectors

    began = time.monotonic()
    with sync_client(there) as journal:
        vectors = wait_for_vectors(journal, last_seq, VECTORS_PATIENCE_S)
    if not vectors.embeds:
        say("there is no embedder: dense finds nothing; rrf and robust compare words only")
    elif vectors.missing:
        say(f"{vectors.missing} vectors are missing: see `embedder status` of a journal with this embedder")
    report: dict[str, Any] = {
        "directory": str(directory),
        **asked.as_dict(),
        "k": k,
        "model": vectors.model,
        "embeddable": vectors.embeddable,
        "vectors": vectors.count,
        "embedding_seconds": round(time.monotonic() - began, 1),
        "recipes": {},
    }
    baseline: Sequence[exam.Answered] = ()
    for recipe in recipes:
        found, answered = asyncio.run(exam.ask_all(there, asked, recipe, k))
        if baseline:
            found["gain"] = exam.gain_over(answered, baseline, k)
        baseline = baseline or answered
        report["recipes"][recipe] = found
    return report


def _print_report(report: Mapping[str, Any], k: int) -> None:
    from .output import print_table, say

    say(
        f"{report['questions']} questions, model {report['model'] or 'none'}, {report['vectors']} vectors "
        f"of {report['embeddable']} embeddable entries"
    )
    first = next(iter(report["recipes"]), "")
    columns = (
        "recipe",
        "category",
        "questions",
        f"recall@{k}",
        "recall@5",
        "nDCG",
        "MRR",
        f"session@{exam.SESSION_K}",
        *INJECTED.values(),
        "95 %",
        f"over {first}",
    )
    rows = []
    for recipe, found in report["recipes"].items():
        for category, figures in (("all", found["overall"]), *found["categories"].items()):
            rows.append(
                (
                    recipe,
                    category,
                    figures["questions"],
                    *(
                        exam.figure(figures[name])
                        for name in ("recall", "recall_at_5", "ndcg", "mrr", "session_recall", *INJECTED)
                    ),
                    _interval(found.get("interval")) if category == "all" else "",
                    _interval(found.get("gain"), signed=True) if category == "all" else "",
                )
            )
    print_table("", columns, rows, right=columns[2:])


def _interval(found: Mapping[str, float] | None, *, signed: bool = False) -> str:
    if found is None:
        return ""
    sign = "+" if signed else ""
    return f"{found['mean']:+.3f} " * signed + f"[{found['low']:{sign}.3f}, {found['high']:{sign}.3f}]"
