"""The file of a backup while it is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

FULL_DISK: Final = """
import base64, resource, sys
from pathlib import Path
from crew_journal.services.cli.backing_up import _write
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
about = {"stream": "JOURNAL", "config": {}, "state": {}}
chunks = [{"chunk": base64.b64encode(bytes(65_536)).decode()}] * 4
try:
    _write(Path(sys.argv[1]), iter([about, *chunks]))
except OSError as error:
    print("refused", error.strerror)
"""


def test_a_disk_that_is_full_while_a_backup_is_written_is_one_error_and_no_stack(tmp_path: Path) -> None:
    """Issue 28.13; here a limit of the file's size stands for the end of the disk."""
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "draft")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "refused File too large\n"
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr
