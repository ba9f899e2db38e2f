"""Figures of a node over the last hour and the last week, for the charts of the page *System*.

Invariant: bounded. An hour has a sample every 15 s, a week one every 10 minutes; older ones are dropped. Samples are kept in
memory, and in one small file of the data directory so that a restart does not lose the week. They describe the process, not
the memory: no view contains them, and an erasure has nothing to remove from them.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import orjson
import structlog

from ..parts import Part, end_task

SAMPLE_S: Final = 15
HOUR_SAMPLES: Final = 3_600 // SAMPLE_S
WEEK_EVERY_S: Final = 600
WEEK_SAMPLES: Final = 7 * 86_400 // WEEK_EVERY_S
FILE: Final = "figures.json"
WIDTH: Final = 600
HEIGHT: Final = 100
"""Size of a chart in its own units."""

_log = structlog.get_logger(__name__)
_STATM: Final = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Resident memory of this process in bytes, from ``/proc``; None on systems other than Linux."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


class Sample(NamedTuple):
    """The figures at one moment; ``at`` in seconds since 1970-01-01, None for a figure that is not known."""

    at: float
    head: float | None  # last sequence of the stream
    lag: float | None  # sequences that the views are behind
    stream_bytes: float | None
    resident_bytes: float | None
    free_bytes: float | None


Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure over time.

    Attributes:
        unit: ``bytes``, or what is counted.
        lines: One polyline for each stretch without a gap, as ``x,y x,y …`` in a box of ``WIDTH`` by ``HEIGHT``.
        last: The newest value; None if it is not known.
        most: The value of the upper margin; the lower margin is 0.
    """

    name: str
    span: str
    unit: str
    lines: tuple[str, ...]
    last: float | None
    most: float


class FigureHistory(Part):
    """Takes a sample every 15 s.

    Args:
        read: The present figures by the names of ``Sample``.
        directory: The data directory.
        clock: Seconds since 1970-01-01.
    """

    def __init__(self, read: Callable[[], Awaitable[Figures]], directory: Path, clock: Callable[[], float]) -> None:
        self._read = read
        self._file = directory / FILE
        self._clock = clock
        self.hour: deque[Sample] = deque(maxlen=HOUR_SAMPLES)
        self.week: deque[Sample] = deque(maxlen=WEEK_SAMPLES)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the kept samples and begin."""
        await asyncio.to_thread(self._load)
        self._task = asyncio.create_task(self._sample_regularly(), name="figures")

    async def stop(self) -> None:
        """End, and keep the week."""
        await end_task(self._task)
        await asyncio.to_thread(self._save)

    async def sample(self) -> None:
        """Take one sample now; the week takes one every 10 minutes."""
        taken = Sample(at=self._clock(), **await self._read())
        self.hour.append(taken)
        if not self.week or taken.at - self.week[-1].at >= WEEK_EVERY_S:
            self.week.append(taken)
            await asyncio.to_thread(self._save)

    async def _sample_regularly(self) -> None:
        while True:
            try:
                await self.sample()
            except Exception as error:  # a chart has a gap then; the broker may be away
                _log.debug("figures.not_sampled", error=type(error).__name__)
            await asyncio.sleep(SAMPLE_S)

    def _load(self) -> None:
        try:
            kept = [Sample(*values) for values in orjson.loads(self._file.read_bytes())]
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError) as error:
            _log.warning("figures.not_read", file=self._file.name, error=type(error).__name__)
            return
        self.week.extend(sample for sample in kept if sample.at > self._clock() - WEEK_EVERY_S * WEEK_SAMPLES)

    def _save(self) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_bytes(orjson.dumps([list(sample) for sample in self.week]))
            new.replace(self._file)
        except OSError as error:  # a full disk is reported by the part ``disk``
            _log.warning("figures.not_kept", file=self._file.name, error=type(error).__name__)

    def charts(self) -> tuple[Chart, ...]:
        """Every figure over the last hour and the last week."""
        now = self._clock()
        return tuple(
            chart
            for span, samples, length_s, gap_s in (
                ("last hour", self.hour, 3_600, 4 * SAMPLE_S),
                ("last week", self.week, 7 * 86_400, 4 * WEEK_EVERY_S),
            )
            for chart in _charts(span, list(samples), now - length_s, length_s, gap_s)
        )


def _charts(span: str, samples: Sequence[Sample], since: float, length_s: float, gap_s: float) -> Iterable[Chart]:
    rates = [
        (later.at, max(0.0, later.head - earlier.head) / (later.at - earlier.at))
        for earlier, later in pairwise(samples)
        if later.head is not None and earlier.head is not None and 0 < later.at - earlier.at <= gap_s
    ]
    yield _chart("Messages stored", span, "a second", rates, since, length_s, gap_s)
    for name, field, unit in (
        ("Views behind the stream", "lag", "messages"),
        ("Memory of the process", "resident_bytes", "bytes"),
        ("Size of the stream", "stream_bytes", "bytes"),
        ("Free disk", "free_bytes", "bytes"),
    ):
        points = [(sample.at, value) for sample in samples if (value := getattr(sample, field)) is not None]
        yield _chart(name, span, unit, points, since, length_s, gap_s)


def _chart(
    name: str, span: str, unit: str, points: Sequence[tuple[float, float]], since: float, length_s: float, gap_s: float
) -> Chart:
    shown = [(at, value) for at, value in points if at >= since]
    most = max((value for _, value in shown), default=0.0)
    lines: list[list[str]] = []
    before: float | None = None
    for at, value in shown:
        if before is None or at - before > gap_s:
            lines.append([])
        before = at
        x, y = (at - since) / length_s * WIDTH, HEIGHT * (1 - (value / most if most else 0.0))
        lines[-1].append(f"{x:.1f},{y:.1f}")
    return Chart(name, span, unit, tuple(" ".join(line) for line in lines), shown[-1][1] if shown else None, most)
