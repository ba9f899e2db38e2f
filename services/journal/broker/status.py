"""What is known of a managed broker at one moment, for ``status``, ``doctor`` and the tests.

Invariant: a plain value; taking it touches neither disk nor network.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from .config import Durability


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A managed broker at one moment.

    Attributes:
        running: Whether the server is up and ready.
        pid: Its process id, None while there is none.
        port: TCP port on loopback.
        url: What clients connect to; without credentials.
        version: As told by the running server, or by the binary before the first start.
        durability: ``durable`` or ``interval``.
        restarts: Times it died and was started again in this run.
        since: UTC time of the last start, None before the first.
        last_exit: Exit code of the last one that died (negative: the signal), None if none did.
        last_error: Why the last attempt to start it failed, empty if it did not.
        moved_from_port: The port it had to give up in this run because somebody else had taken it.
        log_path: The server's log.
    """

    running: bool
    pid: int | None
    port: int
    url: str
    version: str
    durability: Durability
    restarts: int
    since: datetime | None
    last_exit: int | None
    last_error: str
    moved_from_port: int | None
    log_path: Path
