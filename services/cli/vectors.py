"""Waits until all entries that should be embedded are embedded, for commands that measure recall.

Invariant: the number of missing vectors comes from the journal, not from a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...schemas.core.errors import NotFound
from .output import plain, progress_bar

if TYPE_CHECKING:
    from ..client import CrewJournal

POLL_S: Final = 0.2
"""Seconds between two questions; each costs the journal a few milliseconds."""
PATIENCE_S: Final = 120.0
"""Seconds without a further vector until a wait ends; MiniLM does 60 a second on one core, and a large model on a processor
may need a minute for its first batch of 64."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The number of a model's vectors.

    Attributes:
        model: The model, None if there is none.
        count: Its vectors.
        embeddable: Entries that the policy selects.
        missing: Entries without a vector; None if nothing fills the model.
        embeds: Whether there is an embedder at all.
    """

    model: str | None
    count: int
    embeddable: int
    missing: int | None
    embeds: bool = True


def wait_for_vectors(journal: CrewJournal, after_seq: int, patience_s: float = PATIENCE_S) -> Vectors:
    """Wait until the active model lacks no vector, no embedder runs, or no vector came for ``patience_s`` seconds.

    Only entries up to the sequence ``after_seq`` count.
    """

    def read() -> tuple[Vectors, bool]:
        report = plain(journal.status())
        counts, embedder = report["embeddings"], report["embedder"]
        embeds = embedder.get("mode") != "sparse-only"
        now = Vectors(embedder.get("model"), counts["count"], counts["embeddable"], counts["missing"], embeds)
        return now, report["view_seq"] >= after_seq and (not now.missing or not embeds)

    return _wait("embed", read, patience_s)


def wait_for_model(journal: CrewJournal, model: str) -> dict[str, Any]:
    """Wait until a model is filled, or no vector has come for ``PATIENCE_S`` seconds; its last figures.

    Raises:
        NotFound: If there is no such model.
    """
    figures: dict[str, Any] = {}

    def read() -> tuple[Vectors, bool]:
        models = {model["model"]: model for model in plain(journal.embedding_models())["models"]}
        if model not in models:
            raise NotFound(f"there is no model {model} here", hint=f"crew-journal embeddings add {model}")
        figures.update(models[model])
        return Vectors(model, figures["vectors"], figures["embeddable"], figures["missing"]), figures["missing"] == 0

    _wait(model, read, PATIENCE_S)
    return figures


def _wait(title: str, read: Callable[[], tuple[Vectors, bool]], patience_s: float) -> Vectors:
    most, since = -1, time.monotonic()
    with progress_bar(title, unit="vectors") as bar:
        while True:
            now, done = read()
            bar(now.count, now.embeddable)
            if now.count > most:
                most, since = now.count, time.monotonic()
            if done or time.monotonic() - since >= patience_s:
                return now
            time.sleep(POLL_S)
