"""Shared by all readers of JetStream: the live feed, the bulk replay and the reactors' durables.

ADR 14 explains why they read in different ways. Known traps, each observed or measured:

- Once a first message has come, nats-py's ``fetch`` of several waits for its whole time-out; shortly before the end it may
  raise the built-in ``TimeoutError``, which ends FastStream's loop and drops the messages collected so far.
- Its pull requests outlive the call: messages arrive while the caller is busy, and their ack wait already runs.
- It takes a stored message with a header ``Status``, which every publisher can set, for a status message of the server and
  drops it on every delivery. Test for a reply subject instead: stored messages have one, status messages do not.
- FastStream waits silently for a durable that was deleted, and its loop spins when nats-py gives up reconnecting.
- FastStream's default ack policy terminates a message whose handler raises: the event is lost for that consumer.
- A broker that lost its metadata restores the saved state of a former consumer with the same name, at its old position.
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
"""Seconds that a status question may take."""
UNLIMITED: Final = -1
"""Deliveries of a message: the broker gives up none."""
FILTERS_SINCE: Final = (2, 12)
"""Server version from which we filter. Measured with 40,000 messages on two subjects: 2.10.27 needs 3-5 ms for each
message a filtered consumer gets (0.03 ms unfiltered), 2.15.1 0.02 ms either way. Versions between were not measured."""

# ack waits, and messages that may be unacked at once

FEED_ACK_WAIT_S: Final = 30.0
"""Seconds until the broker delivers an unacked message of the live feed again; a commit takes under one."""
FEED_ACK_PENDING: Final = 4 * BATCH_MESSAGES
REACTOR_ACK_WAIT_S: Final = 60.0
"""Seconds until messages of a killed process come to another; renewed three times in it."""
EMBED_ACK_PENDING: Final = 4_096
LINK_ACK_PENDING: Final = 1_024
SWEEP_ACK_PENDING: Final = 1
"""A sweep's ticks are taken one by one."""

# requests for messages: how many, and how long they wait at the broker

FEED_EXPIRES_S: Final = 5.0
"""Seconds until the broker drops a request of the live feed that brought nothing; then it is recreated."""
REACTOR_WAIT_S: Final = 2.0
"""Seconds that a reactor's request for the next message waits at the broker; a lost connection is noticed after it."""
REACTOR_WINDOW_S: Final = 0.05
"""Seconds to let a reactor's batch fill."""
REPLAY_PULL: Final = 2_000
"""Messages of one request of the replay; two of them ahead keep the broker busy (facts/nats.md, measured)."""
PULL_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the messages that one request brings at most, subjects and headers included; then the broker ends it with a
status. Without it, 4,000 messages that were asked for ahead may take 1 GB."""
REPLAY_EXPIRES_S: Final = 30.0
"""Seconds until the broker drops an unanswered request of the replay."""
REPLAY_INACTIVE_S: Final = 120.0
"""Seconds until the broker drops the replay's consumer if no request comes: a fold that takes longer restarts it."""
GRACE_S: Final = 0.5
"""Seconds beyond its expiry until a request without any answer counts as lost with its connection."""
REFUSED_PAUSE_S: Final = 0.25
"""Seconds after a refusal, e.g. while the durable is being recreated, so that a refusal that persists does not cause a busy
loop."""

# what the server says instead of a message

STATUS_HEADER: Final = "Status"
DESCRIPTION_HEADER: Final = "Description"
HEARTBEAT: Final = "100"
NO_RESPONDERS: Final = "503"
ENDED: Final = frozenset({"404", "408"})
"""No messages; the request expired."""
FULL: Final = "Message Size Exceeds MaxBytes"
"""Description of the status that ends a request whose ``PULL_BYTES`` the next message exceeds."""

_NS: Final = 1_000_000_000


def next_subject(stream: str, consumer: str) -> str:
    """Where messages of a pull consumer are asked for."""
    return f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"


def pull_request(batch: int, expires_s: float, max_bytes: int = 0) -> bytes:
    """A request for up to ``batch`` messages, standing for ``expires_s`` seconds; ``max_bytes`` 0 means any size."""
    return orjson.dumps({"batch": batch, "expires": int(expires_s * _NS), "max_bytes": max_bytes})


def status_code_of(message: Msg) -> str:
    """What the server says in a message that has no reply subject, empty if nothing."""
    return str((message.headers or {}).get(STATUS_HEADER, ""))


def is_full(message: Msg) -> bool:
    """Whether the server ended a request because it has brought ``PULL_BYTES``."""
    return (message.headers or {}).get(DESCRIPTION_HEADER) == FULL
