"""``eval DIR``: measures how well recall finds relevant entries, on any journal with questions.

Invariant: everything that can be wrong with the set or the options is refused before a journal is started.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from ...schemas.core.errors import VerificationFailed
from ..printable import safe
from . import exam
from . import exam as exam_set
from .commands import Argument, Option
from .connection import Target, sync_client, target
from .embeddings import wait_for_vectors
from .exam import import_set, scratch_journal
from .options import Embedder, Json, Where, Workspace
from .output import counted, print_table, say, show

if TYPE_CHECKING:
    from ..documents.laws import TrialReport

RECIPES: Final = "robust,conversational,conversational-static,rrf,dense,lexical"
INJECTED: Final = {
    "precision": "precision",
    "inject_recall": "recall in it",
    "inject_hits": "hits in it",
    "silence": "silence",
    "wrongly_silent": "wrongly",
}
"""Figures of mode ``inject`` and their headings."""


def evaluate(
    directory: Annotated[
        Path, Argument(metavar="DIR", exists=True, file_okay=False, help="Holds journal.jsonl and queries.jsonl.")
    ],
    recipes: Annotated[str, Option("--recipes", help="Recipes to compare, separated by commas.")] = RECIPES,
    k: Annotated[int, Option("--k", "-k", min=1, max=50, help="Hits per question.")] = 10,
    vectors: Annotated[
        float,
        Option("--vectors", min=0.0, max=1.0, help="Share of the flagged entries that get a vector, drawn by --seeds."),
    ] = 1.0,
    seeds: Annotated[
        int, Option("--seeds", min=1, max=20, help="Number of random draws of --vectors; figures are their means.")
    ] = 1,
    embedder: Embedder = None,
    live: Annotated[
        bool, Option("--live", help="Ask the running journal, which has the entries, not a scratch one.")
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
    if live and vectors < 1.0:
        raise click.BadParameter(
            "cannot be combined with --live: the vectors of the running journal are not changed", param_hint="--vectors"
        )
    chosen = exam.recipes_named(recipes, "--recipes")
    questions = exam_set.read_set(directory, workspace)
    exam.report_unanswerable(questions)
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
                there = stack.enter_context(scratch_journal(embedder=embedder))
                last_seq = import_set(source, there, workspace)
            reports.append(_measure(there, directory, questions, chosen, k, last_seq))
    report = {**exam.averaged(reports), "vector_share": vectors, "seeds": len(reports)}
    show(report, json_output, _print_report)


def _measure(
    there: Target, directory: Path, questions: exam_set.ExamSet, recipes: Sequence[str], k: int, last_seq: int
) -> dict[str, Any]:
    import asyncio

    began = time.monotonic()
    with sync_client(there) as journal:
        vectors = wait_for_vectors(journal, last_seq)
    if not vectors.embeds:
        say("there is no embedder: dense finds nothing; rrf and robust compare words only")
    elif vectors.missing:
        say(f"{vectors.missing} vectors are missing: see `model status` of a journal with this embedder")
    report: dict[str, Any] = {
        "directory": str(directory),
        **questions.as_dict(),
        "k": k,
        "model": vectors.model,
        "embeddable": vectors.embeddable,
        "vectors": vectors.count,
        "embedding_seconds": round(time.monotonic() - began, 1),
        "recipes": {},
    }
    baseline: Sequence[exam.ExamAnswer] = ()
    for recipe in recipes:
        measured, answered = asyncio.run(exam.ask_all(there, questions, recipe, k))
        if baseline:
            gains = [answer.recall(k) - other.recall(k) for answer, other in zip(answered, baseline, strict=True)]
            measured["gain"] = exam.interval(gains, answered)
        baseline = baseline or answered
        report["recipes"][recipe] = measured
    return report


def _print_report(report: Mapping[str, Any]) -> None:
    say(
        f"{counted(report['questions'], 'question')}, model {report['model'] or 'none'}, {report['vectors']} vectors "
        f"of {report['embeddable']} embeddable entries"
    )
    measures = (f"recall@{report['k']}", "recall@5", "nDCG", "MRR", f"session@{exam.SESSION_K}")
    first = next(iter(report["recipes"]), "")
    columns = ("recipe", "category", "questions", *measures, *INJECTED.values(), "95 %", f"over {first}")
    rows = []
    for recipe, measured in report["recipes"].items():
        for category, means in (("all", measured["overall"]), *measured["categories"].items()):
            figures = [exam.figure(means[name]) for name in (*exam.FIGURES, *INJECTED)]
            intervals = [_interval(measured.get("interval")), _interval(measured.get("gain"), signed=True)]
            rows.append(
                (recipe, category, means["questions"], *figures, *(intervals if category == "all" else ("", "")))
            )
    print_table(columns, rows, right=columns[2:])


def _interval(interval: Mapping[str, float] | None, *, signed: bool = False) -> str:
    if interval is None:
        return ""
    sign = "+" if signed else ""
    return f"{interval['mean']:+.3f} " * signed + f"[{interval['low']:{sign}.3f}, {interval['high']:{sign}.3f}]"


# ``provider-parity``: whether a memory provider keeps the laws of the port.


def provider_parity(
    provider: Annotated[
        str,
        Argument(
            metavar="URL|MODULE:FACTORY", help="An HTTP service, or a callable (ProviderScope) -> MemoryProvider."
        ),
    ],
    token: Annotated[
        str | None,
        Option("--token", envvar="CREW_JOURNAL_TOKEN", help="Token of an OWNER, for a URL."),
    ] = None,
    workspace: Annotated[
        str | None,
        Option(
            "--workspace",
            "-w",
            help="Workspace whose documents are overwritten. [default: a new one]",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Run the parity suite of memory providers against a provider; exit code 6 if a law does not hold.

    The suite writes and forgets documents of agents and crews that it makes up, in a workspace of its own. A module is
    imported from the present directory or from where Python finds it.
    """
    import asyncio

    report = asyncio.run(_check(provider, token, workspace))
    shown = {"ok": not report.broken, "laws": [asdict(verdict) for verdict in report.verdicts]}
    show(shown, json_output, lambda _: print("\n".join(map(safe, report.lines()))))
    if report.broken:
        names = ", ".join(verdict.law for verdict in report.broken)
        raise VerificationFailed(
            f"the provider breaks {len(report.broken)} laws: {names}", hint="see docs/providers.md"
        )


async def _check(provider: str, token: str | None, workspace: str | None) -> TrialReport:
    from ..documents.adapters import StoreProvider
    from ..documents.choosing import factory_of
    from ..documents.laws import World, check
    from ..documents.providers import HttpStore, http_client

    chosen = {} if workspace is None else {"workspace_id": workspace}
    if not provider.startswith(("http://", "https://")):
        sys.path.insert(0, str(Path.cwd()))
        return await check(World(factory_of(provider), **chosen))
    if not (bearer := (token or "").strip()):
        raise click.BadParameter("a URL needs a token", param_hint="--token")
    async with http_client(provider, bearer) as http:
        return await check(World(lambda scope: StoreProvider(HttpStore(http), scope), **chosen))
