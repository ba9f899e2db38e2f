"""A store and a host for one test, and the digests that tests compare."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host.folding import Parked
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.opening import StreamAtHand
from crew_journal.consumers.host.rebuild import digest
from crew_journal.consumers.host.store import ViewStore
from crew_journal.consumers.host.transaction import ddl
from crew_journal.consumers.projection import Projection

MEMORY_MB = 256


@dataclass
class DeadLetters:
    """Collects parkings; fails while ``down``."""

    parked: list[Parked] = field(default_factory=list)
    down: bool = False

    async def __call__(self, parked: Parked) -> None:
        if self.down:
            raise ConnectionError("the broker is away")
        self.parked.append(parked)

    def names(self) -> set[tuple[str, int, int]]:
        """(projection, version, sequence) of each parking, once."""
        return {(p.projection, p.version, p.message.seq) for p in self.parked}


@dataclass
class Node:
    """What a test folds into."""

    store: ViewStore
    host: Host
    dead: DeadLetters

    def digests(self) -> dict[str, str]:
        """Projection → digest of its rows."""
        with self.store.snapshot() as con:
            return {p.name: digest(con, p).digest for p in self.host.projections}


class EmptyViews:
    """Views without rows, copied into new files: making 80 tables takes longer than all else of a short test."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], Path] = {}

    def begin(self, path: Path, projections: Sequence[Projection]) -> bool:
        """Copy them to ``path`` unless there are views; False if ``keep`` is to be called once they were made."""
        if path.exists():
            return True
        kept = self._kept.get(self._key(projections))
        if kept is None:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kept, path)
        return True

    def keep(self, path: Path, projections: Sequence[Projection]) -> None:
        """Copy what was made."""
        self._kept[self._key(projections)] = copy = Path(tempfile.mkdtemp(prefix="empty-views-")) / "views.duckdb"
        shutil.copy(path, copy)

    @staticmethod
    def _key(projections: Sequence[Projection]) -> tuple[object, ...]:
        return tuple((p.name, p.version, *map(ddl, p.tables)) for p in projections)


empty_views = EmptyViews()


@asynccontextmanager
async def node(
    path: Path,
    projections: Sequence[Projection],
    dead: DeadLetters | None = None,
    memory_mb: int = MEMORY_MB,
    *,
    is_copied: bool = True,
) -> AsyncIterator[Node]:
    """An opened host over the file at ``path``, closed at the end; a new file is a copy unless ``is_copied`` is False."""
    letters = dead or DeadLetters()
    ready = not is_copied or empty_views.begin(path, projections)
    store = ViewStore.open(path, memory_mb=memory_mb)
    host = Host(store, projections, park=letters, housekeeping=False)
    try:
        await host.open()
        if not ready:
            empty_views.keep(path, projections)
        yield Node(store, host, letters)
    finally:
        await host.close()
        store.close()


def file_names(folder: Path) -> list[str]:
    """What lies in a directory."""
    return sorted(path.name for path in folder.iterdir())


def source_of(stream: Sequence[RawMessage], batch: int = 7):
    """A ``ReplaySource`` over a list."""

    async def replay(first: int, last: int) -> AsyncIterator[list[RawMessage]]:
        chosen = [m for m in stream if first <= m.seq <= last]
        for start in range(0, len(chosen), batch):
            yield chosen[start : start + batch]

    return replay


def stream_of(messages: Sequence[RawMessage], made: str = "2026-01-01T00:00:00.000000001Z") -> StreamAtHand:
    """A stream that holds a list, by the time at which it was made."""
    held = {message.seq: message for message in messages}
    return StreamAtHand(made, max(held, default=0), held.get)
