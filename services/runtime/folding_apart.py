"""Folds the stream into a new views file in a process of its own.

A fold of 100,000 messages keeps one core busy for half a minute. In the node's process, every request would wait for
Python's lock meanwhile; another process has a lock of its own, and a lower priority.

Invariant: the process ends with the node, also if the node is killed: it reads its standard input, which the node keeps
open, and exits at its end. So it never holds the new file when the next node begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from ...consumers.discovery import discover_projections
from ...consumers.feed.replay import replay
from ...consumers.host.bulk import Progress, ReadAccount, fold_range
from ...consumers.host.folding import Parked
from ...consumers.host.host import Host
from ...consumers.host.rebuild import FoldedApart
from ...consumers.host.store import ViewStore, share_one_heap
from ...schemas.core.broker_address import BrokerLogin, LoginFiles
from ...schemas.settings import REPLAY_BATCH_MESSAGES
from ..journal.broker.connection import connect

NICENESS: Final = 5
"""Lower priority of the process: it gets a core if the node needs none."""
_log = structlog.get_logger(__name__)


async def fold_apart(
    nats: BrokerLogin,
    memory_mb: int,
    path: Path,
    names: Sequence[str],
    last_seq: int,
    progress: Progress | None,
) -> FoldedApart | None:
    """Fold projections up to a sequence into a new file; None if the process failed.

    Args:
        nats: The broker.
        memory_mb: Memory limit of its DuckDB, MiB.
        path: The new file.
        names: The projections.
        last_seq: The sequence.
        progress: Called with how far the fold is.
    """
    task = {"nats": nats, "memory_mb": memory_mb, "path": str(path), "names": list(names), "last_seq": last_seq}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    result: dict[str, Any] | None = None
    try:
        process.stdin.write(json.dumps(task).encode() + b"\n")
        async for line in process.stdout:
            record = json.loads(line)
            if "done" not in record:
                result = record
            elif progress is not None:
                progress(record["done"], record["total"])
    except (OSError, ValueError) as error:
        _log.warning("fold_apart_failed", error=type(error).__name__)
        result = None
    finally:
        process.stdin.close()  # ends the process
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if result is None or result["suspended"]:
        _log.warning("folded_here_instead", suspended=None if result is None else result["suspended"])
        return None
    return FoldedApart([(first, last) for first, last in result["missing"]], result["parked"])


# The process.


async def _fold(task: dict[str, Any]) -> dict[str, Any]:
    parked: list[Parked] = []

    async def collect(refused: Parked) -> None:
        parked.append(refused)

    url, user, password, files = task["nats"]
    client = await connect(url, user, password, "crew-journal fold", files=LoginFiles(*files))
    store = ViewStore.open(Path(task["path"]), memory_mb=task["memory_mb"])
    account = ReadAccount()
    names = set(task["names"])
    projections = [projection for projection in discover_projections() if projection.name in names]
    host = Host(store, projections, park=collect, housekeeping=False, replays=True)
    try:
        await host.open()
        counted = account.counted(lambda first, last: replay(client, first, last, batch=REPLAY_BATCH_MESSAGES))
        await fold_range(host, counted, task["last_seq"], lambda done, total: _say({"done": done, "total": total}))
    finally:
        await host.close()
        store.close()
        await client.close()
    return {"missing": account.missing, "parked": len(parked), "suspended": sorted(host.folder.suspended)}


def _say(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


def _end_with_the_node() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Fold what the first line of standard input asks for, and print the result as a line of JSON."""
    os.nice(NICENESS)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    share_one_heap()
    task = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_node, daemon=True).start()
    _say(asyncio.run(_fold(task)))


if __name__ == "__main__":
    main()
