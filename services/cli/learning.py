"""Groups of the commands about what crews learn, and how people see answers; the commands are made from the operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .commands import CommandGroup
from .output import counted, listing, print_pairs, print_table, print_text, say

consolidate = CommandGroup(help="Rules that are learned from recurring entries.")
proposals = CommandGroup(help="Proposed rules that wait for a person.")
lessons = CommandGroup(help="Lessons of crews and agents.")


def _text_of(rule: Mapping[str, Any]) -> str:
    text = f"{rule['pattern']} → {rule['action']}" if rule["action"] else str(rule["pattern"])
    return f"[from {', '.join(rule['authors'])}] {text}" if rule["authors"] else text


print_rules = listing(
    "rules",
    ("rule", "crew", "proven", "evidence", "days", "confidence", "text"),
    lambda rule: (
        rule["rule_id"],
        rule["crew_id"],
        "yes" if rule["promoted"] else "no",
        len(rule["evidence"]),
        rule["days"],
        f"{rule['confidence']:.2f}",
        _text_of(rule),
    ),
    right=("evidence", "days", "confidence"),
    empty="there are no learned rules: `crew-journal consolidate run` looks for recurring entries, and"
    " `crew-journal proposal list` shows what waits for your review",
)
print_proposals = listing(
    "proposals",
    ("proposal", "crew", "kind", "state", "evidence", "text"),
    lambda rule: (
        rule["proposal_id"],
        rule["crew_id"],
        rule["kind"],
        rule["state"],
        len(rule["evidence"]),
        _text_of(rule),
    ),
    right=("evidence",),
    empty="there are no proposals: `crew-journal consolidate run` makes them of recurring entries",
)


def print_consolidation(answer: Mapping[str, Any]) -> None:
    """What a run did, and why it left crews out."""
    recorded = {name: answer[name] for name in ("due", "since", "seq")}
    print_pairs((recorded | {name: count for name, count in answer["counts"].items() if count}).items())
    if not answer["finished"]:
        say("the run continues: `crew-journal status` shows its counts when it has finished")
    if answer["counts"].get("proposed"):
        say("`crew-journal proposal list --state pending` shows what waits for your review")
    if answer["skipped"]:
        say(f"skipped: {answer['skipped']}; a longer --since looks further back")


def print_explanation(answer: Mapping[str, Any]) -> None:
    """The proposal without the ids of its evidence, then the entries of its evidence."""
    print_pairs((name, value) for name, value in answer["proposal"].items() if name != "evidence")
    print_table(
        ("entry", "type", "author", "day", "received", "summary"),
        [
            (
                entry["entry_id"],
                entry["entry_type"],
                entry["author"],
                entry["ts"][:10],
                entry["received_at"][:10],
                entry["summary"],
            )
            for entry in answer["entries"]
        ],
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
