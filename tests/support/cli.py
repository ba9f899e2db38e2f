"""The installed command, run as a person runs it: in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.nats import PROJECT, nats_binary

COMMAND = str(Path(sys.executable).parent / "crew-journal")
DEADLINE_S = 120.0
"""Seconds until something has to have happened; a machine that is slow and busy may take many of them."""
STOP_S = 120.0
RUN_S = 240.0
UNAVAILABLE = 5
VIEWS_BEHIND = "was asked for"
"""In what a command says when the views have not come as far as ``--min-seq``."""


def environment(**more: str) -> dict[str, str]:
    """This process's, without settings of a journal of somebody else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CREW_JOURNAL_")}
    kept["CREW_JOURNAL_CACHE_DIR"] = str(PROJECT / ".cache")
    kept["CREW_JOURNAL_NATS_SERVER"] = str(nats_binary().path)
    return {**kept, **more}


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True, slots=True)
class Cli:
    """Commands on one data directory."""

    data_dir: Path

    def __call__(self, *argv: str, stdin: str | None = None, code: int | None = 0, **env: str) -> Done:
        """Run a command to its end; fails unless it exits with ``code`` (None: any).

        A service waits 5 s for its views; on a busy machine they may take longer, so that is asked again.
        """
        until = time.monotonic() + DEADLINE_S
        while True:
            done = subprocess.run(
                [COMMAND, *argv, "--data-dir", str(self.data_dir)],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=RUN_S,
                check=False,
                env=environment(**env),
            )
            if code != 0 or done.returncode != UNAVAILABLE or VIEWS_BEHIND not in done.stderr:
                break
            assert time.monotonic() < until, f"{argv}: the views do not come:\n{done.stderr}"
        assert code is None or done.returncode == code, f"{argv} exited {done.returncode}:\n{done.stdout}{done.stderr}"
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        """Start a command; the caller ends it."""
        return subprocess.Popen(
            [COMMAND, *argv, "--data-dir", str(self.data_dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**env),
        )

    @contextmanager
    def up(self, *argv: str, http: str = "127.0.0.1:0") -> Iterator[Up]:
        """A running ``up``, ended with SIGTERM when the block is left unless it ended before."""
        self.data_dir.mkdir(exist_ok=True)
        log = self.data_dir / "up.log"
        options = ["--json", "--http", http, "--durability", "interval"]
        options += [] if "--embedder" in argv else ["--embedder", "none"]
        with log.open("ab") as err:
            process = subprocess.Popen(
                [COMMAND, "up", *options, *argv, "--data-dir", str(self.data_dir)],
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                env=environment(),
            )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"`up` did not start:\n{log.read_text()}"
            yield Up(process, json.loads(line), log)
        finally:
            end(process)
            assert process.stdout is not None
            process.stdout.close()


@dataclass(frozen=True, slots=True)
class Up:
    """A running ``up``: its process, what it announced, its log."""

    process: subprocess.Popen[str]
    facts: dict[str, Any]
    log: Path

    def kill(self) -> None:
        """``kill -9``, and wait until it is gone."""
        self.process.kill()
        self.process.wait(STOP_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_S)


def end(process: subprocess.Popen[str]) -> None:
    """SIGTERM, and SIGKILL if that does not help."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def eventually(holds: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait until ``holds`` gives something true; fails after the deadline."""
    until = time.monotonic() + deadline_s
    while not (found := holds()):
        assert time.monotonic() < until, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(0.02)
    return found
