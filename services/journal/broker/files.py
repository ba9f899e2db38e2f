"""The files of a managed broker: where they are, who may read them, and who owns the folder.

Invariants: whatever holds a password has mode 0600 from its first byte and is replaced atomically, so a crash
leaves the old file or the new one; one process at a time holds the folder's lock, so nobody reaps the
nats-server of a living owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ....schemas.errors import BrokerError, DataDirBusy
from .config import AgentUser, mint_password

SERVICE_USER: Final = "crew-journal"
LOG_TAIL_BYTES: Final = 2_000
"""Bytes of log quoted in an error: about the last 15 lines."""
_log = structlog.get_logger(__name__)


class BrokerIdentity(BaseModel):
    """What a broker keeps across restarts.

    Attributes:
        user: The service's user name.
        password: Random, minted on the first start.
        port: TCP port on loopback; 0 until one was chosen.
        server_name: Random; tells our server from any other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: str = SERVICE_USER
    password: str = Field(repr=False)
    port: int = Field(default=0, ge=0, le=65_535)
    server_name: str


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """Paths below ``<data dir>/nats``, all absolute."""

    root: Path

    @classmethod
    def below(cls, data_dir: Path) -> BrokerFiles:
        """Those of the broker of ``data_dir``."""
        return cls(data_dir.resolve() / "nats")

    @property
    def config(self) -> Path:
        """The rendered configuration (0600)."""
        return self.root / "nats.conf"

    @property
    def identity(self) -> Path:
        """User, password, port and name (0600)."""
        return self.root / "broker.json"

    @property
    def agents(self) -> Path:
        """The agents' NATS users as they were last (0600), for a start before the views are there."""
        return self.root / "agents.json"

    @property
    def pid(self) -> Path:
        """Written by the server; stays after a crash, which is how an orphan is found."""
        return self.root / "nats.pid"

    @property
    def log(self) -> Path:
        """The server's log, rotated by itself."""
        return self.root / "nats.log"

    @property
    def console(self) -> Path:
        """What the server said before it had a log; begun anew at each start."""
        return self.root / "nats.out"

    @property
    def store(self) -> Path:
        """The streams."""
        return self.root / "store"

    @property
    def lock(self) -> Path:
        """Locked by the owning process."""
        return self.root / "lock"

    def make_folders(self) -> None:
        """Create the folder for this user only."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.store.mkdir(mode=0o700, exist_ok=True)

    def take_lock(self) -> int:
        """A descriptor that holds the folder until it is closed.

        Raises:
            DataDirBusy: If another process holds it.
        """
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise DataDirBusy(
                f"another process runs the broker in {self.root}",
                hint="stop it first, or choose another --data-dir",
            ) from None
        return descriptor

    def load_identity(self) -> BrokerIdentity:
        """The kept identity, or a fresh one, already saved.

        Raises:
            BrokerError: If the file is there and unreadable.
        """
        if not self.identity.exists():
            fresh = BrokerIdentity(password=mint_password(), server_name=f"crew-journal-{secrets.token_hex(8)}")
            self.save_identity(fresh)
            return fresh
        try:
            return BrokerIdentity.model_validate_json(self.identity.read_bytes())
        except (OSError, ValidationError):
            raise BrokerError(
                f"{self.identity} cannot be read as the broker's identity",
                hint="delete it: a new password and port are minted; the streams are not touched",
            ) from None

    def save_identity(self, identity: BrokerIdentity) -> None:
        """Keep ``identity`` for the next start."""
        write_private(self.identity, identity.model_dump_json(indent=2) + "\n")

    def load_agents(self) -> tuple[AgentUser, ...]:
        """The kept credentials of agents, none at first or where they cannot be read: the journal knows them."""
        if not self.agents.exists():
            return ()
        try:
            return tuple(_agents.validate_json(self.agents.read_bytes()))
        except (OSError, ValidationError) as error:
            _log.warning("broker.agents_unreadable", path=str(self.agents), error=type(error).__name__)
            return ()

    def save_agents(self, agents: Sequence[AgentUser]) -> None:
        """Keep the credentials of agents for the next start."""
        write_private(self.agents, _agents.dump_json(list(agents), indent=2).decode() + "\n")

    def log_size(self) -> int:
        """Bytes of the log now, 0 if there is none."""
        try:
            return self.log.stat().st_size
        except FileNotFoundError:
            return 0

    def log_since(self, offset: int) -> str:
        """What the log has gained since it was ``offset`` bytes long; all of it if it was rotated since."""
        start = offset if self.log_size() >= offset else 0
        return _read_from(self.log, start)

    def tail(self, log_offset: int) -> str:
        """The last words of a server that was started when the log was ``log_offset`` bytes long."""
        said = f"{_read_from(self.console, 0)}\n{self.log_since(log_offset)}".strip()
        return said[-LOG_TAIL_BYTES:]


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` atomically and durably, with mode 0600."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _read_from(path: Path, offset: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""


_agents: Final = TypeAdapter(list[AgentUser])
