"""Constants and requests that all readers of JetStream share: the live feed, the bulk replay and the reactors' durables.

ADR 14 explains why they read in different ways. Known traps, each observed or measured:

- When ``fetch`` of nats-py requests several messages and has got the first, it waits for its whole time-out; shortly
  before the end it may raise the built-in ``TimeoutError``, which ends FastStream's loop and drops the messages
  collected so far.
- Pull requests of nats-py outlive the call: messages arrive while the caller is busy, and their ack wait already runs.
- nats-py mistakes a stored message with a header ``Status``, which every publisher can set, for a status message of the
  server and drops it on every delivery. Test for a reply subject instead: only stored messages have one.
- FastStream waits silently for a durable that was deleted, and its loop spins when nats-py gives up reconnecting.
- FastStream's default ack policy terminates a message whose handler raises: the event is lost for that consumer.
- A broker that lost its metadata restores an earlier consumer of the same name at its old position.
- Filters: ``FILTERS_SINCE``. After making a consumer, read it back and compare.
"""

from __future__ import annotations

from typing import Final

import orjson
from nats.aio.msg import Msg

from ...schemas.settings import BATCH_MESSAGES

API_TIMEOUT_S: Final = 5.0
"""Seconds for a request to the JetStream API; it takes about a millisecond."""
STATUS_TIMEOUT_S: Final = 1.0
"""Time-out of a status request in seconds."""
UNLIMITED: Final = -1
"""Unlimited deliveries: the broker never gives up a message."""
FILTERS_SINCE: Final = (2, 12)
"""First server version that filters for us. Measured with 40,000 messages on two subjects: 2.10.27 needs 3-5 ms per
message of a filtered consumer (0.03 ms unfiltered), 2.15.1 needs 0.02 ms in both cases. Versions between were not
measured.
"""

# ack waits, and messages that may be unacked at once

FEED_ACK_WAIT_S: Final = 30.0
"""Seconds until the broker redelivers an unacked message of the live feed; a commit takes less than 1 s."""
FEED_ACK_PENDING: Final = 4 * BATCH_MESSAGES
REACTOR_ACK_WAIT_S: Final = 60.0
"""Seconds until the broker delivers a killed process's messages to another process; a working process renews three
times in this time.
"""
EMBED_ACK_PENDING: Final = 4_096
LINK_ACK_PENDING: Final = 1_024
SWEEP_ACK_PENDING: Final = 1
"""A sweep handles one tick at a time."""

# pull requests: number of messages, and how long a request waits at the broker

FEED_EXPIRES_S: Final = 5.0
"""Seconds until the broker drops an unanswered request of the live feed, which then sends a new one."""
REACTOR_WAIT_S: Final = 2.0
"""Seconds that a reactor's request for the next message waits at the broker; a lost connection is noticed after this
time.
"""
REACTOR_WINDOW_S: Final = 0.05
"""Seconds to let a reactor's batch fill."""
REPLAY_PULL: Final = 2_000
"""Messages per request of the replay; two requests sent ahead keep the broker busy (measured, facts/nats.md)."""
PULL_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of messages per request, including subjects and headers; then the broker ends the request with a
status. Without this limit, 4,000 requested messages may take 1 GB.
"""
REPLAY_EXPIRES_S: Final = 30.0
"""Seconds until the broker drops an unanswered request of the replay."""
REPLAY_INACTIVE_S: Final = 120.0
"""Seconds without a request after which the broker drops the replay's consumer; a longer fold makes the replay recreate
the consumer.
"""
GRACE_S: Final = 0.5
"""Seconds after its expiry until an unanswered request counts as lost with its connection."""
REFUSED_PAUSE_S: Final = 0.25
"""Seconds after a refusal, e.g. while the durable is being recreated, so that a refusal that persists does not cause a busy
loop."""

# status codes that the server sends instead of a message

STATUS_HEADER: Final = "Status"
DESCRIPTION_HEADER: Final = "Description"
HEARTBEAT: Final = "100"
NO_RESPONDERS: Final = "503"
ENDED: Final = frozenset({"404", "408"})
"""No messages; the request expired."""
FULL: Final = "Message Size Exceeds MaxBytes"
"""Description of the status that ends a request when the next message would exceed ``PULL_BYTES``."""

_NS: Final = 1_000_000_000


def next_subject(stream: str, consumer: str) -> str:
    """The subject of requests for messages of a pull consumer."""
    return f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"


def pull_request(batch: int, expires_s: float, max_bytes: int = 0) -> bytes:
    """The body of a request for up to ``batch`` messages within ``expires_s`` seconds; ``max_bytes`` 0 means any size."""
    return orjson.dumps({"batch": batch, "expires": int(expires_s * _NS), "max_bytes": max_bytes})


def status_code_of(message: Msg) -> str:
    """The status code in a message without a reply subject; empty if there is no status."""
    return str((message.headers or {}).get(STATUS_HEADER, ""))


def is_full(message: Msg) -> bool:
    """Whether the server ended a request because it reached ``PULL_BYTES``."""
    return (message.headers or {}).get(DESCRIPTION_HEADER) == FULL
