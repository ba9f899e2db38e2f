"""The port through which most use-cases record decisions in the journal.

Invariant: they publish control entries only, through this port, so each can be tested without a broker.
"""

from __future__ import annotations

from typing import Protocol, Unpack

from ....schemas.core.payload import ControlPayload
from .append import Appended
from .decisions import DecisionFields
from .secrets import Scrubs


class Recorder(Protocol):
    """``append.Journal``, as far as decisions are recorded."""

    async def record(
        self, workspace_id: str, payload: ControlPayload, *, summary: str, **fields: Unpack[DecisionFields]
    ) -> Appended:
        """Record a decision as a control entry; returns after the ack.

        Raises:
            EntryConflict: If ``entry_id`` is taken by another decision.
            BrokerUnavailable: If no ack came within the bound.
        """
        ...


class ScrubbingRecorder(Recorder, Scrubs, Protocol):
    """A recorder that also says how a text may be stored which does not go through it, or of which an id is made."""
