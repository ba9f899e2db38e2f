"""``python -m bench [NAME|all] [--quick] [--entries N]``: one JSON document on stdout."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

import structlog
import uvloop

from bench.figures import Report, say

BENCHES: Final = (
    "publish",
    "ingest",
    "replay",
    "recall",
    "million",
    "talk",
    "chunks",
    "palace",
    "follow",
    "freshness",
    "memory",
    "block",
    "context",
    "answers",
    "injection",
    "quality",
    "evaluations",
    "further",
    "precision",
    "typos",
    "hook",
    "corrections",
    "forgetting",
    "nodes",
    "pages",
)
ALONE: Final = ("peers",)
"""Not part of ``all``: it installs other packages."""


def measure(name: str, quick: bool, **sizes: int) -> Report:
    """Run one benchmark in a temporary folder."""
    say(f"{name}: begins")
    module = importlib.import_module(f"bench.{name}")
    with tempfile.TemporaryDirectory(prefix=f"crew-journal-bench-{name}-") as folder:
        report: Report = uvloop.run(module.run(quick, Path(folder), **sizes))
    return report


def main() -> int:
    """Run the chosen benchmarks and print their figures; returns 0 even if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("bench", nargs="?", default="all", choices=[*BENCHES, *ALONE, "all"])
    parser.add_argument("--quick", action="store_true", help="reduced sizes: shows that it works, not how fast it is")
    parser.add_argument("--entries", type=int, help="of peers alone: entries of the large store, 10,000 by default")
    chosen = parser.parse_args()
    sizes = {} if chosen.entries is None else {"entries": chosen.entries}
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))  # errors only, to stderr
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    names = BENCHES if chosen.bench == "all" else (chosen.bench,)
    reports = [measure(name, chosen.quick, **sizes).as_dict() for name in names]
    print(json.dumps(reports[0] if chosen.bench != "all" else {"benches": reports}, indent=2), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
