"""How people see the answers of operations; what has no printer here is shown field by field.

Invariant: text of agents is printed through ``safe``.
"""

from __future__ import annotations

import json
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


def _relation(answer: Mapping[str, Any]) -> None:
    from crew_journal.services.cli.output import safe

    src, relation, dst, state = (safe(answer[name]) for name in ("src_entry_id", "relation", "dst_entry_id", "state"))
    print(f"{src} {relation} {dst}: {state}")


def _graph(answer: Mapping[str, Any]) -> None:
    from crew_journal.services.cli.output import print_table, say

    nodes = [
        (node["depth"], node["id"], node["entry_type"], node["ts"][:10], node["summary"]) for node in answer["nodes"]
    ]
    print_table("", ("hops", "entry", "type", "day", "summary"), nodes, right=("hops",))
    if answer["edges"]:
        edges = [
            (edge["src"], edge["relation"], edge["dst"], f"{edge['weight']:.2f}", edge["state"], edge["reason"] or "-")
            for edge in answer["edges"]
        ]
        print_table("", ("from", "relation", "to", "weight", "state", "reason"), edges, right=("weight",))
    else:
        say("nothing relates to it")
    if answer["truncated"]:
        say("there is more: --limit")


def print_agent(answer: Mapping[str, Any]) -> None:
    """What is registered of an agent."""
    from crew_journal.services.cli.output import print_pairs

    print_pairs({**answer, "settings": json.dumps(answer["settings"], ensure_ascii=False)}.items())


def _sweep(answer: Mapping[str, Any]) -> None:
    from crew_journal.services.cli.output import safe

    print(
        f"{safe(answer['sweep'])} of {safe(answer['workspace_id'])}, due {answer['due']}, at sequence {answer['seq']}"
    )


def _sweep_embeddings(answer: Mapping[str, Any]) -> None:
    from crew_journal.schemas.errors import Unavailable
    from crew_journal.services.cli.output import safe

    print(", ".join(f"{safe(name)} {count}" for name, count in answer["counts"].items()))
    if answer["error"]:
        raise Unavailable(f"the sweep broke off: {answer['error']}", hint="`crew-journal embedder status` says more")


def _reindex(answer: Mapping[str, Any]) -> None:
    print(
        f"reindex by policy {answer['policy']} recorded at {answer['seq']}: {answer['refused']} refused texts are tried "
        f"again, {answer['missing']} entries had no vector (crew-journal status shows how far it is)"
    )


PRINTERS: Final[Mapping[str, Printer]] = {
    "set_priority": _priority,
    "dead_letters": _dead_letters,
    "relate": _relation,
    "unrelate": _relation,
    "graph": _graph,
    "agent": print_agent,
    "sweep": _sweep,
    "sweep_embeddings": _sweep_embeddings,
    "reindex": _reindex,
}
"""By the name of the operation."""
