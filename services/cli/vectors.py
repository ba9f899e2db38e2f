"""Waiting until what should be embedded is embedded, for commands that compare recall with and without.

Invariant: the journal is asked how many vectors are missing; nothing is guessed from a file.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ...schemas.errors import NotFound
from .output import plain, progress_bar

POLL_S: Final = 0.2
"""Seconds between two questions; each costs the journal a few milliseconds."""
MODEL_PATIENCE_S: Final = 120.0
"""Seconds without a further vector until waiting for a model ends; a large one may need a minute for a batch of 64."""


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


class ModelSource(Protocol):
    """The part of the client that is needed."""

    def embedding_models(self, *, workspace_id: str | None = None) -> Any:
        """The embedding models, and how far each is filled."""
        ...


def wait_for_model(journal: ModelSource, model: str, patience_s: float = MODEL_PATIENCE_S) -> dict[str, Any]:
    """Wait until a model is filled, or nothing has come for ``patience_s`` seconds; its last figures.

    Raises:
        NotFound: If there is no such model.
    """
    best, since = -1, time.monotonic()
    with progress_bar(model, unit="vectors") as bar:
        while True:
            found = [one for one in plain(journal.embedding_models())["models"] if one["model"] == model]
            if not found:
                raise NotFound(f"there is no model {model} here", hint=f"crew-journal embeddings add {model}")
            now: dict[str, Any] = found[0]
            bar.update(int(now["vectors"]), int(now["embeddable"]))
            if now["missing"] == 0:
                return now
            if now["vectors"] > best:
                best, since = now["vectors"], time.monotonic()
            if time.monotonic() - since >= patience_s:
                return now
            time.sleep(POLL_S)
