"""Which node decides for a workspace: slots of workspaces, given to nodes by rendezvous hashing.

A slot goes to the node with the highest hash of both names. So every node computes the same owner from the names alone, and
when a node comes or goes, only its own slots move.

Source: Thaler, Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import nlargest
from typing import Final

from ..core.ids import hash64

SLOTS: Final = 256
"""Number of slots: with 10 nodes, the shares of the nodes differ by about a fifth."""


def slot_of(workspace_id: str) -> int:
    """The slot of a workspace, 0 to 255; the same in every version."""
    return hash64(workspace_id) % SLOTS


def first_two(slot: int, nodes: Collection[str]) -> tuple[str, ...]:
    """The node that decides for a slot, and the one that does if that is lost; fewer if there are fewer nodes."""
    return tuple(nlargest(2, nodes, key=lambda node: (hash64(f"{node}/{slot}"), node)))


def first_two_of_all(nodes: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """``first_two`` of each slot."""
    return tuple(first_two(slot, nodes) for slot in range(SLOTS))
