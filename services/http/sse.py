"""The live tail as server-sent events (WHATWG HTML, "Server-sent events").

Invariant: the id of each ``entry`` event is its sequence, so a client that reconnects with ``Last-Event-ID`` misses nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import orjson

from ..query.entries.live_tail import Cut, Gap, TailEntry, TailEvent

SSE_TYPE: Final = "text/event-stream"
_RETRY_MS: Final = 1_000
"""What a browser waits before it reconnects."""


def frame(event: TailEvent) -> bytes:
    """One event on the wire; JSON never holds a line break."""
    if isinstance(event, TailEntry):
        return b"id: %d\nevent: entry\ndata: %s\n\n" % (event.entry.seq, event.entry.to_json())
    if isinstance(event, Gap):
        body = orjson.dumps({"missed": event.missed, "after": event.after, "before": event.before})
        return b"event: gap\ndata: %s\n\n" % body
    if isinstance(event, Cut):
        body = orjson.dumps({"reason": event.reason, "resume_after": event.resume_after})
        return b"id: %d\nevent: cut\ndata: %s\n\n" % (event.resume_after, body)
    return b": still here\n\n"


async def frames(
    events: AsyncGenerator[TailEvent], counts: Callable[[], bool], after: int | None
) -> AsyncGenerator[bytes]:
    """The stream of a tail; ends when the token no longer counts, before anything more is shown.

    Args:
        events: The tail.
        counts: Whether the asker's token still counts.
        after: The sequence it resumes from.
    """
    last = after or 0
    async with aclosing(events):
        yield b"retry: %d\n\n" % _RETRY_MS
        async for event in events:
            if not counts():
                yield frame(Cut("revoked", last))
                return
            if isinstance(event, TailEntry):
                last = event.entry.seq
            yield frame(event)
