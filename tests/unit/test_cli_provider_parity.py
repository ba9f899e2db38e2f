"""``provider-parity``: the report, exit codes and what it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.disk_provider import DiskProvider
from support.wrong_providers import DuplicatesRetries

from crew_journal.schemas.documents.provider import MemoryProvider, ProviderScope
from crew_journal.services.cli.main import main

ROOT = "CREW_JOURNAL_MEMORY_PROVIDER_ROOT"


def _root() -> Path:
    import os

    return Path(os.environ[ROOT])


def right(scope: ProviderScope) -> MemoryProvider:
    return DiskProvider(_root(), scope)


def wrong(scope: ProviderScope) -> MemoryProvider:
    return DuplicatesRetries(_root(), scope)


@pytest.fixture(autouse=True)
def _at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT, str(tmp_path))
    monkeypatch.setattr("sys.path", __import__("sys").path[:])


def test_a_provider_that_keeps_every_law_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provider-parity", f"{__name__}:right"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok      ") for line in out[:-1])
    assert out[-1] == f"{len(out) - 1} of {len(out) - 1} laws hold"


def test_a_provider_that_breaks_a_law_exits_with_6_and_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provider-parity", f"{__name__}:wrong", "--json"]) == 6
    said = capsys.readouterr()
    laws = json.loads(said.out)["laws"]
    assert [law["law"] for law in laws if law["seen"]] == ["retry writes once"]
    assert "breaks 1 laws: retry writes once" in json.loads(said.err)["error"]["message"]


def test_a_url_needs_a_token_and_a_module_must_be_importable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREW_JOURNAL_TOKEN", raising=False)
    assert main(["provider-parity", "http://127.0.0.1:1"]) == 2
    assert main(["provider-parity", "no_such_module:factory"]) == 2
    assert "cannot be imported" in capsys.readouterr().err


def test_a_service_that_does_not_answer_breaks_laws_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provider-parity", "http://127.0.0.1:1", "--token", "cj_x"]) == 6
    assert "BackendFailed" in capsys.readouterr().out
