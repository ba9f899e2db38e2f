"""Whether JOURNAL is still the stream the views were folded from.

Why: a stream that is deleted and created again begins at 1; the views, far beyond that, would skip every new message without
an error. They are compared with ``streams.made_at`` at the start (``consumers/host/provenance``), and here while a node
runs.

Invariant: a replaced stream is named as the reason why the node is not ready, from the next look on until it is restarted.
"""

from __future__ import annotations

from typing import Final

import structlog

from ....schemas.subjects import JOURNAL_STREAM
from ..broker.connection import BrokerConnection
from ..broker.streams import made_at, stream_info
from .watch_loop import Look

LOOK_EVERY_S: Final = 15.0
"""Seconds between two looks; a stream is rarely replaced without the connection being lost, after which we look at once."""

_log = structlog.get_logger(__name__)


class StreamWatch(Look):
    """Compares when JOURNAL was created with what the views were folded from.

    Args:
        client: A connection that reconnects for ever.
        made: ``made_at`` of the stream that the views are of.
    """

    every_s = LOOK_EVERY_S
    after_reconnect = True

    def __init__(self, client: BrokerConnection, made: str) -> None:
        self._client = client
        self._made = made
        self._trouble: str | None = None

    @property
    def trouble(self) -> str | None:
        """The problem with the stream, None if it was not replaced."""
        return self._trouble

    async def start(self) -> None:
        """Look for the first time."""
        await self.look()

    async def look(self) -> None:
        """Look once, unless it was replaced before."""
        if self._trouble is not None:
            return
        info = await stream_info(self._client, JOURNAL_STREAM)
        made = made_at(info) if info is not None else "never"
        if made != self._made:
            self._trouble = (
                f"the stream {JOURNAL_STREAM} is another one than at the start (made {made}, before {self._made}): "
                "start the node again, its views are then folded from this one"
            )
            _log.error("stream.replaced", made=made, before=self._made)
