"""How people see facts, procedures and episodes of layered memory, and assembled contexts.

Invariant: texts go to stdout, what is said about them to stderr; ``--json`` has all fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .output import counted, print_pairs, print_table, print_text, safe, say

_Answer = Mapping[str, Any]


def print_found(answer: _Answer) -> None:
    """Facts, episodes or procedures."""
    if answer["facts"]:
        _facts(answer["facts"])
    elif answer["episodes"]:
        _episodes(answer["episodes"])
    elif answer["procedures"]:
        for procedure in answer["procedures"]:
            _procedure(procedure)
    else:
        say(f"no {answer['kind']} was found")
    if answer["truncated"]:
        say("there are more: raise --limit")


def print_read(answer: _Answer) -> None:
    """A fact, a procedure, or the working memory of a run."""
    if answer["fact"] is not None:
        _fact(answer["fact"])
    elif answer["procedure"] is not None:
        _procedure(answer["procedure"])
    elif answer["working"]:
        _episodes(answer["working"])
    else:
        say("the run has ended" if answer["run_ended"] else "the run has recorded nothing")


def print_written(answer: _Answer) -> None:
    """What was written, and what contradicts it."""
    known = "" if answer["added"] else ", known and verified again"
    print(safe(f"{answer['id']}  seq {answer['seq']}{known}"))
    _warn_of(answer["conflicts"])


def print_conflicts(answer: _Answer) -> None:
    """Facts that contradict each other, and facts to be verified."""
    for conflict in answer["conflicts"]:
        for fact_id, text in zip(conflict["fact_ids"], conflict["texts"], strict=True):
            print(safe(f"{fact_id}  {text}"))
        print()
    if answer["wanted"]:
        say("to be verified:")
        _facts(answer["wanted"])
    say(f"{counted(len(answer['conflicts']), 'conflict')}, {counted(len(answer['wanted']), 'fact')} to be verified")


def print_verified(answer: _Answer) -> None:
    """A fact after its verification, or after a request for one."""
    _fact(answer["fact"])


def print_context(answer: _Answer) -> None:
    """The text of an assembled context; then its tokens, what was left out, and doubts."""
    print_text("\n".join(part for part in (answer["system"], answer["memory"], answer["prompt"]) if part))
    for drop in answer["drops"]:
        say(
            safe(
                f"{drop['action']}: {drop['part']} {drop['name']}, {counted(drop['tokens'], 'token')}: {drop['reason']}"
            )
        )
    _warn_of(answer["conflicts"])
    if answer["stale"]:
        say(safe(f"warning: not fresh: {', '.join(answer['stale'])}"))
    tokens = answer["tokens"]
    say(f"{tokens['total']} of {tokens['budget']} tokens ({safe(answer['tokenizer'])})")
    if answer["tools"] or answer["conversation"]:
        say(f"{len(answer['tools'])} tools and {len(answer['conversation'])} messages are shown by --json")


def _warn_of(conflicts: Iterable[_Answer]) -> None:
    for answer in conflicts:
        say(safe(f"warning: these contradict each other: {' / '.join(answer['texts'])}"))


def _facts(facts: Iterable[_Answer]) -> None:
    rows = [
        (
            "-" if answer["salience"] is None else f"{answer['salience']:.2f}",
            answer["id"],
            answer["state"],
            answer["namespace"],
            answer["text"],
        )
        for answer in facts
    ]
    print_table(("salience", "fact", "state", "namespace", "text"), rows, right=("salience",))


def _fact(answer: _Answer) -> None:
    print_pairs((name, value) for name, value in answer.items() if name not in ("salience", "parts"))


def _episodes(episodes: Iterable[_Answer]) -> None:
    rows = [
        (answer["ts"][:19] + "Z", answer["entry_id"], answer["entry_type"], answer["summary"]) for answer in episodes
    ]
    print_table(("time", "entry", "type", "summary"), rows)


def _procedure(answer: _Answer) -> None:
    print_text(answer["content"])
    say(safe(f"{answer['name']} of {answer['owner']}: version {answer['seq']}"))
