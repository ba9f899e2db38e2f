"""Groups of the commands about what crews learn, and how people see answers; the commands are made from the operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from .output import counted, print_pairs, print_table, print_text, say

consolidate = typer.Typer(help="Rules that are learned from recurring entries.", no_args_is_help=True)
proposals = typer.Typer(help="Proposed rules that wait for a person.", no_args_is_help=True)
lessons = typer.Typer(help="Lessons of crews and agents.", no_args_is_help=True)


def print_rules(answer: Mapping[str, Any]) -> None:
    """A table of the learned rules."""
    columns = ("rule", "crew", "proven", "evidence", "days", "confidence", "text")
    rows = [
        (
            one["rule_id"],
            one["crew_id"],
            "yes" if one["promoted"] else "no",
            len(one["evidence"]),
            one["days"],
            f"{one['confidence']:.2f}",
            _text_of(one),
        )
        for one in answer["rules"]
    ]
    if rows:
        print_table(columns, rows, right=("evidence", "days", "confidence"))
    else:
        say("there are no learned rules")


def print_proposals(answer: Mapping[str, Any]) -> None:
    """A table of the proposals."""
    columns = ("proposal", "crew", "kind", "state", "evidence", "text")
    rows = [
        (one["proposal_id"], one["crew_id"], one["kind"], one["state"], len(one["evidence"]), _text_of(one))
        for one in answer["proposals"]
    ]
    if rows:
        print_table(columns, rows, right=("evidence",))
    else:
        say("there are no proposals")


def print_explanation(answer: Mapping[str, Any]) -> None:
    """The proposal without the ids of its evidence, then the entries of its evidence."""
    print_pairs((name, value) for name, value in answer["proposal"].items() if name != "evidence")
    print_table(
        ("entry", "type", "day", "summary"),
        [(one["entry_id"], one["entry_type"], one["ts"][:10], one["summary"]) for one in answer["entries"]],
    )
    if answer["gone"]:
        say(
            f"{counted(answer['gone'], 'entry', 'entries')} of the evidence {'is' if answer['gone'] == 1 else 'are'} gone"
        )


def print_proposal_diff(answer: Mapping[str, Any]) -> None:
    """The unified diff."""
    print_text(answer["diff"])
    if not answer["diff"]:
        say("an approval changes nothing")


def _text_of(rule: Mapping[str, Any]) -> str:
    return f"{rule['pattern']} → {rule['action']}" if rule["action"] else str(rule["pattern"])
