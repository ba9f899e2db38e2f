"""DuckDB on a file system that is full: it gives the file up, and the file is opened again while the disk is still full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support import full_disk_views
from support.full_disk import on_a_tmpfs

SIZE_MIB = 64


def test_views_on_a_full_disk_are_read_at_once_and_folded_on_when_there_is_room(tmp_path: Path) -> None:
    tests = str(Path(full_disk_views.__file__).parents[1])
    run = subprocess.run(
        [*on_a_tmpfs(tmp_path, SIZE_MIB), sys.executable, "-m", "support.full_disk_views", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": tests},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout.splitlines()[-1])
    assert "No space left on device" in seen.pop("fold")
    assert "No space left on device" in seen.pop("checkpoint")
    assert seen == {
        "read": 600,
        "reopened": 1,
        "read on a full disk": 600,
        "read at the end": len(full_disk_views.STREAM),
        "stopped": None,
        "equal": True,
    }
