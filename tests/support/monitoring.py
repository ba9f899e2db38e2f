"""What the board and the alerts of ``deploy/monitoring`` ask for."""

from __future__ import annotations

import json
import re

import yaml  # type: ignore[import-untyped]  # the package ships no types
from support.nats import PROJECT

FOLDER = PROJECT / "deploy/monitoring"
METRIC = re.compile(r"crew_journal_\w+")
LABELS = re.compile(r"(\w+)\s*=~?\"|by \(([^)]*)\)")


def expressions() -> list[str]:
    """Every expression."""
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    board = json.loads((FOLDER / "board.json").read_text())["panels"]
    return [rule["expr"] for rule in rules] + [target["expr"] for panel in board for target in panel["targets"]]


def labels_of(expression: str) -> set[str]:
    """The labels that an expression selects or groups by; ``le`` is of every histogram."""
    found = LABELS.findall(expression)
    return {name.strip() for one, several in found for name in (one, *several.split(",")) if name.strip()} - {"le"}
