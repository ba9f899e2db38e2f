"""How a nats-server is given its configuration, started until it takes connections, and told of changes.

Invariants: the server is never started or reloaded with a configuration that it would refuse; a process that does not
become ready in time is ended before the failure is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....schemas.errors import BrokerError, BrokerUnavailable
from .config import AgentUser, Durability, ServerConfig, render_config
from .files import BrokerFiles, BrokerIdentity, write_private
from .nats_binary import NatsBinary, version_text
from .process import POLL_S, check_config, end_child, read_info

RELOAD_TIMEOUT_S: Final = 15.0
"""Seconds until the server has taken a changed configuration; measured under 30 ms on an idle machine."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A server that takes connections, and the version it says it has."""

    process: Process
    version: str


@dataclass(frozen=True, slots=True)
class ServerLauncher:
    """Starts servers of one data directory.

    Attributes:
        files: Of the data directory.
        binary: What is run.
        durability: ``durable`` (fsync before each ack) or ``interval``.
        max_store_bytes: Upper bound of all streams on disk; None leaves the server's default.
        monitor_port: Loopback port for the server's monitoring pages; None for none.
        ready_timeout_s: Seconds until ready with an empty store.
        recovery_timeout_s: Seconds until ready with streams to recover.
        stop_timeout_s: Seconds for a TERM before a KILL.
    """

    files: BrokerFiles
    binary: NatsBinary
    durability: Durability
    max_store_bytes: int | None
    monitor_port: int | None
    ready_timeout_s: float
    recovery_timeout_s: float
    stop_timeout_s: float

    async def configure(self, identity: BrokerIdentity, agents: Sequence[AgentUser]) -> None:
        """Write the configuration for the next start or reload, once the server has found nothing wrong with it.

        Raises:
            BrokerError: If it has; then the former one stays.
        """
        config = ServerConfig(
            server_name=identity.server_name,
            port=identity.port,
            user=identity.user,
            password=identity.password,
            durability=self.durability,
            store_dir=self.files.store,
            pid_file=self.files.pid,
            log_file=self.files.log,
            max_store_bytes=self.max_store_bytes,
            monitor_port=self.monitor_port,
        )
        try:
            text = render_config(config, agents)
        except ValueError as error:
            raise BrokerError(f"the agents' NATS users are not valid: {error}") from None
        candidate = self.files.config.with_suffix(".candidate")
        write_private(candidate, text)
        try:
            await check_config(self.binary.path, candidate)
            candidate.replace(self.files.config)
        finally:
            candidate.unlink(missing_ok=True)

    async def launch(self, identity: BrokerIdentity) -> Launched:
        """Start a server and return when it takes connections.

        Raises:
            BrokerError: If it cannot be run, dies or is not ready in time; quotes its log.
        """
        offset = self.files.log_size()
        self.files.pid.unlink(missing_ok=True)
        console = os.open(self.files.console, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                str(self.binary.path),
                "-c",
                str(self.files.config),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise BrokerError(f"cannot run {self.binary.path}: {error.strerror}") from error
        finally:
            os.close(console)
        try:
            return Launched(process, await self._await_ready(process, identity, offset))
        except BaseException:
            await asyncio.shield(end_child(process, patience_s=self.stop_timeout_s))
            raise

    async def _await_ready(self, process: Process, identity: BrokerIdentity, log_offset: int) -> str:
        """The server's version, once it is ready."""
        loop = asyncio.get_running_loop()
        fresh = not any(self.files.store.iterdir())
        bound = self.ready_timeout_s if fresh else self.recovery_timeout_s
        deadline = loop.time() + bound
        while process.returncode is None and loop.time() < deadline:
            info = await read_info(identity.port)
            if info is not None and info.server_name == identity.server_name:
                return version_text(info.version)
            await asyncio.sleep(POLL_S)
        what = (
            f"was not ready after {bound:g} s"
            if process.returncode is None
            else f"ended with exit code {process.returncode} while starting"
        )
        raise BrokerError(f"nats-server {what}; it said:\n{self.files.tail(log_offset)}")

    async def reload(self, process: Process) -> None:
        """Have a running server read its configuration again; returns when it says it has, or has ended.

        Raises:
            BrokerError: If it refuses the configuration.
            BrokerUnavailable: If it says nothing in time.
        """
        loop = asyncio.get_running_loop()
        offset = self.files.log_size()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGHUP)
        deadline = loop.time() + RELOAD_TIMEOUT_S
        while loop.time() < deadline and process.returncode is None:
            said = self.files.log_since(offset)
            if "Reloaded server configuration" in said:
                return
            if "Failed to reload" in said:
                raise BrokerError(f"nats-server refuses the agents' users: {said.strip()}")
            await asyncio.sleep(POLL_S)
        if process.returncode is None:
            raise BrokerUnavailable(f"nats-server has not reloaded after {RELOAD_TIMEOUT_S:g} s")
