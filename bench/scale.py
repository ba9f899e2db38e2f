"""What a crew of a given size needs: bytes, CPU and memory a month, and from where on one node does not suffice.

``python -m bench.scale [--agents N …] [--json]``. Arithmetic over costs that other benches measured; nothing runs. The model
is linear: every cost is per message or per request, and none of the measured ones grows with the size of the journal except
the memory of workspaces that are searched.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass
from typing import Final

DAY_S: Final = 86_400
MONTH_DAYS: Final = 30
PEAK: Final = 5.0
"""Busiest second of a working day against the mean; of the crews of the sample journals."""
CELL_BYTES: Final = 2e12
"""Largest stream of one cell: it can be read again in half a day."""
LOAD: Final = 0.6
"""Share of cores and memory that is planned for; beyond it, queues grow."""
FOLDING: Final = 0.5
"""Largest share of a core, and of a node's memory, for what every node of a cell does alike: folding, and identities."""

COPIES: Final = 2
"""Nodes that have a large workspace in memory, of several nodes; all workspaces are taken to be large."""


@dataclass(frozen=True)
class Costs:
    """Measured on two shared cores (bench/README.md).

    Attributes:
        append_us: CPU of a single append over HTTP (`ingest`).
        fold_us: CPU of folding a message into all views (`replay`).
        identity_bytes: Memory of an entry at every node: hashes of its id and content, 16 bytes each, and its sequence.
        embed_ms: CPU of one MiniLM vector (`facts`: 60 to 75 texts a second and thread).
        recall_ms: CPU of a recall over HTTP with 100,000 entries in the workspace (`recall`).
        stream_bytes, view_bytes: Of a message with its vector, on disk; a journal of 100,000 messages of all kinds.
        index_bytes: Memory of an entry of a workspace that is searched (`million`: 603 MiB for a million).
        base_bytes: Memory of a node without entries (`memory`).
        broker_per_s: Durable messages a second of one stream, in batches (`publish`).
    """

    append_us: float = 880
    fold_us: float = 47
    identity_bytes: float = 40
    embed_ms: float = 14
    recall_ms: float = 5
    stream_bytes: float = 1_200
    view_bytes: float = 920
    index_bytes: float = 632
    base_bytes: float = 319e6
    broker_per_s: float = 33_000


@dataclass(frozen=True)
class Work:
    """What one agent does a day: assumptions, to be replaced by your own figures.

    Attributes:
        embedded: Share of the entries that get a vector.
        derived: Messages that follow an entry: vectors, links, receipts, sweeps.
        searched: Share of the entries that are in workspaces in use at the same time, and therefore in memory.
    """

    entries: float = 400
    embedded: float = 0.3
    derived: float = 0.6
    recalls: float = 150
    kept_days: float = 365
    searched: float = 0.25


@dataclass(frozen=True)
class Need:
    """What ``agents`` need after ``kept_days``. CPU in cores at the busiest second, memory and disk in GB."""

    agents: int
    messages_a_day: float
    peak_appends_s: float
    peak_recalls_s: float
    service_cores: float
    embed_cores: float
    stream_gb: float
    views_gb: float
    memory_gb: float
    nodes: int
    cells: int
    month_core_hours: float
    month_gb: float


def need(agents: int, work: Work, costs: Costs, *, node_cores: float, node_memory_gb: float) -> Need:
    """The need of a crew.

    A node is full when its cores or its memory are. A cell (one stream with its nodes, of which each folds everything and
    keeps the texts of its own workspaces in memory) is full when folding takes half a core of a node or identities half of
    its memory, when its stream takes a third of what the broker can store a second, or at 2 TB.
    """
    entries = agents * work.entries
    messages = entries * (1 + work.derived)
    a_second = PEAK / DAY_S
    appends, recalls = entries * a_second, agents * work.recalls * a_second
    stored = messages * a_second
    folding = stored * costs.fold_us / 1e6
    service = appends * costs.append_us / 1e6 + recalls * costs.recall_ms / 1e3
    embed = entries * work.embedded * a_second * costs.embed_ms / 1e3
    kept = messages * work.kept_days
    in_memory = entries * work.kept_days * work.searched * costs.index_bytes
    usable = node_memory_gb * 1e9 * LOAD - costs.base_bytes
    identities = entries * work.kept_days * costs.identity_bytes
    full = (
        folding / FOLDING,
        identities / (usable * FOLDING),
        stored / (costs.broker_per_s / 3),
        kept * costs.stream_bytes / CELL_BYTES,
    )
    cells = max(1, *(math.ceil(share) for share in full))
    by_cores = (service + embed) / (node_cores * LOAD - folding / cells)
    free = usable - identities / cells
    if max(cells, by_cores, in_memory / free) > 1:
        in_memory *= COPIES
    nodes = max(1, cells, math.ceil(max(by_cores, in_memory / free)))
    service += folding / cells * nodes  # every node of a cell folds all of it
    return Need(
        agents=agents,
        messages_a_day=messages,
        peak_appends_s=appends,
        peak_recalls_s=recalls,
        service_cores=service,
        embed_cores=embed,
        stream_gb=kept * costs.stream_bytes / 1e9,
        views_gb=kept * costs.view_bytes / cells * nodes / 1e9,
        memory_gb=(nodes * (costs.base_bytes + identities / cells) + in_memory) / 1e9,
        nodes=nodes,
        cells=cells,
        month_core_hours=(service + embed) / PEAK * 24 * MONTH_DAYS,
        month_gb=messages * MONTH_DAYS * (costs.stream_bytes + costs.view_bytes) / 1e9,
    )


def main(argv: list[str]) -> int:
    """Print the need of each crew as a table, or as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 100, 10_000])
    parser.add_argument("--node-cores", type=float, default=4)
    parser.add_argument("--node-memory-gb", type=float, default=16)
    parser.add_argument("--kept-days", type=float, default=Work().kept_days)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    work = Work(kept_days=given.kept_days)
    size = {"node_cores": given.node_cores, "node_memory_gb": given.node_memory_gb}
    needs = [asdict(need(agents, work, Costs(), **size)) for agents in given.agents]
    if given.json:
        sys.stdout.write(json.dumps(needs, indent=1) + "\n")
        return 0
    for name in needs[0]:
        sys.stdout.write(f"{name.replace('_', ' '):18}" + "".join(f"{row[name]:>16,.2f}" for row in needs) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
