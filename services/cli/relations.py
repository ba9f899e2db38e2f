"""``relate``, ``unrelate`` and ``graph``: how entries relate to each other.

Invariant: text of entries is shown through ``safe`` alone; who may relate and see what is the service's to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from crew_journal.services.cli.fields import GRAPH, as_options
from crew_journal.services.cli.groups import grouped
from crew_journal.services.cli.options import Json, MinSeq, Reason, Where, Workspace

Src = Annotated[str, typer.Argument(metavar="SRC", help="Id of the entry.")]
Dst = Annotated[str, typer.Argument(metavar="DST", help="Id of the other one.")]
As = Annotated[str, typer.Option("--as", help="similar, supports or contradicts (also: refutes).")]


@grouped
def relate(
    src: Src,
    dst: Dst,
    relation: As,
    weight: Annotated[float | None, typer.Option("--weight", help="How strongly, above 0 up to 1 (1).")] = None,
    reason: Reason = "",
    min_seq: MinSeq = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Say how two entries relate; it outweighs what reactors found."""
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import plain

    with client(where) as journal:
        said = journal.relate(src, dst, relation, weight=weight, reason=reason, min_seq=min_seq, workspace_id=workspace)
        _report(plain(said), json_output)


@grouped
def unrelate(
    src: Src,
    dst: Dst,
    relation: As,
    reason: Reason = "",
    min_seq: MinSeq = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Say that a relation does not hold any more; no reactor brings it back."""
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import plain

    with client(where) as journal:
        said = journal.unrelate(src, dst, relation, reason=reason, min_seq=min_seq, workspace_id=workspace)
        _report(plain(said), json_output)


@grouped
def graph(
    entry_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the entry.")],
    depth: Annotated[int, typer.Option("--depth", min=1, max=3, help="Hops.")] = 1,
    relation: Annotated[str | None, typer.Option("--relation", help="Only edges of this relation.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="Most entries.")] = 50,
    min_seq: MinSeq = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Show the entries around one, and how they relate."""
    from crew_journal.services.cli.connection import client
    from crew_journal.services.cli.output import emit, plain, print_table, say, who_of

    with as_options(GRAPH), client(where) as journal:
        found = plain(
            journal.graph(
                entry_id, depth=depth, relation=relation, limit=limit, min_seq=min_seq, workspace_id=workspace
            )
        )
    if json_output:
        emit(found)
        return
    nodes = [
        (node["depth"], node["id"], node["entry_type"], who_of(node), node["ts"][:10], node["summary"])
        for node in found["nodes"]
    ]
    print_table("", ("hops", "entry", "type", "who", "day", "summary"), nodes, right=("hops",))
    if found["edges"]:
        edges = [
            (edge["src"], edge["relation"], edge["dst"], f"{edge['weight']:.2f}", edge["state"], edge["reason"] or "-")
            for edge in found["edges"]
        ]
        print_table("", ("from", "relation", "to", "weight", "state", "reason"), edges, right=("weight",))
    else:
        say("nothing relates to it")
    if found["truncated"]:
        say("there is more: --limit")


def _report(said: Mapping[str, Any], json_output: bool) -> None:
    from crew_journal.services.cli.output import emit, safe

    if json_output:
        emit(said)
        return
    print(f"{safe(said['src_entry_id'])} {safe(said['relation'])} {safe(said['dst_entry_id'])}: {safe(said['state'])}")
