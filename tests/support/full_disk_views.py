"""Folds, reads and checkpoints on the disk of a folder while it is full; prints what happened as JSON. Run by a test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from support.events import at, entry
from support.stack import until
from support.views import node, source_of

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.bulk import fold_range
from crew_journal.consumers.host.faults import FoldingStopped
from crew_journal.consumers.host.store import ViewsUnusable

STREAM = [at(seq, entry(f"e{seq}", summary=f"entry number {seq} of many " + "word " * 300)) for seq in range(1, 1001)]


async def go_through(folder: Path) -> dict[str, Any]:
    """What a host on a disk that fills up and is freed saw."""
    seen: dict[str, Any] = {}
    ballast = folder / "ballast"
    async with node(folder / "v.duckdb", discover_projections()) as live:

        def count() -> int:
            return int(live.store.rows("SELECT count(*) FROM journal_entries")[0][0])

        await fold_range(live.host, source_of(STREAM, 50), 600)
        with ballast.open("wb", buffering=0) as full, contextlib.suppress(OSError):
            while full.write(bytes(4096)):
                pass
        try:
            await live.host.fold(STREAM[600:])
        except FoldingStopped as error:
            seen["fold"] = error.message
        seen["read"] = count()
        try:
            await live.store.checkpoint()
        except ViewsUnusable as error:
            seen["checkpoint"] = error.message
        await until(lambda: live.store.trouble is None)
        seen["reopened"], seen["read on a full disk"] = live.store.reopened, count()
        ballast.unlink()
        await live.host.fold(STREAM[600:])
        await live.store.checkpoint()
        seen["read at the end"], seen["stopped"] = count(), live.host.status().stopped
        async with node(folder / "twin.duckdb", discover_projections()) as twin:
            await fold_range(twin.host, source_of(STREAM), len(STREAM))
            seen["equal"] = live.digests() == twin.digests()
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(go_through(Path(sys.argv[1])))))
