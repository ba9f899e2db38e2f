"""``health``: how healthy the memory was when it was measured last.

Invariant: what is printed is the recorded snapshot; a red one names the step to take, and the exit code is still 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ...schemas.operations.health import HEALTH
from .commands import Option
from .connection import client
from .options import Json, Where
from .output import print_pairs, print_table, safe, say, show
from .request_options import Fields

METRICS = ("freshness", "coverage", "coherence", "efficiency", "reachability")


def health(
    recompute: Annotated[bool, Option("--recompute", help="Measure it now (OWNER, ADMIN).")] = False,
    *,
    fields: Annotated[dict[str, Any], Fields(HEALTH)],
    where: Where,
    json_output: Json = False,
) -> None:
    """Show the health of the memory: five metrics, the score, why, and what to do."""
    with client(where, embedder="auto") as journal:
        answer = journal.measure_health(**fields) if recompute else journal.health(**fields)
    show(answer, json_output, print_health)


def print_health(answer: Mapping[str, Any]) -> None:
    """The snapshot on stdout; crews that can be named, and a hint where there is no snapshot, on stderr."""
    if answer["status"] == "no snapshot yet":
        say(f"no snapshot yet: {safe(answer['hint'])}")
        return
    figures: dict[str, Any] = {"health": f"{_number(answer['score'])} ({answer['band'] or 'no data'})"}
    figures |= {name: _number(answer["metrics"].get(name)) for name in METRICS}
    mode = answer["embedder"].get("mode", "unknown")
    figures |= {"measured": answer["measured_at"], "model": answer["model"] or "none", "embedder now": mode}
    print_pairs(figures.items())
    for reason in answer["reasons"]:
        print(f"- {safe(reason)}")
    if answer["next_step"]:
        print(f"next: {safe(answer['next_step'])}")
    for pair in answer["review"] or ():
        print(f"? {safe(pair['src'])} contradicts {safe(pair['dst'])} ({pair['weight']:.2f}): {safe(pair['reason'])}")
    if answer["history"]:
        rows = [
            (day["date"], day["band"] or "no data", *map(_number, (day["score"], *map(day["metrics"].get, METRICS))))
            for day in answer["history"]
        ]
        print_table(("date", "band", "score", *METRICS), rows, right=("score", *METRICS))
    if answer["crews"]:
        say(f"crews: {', '.join(map(safe, answer['crews']))} (--crew NAME)")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
