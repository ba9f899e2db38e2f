"""Which nats-server is chosen, and what is said when none will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from crew_journal.schemas.core.errors import BrokerError
from crew_journal.services.journal.broker.broker import NatsBinary, find_nats_server, parse_version


def fake_server(folder: Path, says: str, exit_code: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "nats-server"
    script.write_text(f"#!/bin/sh\necho '{says}'\nexit {exit_code}\n")
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("nats-server: v2.15.1", (2, 15, 1)),
        ("nats-server: v2.10.27-RC.2", (2, 10, 27)),
        ("2.9.10", (2, 9, 10)),
        ("nats-server: dev", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_the_server_says(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == version


def test_the_newest_is_chosen_wherever_it_is(tmp_path: Path) -> None:
    fake_server(tmp_path / "path", "nats-server: v2.10.27")
    newest = fake_server(tmp_path / "cache", "nats-server: v2.15.1")
    fake_server(tmp_path / "other", "nats-server: v2.9.99")
    found = find_nats_server([tmp_path / "other", tmp_path / "cache"], search_path=str(tmp_path / "path"))
    assert found == NatsBinary(newest, (2, 15, 1))
    assert found.has_atomic_batches


def test_versions_are_compared_as_numbers(tmp_path: Path) -> None:
    fake_server(tmp_path / "nine", "nats-server: v2.12.9")
    ten = fake_server(tmp_path / "ten", "nats-server: v2.12.10")
    assert find_nats_server([tmp_path / "nine", tmp_path / "ten"], search_path="").path == ten


def test_of_equal_versions_the_one_on_path_is_chosen(tmp_path: Path) -> None:
    on_path = fake_server(tmp_path / "path", "nats-server: v2.12.0")
    fake_server(tmp_path / "cache", "nats-server: v2.12.0")
    assert find_nats_server([tmp_path / "cache"], search_path=str(tmp_path / "path")).path == on_path


def test_the_override_is_used_even_if_a_newer_one_is_there(tmp_path: Path) -> None:
    chosen = fake_server(tmp_path / "mine", "nats-server: v2.10.0")
    fake_server(tmp_path / "cache", "nats-server: v2.15.1")
    found = find_nats_server([tmp_path / "cache"], override=chosen)
    assert found == NatsBinary(chosen, (2, 10, 0))
    assert not found.has_atomic_batches


def test_a_server_that_is_too_old_is_refused_by_name_and_version(tmp_path: Path) -> None:
    old = fake_server(tmp_path / "path", "nats-server: v2.9.10")
    with pytest.raises(BrokerError) as caught:
        find_nats_server([], search_path=str(tmp_path / "path"))
    assert "2.9.10" in str(caught.value)
    assert str(old) in str(caught.value)
    assert "2.10" in str(caught.value)
    assert "crew-journal broker install" in caught.value.hint, "who installed a wheel has no checkout"


def test_a_missing_override_is_an_error_and_not_replaced(tmp_path: Path) -> None:
    fake_server(tmp_path / "cache", "nats-server: v2.15.1")
    with pytest.raises(BrokerError, match="nowhere") as caught:
        find_nats_server([tmp_path / "cache"], override=tmp_path / "nowhere")
    assert "CREW_JOURNAL_NATS_SERVER" in caught.value.hint
    assert "newer one on PATH" not in caught.value.hint, "PATH is not looked at"


def test_without_any_nats_server_the_error_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="crew-journal broker install") as caught:
        find_nats_server([tmp_path], search_path="")
    assert caught.value.hint.startswith("`crew-journal broker install` fetches one; or put one on PATH"), (
        "there is none that a newer one could be newer than"
    )


@pytest.mark.parametrize(("says", "code"), [("nats-server: v2.15.1", 1), ("something else", 0)])
def test_a_binary_that_does_not_run_properly_is_no_candidate(tmp_path: Path, says: str, code: int) -> None:
    fake_server(tmp_path / "bad", says, code)
    with pytest.raises(BrokerError, match="does not run or does not tell its version"):
        find_nats_server([tmp_path / "bad"], search_path="")
