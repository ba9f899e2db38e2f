"""The command ``learn exam DIR``: how well crews learn from entries whose patterns are known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from .commands import Argument, CommandGroup, Option
from .options import Json
from .output import print_table, say, show

_LEVELS: Final = ("same_wording", "near_paraphrase", "free_paraphrase")
app = CommandGroup(help="What is learned from entries, measured.")


@app.command("exam")
def learn_exam(
    directory: Annotated[
        Path, Argument(metavar="DIR", exists=True, file_okay=False, help="Holds journal.jsonl and truth.json.")
    ],
    embedder: Annotated[
        Literal["auto", "minilm", "none"], Option("--embedder", help="Model of the vectors; none compares words alone.")
    ] = "auto",
    shuffles: Annotated[
        int, Option("--shuffles", min=0, max=20, help="Further runs with the entries in random order.")
    ] = 0,
    model: Annotated[
        str | None,
        Option("--model", metavar="NAME", help="Chat model of CREW_JOURNAL_LLM_BASE_URL or of Ollama."),
    ] = None,
    *,
    json_output: Json = False,
) -> None:
    """Measure what is learned from the entries of DIR/journal.jsonl, without a running journal.

    DIR/truth.json says either, for each crew, which entries show which pattern ("patterns": [{"id", "level", "members",
    "also"}], and the ids of "routine", "bursts", "attacks" and "secrets"), or, for each person, what they state about
    themselves ("truth": [{"key", "value"}]) and what must not be stored ("traps": [{"kind", "value"}]).

    A rule belongs to a pattern if at least two of its entries, and half of them, are members of the pattern. Each agent
    is a publisher, and an entry is received at the latest ts so far of its crew in the file.
    """
    from ...schemas.settings import Settings
    from .learn_exam import report_of  # the reactors need numpy, which takes most of the time of a command

    report = report_of(directory, embedder, shuffles, Settings(), model)
    show(report, json_output, _print_crews if "runs" in report else _print_people)


def _print_crews(report: Mapping[str, Any]) -> None:
    rows = [
        (
            run["order"],
            run["rules"],
            run["precision"],
            *(run["recall"].get(level) for level in _LEVELS),
            ", ".join(f"{kind} {count}" for kind, count in run["wrong"].items()) or "-",
            run["secrets"],
        )
        for run in report["runs"]
    ]
    print_table(("order", "rules", "precision", "same", "near", "free", "wrong", "secrets"), rows)
    learned = [
        (rule["crew_id"], rule["pattern_id"] or "-", rule["evidence"], f"{rule['pattern']} → {rule['action']}")
        for rule in report["runs"][0]["learned"]
    ]
    print_table(("crew", "belongs to", "entries", "rule"), learned)


def _print_people(report: Mapping[str, Any]) -> None:
    row = (report["precision"], report["recall"], report["stored"], len(report["traps"]))
    print_table(("precision", "recall", "stored", "traps"), [row])
    for trap in report["traps"]:
        say(f"stored although it must not be: {trap}")
