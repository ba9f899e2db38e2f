"""One nats-server process: whether its port is free, whether a pid is ours, and how it is ended.

Invariant: only a process whose command line names our own configuration file is ever signalled; a pid from a
file proves nothing, pids are reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Final

from ....schemas.errors import BrokerError
from .config import LOOPBACK, PID_FILE

POLL_S: Final = 0.01
"""Seconds between looks at a starting or ending process; it is ready in 17-29 ms (facts/nats.md)."""
_PROC: Final = Path("/proc/self")
KILL_WAIT_S: Final = 5.0
"""Seconds after SIGKILL until the kernel must have ended a process."""


def free_port() -> int:
    """A TCP port on loopback that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` now; connections in TIME_WAIT do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def _arguments(pid: int) -> list[bytes]:
    try:
        return (_PROC.parent / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:  # gone, or not ours to look at
        return []


def _read_pid(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text(encoding="ascii").strip())
    except (FileNotFoundError, ValueError):
        return None


def runs_with(pid: int, config: Path) -> bool:
    """Whether the live process ``pid`` was started with our ``config``; a zombie has no command line."""
    if _PROC.exists():  # /proc is memory
        return os.fsencode(config) in _arguments(pid)
    command = ("ps", "-ww", "-o", "command=", "-p", str(pid))  # systems without /proc
    return str(config) in subprocess.run(command, capture_output=True, text=True, check=False).stdout


async def reap_orphan(pid_file: Path, config: Path, *, patience_s: float) -> int | None:
    """End the nats-server that a crashed owner left behind: TERM, after ``patience_s`` seconds KILL.

    Returns:
        Its pid, or None if there was none. A process that is not ours is left alone.

    Raises:
        BrokerError: If it is ours and cannot be ended.
    """
    pid = _read_pid(pid_file)
    if pid is None or pid <= 1 or not runs_with(pid, config):
        return None
    for number, patience in ((signal.SIGTERM, patience_s), (signal.SIGKILL, KILL_WAIT_S)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = asyncio.get_running_loop().time() + patience
        while asyncio.get_running_loop().time() < deadline:
            if not runs_with(pid, config):
                return pid
            await asyncio.sleep(POLL_S)
    raise BrokerError(f"the nats-server {pid} of an earlier run does not end", hint=f"end process {pid} by hand")


def terminate_children(config: Path) -> None:
    """TERM to the server that runs with ``config``, without waiting: for a process that exits the next moment."""
    pid = _read_pid(config.with_name(PID_FILE))
    if pid is not None and pid > 1 and runs_with(pid, config):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


async def end_child(process: asyncio.subprocess.Process, *, patience_s: float) -> int:
    """End our own child: TERM (it flushes its streams), after ``patience_s`` seconds KILL. Its exit code."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(patience_s):
                return await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    return await process.wait()
