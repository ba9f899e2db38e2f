"""The payload of an assignment: the nodes that decide from now on."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from ..core.entry import Id
from ..core.payload import ControlPayload, EntryTypeInfo, PublisherKind

MAX_NODES: Final = 64
"""Nodes of one journal: each folds all of it."""


class ClusterAssigned(ControlPayload):
    """From this sequence on, these nodes decide; each for the slots that ``slots.owner_of`` gives it.

    A decision names the last assignment that its node knew, and the broker refuses it if there is a later one.

    Attributes:
        nodes: Their names, sorted.
        key_check: Hash of the key of people's names, which all nodes must share; 16 hex digits.
    """

    ENTRY_TYPE = "cluster.assigned"
    INFO = EntryTypeInfo(group="control", publisher=PublisherKind.SERVICE, noise=True, quiet=True)
    SCANNED = False
    nodes: Annotated[tuple[Id, ...], Field(min_length=1, max_length=MAX_NODES)]
    key_check: str = Field(pattern=r"^[0-9a-f]{16}$")
