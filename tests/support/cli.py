"""The command line on a real journal: in this process where only the answer counts, else in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.forked import Forked
from support.in_process import NEED_A_PROCESS, VIEWS_BEHIND, run_in_process
from support.nats import PROJECT, nats_binary

COMMAND = str(Path(sys.executable).parent / "crew-journal")
DEADLINE_S = 120.0
"""Seconds until something has to have happened; a machine that is slow and busy may take many of them."""
STOP_S = 120.0
RUN_S = 240.0
UNAVAILABLE = 5


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
    """Commands on one data directory.

    Attributes:
        data_dir: The directory.
        env: More of the environment: the address and the token of a service elsewhere.
    """

    data_dir: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *argv: str, stdin: str | None = None, code: int | None = 0, **env: str) -> Done:
        """Run a command to its end, in this process if it may; fails unless it exits with ``code`` (None: any).

        A service waits 5 s for its views; on a busy machine they may take longer, so that is asked again.
        """
        run = self._forked if argv[0] in NEED_A_PROCESS else self._in_process
        until = time.monotonic() + DEADLINE_S
        while True:
            done = run(argv, stdin, environment(**self.env, **env))
            if code != 0 or done.code != UNAVAILABLE or VIEWS_BEHIND not in done.err:
                break
            assert time.monotonic() < until, f"{argv}: the views do not come:\n{done.err}"
        assert code is None or done.code == code, f"{argv} exited {done.code}:\n{done.out}{done.err}"
        return done

    def in_this_process(self, *argv: str, named: bool = True) -> Done:
        """Run a command as it is typed; the environment names a journal, unless it is not to be ``named``."""
        env = environment(**self.env)
        if not named:
            env.pop("CREW_JOURNAL_DATA_DIR", None)
        return Done(*run_in_process(argv, env, None))

    def _place(self, env: Mapping[str, str]) -> list[str]:
        """The option for the directory, unless the environment has an address: the option would count before it."""
        return [] if "CREW_JOURNAL_URL" in env else ["--data-dir", str(self.data_dir)]

    def _in_process(self, argv: tuple[str, ...], stdin: str | None, env: dict[str, str]) -> Done:
        return Done(*run_in_process([*argv, *self._place(env)], env, stdin))

    def _forked(self, argv: tuple[str, ...], stdin: str | None, env: dict[str, str]) -> Done:
        assert stdin is None, "a process of its own reads nothing"
        command, pipe = [COMMAND, *argv, *self._place(env)], subprocess.PIPE
        with Forked(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=env) as process:
            out, err = process.communicate(timeout=RUN_S)
        return Done(process.returncode, out, err)

    def _spawned(self, argv: tuple[str, ...], stdin: str | None, env: dict[str, str]) -> Done:
        command = [COMMAND, *argv, *self._place(env)]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=RUN_S, check=False, env=env)
        return Done(done.returncode, done.stdout, done.stderr)

    def spawned(self, *argv: str, stdin: str | None = None, **env: str) -> Done:
        """Run a command to its end as a person does: in a process of its own. Fails unless it exits with 0."""
        done = self._spawned(argv, stdin, environment(**self.env, **env))
        assert done.code == 0, f"{argv} exited {done.code}:\n{done.out}{done.err}"
        return done

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        """Start a command; the caller ends it."""
        whole = environment(**self.env, **env)
        return Forked(
            [COMMAND, *argv, *self._place(whole)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=whole,
        )

    @contextmanager
    def up(self, *argv: str, http: str = "127.0.0.1:0") -> Iterator[Up]:
        """A running ``up``, ended with SIGTERM when the block is left unless it ended before."""
        self.data_dir.mkdir(exist_ok=True)
        log = self.data_dir / "up.log"
        options = ["--json", "--http", http, "--durability", "interval"]
        options += [] if "--embedder" in argv else ["--embedder", "none"]
        with log.open("ab") as err:
            process = Forked(
                [COMMAND, "up", *options, *argv, "--data-dir", str(self.data_dir)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                env=environment(**self.env),
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

    def beside(self, data_dir: Path, token: str | None = None) -> Cli:
        """Commands on it by its address, with another data directory; as the owner unless a token is given."""
        bearer = token or Path(self.facts["owner_token_file"]).read_text()
        return Cli(data_dir, {"CREW_JOURNAL_URL": self.facts["http"], "CREW_JOURNAL_TOKEN": bearer})

    def kill(self) -> None:
        """``kill -9``, and wait until it is gone."""
        self.process.kill()
        self.process.wait(STOP_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_S)


def end(process: subprocess.Popen[Any]) -> None:
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
