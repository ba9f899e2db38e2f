"""Scripts that run in an environment of their own, which has a framework and the wheel of our client."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from support.nats import PROJECT

SCRIPTS = PROJECT / "tests" / "frameworks"


def run_with(package: str, script: str, folder: Path, **env: str) -> str:
    """Install a package and the client into an empty environment and run a script of ``tests/frameworks``; its output."""
    python = folder / "venv" / "bin" / "python"
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    subprocess.run([sys.executable, PROJECT / "deploy" / "client" / "build", folder / "dist"], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[{package}]"], check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CREW_JOURNAL_", "PYTHON"))}
    done = subprocess.run(
        [python, SCRIPTS / script], capture_output=True, text=True, check=False, cwd=folder, env={**kept, **env}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
