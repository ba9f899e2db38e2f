"""`up --sample`: a sample that cannot be shown is a warning, for the journal runs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from crew_journal.schemas.core.errors import Unavailable
from crew_journal.schemas.settings import Settings
from crew_journal.services.cli import demo as sample_journal
from crew_journal.services.cli import up
from crew_journal.services.runtime import node as runtime_package


class QuietRuntime:
    """A node that runs until it is asked whether it has closed."""

    asked = 0
    http_url, owner_token = "http://127.0.0.1:1", "cj_owner"

    def __init__(self, settings: Settings, *, log: object) -> None:
        self.settings = settings

    async def start(self) -> None:
        return None

    async def wait_closed(self) -> None:
        QuietRuntime.asked += 1

    async def stop(self) -> None:
        return None


async def test_a_worked_recall_that_fails_does_not_end_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise Unavailable("no recall today", hint="tomorrow")

    async def nothing(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(runtime_package, "Runtime", QuietRuntime)
    monkeypatch.setattr("crew_journal.services.cli.logs.configure_logging", lambda _level, **_: None)
    monkeypatch.setattr(up, "stop_on_signals", lambda _at_once: asyncio.Event())
    monkeypatch.setattr(up, "_announce", nothing)
    monkeypatch.setattr(sample_journal, "load_sample", fails)
    await up._up(Settings(data_dir=tmp_path), sample=True, as_json=False)
    for thread in threading.enumerate():
        if thread.name == "sample":
            thread.join()
    assert QuietRuntime.asked == 1
    assert "warning: the sample could not be shown: no recall today (tomorrow)" in capsys.readouterr().err
