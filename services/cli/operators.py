"""``operator``: models of people, and how people see them; the commands are made from the operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from .output import print_table, say

operators = typer.Typer(help="What people said of themselves: models and peer cards.", no_args_is_help=True)


def print_operator(answer: Mapping[str, Any]) -> None:
    """A table of facts: where they are kept, and the words they rest on."""
    profiles = [one for one in (answer["model"], *answer["cards"]) if one is not None]
    rows = [
        [one["agent_id"] or "all agents", fact["key"], fact["value"], fact["quote"], fact["entry_id"]]
        for one in profiles
        for fact in one["facts"]
    ]
    if rows:
        print_table(("for", "key", "value", "quote", "entry"), rows)
    else:
        say("the person opted out" if answer["opted_out"] else "nothing is known of this person")


def print_operators(answer: Mapping[str, Any]) -> None:
    """A table of the models."""
    rows = [(one["slug"], one["crew_id"], one["updated_at"], ", ".join(one["keys"])) for one in answer["operators"]]
    if rows:
        print_table(("slug", "crew", "updated", "keys"), rows)
    else:
        say("there are no operator models")
