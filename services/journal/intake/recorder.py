"""The port through which most use-cases record decisions in the journal.

Invariant: these use-cases publish only control entries and only through this port, so that each can be tested without a
broker.
"""

from __future__ import annotations

from typing import Protocol, Unpack

from ....schemas.core.payload import ControlPayload
from .append import Appended
from .decisions import DecisionFields
from .secrets import Scrubs


class Recorder(Protocol):
    """The part of ``append.Journal`` that records decisions."""

    async def record(
        self, workspace_id: str, payload: ControlPayload, *, summary: str, **fields: Unpack[DecisionFields]
    ) -> Appended:
        """Record a decision as a control entry; returns after the ack.

        Raises:
            EntryConflict: If ``entry_id`` belongs to another decision.
            BrokerUnavailable: If no ack came within the bound.
        """
        ...


class ScrubbingRecorder(Recorder, Scrubs, Protocol):
    """A recorder that also removes credentials from texts that are stored elsewhere or from which an id is made."""

    def refuse_erased(self, workspace_id: str, name: str, field: str = "id") -> None:
        """Raise ``EntryConflict`` for an id that was erased."""
        ...
