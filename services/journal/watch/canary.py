"""A write probe: on a full disk JetStream refuses writes while its own health page says ok (facts/nats.md).

Invariant: ``outcome`` is that of the last probe; readiness follows from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from ....schemas.subjects import CANARY_SUBJECT
from ....schemas.timestamps import format_ts
from ..publishing.acks import read_answer
from .watch_loop import Look

PROBE_EVERY_S: Final = 5.0
"""Seconds between probes; one costs 0.2 ms, with an fsync a few."""
PROBE_TIMEOUT_S: Final = 3.0
"""Seconds until a probe without an ack has failed."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CanaryOutcome:
    """The outcome of the last probe.

    Attributes:
        ok: Whether the broker took the write; None before the first probe.
        since: UTC time since when it is so.
        checked_at: UTC time of the last probe.
        error: Why not.
        latency_ms: Milliseconds until the ack of the last good probe.
    """

    ok: bool | None
    since: datetime
    checked_at: datetime | None = None
    error: str | None = None
    latency_ms: float | None = None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Canary(Look):
    """Writes one message to the stream CANARY every few seconds.

    Args:
        client: A connection of the service.
        timeout_s: Seconds until a probe has failed.
        clock: The time, UTC.
    """

    every_s = PROBE_EVERY_S

    def __init__(
        self,
        client: Client,
        *,
        timeout_s: float = PROBE_TIMEOUT_S,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._clock = clock
        self._outcome = CanaryOutcome(None, clock())

    @property
    def outcome(self) -> CanaryOutcome:
        """What the last probe saw."""
        return self._outcome

    def figures(self) -> CanaryOutcome:
        """What the last probe saw."""
        return self._outcome

    @property
    def trouble(self) -> str | None:
        """That the broker refuses writes although it is connected; None if it takes them."""
        if self._outcome.ok is not False or not self._client.is_connected:
            return None
        return f"the broker does not accept writes: {self._outcome.error}"

    async def start(self) -> None:
        """Probe for the first time."""
        await self.probe()

    async def look(self) -> None:
        """Probe."""
        await self.probe()

    async def probe(self) -> CanaryOutcome:
        """Write once now."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        error = await self._write()
        now = self._clock()
        ok = error is None
        before = self._outcome
        since = before.since if before.ok is ok else now
        latency_ms = (loop.time() - began) * 1_000 if ok else before.latency_ms
        self._outcome = CanaryOutcome(ok, since, now, error, latency_ms)
        if before.ok is not ok and before.ok is not None:
            _log.log(20 if ok else 40, "canary.recovered" if ok else "canary.failed", error=error)
        return self._outcome

    async def _write(self) -> str | None:
        if not self._client.is_connected:
            return "not connected to the broker"
        body = format_ts(self._clock()).encode()
        try:
            answer = await self._client.request(CANARY_SUBJECT, body, timeout=self._timeout_s)
        except (NatsError, TimeoutError) as error:
            return f"no ack: {str(error) or type(error).__name__}"
        read = read_answer(answer.data)
        return None if read.error is None else str(read.error)
