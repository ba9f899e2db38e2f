"""`workspace settings --evidence-floor` from end to end: what mode inject returns follows it at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.processes import Stack

QUESTION = "who repairs the copper boiler?"


def test_the_floor_that_is_set_decides_what_inject_returns(tmp_path: Path) -> None:
    with Stack(tmp_path / "data", ("--embedder", "none", "--durability", "interval")) as stack:
        stack.up()

        def run(*arguments: str) -> Any:
            ran = stack.run(*arguments, "--json")
            assert ran.code == 0, ran.err
            return json.loads(ran.out)

        def hits(mode: str, seq: int) -> dict[str, float]:
            found = run("recall", QUESTION, "--mode", mode, "--min-seq", str(seq))["hits"]
            return {hit["entry_id"]: hit["confidence"] for hit in found}

        def floor(*options: str) -> int:
            return int(run("workspace", "settings", *options)["view_seq"])

        for text in (
            "Nadia repairs the copper boiler on Mondays",
            "The copper roof was paid in March",
            "A boiler stands in the cellar of house four",
            "Lunch is at noon",
        ):
            last = run("remember", text)["seq"]
        near = hits("search", last)
        assert near
        usual = hits("inject", last)
        assert not hits("inject", floor("--evidence-floor", "1.0"))
        assert run("recall", QUESTION, "--render")["status"] == "nothing"
        everything = hits("inject", floor("--evidence-floor", "0"))
        assert everything.keys() == near.keys(), "a floor of zero lets through all that search returns"
        assert hits("inject", floor("--reset", "evidence_floor")).keys() == usual.keys()
        assert hits("search", last) == near, "search has no floor"
