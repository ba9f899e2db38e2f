"""Which node decides for a workspace: slots of workspaces, given to nodes by rendezvous hashing.

A slot goes to the node with the highest hash of both names. So every node computes the same owner from the names alone, and
when a node comes or goes, only its own slots move.

Source: Thaler, Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..core.ids import hash64

SLOTS: Final = 256
"""Number of slots: with 10 nodes, the shares of the nodes differ by about a fifth."""


def slot_of(workspace_id: str) -> int:
    """The slot of a workspace, 0 to 255; the same in every version."""
    return hash64(workspace_id) % SLOTS


def owner_of(slot: int, nodes: Collection[str]) -> str | None:
    """The node that decides for a slot; None if there is no node."""
    return max(nodes, key=lambda node: (hash64(f"{node}/{slot}"), node), default=None)


def owners_of(nodes: Collection[str]) -> tuple[str | None, ...]:
    """The owner of each slot."""
    return tuple(owner_of(slot, nodes) for slot in range(SLOTS))
