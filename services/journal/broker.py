"""A nats-server of our own: started, kept alive, and ended with the service.

Why: ``crew-journal up`` must work on a machine where nobody runs a broker, and lose nothing when either
process is killed. Invariants: one server per data directory; it listens on loopback only, always on the port
it had, so clients reconnect by themselves; the streams are its alone and survive every restart.

The child runs in a session of its own: Ctrl-C in the terminal reaches the service, which drains first and
ends the broker last. No parent-death signal is set (it would need ``preexec_fn``, unsafe beside threads): a
server that outlives a killed owner loses nothing, and the next start finds and ends it by its pid file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from crew_journal.schemas.endings import end_task
from crew_journal.schemas.errors import BrokerError, BrokerUnavailable
from crew_journal.services.journal.broker_config import (
    LOOPBACK,
    AgentUser,
    Durability,
    ServerConfig,
    render_config,
)
from crew_journal.services.journal.broker_files import BrokerFiles, BrokerIdentity, write_private
from crew_journal.services.journal.broker_process import (
    POLL_S,
    check_config,
    end_child,
    free_port,
    port_is_free,
    read_info,
    reap_orphan,
)
from crew_journal.services.journal.broker_status import BrokerStatus
from crew_journal.services.journal.nats_binary import NatsBinary, version_text

READY_TIMEOUT_S: Final = 5.0
"""Seconds from spawn to ready with an empty store; measured 20-60 ms."""
RECOVERY_TIMEOUT_S: Final = 120.0
"""The same with streams in the store: after a crash the server re-reads its blocks before it listens."""
STOP_TIMEOUT_S: Final = 10.0
"""Seconds for TERM to flush and end, before KILL; measured under 50 ms."""
RELOADS: Final = 2
"""The first reload creates an agent's account but not the route to its imported subject, the second does
(seen on 2.10.27 and 2.15.1: after one, a new agent's publishes find no responder)."""
RELOAD_TIMEOUT_S: Final = 5.0
"""Seconds until the server has taken a changed configuration; measured under 30 ms."""
BACKOFF_FIRST_S: Final = 0.05
"""Seconds before the first restart; doubled up to BACKOFF_LAST_S while it keeps dying."""
BACKOFF_LAST_S: Final = 5.0
STABLE_S: Final = 30.0
"""A server that lived this long is not in a crash loop: its next restart begins with the first pause."""
PORT_ATTEMPTS: Final = 3
"""A port found free may be taken before the server binds it; three times in a row is something else."""

_log = structlog.get_logger(__name__)


class ManagedBroker:
    """A supervised nats-server as a child process.

    Args:
        data_dir: The service's data directory; everything of the broker is below ``nats/`` in it.
        binary: From ``find_nats_server``.
        durability: ``durable`` (fsync before each ack) or ``interval`` (fsync every 250 ms).
        max_store_bytes: Upper bound of all streams on disk; None leaves the server's default.
        monitor_port: Loopback port for the server's monitoring pages, which ask for no password.
        ready_timeout_s: Seconds until ready with an empty store.
        recovery_timeout_s: Seconds until ready with streams to recover.
        stop_timeout_s: Seconds for a TERM before a KILL.
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
        recovery_timeout_s: float = RECOVERY_TIMEOUT_S,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self._files = BrokerFiles.below(data_dir)
        self._binary = binary
        self._durability: Durability = durability
        self._max_store_bytes = max_store_bytes
        self._monitor_port = monitor_port
        self._ready_timeout_s = ready_timeout_s
        self._recovery_timeout_s = recovery_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._identity: BrokerIdentity | None = None
        self._agents: tuple[AgentUser, ...] = ()
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._lock_descriptor: int | None = None
        self._configuring = asyncio.Lock()  # one writer of the configuration: a launch or a change of users
        self._ready = asyncio.Event()
        self._version = version_text(binary.version)
        self._restarts = 0
        self._since: datetime | None = None
        self._last_exit: int | None = None
        self._last_error = ""
        self._moved_from_port: int | None = None

    @property
    def url(self) -> str:
        """``nats://127.0.0.1:PORT``; credentials are :attr:`user` and :attr:`password`.

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
        """The service's password; minted on the first start, then kept."""
        return self._known().password

    @property
    def durability(self) -> Durability:
        """What the server was told; it is ours, so it is known and not ``unknown``."""
        return self._durability

    @property
    def agent_users(self) -> tuple[AgentUser, ...]:
        """The agents' credentials in force."""
        return self._agents

    def status(self) -> BrokerStatus:
        """Where things stand now; touches neither disk nor network."""
        process = self._process
        alive = process is not None and process.returncode is None
        port = self._identity.port if self._identity else 0
        return BrokerStatus(
            running=alive and self._ready.is_set(),
            pid=process.pid if process is not None and alive else None,
            port=port,
            url=f"nats://{LOOPBACK}:{port}",
            version=self._version,
            durability=self._durability,
            restarts=self._restarts,
            since=self._since,
            last_exit=self._last_exit,
            last_error=self._last_error,
            moved_from_port=self._moved_from_port,
            log_path=self._files.log,
        )

    async def start(self) -> None:
        """Start the server and return when it takes connections. Ends an orphan of an earlier run first.

        Raises:
            BrokerError: If it refuses its configuration, dies or is not ready in time; quotes its log.
            DataDirBusy: If another process runs the broker of this data directory.
        """
        if self._supervisor is not None:
            raise BrokerError("the broker is already started")
        self._files.make_folders()
        self._lock_descriptor = self._files.take_lock()
        try:
            self._identity = self._files.load_identity()
            self._agents = self._files.load_agents()
            orphan = await reap_orphan(self._files.pid, self._files.config, patience_s=self._stop_timeout_s)
            if orphan is not None:
                _log.warning("broker.orphan_ended", pid=orphan)
            process = await self._launch()
        except BaseException:
            self._release()
            raise
        self._supervisor = asyncio.create_task(self._supervise(process), name="nats-server supervisor")

    async def stop(self) -> None:
        """End the server: TERM, then KILL after the bound. Does nothing if it is not started."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        await end_task(supervisor)
        self._ready.clear()
        try:
            if self._process is not None:
                code = await end_child(self._process, patience_s=self._stop_timeout_s)
                _log.info("broker.stopped", exit_code=code)  # 1 after TERM is not a failure
            self._files.pid.unlink(missing_ok=True)
        finally:
            self._release()

    async def wait_ready(self, timeout_s: float) -> None:
        """Return once the server is up, at once if it is.

        Raises:
            BrokerUnavailable: If it is not within ``timeout_s`` seconds; says why.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise BrokerUnavailable(
                f"nats-server is not up after {timeout_s:g} s: {self._last_error or 'it is starting'}",
                hint=f"see {self._files.log}",
            ) from None

    async def set_agent_users(self, agents: Sequence[AgentUser]) -> None:
        """Replace the NATS credentials of all agents, now and for later starts.

        The service's connections stay; an agent that is gone or whose rights changed is disconnected. Before
        ``start`` the list is only kept, for the start to read.

        Raises:
            BrokerError: If two share a name or the server refuses them; then nothing is changed.
        """
        wanted = tuple(agents)
        async with self._configuring:
            if self._supervisor is None:
                self._files.make_folders()
                self._files.save_agents(wanted)
                self._agents = wanted
                return
            before = self._agents
            await self._write_config(wanted)
            try:
                for _ in range(RELOADS):
                    await self._reload()
            except BrokerError:
                await self._write_config(before)
                raise
            self._files.save_agents(wanted)
            self._agents = wanted
        _log.info("broker.agent_users_set", count=len(wanted))

    def _known(self) -> BrokerIdentity:
        if self._identity is None or self._identity.port == 0:
            raise BrokerError("the broker was not started yet, so it has no port and password")
        return self._identity

    def _release(self) -> None:
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    async def _supervise(self, process: asyncio.subprocess.Process) -> None:
        loop = asyncio.get_running_loop()
        pause = BACKOFF_FIRST_S
        while True:
            started = loop.time()
            self._last_exit = await process.wait()
            self._ready.clear()
            _log.error("broker.died", pid=process.pid, exit_code=self._last_exit, log=str(self._files.log))
            if loop.time() - started >= STABLE_S:
                pause = BACKOFF_FIRST_S
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 2, BACKOFF_LAST_S)
                try:
                    process = await self._launch()
                except (BrokerError, OSError) as error:  # OSError: our own files, a full disk
                    self._last_error = str(error)
                    _log.error("broker.restart_failed", error=str(error), retry_in_s=pause)
                else:
                    break
            self._restarts += 1
            _log.warning("broker.restarted", pid=process.pid, restarts=self._restarts)

    async def _launch(self) -> asyncio.subprocess.Process:
        async with self._configuring:
            for attempt in range(1, PORT_ATTEMPTS + 1):
                self._choose_port()
                await self._write_config(self._agents)
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
            self._moved_from_port = kept
            _log.warning("broker.port_taken", port=kept, new_port=self._identity.port)

    async def _write_config(self, agents: Sequence[AgentUser]) -> None:
        identity = self._known()
        config = ServerConfig(
            server_name=identity.server_name,
            port=identity.port,
            user=identity.user,
            password=identity.password,
            durability=self._durability,
            store_dir=self._files.store,
            pid_file=self._files.pid,
            log_file=self._files.log,
            max_store_bytes=self._max_store_bytes,
            monitor_port=self._monitor_port,
        )
        try:
            text = render_config(config, agents)
        except ValueError as error:
            raise BrokerError(f"the agents' NATS users are not valid: {error}") from None
        candidate = self._files.config.with_suffix(".candidate")
        write_private(candidate, text)
        try:
            await check_config(self._binary.path, candidate)
            candidate.replace(self._files.config)
        finally:
            candidate.unlink(missing_ok=True)

    async def _spawn(self) -> asyncio.subprocess.Process:
        offset = self._files.log_size()
        self._files.pid.unlink(missing_ok=True)
        console = os.open(self._files.console, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                str(self._binary.path),
                "-c",
                str(self._files.config),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=asyncio.subprocess.STDOUT,
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
        self._since = datetime.now(UTC)
        self._last_error = ""
        self._ready.set()
        return process

    async def _await_ready(self, process: asyncio.subprocess.Process, log_offset: int) -> None:
        loop = asyncio.get_running_loop()
        fresh = not any(self._files.store.iterdir())
        bound = self._ready_timeout_s if fresh else self._recovery_timeout_s
        identity = self._known()
        deadline = loop.time() + bound
        while process.returncode is None and loop.time() < deadline:
            info = await read_info(identity.port)
            if info is not None and info.server_name == identity.server_name:
                self._version = version_text(info.version)
                return
            await asyncio.sleep(POLL_S)
        what = (
            f"was not ready after {bound:g} s"
            if process.returncode is None
            else f"ended with exit code {process.returncode} while starting"
        )
        raise BrokerError(f"nats-server {what}; it said:\n{self._files.tail(log_offset)}")

    async def _reload(self) -> None:
        process = self._process
        if process is None or not self._ready.is_set():
            return  # it is being restarted and will read the new file
        loop = asyncio.get_running_loop()
        offset = self._files.log_size()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGHUP)
        deadline = loop.time() + RELOAD_TIMEOUT_S
        while loop.time() < deadline and process.returncode is None:
            said = self._files.log_since(offset)
            if "Reloaded server configuration" in said:
                return
            if "Failed to reload" in said:
                raise BrokerError(f"nats-server refuses the agents' users: {said.strip()}")
            await asyncio.sleep(POLL_S)
        if process.returncode is None:
            raise BrokerUnavailable(f"nats-server has not reloaded after {RELOAD_TIMEOUT_S:g} s")
