"""``health``: how healthy the memory was when it was measured last.

Invariant: what is printed is the recorded snapshot; a red one is told in words with the step to take, and is no failure of
the command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .groups import grouped
from .options import Json, Where, Workspace

METRICS = ("freshness", "coverage", "coherence", "efficiency", "reachability")


@grouped
def health(
    recompute: Annotated[bool, typer.Option("--recompute", help="Measure it now (OWNER, ADMIN).")] = False,
    crew: Annotated[
        str | None, typer.Option("--crew", help="Measure one crew; by default the whole workspace.")
    ] = None,
    profile: Annotated[str, typer.Option("--profile", help="Formulas to use: seed or legacy.")] = "seed",
    history: Annotated[
        int, typer.Option("--history", max=366, help="Also show the snapshots of the last DAYS days.")
    ] = 0,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Show the health of the memory: five metrics, the score, why, and what to do."""
    from .connection import client
    from .output import emit, plain

    with client(where, embedder="auto") as journal:
        asked: dict[str, Any] = {"crew_id": crew, "profile": profile, "history": history, "workspace_id": workspace}
        answer = plain(journal.measure_health(**asked) if recompute else journal.health(**asked))
    if json_output:
        emit(answer)
    else:
        print_health(answer)


def print_health(answer: Mapping[str, Any]) -> None:
    """The snapshot on stdout; what else is to be said of it on stderr."""
    from .output import print_pairs, print_table, safe, say

    if answer["status"] == "no snapshot yet":
        say(f"no snapshot yet: {safe(answer['hint'])}")
        return
    band = safe(answer["band"] or "no data")
    figures: dict[str, Any] = {"health": f"{_number(answer['score'])} ({band})"}
    figures |= {name: _number(answer["metrics"].get(name)) for name in METRICS}
    figures |= {"measured": answer["measured_at"], "model": answer["model"] or "none"}
    figures["embedder now"] = answer["embedder"].get("mode", "unknown")
    print_pairs(figures.items())
    for reason in answer["reasons"]:
        print(f"- {safe(reason)}")
    if answer["next_step"]:
        print(f"next: {safe(answer['next_step'])}")
    for pair in answer.get("review") or ():
        print(f"? {safe(pair['src'])} contradicts {safe(pair['dst'])} ({pair['weight']:.2f}): {safe(pair['reason'])}")
    if answer["history"]:
        rows = [
            (
                day["date"],
                day["band"] or "no data",
                _number(day["score"]),
                *(_number(day["metrics"][m]) for m in METRICS),
            )
            for day in answer["history"]
        ]
        print_table("", ("date", "band", "score", *METRICS), rows, right=("score", *METRICS))
    if answer.get("crews"):
        say(f"crews: {', '.join(map(safe, answer['crews']))} (--crew NAME)")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
