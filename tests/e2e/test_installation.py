"""From an empty home to the first recalled answer, a crash, a backup and a restored journal, without the checkout."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import PROJECT, wait_for

JOURNAL = ".local/state/crew-journal/journal"
MAX_S, MAX_COMMANDS, MAX_MB = 90, 5, 550
TEXT = "Maria wants summaries in German, not English"
REGISTRY = ("PIP_", "SSL_", "UV_")
"""How variables begin that say where packages come from."""


@pytest.mark.nightly
def test_five_commands_lead_from_an_empty_home_to_an_answer_that_a_crash_and_a_backup_keep(tmp_path: Path) -> None:
    dist, home, tools = tmp_path / "dist", tmp_path / "home", tmp_path / "tools"
    home.mkdir()
    build: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        dist,
        PROJECT,
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = dist.glob("crew_journal-*.whl")
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    subprocess.run([tools / "bin" / "pip", "install", "-q", "uv"], check=True)  # what a user of uv has
    kept = {name: value for name, value in os.environ.items() if name.startswith(REGISTRY)}
    path = f"{tools / 'bin'}:{home / '.local' / 'bin'}:/usr/bin:/bin"
    kept |= {"HOME": str(home), "PATH": path, "UV_PYTHON": sys.executable, "LANG": "C.UTF-8"}
    commands: list[list[str]] = []

    def run(*command: str) -> str:
        commands.append([*command])
        found = shutil.which(command[0], path=path)
        assert found, f"{command[0]} is not on PATH"
        ran = subprocess.run(command, executable=found, cwd=home, env=kept, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{command}: {ran.stderr}"
        return ran.stdout

    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    run("uv", "tool", "install", "-q", f"crew-journal[broker] @ file://{wheel}")
    run("crew-journal", "embedder", "install", "minilm")
    commands.append(["crew-journal", "up"])
    with _up(home, kept):
        run("crew-journal", "remember", TEXT)
        assert _recalled(run) == [TEXT]
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    needed = len(commands)
    installed = [home / ".local", home / ".cache" / "crew-journal"]  # the journal is in .local; uv's cache is uv's
    size = sum(
        path.stat().st_size
        for root in installed
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    print(f"{took:.0f} s, {cpu:.0f} s of CPU, {needed} commands, {size / 1e6:.0f} MB")
    with _up(home, kept):
        assert _recalled(run) == [TEXT]
        run("crew-journal", "backup", "journal.backup")
    run("crew-journal", "restore", "journal.backup", "--data-dir", "elsewhere")
    for folder in (JOURNAL, "elsewhere"):
        assert _recalled(run, "--data-dir", folder) == [TEXT]
        assert "equal" in run("crew-journal", "verify", "--data-dir", folder)
    print(f"{time.monotonic() - began:.0f} s, {len(commands)} commands with a crash, a backup and a restored journal")
    assert needed <= MAX_COMMANDS
    assert size / 1e6 <= MAX_MB
    assert cpu <= MAX_S  # wall time says more about what else the machine does


@contextmanager
def _up(home: Path, env: Mapping[str, str]) -> Iterator[None]:
    """A running ``up`` in ``home``, killed with -9 when the block is left."""
    runtime = home / JOURNAL / "runtime.json"
    runtime.unlink(missing_ok=True)
    with (home / "up.log").open("ab") as log:
        up = subprocess.Popen(
            ["crew-journal", "up", "--http", "127.0.0.1:0"],
            executable=home / ".local" / "bin" / "crew-journal",
            cwd=home,
            env=env,
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: up.poll() is not None or runtime.exists(), "a running `up`")
        assert up.poll() is None, (home / "up.log").read_text()
        yield
    finally:
        up.kill()
        up.wait(60)


def _recalled(run: Callable[..., str], *more: str) -> list[str]:
    answer = json.loads(run("crew-journal", "recall", "which language does Maria want?", "--json", *more))
    return [hit["summary"] for hit in answer["hits"]]
