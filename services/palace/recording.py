"""Records decisions about the palace.

Invariant: a write returns once the view shows it, so a read that follows finds it.
"""

from __future__ import annotations

import contextlib

from ...schemas.errors import ViewsBehind
from ...schemas.events.drawers import CONTENT_CHARS
from ...schemas.events.payload import ControlPayload
from ...schemas.ports import ViewReader
from ...schemas.settings import MIN_SEQ_WAIT_S
from ..desk import Caller
from ..journal.intake.recorder import ScrubbingRecorder
from ..journal.intake.secrets import storable


class PalaceRecorder:
    """Records decisions about the palace.

    Args:
        views: The views, which show a write before it returns.
        journal: Records writes.
        projection: The view that is waited for.
    """

    def __init__(self, views: ViewReader, journal: ScrubbingRecorder, projection: str) -> None:
        self._views = views
        self._journal = journal
        self._projection = projection

    async def record(
        self, caller: Caller, payload: ControlPayload, summary: str, entry_id: str | None = None, *, wait: bool = True
    ) -> int:
        """Record a decision, and wait until the view shows it unless ``wait`` is false; its sequence.

        Raises:
            EntryConflict: If ``entry_id`` is taken by another decision.
            BrokerUnavailable: If it could not be recorded.
        """
        recorded = await self._journal.record(
            caller.workspace_id,
            payload,
            summary=summary,
            entry_id=entry_id,
            **caller.author_fields,
        )
        if wait:
            await self.shown(recorded.seq)
        return recorded.seq

    async def without_secrets(self, caller: Caller, text: str, field: str) -> str:
        """A text as it may be stored, before its id is made of it.

        Raises:
            InvalidRequest: If it holds credentials and the workspace refuses those.
        """
        return await storable(self._journal, caller.workspace_id, text, field, CONTENT_CHARS)

    async def shown(self, seq: int) -> None:
        """Wait until the view has reached a sequence; no error if it does not in time, because the decision is recorded."""
        with contextlib.suppress(ViewsBehind):
            await self._views.wait_for(seq, MIN_SEQ_WAIT_S, self._projection)
