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
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from ....schemas.errors import BrokerError, BrokerUnavailable
from ...endings import end_task
from .config import LOOPBACK, AgentUser, Durability
from .files import BrokerFiles, BrokerIdentity
from .launch import ServerLauncher
from .nats_binary import NatsBinary, version_text
from .process import end_child, free_port, port_is_free, reap_orphan
from .status import BrokerStatus

READY_TIMEOUT_S: Final = 30.0
"""Seconds from spawn to ready with an empty store; measured 20-60 ms, on a machine that is busy and slow seconds. One that
dies is noticed at once."""
RECOVERY_TIMEOUT_S: Final = 120.0
"""The same with streams in the store: after a crash the server re-reads its blocks before it listens."""
STOP_TIMEOUT_S: Final = 10.0
"""Seconds for TERM to flush and end, before KILL; measured under 50 ms."""
RELOADS: Final = 2
"""The first reload creates an agent's account but not the route to its imported subject, the second does
(seen on 2.10.27 and 2.15.1: after one, a new agent's publishes find no responder)."""
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
        self._durability: Durability = durability
        self._stop_timeout_s = stop_timeout_s
        self._launcher = ServerLauncher(
            self._files,
            binary,
            durability,
            max_store_bytes=max_store_bytes,
            monitor_port=monitor_port,
            ready_timeout_s=ready_timeout_s,
            recovery_timeout_s=recovery_timeout_s,
            stop_timeout_s=stop_timeout_s,
        )
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
        """The agents' NATS users in force."""
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

    async def restart(self) -> None:
        """End the server, TERM then KILL after the bound; the supervisor starts it again, on the same port."""
        if self._supervisor is not None and self._process is not None:
            await end_child(self._process, patience_s=self._stop_timeout_s)

    async def kill(self) -> None:
        """End a server that hangs by KILL; the supervisor starts it again, on the same port."""
        if self._supervisor is not None and self._process is not None:
            await end_child(self._process, patience_s=0.0)

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
        """Replace the NATS users of all agents, now and for later starts.

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
            await self._configure(wanted)
            try:
                for _ in range(RELOADS):
                    await self._reload()
            except BrokerError:
                await self._configure(before)
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
                await self._configure(self._agents)
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

    async def _configure(self, agents: Sequence[AgentUser]) -> None:
        await self._launcher.configure(self._known(), agents)

    async def _spawn(self) -> asyncio.subprocess.Process:
        launched = await self._launcher.launch(self._known())
        self._process = launched.process
        self._version = launched.version
        self._since = datetime.now(UTC)
        self._last_error = ""
        self._ready.set()
        return launched.process

    async def _reload(self) -> None:
        if self._process is not None and self._ready.is_set():  # else it is being restarted and will read the new file
            await self._launcher.reload(self._process)
