"""Maintains a view file while the host is idle: DuckDB checkpoints, and the housekeeping of projections.

Invariant: it changes no digest, so when it runs affects latency alone.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import duckdb
import structlog

from ...schemas.errors import Unavailable
from ...schemas.settings import FREE_DISK_FLOOR_BYTES, IDLE_TIDY_S, WAL_IDLE_BYTES
from ..projection import Projection
from .store import ViewStore
from .transaction import ProjectionTransaction, transaction

_log = structlog.get_logger(__name__)


class TidiedHost(Protocol):
    """``host.Host``, as far as housekeeping needs it."""

    store: ViewStore
    projections: tuple[Projection, ...]

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Keep folds out."""
        ...


class Tidying:
    """Runs ``tidy`` of the projections that have one, then a checkpoint, once the host has been idle for a while."""

    def __init__(self, host: TidiedHost) -> None:
        self._host = host
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def after_commit(self) -> None:
        """Restart the idle time; checkpoint at once if the log is beyond its bound."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE_TIDY_S, self._start)
        if self._host.store.wal_bytes > self._host.store.wal_bound and self._has_room():
            await self._checkpoint()

    def stop(self) -> None:
        """Cancel planned work; work that runs is completed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._task = asyncio.ensure_future(self.tidy())

    async def tidy(self) -> None:
        """One round of housekeeping, under the host's lock; none while the disk is full."""
        if not self._has_room():
            return
        async with self._host.paused():
            for projection in self._host.projections:
                if hasattr(projection, "tidy"):
                    try:
                        await self._host.store.write(lambda con, p=projection: _tidy(con, p))  # type: ignore[misc]
                    except Exception as error:  # the views are as they were; the next round tries again
                        _log.warning("tidy_failed", projection=projection.name, error=type(error).__name__)
            if self._host.store.wal_bytes > WAL_IDLE_BYTES:
                await self._checkpoint()

    def _has_room(self) -> bool:
        """Whether the disk has room for what the log holds: a checkpoint that fails makes DuckDB refuse reads, too."""
        store = self._host.store
        return shutil.disk_usage(store.path.parent).free >= FREE_DISK_FLOOR_BYTES + store.wal_bytes

    async def _checkpoint(self) -> None:
        try:
            await self._host.store.checkpoint()
        except (duckdb.Error, Unavailable) as error:  # the log stays; nothing is lost
            _log.warning("checkpoint_failed", error=type(error).__name__)


def _tidy(con: duckdb.DuckDBPyConnection, projection: Projection) -> None:
    tidy = getattr(projection, "tidy")  # noqa: B009  # optional, so not in the protocol
    with transaction(con):
        tidy(ProjectionTransaction(con, projection))
