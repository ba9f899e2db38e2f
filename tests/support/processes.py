"""A real ``crew-journal up`` as a process that tests (and benchmarks) start, watch, kill and start again.

Invariant: whatever a ``Stack`` started is gone when it is closed, the nats-server that outlived a killed service included.
Only processes of its own data directory are ever signalled, each by its pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Self, TypeVar

import psutil
from support.in_process import NEED_A_PROCESS, VIEWS_BEHIND, run_in_process

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).parent / "crew-journal"
CACHE = PROJECT / ".cache"
READY_DEADLINE_S = 240.0
"""Seconds until ``up`` must be ready on a machine that is busy with other tests; quiet it takes under 4."""
END_DEADLINE_S = 120.0
"""Seconds until a process that was asked to end must be gone."""
DEADLINE_S = 120.0
"""Seconds until something has to have happened; a machine that is slow and busy may take many of them."""
RUN_DEADLINE_S = 240.0
"""Seconds until a command must have ended."""
POLL_S = 0.01
LOG_TAIL = 4_000
"""Characters of the log shown when something fails."""

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S, poll_s: float = POLL_S) -> T:
    """The first truthy answer of ``condition``.

    Raises:
        AssertionError: After ``deadline_s`` seconds, naming ``what`` was waited for.
    """
    until = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= until:
            raise AssertionError(f"waited {deadline_s:g} s in vain for {what}; last seen: {answer!r}")
        time.sleep(poll_s)


@dataclass(frozen=True)
class Ran:
    """A command that ended: its exit code and what it said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its stdout as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Ready:
    """What ``runtime.json`` says of a running stack."""

    http: str
    nats: str
    pid: int


def command_environment(data_dir: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: nothing of ours leaks in but the cache of binaries and weights."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CREW_JOURNAL_", "OLLAMA_"))}
    chosen = os.environ.get("CREW_JOURNAL_NATS_SERVER")
    if chosen:
        kept["CREW_JOURNAL_NATS_SERVER"] = chosen
    kept["CREW_JOURNAL_CACHE_DIR"] = os.environ.get("CREW_JOURNAL_CACHE_DIR", str(CACHE))
    kept["CREW_JOURNAL_DATA_DIR"] = str(data_dir)
    return kept | dict(extra or {})


class Stack:
    """``crew-journal up`` on a data directory.

    Args:
        data_dir: Its data directory; created by ``up``.
        options: More options of ``up``; the HTTP port is always a free one.
        environment: More of the environment.

    Attributes:
        popen: What starts its processes; tests fork them instead (``support.forked``), benchmarks measure the command.
    """

    popen: ClassVar[type[subprocess.Popen[Any]]] = subprocess.Popen

    program: tuple[str, ...] = (str(COMMAND),)

    def __init__(
        self,
        data_dir: Path,
        options: Sequence[str] = ("--embedder", "none"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.options = tuple(options)
        self.environment = command_environment(data_dir, environment)
        self.log_path = data_dir.parent / f"{data_dir.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._commands: list[subprocess.Popen[str]] = []
        self._log: IO[bytes] | None = None

    # -- starting and ending -------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Spawn ``up`` and return at once."""
        assert self.process is None or self.process.poll() is not None, "the stack runs already"
        self._close_log()
        self._log = self.log_path.open("ab")
        arguments = [*self.program, "up", "--http", "127.0.0.1:0", *self.options]
        self.process = self.popen(
            arguments, env=self.environment, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        return self

    def wait_ready(self, deadline_s: float = READY_DEADLINE_S) -> Ready:
        """Wait until ``runtime.json`` is of this process.

        Raises:
            AssertionError: If it ends or is not ready in time; quotes its log.
        """

        def look() -> Ready | None:
            process = self._running()
            if process.poll() is not None:
                raise AssertionError(f"up ended with {process.returncode}:\n{self.log_tail()}")
            said = self.runtime()
            return said if said is not None and said.pid == process.pid else None

        try:
            return wait_for(look, "runtime.json of a ready up", deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tail()}") from None

    def up(self) -> Ready:
        """Start and wait until it is ready."""
        self.start()
        return self.wait_ready()

    def kill(self) -> None:
        """SIGKILL the service alone; its nats-server lives on as an orphan until the next start reaps it."""
        process = self._running()
        process.kill()
        process.wait(END_DEADLINE_S)

    def terminate(self, deadline_s: float = END_DEADLINE_S) -> int:
        """SIGTERM the service and return its exit code."""
        process = self._running()
        process.terminate()
        return process.wait(deadline_s)

    def close(self) -> None:
        """End everything this stack started, the orphaned nats-server included."""
        for command in self._commands:
            if command.poll() is None:
                command.kill()
            command.communicate()
        process = self.process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(END_DEADLINE_S / 2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(END_DEADLINE_S)
        pid = self.nats_pid()
        if pid is not None:
            self.signal_nats(signal.SIGKILL)
        self._close_log()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- looking -------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Of the service."""
        return self._running().pid

    def runtime(self) -> Ready | None:
        """What ``runtime.json`` says; None if it is not there."""
        try:
            said = json.loads((self.data_dir / "runtime.json").read_bytes())
        except (OSError, ValueError):
            return None
        return Ready(str(said["http"]), str(said["nats"]), int(said["pid"]))

    @property
    def url(self) -> str:
        """Its HTTP address."""
        said = self.runtime()
        assert said is not None, f"there is no runtime.json:\n{self.log_tail()}"
        return said.http

    @property
    def token(self) -> str:
        """The owner's token."""
        return (self.data_dir / "admin.token").read_text("ascii").strip()

    def nats_pid(self) -> int | None:
        """Of the nats-server of this data directory, if one is alive."""
        try:
            pid = int((self.data_dir / "nats" / "nats.pid").read_text())
            started_with = " ".join(psutil.Process(pid).cmdline())
        except (OSError, ValueError, psutil.Error):
            return None
        ours = str((self.data_dir / "nats").resolve()) in started_with
        return pid if ours and _is_alive(pid) else None

    def signal_nats(self, number: signal.Signals) -> int:
        """Send a signal to the nats-server and return its pid; after a SIGKILL it is gone.

        Raises:
            AssertionError: If none is alive.
        """
        pid = wait_for(self.nats_pid, "a living nats-server")
        os.kill(pid, number)
        if number is signal.SIGKILL:
            wait_for(lambda: not _is_alive(pid), f"the end of nats-server {pid}")
        return pid

    def processes(self) -> list[psutil.Process]:
        """The service and its children."""
        service = psutil.Process(self.pid)
        return [service, *service.children(recursive=True)]

    def log_tail(self) -> str:
        """The end of what ``up`` said."""
        with contextlib.suppress(OSError):
            return self.log_path.read_text("utf-8", "replace")[-LOG_TAIL:]
        return "(it said nothing)"

    # -- commands beside it --------------------------------------------------------------------------------------

    def spawn(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a client command on this data directory; ``close`` ends it if it still runs."""
        process = self.popen(
            [str(COMMAND), *arguments],
            env=self._client_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._commands.append(process)
        return process

    def run(self, *arguments: str) -> Ran:
        """Run a client command to its end, in this process if it may; again while the views are too far behind for it."""
        if arguments[0] not in NEED_A_PROCESS:
            until = time.monotonic() + DEADLINE_S
            while True:
                ran = Ran(*run_in_process(arguments, self._client_environment(), None))
                if VIEWS_BEHIND not in ran.err or time.monotonic() > until:
                    return ran
        process = self.spawn(*arguments)
        out, err = process.communicate(timeout=RUN_DEADLINE_S)
        return Ran(process.returncode, out, err)

    def _client_environment(self) -> dict[str, str]:
        """How a command beside it finds it."""
        return self.environment

    def _running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, "the stack was never started"
        return self.process

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
