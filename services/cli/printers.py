"""How people see the answers of operations; what has no printer here is shown field by field.

Invariant: text of agents is printed through ``safe``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Printer = Callable[[Mapping[str, Any]], None]


def print_fields(answer: Mapping[str, Any]) -> None:
    """Each field on a line."""
    from crew_journal.services.cli.output import print_pairs

    print_pairs((name, "-" if value is None else value) for name, value in answer.items())


def _priority(answer: Mapping[str, Any]) -> None:
    from crew_journal.services.cli.output import safe

    if answer["changed"]:
        print(f"{safe(answer['entry_id'])}: {answer['previous_priority']} -> {answer['priority']}")
    else:
        print(f"{safe(answer['entry_id'])}: was {answer['priority']} already")


def _dead_letters(answer: Mapping[str, Any]) -> None:
    from crew_journal.services.cli.output import print_table, say

    columns = ("seq", "projection", "state", "workspace_id", "reason")
    rows = [[letter[name] for name in columns] for letter in answer["dead_letters"]]
    if rows:
        print_table("", columns, rows, right=("seq",))
    else:
        say("there are no dead letters")


PRINTERS: Final[Mapping[str, Printer]] = {"set_priority": _priority, "dead_letters": _dead_letters}
