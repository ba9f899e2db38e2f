"""A year of a crew's memory as messages: entries, vectors, recalls, pins and sweeps at the times of a simulated clock.

Everything follows from a seed, and the broker's times of the messages are the clock's: no fold has another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from support.events import at, control, entry, vector

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.timestamps import DAY_MS, format_ms
from crew_journal.schemas.recall.events import MemoryReferenced, PriorityChanged, ReferencedEntry
from crew_journal.schemas.sweeps.events import SweepFinished, SweepTicked
from crew_journal.schemas.sweeps.rules import ALL_SWEEPS, due_times

YEAR_START_MS = 1_767_225_600_000
"""1 January 2026, 00:00 UTC."""
WORKSPACES = ("w1", "w2", "w3")
TYPES = (
    ("run.completed", "info", 0.70),
    ("chat.user_message", "info", 0.14),
    ("exec.output_chunk", "info", 0.06),
    ("peer.escalation", "warn", 0.04),
    ("summary.generated", "info", 0.03),
    ("mission.status_change", "error", 0.02),
    ("eval.regression_detected", "error", 0.01),
)
WORDS = ("deploy", "checkout", "parser", "rollback", "memory", "night", "billing", "queue", "limit", "timeout", "index")
EMBEDDED = frozenset({"peer.escalation", "summary.generated", "mission.status_change", "eval.regression_detected"})


def year(entries: int, *, days: int = 365, seed: int = 7, dim: int = 8) -> Iterator[RawMessage]:
    """The messages of a year, in stream order.

    Args:
        entries: Entries of agents, spread over the days; one in ten has a vector.
        days: How long it lasts.
        seed: Decides everything.
        dim: Dimensions of the vectors.
    """
    rng = np.random.default_rng(seed)
    shares = np.array([share for *_, share in TYPES])
    kinds = rng.choice(len(TYPES), entries, p=shares / shares.sum())
    times = np.sort(rng.integers(0, days * DAY_MS, entries)) + YEAR_START_MS
    seq = 0
    now = YEAR_START_MS
    remembered: dict[str, list[str]] = {workspace: [] for workspace in WORKSPACES}

    def placed(message: OutgoingMessage, at_ms: int) -> RawMessage:
        nonlocal seq
        seq += 1
        return dataclasses.replace(at(seq, message), published_ms=at_ms)

    for number, (kind, at_ms) in enumerate(zip(kinds.tolist(), times.tolist(), strict=True)):
        for due_ms, sweep in _due(now, at_ms):
            for workspace in WORKSPACES:
                yield from (placed(message, due_ms) for message in _night(rng, workspace, sweep, due_ms, remembered))
        now = at_ms
        entry_type, severity, _ = TYPES[kind]
        workspace = WORKSPACES[int(rng.integers(0, 3))]
        name = f"e{number}"
        words = " ".join(rng.choice(WORDS, 8))
        yield placed(
            entry(name, summary=f"{words} {number}", workspace=workspace, entry_type=entry_type, severity=severity,
                  agent=f"a{number % 5}", ts_ms=at_ms), at_ms,
        )  # fmt: skip
        if entry_type in EMBEDDED:
            yield placed(vector(name, entry_seq=seq, seed=number, dim=dim, workspace=workspace), at_ms + 40)
            remembered[workspace].append(name)


def _due(after_ms: int, until_ms: int) -> list[tuple[int, str]]:
    return sorted((due, sweep.name) for sweep in ALL_SWEEPS for due in due_times(sweep.schedule, after_ms, until_ms))


def _night(
    rng: np.random.Generator, workspace: str, sweep: str, due_ms: int, remembered: dict[str, list[str]]
) -> Iterator[OutgoingMessage]:
    """What a workspace's day brought (recalls, now and then a pin), then the tick and its end."""
    known = remembered[workspace]
    due, name = format_ms(due_ms), f"{sweep}-{due_ms}"
    if sweep == "decay" and known:
        used = rng.integers(0, len(known), min(len(known), 30))
        counts = {known[i]: 1 + int(i % 3) for i in used.tolist()}
        referenced = tuple(ReferencedEntry(entry_id=one, count=count) for one, count in counts.items())
        yield control(MemoryReferenced(entries=referenced), f"r-{name}", workspace=workspace)
        if rng.integers(0, 4) == 0:
            target, wanted = known[int(rng.integers(0, len(known)))], ("pin", "permanent", "high", "normal")
            change = {
                "target_entry_id": target, "previous_priority": "normal",
                "new_priority": wanted[int(rng.integers(0, 4))], "reason": "operator",
            }  # fmt: skip
            yield control(PriorityChanged.model_validate(change), f"p-{name}", workspace=workspace)
    yield control(SweepTicked.model_validate({"sweep": sweep, "due": due}), f"t-{name}", workspace=workspace)
    if sweep != "decay":
        done = SweepFinished.model_validate({"sweep": sweep, "due": due, "counts": {"seen": len(known)}})
        yield control(done, f"f-{name}", workspace=workspace)
