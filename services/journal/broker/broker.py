"""Runs the managed nats-server: starts it, keeps it alive, and ends it with the service.

``crew-journal up`` must work on a machine without a broker, and lose nothing when either process is killed. Invariants:
there is one server per data directory; it listens on loopback only and always on the same port, so that clients
reconnect by themselves; no other process uses its streams, which survive every restart.

The server runs in a separate session: Ctrl-C in the terminal reaches only the service, which drains first and ends the
broker last. No parent-death signal is set, because ``preexec_fn`` is unsafe with threads: a server that outlives a
killed service loses nothing, and the next start finds it by its pid file and ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from ....schemas.core.errors import BrokerError, BrokerUnavailable
from ...data_dir import write_private
from ...parts import end_task
from .config import LOOPBACK, PID_FILE, AgentUser, BrokerFiles, BrokerIdentity, Durability, render_config

# Finds a nats-server that is new enough, and its version.
#
# Servers before 2.10 silently ignore multiple filters of a consumer and refuse ``sync_interval`` (facts/nats.md), so
# views would be wrong without an error. Invariant: a :class:`NatsBinary` has been run and has printed its version, and
# that version is at least :data:`MINIMUM_VERSION`.


Version = tuple[int, int, int]

MINIMUM_VERSION: Final[Version] = (2, 10, 0)
"""First version with several filters per consumer and ``sync_interval`` (measured, facts/nats.md)."""
ATOMIC_BATCH_VERSION: Final[Version] = (2, 12, 0)
"""First version with atomic batches, the only group commit under ``sync_interval: always`` (facts/nats.md)."""
BINARY_NAME: Final = "nats-server"
INSTALL_HINT: Final = (
    "`crew-journal broker install` fetches one; or put a newer one on PATH (brew install nats-server, or a release of "
    "nats-io/nats-server) or name it with CREW_JOURNAL_NATS_SERVER"
)
VERSION_TIMEOUT_S: Final = 10.0
"""Seconds for ``nats-server --version``, which takes about 10 ms; a cold disk may need a second or two."""

_version = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class NatsBinary:
    """A nats-server that runs on this machine and is new enough.

    Attributes:
        path: Absolute path of the executable.
        version: Major, minor and patch version, as printed by the binary.
    """

    path: Path
    version: Version

    @property
    def has_atomic_batches(self) -> bool:
        """Whether streams on this server can take atomic batches."""
        return self.version >= ATOMIC_BATCH_VERSION


def version_text(version: Version) -> str:
    """``(2, 15, 1)`` as ``2.15.1``."""
    return ".".join(str(part) for part in version)


def parse_version(text: str) -> Version | None:
    """The first ``x.y.z`` in the output of ``nats-server --version`` or in an INFO line; None if absent."""
    match = _version.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def find_nats_server(
    cache_dirs: Sequence[Path], *, override: Path | None = None, search_path: str | None = None
) -> NatsBinary:
    """The newest usable nats-server; among equal versions the first on PATH. Blocks, because it runs each candidate.

    Args:
        cache_dirs: Folders in which ``deploy/install-nats`` may have put a server, searched in order.
        override: The operator's explicit choice; then no other binary is considered.
        search_path: Replaces the environment's PATH if given.

    Raises:
        BrokerError: If no server of at least :data:`MINIMUM_VERSION` is found; the message names the binaries found.
    """
    nats_binaries: list[NatsBinary] = []
    refused: list[str] = []
    for candidate in _candidates(cache_dirs, override, search_path):
        version = _ask_version(candidate)
        if version is None:
            refused.append(f"{candidate} does not run or does not tell its version")
        elif version < MINIMUM_VERSION:
            refused.append(f"found {version_text(version)} at {candidate}")
        else:
            nats_binaries.append(NatsBinary(candidate, version))
    if nats_binaries:
        return max(nats_binaries, key=lambda binary: binary.version)  # max keeps the first of equal versions
    what = "; ".join(refused) if refused else f"no {override or BINARY_NAME} found"
    if override is not None:  # then PATH is not searched
        hint = "let CREW_JOURNAL_NATS_SERVER name one that is, or unset it to have PATH searched"
    else:
        hint = INSTALL_HINT if refused else INSTALL_HINT.replace("a newer one", "one")
    raise BrokerError(f"{what}; need nats-server >= {version_text(MINIMUM_VERSION)}", hint=hint)


def _candidates(cache_dirs: Sequence[Path], override: Path | None, search_path: str | None) -> Iterator[Path]:
    if override is not None:
        if override.is_file():
            yield override.absolute()
        return
    folders = (os.environ.get("PATH", os.defpath) if search_path is None else search_path).split(os.pathsep)
    seen: set[Path] = set()
    folders = [
        folder for folder in folders if Path(folder).is_absolute()
    ]  # otherwise a cloned repository could supply a binary
    beside = (
        [str(Path(sys.executable).parent)] if search_path is None else []
    )  # folder of the binary from the extra ``broker``
    for folder in [*folders, *beside, *(str(cache) for cache in cache_dirs)]:
        where = shutil.which(BINARY_NAME, path=folder) if folder else None
        if where is not None and (real := Path(where).resolve()) not in seen:
            seen.add(real)
            yield Path(where).absolute()


def _ask_version(path: Path) -> Version | None:
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout) if done.returncode == 0 else None


# Checks and ends a nats-server process: whether its port is free, and whether a pid is ours.


POLL_S: Final = 0.01
"""Seconds between checks of a starting or ending process; a server is ready in 17-29 ms (facts/nats.md)."""
_PROC: Final = Path("/proc/self")
KILL_WAIT_S: Final = 5.0
"""Seconds after SIGKILL until the kernel must have ended a process."""


def free_port() -> int:
    """A TCP port that is currently free on loopback."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` now; connections in TIME_WAIT are ignored."""
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
    except OSError:  # the process has ended or belongs to another user
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
    command = ("ps", "-ww", "-o", "command=", "-p", str(pid))  # for systems without /proc
    return str(config) in subprocess.run(command, capture_output=True, text=True, check=False).stdout


async def reap_orphan(pid_file: Path, config: Path, *, patience_s: float) -> int | None:
    """End the nats-server that a crashed service left behind: TERM, then KILL after ``patience_s`` seconds.

    Returns:
        Its pid, or None if there was no such server. Processes that are not ours are not touched.

    Raises:
        BrokerError: If the server cannot be ended.
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
    """Send TERM to the server that runs with ``config`` without waiting, for a process that is about to exit."""
    pid = _read_pid(config.with_name(PID_FILE))
    if pid is not None and pid > 1 and runs_with(pid, config):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


async def end_child(process: asyncio.subprocess.Process, *, patience_s: float) -> int:
    """End our child process: TERM (it flushes its streams), KILL after ``patience_s`` seconds; returns its exit code."""
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


READY_TIMEOUT_S: Final = 120.0
"""Seconds from spawn to ready; measured 20-60 ms with an empty store. After a crash the server reads its blocks before
it listens. A server that dies is noticed at once.
"""
STOP_TIMEOUT_S: Final = 10.0
"""Seconds between TERM and KILL; flushing and ending took less than 50 ms."""
READY: Final = "Server is ready"
"""Log text of a server that accepts connections."""
RELOADS: Final = 2
"""Number of reloads after a change. The first creates an agent's account, only the second the route to its imported
subject (2.10.27 and 2.15.1: after one reload, a new agent's publishes find no responder).
"""
BACKOFF_FIRST_S: Final = 0.05
"""Seconds before the first restart; doubled up to BACKOFF_LAST_S while the server keeps dying."""
BACKOFF_LAST_S: Final = 5.0
STABLE_S: Final = 30.0
"""Seconds after which a server is not in a crash loop; its next restart uses the first pause again."""
PORT_ATTEMPTS: Final = 3
"""Attempts to bind a free port, which another process may take first; three failures in a row have another cause."""

RELOAD_TIMEOUT_S: Final = 15.0
"""Seconds for the server to load a changed configuration; takes less than 30 ms on an idle machine."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class BrokerStatus:
    """State of a managed broker.

    Attributes:
        running: Whether the server is up and ready.
        pid: Its process id, None while it does not run.
        port: TCP port on loopback.
        url: URL for clients, without credentials.
        version: Version of the binary.
        durability: ``durable`` or ``interval``.
        restarts: How often it ended unexpectedly and was restarted in this run.
        since: UTC time of the last start, None before the first.
        last_exit: Exit code of the last unexpected end (negative: the signal), None if it never ended unexpectedly.
        last_error: Why the last attempt to start it failed, empty if it succeeded.
        moved_from_port: The former port, if another process had taken it.
        log_path: The server's log.
    """

    version: str
    durability: Durability
    log_path: Path
    running: bool = False
    pid: int | None = None
    port: int = 0
    url: str = ""
    restarts: int = 0
    since: datetime | None = None
    last_exit: int | None = None
    last_error: str = ""
    moved_from_port: int | None = None


class ManagedBroker:
    """A supervised nats-server as a child process.

    Args:
        data_dir: The service's data directory; the broker's files are in its folder ``nats/``.
        binary: The binary, from ``find_nats_server``.
        durability: ``durable`` (fsync before each ack) or ``interval`` (fsync every 250 ms).
        max_store_bytes: Upper bound of all streams on disk; None leaves the server's default.
        monitor_port: Loopback port for the server's monitoring pages, which need no password.
        ready_timeout_s: Seconds from spawn to ready.
        stop_timeout_s: Seconds for a TERM before a KILL.

    Attributes:
        durability: The profile of the server's configuration.
        agent_users: The current NATS users of agents.
    """

    def __init__(
        self,
        data_dir: Path,
        binary: NatsBinary,
        durability: Durability = "durable",
        *,
        max_store_bytes: int | None = None,
        monitor_port: int | None = None,
        ready_timeout_s: float = READY_TIMEOUT_S,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self._files = BrokerFiles.below(data_dir)
        self.durability: Final[Durability] = durability
        self.agent_users: tuple[AgentUser, ...] = ()
        self._stop_timeout_s = stop_timeout_s
        self._binary = binary
        self._max_store_bytes = max_store_bytes
        self._monitor_port = monitor_port
        self._ready_timeout_s = ready_timeout_s
        self._identity: BrokerIdentity | None = None
        self._process: Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._configuring = (
            asyncio.Lock()
        )  # one task at a time writes the configuration, at a launch or a change of users
        self._ready = False
        self._status = BrokerStatus(version_text(binary.version), durability, self._files.log)

    @property
    def url(self) -> str:
        """``nats://127.0.0.1:PORT``; the credentials are :attr:`user` and :attr:`password`.

        Raises:
            BrokerError: Before the first start.
        """
        return f"nats://{LOOPBACK}:{self._known().port}"

    @property
    def user(self) -> str:
        """The service's user name."""
        return self._known().user

    @property
    def password(self) -> str:
        """The service's password; generated at the first start, then kept."""
        return self._known().password

    def status(self) -> BrokerStatus:
        """The state now; touches neither disk nor network."""
        process, port = self._process, self._identity.port if self._identity else 0
        pid = process.pid if process is not None and process.returncode is None else None
        running = pid is not None and self._ready
        return replace(self._status, running=running, pid=pid, port=port, url=f"nats://{LOOPBACK}:{port}")

    async def start(self) -> None:
        """Start the server and return when it accepts connections. Ends a leftover server of an earlier run first.

        Raises:
            BrokerError: If the server refuses its configuration, dies or is not ready in time; the message quotes its
                log.
        """
        if self._supervisor is not None:
            raise BrokerError("the broker is already started")
        self._files.make_folders()
        self._identity = self._files.load_identity()
        self.agent_users = self._files.load_agents()
        orphan = await reap_orphan(self._files.pid, self._files.config, patience_s=self._stop_timeout_s)
        if orphan is not None:
            _log.warning("broker.orphan_ended", pid=orphan)
        process = await self._launch()
        self._supervisor = asyncio.create_task(self._supervise(process), name="nats-server supervisor")

    async def stop(self) -> None:
        """End the server: TERM, then KILL after ``stop_timeout_s``. Does nothing if it is not started."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        await end_task(supervisor)
        self._ready = False
        if self._process is not None:
            code = await end_child(self._process, patience_s=self._stop_timeout_s)
            _log.info("broker.stopped", exit_code=code)  # 1 after TERM is not a failure
        self._files.pid.unlink(missing_ok=True)

    async def restart(self, patience_s: float | None = None) -> None:
        """End the server, with KILL after ``patience_s`` seconds; the supervisor restarts it on the same port."""
        if self._supervisor is not None and self._process is not None:
            await end_child(self._process, patience_s=self._stop_timeout_s if patience_s is None else patience_s)

    async def set_agent_users(self, agents: Sequence[AgentUser]) -> None:
        """Replace the NATS users of all agents, now and for later starts.

        The service's connections stay; agents that were removed or whose rights changed are disconnected. Before
        ``start``, the list is only stored for the start.

        Raises:
            BrokerError: If two users share a name or the server refuses them; then nothing is changed.
        """
        wanted = tuple(agents)
        async with self._configuring:
            if self._supervisor is None:
                self._files.make_folders()
                self._files.save_agents(wanted)
                self.agent_users = wanted
                return
            before = self.agent_users
            self._configure(wanted)
            try:
                for _ in range(RELOADS):
                    await self._reload()
            except BrokerError:
                self._configure(before)
                raise
            self._files.save_agents(wanted)
            self.agent_users = wanted
        _log.info("broker.agent_users_set", count=len(wanted))

    def _known(self) -> BrokerIdentity:
        if self._identity is None or self._identity.port == 0:
            raise BrokerError("the broker was not started yet, so it has no port and password")
        return self._identity

    async def _supervise(self, process: Process) -> None:
        loop = asyncio.get_running_loop()
        pause = BACKOFF_FIRST_S
        while True:
            started = loop.time()
            self._status.last_exit = await process.wait()
            self._ready = False
            _log.error("broker.died", pid=process.pid, exit_code=self._status.last_exit, log=str(self._files.log))
            if loop.time() - started >= STABLE_S:
                pause = BACKOFF_FIRST_S
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 2, BACKOFF_LAST_S)
                try:
                    process = await self._launch()
                except (BrokerError, OSError) as error:  # OSError: our own files, a full disk
                    self._status.last_error = str(error)
                    _log.error("broker.restart_failed", error=str(error), retry_in_s=pause)
                else:
                    break
            self._status.restarts += 1
            _log.warning("broker.restarted", pid=process.pid, restarts=self._status.restarts)

    async def _launch(self) -> Process:
        async with self._configuring:
            for attempt in range(1, PORT_ATTEMPTS + 1):
                self._choose_port()
                self._configure(self.agent_users)
                try:
                    return await self._spawn()
                except BrokerError as error:
                    if attempt == PORT_ATTEMPTS or "address already in use" not in str(error):
                        raise
        raise AssertionError("the last attempt returns or raises")

    def _choose_port(self) -> None:
        assert self._identity is not None
        kept = self._identity.port
        if kept and port_is_free(kept):
            return
        self._identity = self._identity.model_copy(update={"port": free_port()})
        self._files.save_identity(self._identity)
        if kept:
            self._status.moved_from_port = kept
            _log.warning("broker.port_taken", port=kept, new_port=self._identity.port)

    def _configure(self, agents: Sequence[AgentUser]) -> None:
        """Write the configuration for the next start or reload."""
        files = self._files
        try:
            text = render_config(
                self._known(),
                self.durability,
                agents,
                store_dir=files.store,
                pid_file=files.pid,
                log_file=files.log,
                max_store_bytes=self._max_store_bytes,
                monitor_port=self._monitor_port,
            )
        except ValueError as error:
            raise BrokerError(f"the agents' NATS users are not valid: {error}") from None
        write_private(files.config, text)

    async def _spawn(self) -> Process:
        """Start a server and return when it accepts connections; if it fails to, end it and raise the error."""
        files, offset = self._files, self._files.log_size()
        files.pid.unlink(missing_ok=True)
        console = os.open(files.console, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                str(self._binary.path),
                "-c",
                str(files.config),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=asyncio.subprocess.STDOUT,
                cwd=files.root,
                start_new_session=True,
            )
        except OSError as error:
            raise BrokerError(f"cannot run {self._binary.path}: {error.strerror}") from error
        finally:
            os.close(console)
        try:
            await self._await_ready(process, offset)
        except BaseException:
            await asyncio.shield(end_child(process, patience_s=self._stop_timeout_s))
            raise
        self._process = process
        self._status.since = datetime.now(UTC)
        self._status.last_error = ""
        self._ready = True
        return process

    async def _await_ready(self, process: Process, log_offset: int) -> None:
        deadline = asyncio.get_running_loop().time() + self._ready_timeout_s
        while READY not in self._files.log_since(log_offset):
            what = f"ended with exit code {process.returncode} while starting"
            if process.returncode is None:
                if asyncio.get_running_loop().time() < deadline:
                    await asyncio.sleep(POLL_S)
                    continue
                what = f"was not ready after {self._ready_timeout_s:g} s"
            raise BrokerError(f"nats-server {what}; its log:\n{self._files.tail(log_offset)}")

    async def _reload(self) -> None:
        """Reload the running server's configuration; returns when the server's log confirms it or the server has ended.

        Raises:
            BrokerError: If the server refuses the configuration.
            BrokerUnavailable: If the log does not confirm it in time.
        """
        process, offset = self._process, self._files.log_size()
        if process is None or not self._ready:  # it is being restarted and will read the new file
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGHUP)
        deadline = asyncio.get_running_loop().time() + RELOAD_TIMEOUT_S
        while process.returncode is None:
            logged = self._files.log_since(offset)
            if "Reloaded server configuration" in logged:
                return
            if "Failed to reload" in logged:
                raise BrokerError(f"nats-server refuses the agents' users: {logged.strip()}")
            if asyncio.get_running_loop().time() > deadline:
                raise BrokerUnavailable(f"nats-server has not reloaded after {RELOAD_TIMEOUT_S:g} s")
            await asyncio.sleep(POLL_S)


# Reads from nats-server's log the warnings about damaged files.


TAIL_BYTES: Final = 1_048_576
SHOWN: Final = 10
"""Maximum number of warnings, the latest."""

_LINE: Final = re.compile(r"^\[(?P<pid>\d+)\] (?P<at>\S+ \S+) \[(?:WRN|ERR|FTL)\]\s+(?P<text>.*)$")
_DAMAGE: Final = re.compile(
    r"filestore|metafile|checksum|corrupt|could not locate|error recovering|unable to recover|bad msg", re.IGNORECASE
)
"""Phrases in the warnings of nats-server 2.10 and 2.15."""
_AFTER_A_KILL: Final = re.compile(r"stream state outdated|index errored: prior state file", re.IGNORECASE)
"""Phrases in harmless warnings that follow every kill or power failure; the server then reads the blocks instead of the
index.
"""


def damage_warnings(log: Path, pid: int | None) -> list[str]:
    """The latest warnings of damage by the server with this process id, each text once, as ``time text``.

    Args:
        log: The server's log.
        pid: The server's process id; None gives no warnings.
    """
    newest: dict[str, str] = {}
    for line in _tail(log).splitlines():
        read = _LINE.match(line)
        if read is not None and int(read["pid"]) == pid and _is_damage(read["text"]):
            text = read["text"].replace(str(log.parent), "")
            newest.pop(text, None)
            newest[text] = read["at"]
    return [f"{at} {text}" for text, at in newest.items()][-SHOWN:]


def _is_damage(text: str) -> bool:
    return _DAMAGE.search(text) is not None and _AFTER_A_KILL.search(text) is None


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
