"""A whole node in this process: the real composition root on a free port, over a broker of its own."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.nats import nats_binary
from support.views import empty_views, node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.schemas.settings import Settings
from crew_journal.services.runtime.node import Runtime
from crew_journal.services.runtime.views import VIEWS_FILE
from crew_journal.services.sweeps.scheduler import Sweeps


async def _keep_no_time(_self: Sweeps) -> None:
    """Tests count entries, and at some hours of the day a tick would be one more."""


def _has_files(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


async def _with_empty_views(path: Path) -> None:
    """Copy the tables, as an earlier start has made them."""
    projections = discover_projections()
    if not empty_views.begin(path, projections):
        async with node(Path(tempfile.mkdtemp()) / VIEWS_FILE, projections):
            pass
        empty_views.begin(path, projections)


@asynccontextmanager
async def running_node(data_dir: Path, **given: Any) -> AsyncIterator[Runtime]:
    """A node below ``data_dir``, stopped when the block is left.

    Without an embedder unless the settings say so, without sweeps but on request, and without seals.
    """
    named: dict[str, Any] = {"http": "127.0.0.1:0", "embedder": "none", "durability": "interval", "seal_s": 0}
    if not _has_files(data_dir):
        await _with_empty_views(data_dir / VIEWS_FILE)
    runtime = Runtime(Settings(data_dir=data_dir, nats_server=nats_binary().path, **{**named, **given}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sweeps, "start", _keep_no_time)
        await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()
