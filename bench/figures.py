"""The report of a benchmark: figures with unit, baseline of the same run, and target.

Invariant: ``note`` says how a figure was measured and what the measurement leaves out.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

MIB = 1024 * 1024
MB = 1_000_000
"""The unit of the memory targets; a MiB is 5 % more."""
MS = 1_000.0


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a figure: at least, or at most, ``value``."""

    kind: Literal["at least", "at most"]
    value: float

    def met(self, measured: float) -> bool:
        """Whether ``measured`` meets the target."""
        return bool(measured >= self.value if self.kind == "at least" else measured <= self.value)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        name: What was measured.
        value: The number.
        unit: Its unit.
        target: The target; None if absent.
        note: How it was measured, and what the measurement leaves out.
    """

    name: str
    value: float
    unit: str
    target: Target | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The figure as JSON."""
        body: dict[str, Any] = {"name": self.name, "value": round(float(self.value), 3), "unit": self.unit}
        if self.target is not None:
            body["target"] = asdict(self.target)
            body["met"] = self.target.met(self.value)
        if self.note:
            body["note"] = self.note
        return body


@dataclass(slots=True)
class Report:
    """The figures of one benchmark.

    Attributes:
        bench: Its name.
        quick: Whether sizes were reduced; the targets apply to full sizes.
        sizes: Numbers of entries, vectors, seconds and so on.
        baselines: Figures of raw libraries in the same run.
        figures: Figures of Crew Journal.
    """

    bench: str
    quick: bool
    sizes: dict[str, int | float] = field(default_factory=dict)
    baselines: list[Figure] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    _t0: float = field(default_factory=time.monotonic)
    _load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def figure(self, name: str, value: float, unit: str, target: Target | None = None, note: str = "") -> None:
        """Add a figure of Crew Journal."""
        self.figures.append(Figure(name, value, unit, target, note))
        self._say(self.figures[-1], "")

    def baseline(self, name: str, value: float, unit: str, note: str = "") -> None:
        """Add a figure of a raw library."""
        self.baselines.append(Figure(name, value, unit, None, note))
        self._say(self.baselines[-1], "baseline: ")

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "bench": self.bench,
            "quick": self.quick,
            "started": self.started.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._t0, 1),
            "machine": {
                "cores": os.cpu_count(),
                "architecture": platform.machine(),
                "python": platform.python_version(),
                "duckdb": version("duckdb"),
                "nats_py": version("nats-py"),
                "load_before": round(self._load_before, 2),
            },
            "sizes": self.sizes,
            "baselines": [f.as_dict() for f in self.baselines],
            "figures": [f.as_dict() for f in self.figures],
        }

    def _say(self, figure: Figure, prefix: str) -> None:
        verdict = "" if figure.target is None else " ok" if figure.target.met(figure.value) else " FALLS SHORT"
        say(f"{self.bench}: {prefix}{figure.name}: {figure.value:,.3f} {figure.unit}{verdict}")


def at_least(value: float) -> Target:
    """The target "at least ``value``"."""
    return Target("at least", value)


def at_most(value: float) -> Target:
    """The target "at most ``value``"."""
    return Target("at most", value)


def percentile(values: Sequence[float], share: float) -> float:
    """The ``share`` percentile (0..1) by nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -(-int(share * 1_000_000) * len(ordered) // 1_000_000) - 1))]


def median(values: Sequence[float]) -> float:
    """The median."""
    return float(statistics.median(values))


def latencies(
    report: Report, name: str, seconds: Sequence[float], p50_ms: float | None, p99_ms: float | None, note: str = ""
) -> None:
    """Add p50, p99 and the worst of latencies given in seconds; targets in milliseconds."""
    say_note = f"{note}{'; ' if note else ''}n={len(seconds)}"
    report.figure(
        f"{name}, p50", percentile(seconds, 0.5) * MS, "ms", None if p50_ms is None else at_most(p50_ms), say_note
    )
    report.figure(
        f"{name}, p99", percentile(seconds, 0.99) * MS, "ms", None if p99_ms is None else at_most(p99_ms), say_note
    )
    report.figure(f"{name}, worst", max(seconds) * MS, "ms", None, say_note)


def say(text: str) -> None:
    """Print progress on stderr; stdout holds only the JSON."""
    print(text, file=sys.stderr, flush=True)
