"""Builds the events of a sweep's tick and all their ids.

Invariant: an id is derived from workspace, sweep and due time, so that the journal has one tick for each due time even
if several nodes publish it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from ...schemas.core.errors import BrokerUnavailable, EntryConflict
from ...schemas.core.ids import derived_id
from ...schemas.core.payload import ControlPayload
from ...schemas.core.timestamps import format_ms
from ...schemas.sweeps.events import SweepTicked
from ..journal.intake.append import Appended
from ..journal.intake.recorder import Recorder

ID_TRIES: Final = 4
"""Number of ids that are tried for a tick, because an agent may have used one for its own entry."""
_ID_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class DueTick:
    """One due time of one sweep; ``due_ms`` in milliseconds since the epoch."""

    due_ms: int
    workspace_id: str
    sweep: str

    @property
    def due(self) -> str:
        """The due time as it is written in payloads."""
        return format_ms(self.due_ms)


async def publish_tick(journal: Recorder, tick: DueTick) -> Appended:
    """Record that a sweep is due; a repeated tick is recorded once.

    Raises:
        BrokerUnavailable: If no ack came within the bound.
    """
    payload = SweepTicked.model_validate({"sweep": tick.sweep, "due": tick.due})
    return await record_tick(journal, tick, payload, "sweep", f"The {tick.sweep} sweep of {tick.due} is due")


async def record_tick(journal: Recorder, tick: DueTick, payload: ControlPayload, name: str, summary: str) -> Appended:
    """Record an event of a tick, once; ``name`` distinguishes events of the same tick.

    Raises:
        BrokerUnavailable: If no ack came in time, or other entries have used the ids.
    """
    cause = f"{tick.workspace_id}/{tick.sweep}/{tick.due_ms}"
    for n in range(ID_TRIES):
        with contextlib.suppress(EntryConflict):
            return await journal.record(
                tick.workspace_id, payload, summary=summary, entry_id=derived_id(name, _ID_VERSION, cause, n)
            )
    raise BrokerUnavailable(
        f"the ids of the {tick.sweep} sweep at {tick.due_ms} are used by other entries in {tick.workspace_id}",
        hint="a client publishes entries with ids of the service; revoke its token",
    )
