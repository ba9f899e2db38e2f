"""A data directory is private, and git stages nothing of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from crew_journal.services.access.tokens import ensure_owner_token
from crew_journal.services.client.project import claim_journal
from crew_journal.services.data_dir import make_private


def test_git_stages_nothing_of_a_data_directory(tmp_path: Path) -> None:
    ensure_owner_token(tmp_path / ".crew-journal")
    (tmp_path / "code.py").write_text("")
    for argv in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *argv], cwd=tmp_path, check=True)
    staged = subprocess.run(["git", "ls-files"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert staged.stdout == "code.py\n"


def test_a_start_adds_a_missing_ignore_file_and_changes_none_that_is_there(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    claim_journal(data_dir)
    assert (data_dir / ".gitignore").read_text() == "*\n"
    (data_dir / ".gitignore").write_text("mine\n")
    claim_journal(data_dir)
    assert (data_dir / ".gitignore").read_text() == "mine\n"
    (data_dir / ".gitignore").unlink()
    (data_dir / ".gitignore").symlink_to(tmp_path / "elsewhere")
    claim_journal(data_dir)
    assert not (tmp_path / "elsewhere").exists()


def test_a_new_data_directory_is_for_its_owner_only(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        make_private(tmp_path / "a" / "data")
    finally:
        os.umask(former)
    assert (tmp_path / "a" / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "data" / ".gitignore").stat().st_mode & 0o777 == 0o600
