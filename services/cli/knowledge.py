"""``kg``: the knowledge graph, and how people see its facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .commands import CommandGroup
from .output import print_table, safe, say

knowledge = CommandGroup(help="Facts about entities, and when they hold.")


def print_facts(answer: Mapping[str, Any]) -> None:
    """A table of facts, of one entity or of a timeline."""
    facts: Sequence[Mapping[str, Any]] = answer.get("results", answer.get("events", ()))
    if answer.get("found_by") == "meaning":
        say(f"no entity has this name; {safe(answer['entity'])} is meant (similarity {answer['similarity']:.2f})")
    columns = ("subject", "predicate", "object", "valid_from", "valid_to", "asserted_by")
    rows = [[fact[name] or "-" for name in columns] for fact in facts]
    print_table(columns, rows, empty="there are no such facts: `crew-journal kg add` records one")
    if answer["truncated"]:
        say(f"only {answer['count']} facts are shown")


def print_change(answer: Mapping[str, Any]) -> None:
    """What an addition or an end changed."""
    print(safe(f"{answer['triple_id']}: {answer['info']}" if "triple_id" in answer else answer["info"]))
