"""Waiting until what should be embedded is embedded, for commands that compare recall with and without.

Invariant: the journal is asked how many vectors are missing; nothing is guessed from a file.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from crew_journal.services.cli.output import plain, progress_bar

POLL_S: Final = 0.2
"""Seconds between two questions; each costs the journal a few milliseconds."""


class StatusSource(Protocol):
    """The part of the client that is needed."""

    def status(self) -> Any:
        """How the node is doing."""
        ...


@dataclass(frozen=True, slots=True)
class Vectors:
    """How far the embedding is.

    Attributes:
        count: Vectors of the active model.
        embeddable: Entries that the policy selects.
        missing: Those still without.
        model: The active model, None if there is none.
        embeds: Whether there is an embedder at all.
        view_seq: What of the journal this speaks of.
    """

    count: int
    embeddable: int
    missing: int
    model: str | None
    embeds: bool
    view_seq: int


def read_vectors(report: Mapping[str, Any]) -> Vectors:
    """How far the embedding is, from a status report."""
    said = report["embeddings"]
    return Vectors(
        int(said["count"]),
        int(said["embeddable"]),
        int(said["missing"]),
        report["embedder"].get("model"),
        report["embedder"].get("mode") != "sparse-only",
        int(report["view_seq"]),
    )


def wait_for_vectors(journal: StatusSource, after_seq: int, patience_s: float) -> Vectors:
    """Wait until no vector is missing, or there is no embedder, or nothing has come for ``patience_s`` seconds.

    Args:
        journal: Asked again and again.
        after_seq: Last sequence whose entries count.
        patience_s: Seconds without a further vector until it gives up.
    """
    best, since = -1, time.monotonic()
    with progress_bar("embed", unit="vectors") as bar:
        while True:
            now = read_vectors(plain(journal.status()))
            seen = now.view_seq >= after_seq
            bar.update(now.count, now.embeddable)
            if seen and (now.missing == 0 or not now.embeds):
                return now
            if now.count > best:
                best, since = now.count, time.monotonic()
            if time.monotonic() - since >= patience_s:
                return now
            time.sleep(POLL_S)
