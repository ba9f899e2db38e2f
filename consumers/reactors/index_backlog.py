"""What the embed reactor will come to by itself, so that an index sweep leaves it alone and nothing else.

Why: a text that the embed reactor puts off for a day stays unacked, and the broker says only up to where all is acked: going
by that alone, a sweep would wait with everything behind the text. The reactor of this node knows what it holds.
Invariant: what an embed reactor may still publish is never swept. So its account counts only where it covers every unacked
message and no other reactor draws; else everything from the first unacked one on is left to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nats.aio.client import Client

from ..reacting.durable import Remaining, remaining

LOOKS: Final = 5
PAUSE_S: Final = 0.2
"""Messages and acks in transit are counted on neither side for some milliseconds."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is left to the embed reactor.

    Attributes:
        begins: All entries from this sequence on; None if absent.
        unsettled: Earlier entries that it holds, put off or returned.
    """

    begins: int | None = None
    unsettled: frozenset[int] = frozenset()


async def backlog_of(client: Client, durable: str, unsettled: Callable[[str], frozenset[int] | None]) -> Backlog:
    """What is left to the embed reactor on a durable, wherever it runs.

    Args:
        client: A connection to the broker.
        durable: The durable's name; if there is none, nothing is left to it.
        unsettled: What the reactor on it in this process took and did not ack yet; None where none runs here.

    Raises:
        BrokerUnavailable: If the broker does not answer.
    """
    left = await remaining(client, durable)
    for _ in range(LOOKS):
        unfinished = _accounted(left, unsettled(durable))
        if unfinished is None:
            break
        if len(unfinished) == left.unacked and left.waiting <= 1:
            return Backlog(left.delivered + 1 if left.to_come else None, unfinished)
        await asyncio.sleep(PAUSE_S)
        left = await remaining(client, durable)
    return Backlog(left.acked + 1 if left.unacked or left.to_come else None)


def _accounted(left: Remaining, unsettled: frozenset[int] | None) -> frozenset[int] | None:
    """Those of a reactor's unsettled messages that the broker may count; None if it has none to go past."""
    unfinished = frozenset(seq for seq in unsettled or () if left.acked < seq <= left.delivered)
    return unfinished or None
