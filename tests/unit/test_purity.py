"""Folds and rules are pure: by their syntax tree, no clock, randomness, environment, I/O or logging."""

from __future__ import annotations

import ast
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODELS = ("operations.py", "events.py", "tables.py", "provider.py", "chat.py", "names.py")
"""Modules of the families that hold no rules: requests, payloads, tables, ports."""
PURE = sorted(
    path
    for pattern in ("consumers/*/*fold.py", "consumers/folds/*.py", "schemas/*/*.py")
    for path in ROOT.glob(pattern)
    if path.parent.name != "core" and not path.name.endswith(MODELS)
)
FORBIDDEN_MODULES = frozenset(
    {
        *(
            "asyncio",
            "datetime",
            "duckdb",
            "httpx",
            "io",
            "logging",
            "multiprocessing",
            "nats",
            "os",
            "pathlib",
            "random",
        ),
        *("requests", "secrets", "shutil", "socket", "structlog", "subprocess", "sys", "tempfile", "threading", "time"),
        *("urllib", "uuid", "uuid_utils"),
    }
)
ALLOWED = {"words": "imports threading"}
"""A memory of pure functions that the threads of several hosts share: it needs a lock, and decides nothing by it."""
FORBIDDEN_SETTINGS = "crew_journal.schemas.settings"
FORBIDDEN_CALLS = frozenset(
    {"open", "print", "input", "eval", "exec", "globals", "breakpoint", "__import__", "hash", "id"}
)
FORBIDDEN_ATTRIBUTES = frozenset({"now", "utcnow", "today", "environ", "getenv", "default_rng", "urandom"})


def _forbidden(module: str) -> bool:
    return module.split(".")[0] in FORBIDDEN_MODULES or module in (FORBIDDEN_SETTINGS, "numpy.random")


def _package_of(path: Path) -> str:
    return ".".join(("crew_journal", *path.parent.relative_to(ROOT).parts))


def impurities(source: str, package: str) -> list[str]:
    """What a module of this package does that a fold may not."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(f"line {node.lineno}: calls {node.func.id}")
        elif isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_ATTRIBUTES:
            found.append(f"line {node.lineno}: uses {node.attr}")
        found += [f"line {line}: imports {name}" for name in names if _forbidden(name)]
    return found


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_a_fold_or_rule_touches_nothing_but_its_events(path: Path) -> None:
    found = [
        impurity
        for impurity in impurities(path.read_text("utf-8"), _package_of(path))
        if not impurity.endswith(ALLOWED.get(path.stem, "?"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\nx = time.time()",
        "from datetime import datetime",
        "import numpy as np\nr = np.random.default_rng()",
        "import os",
        "x = open('f')",
        "import structlog",
        "from crew_journal.schemas.settings import BATCH_MESSAGES",
        "from ...schemas.settings import BATCH_MESSAGES",
        "from ...schemas import settings",
        "x = hash('a')",
    ],
)
def test_the_lint_sees_what_it_forbids(source: str) -> None:
    assert impurities(source, "crew_journal.consumers.entries")
