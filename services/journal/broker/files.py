"""The files of a managed broker: their places and permissions.

Invariant: a file that holds a password has mode 0600 from its first byte and is replaced atomically, so a crash leaves the
old file or the new one. The lock of the data directory keeps a second owner away (``services/data_dir``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog
from pydantic import TypeAdapter, ValidationError

from ....schemas.errors import BrokerError
from ...data_dir import write_private
from .config import PID_FILE, AgentUser, BrokerIdentity

LOG_TAIL_BYTES: Final = 2_000
"""Bytes of log quoted in an error: about the last 15 lines."""
_log = structlog.get_logger(__name__)


class BrokerFiles:
    """The files of a managed broker in its folder ``root``; paths are absolute."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "nats.conf"
        self.identity = root / "broker.json"
        self.agents = root / "agents.json"  # as they were last, for a start before the views are open
        self.pid = root / PID_FILE  # written by the server; stays after a crash, which is how an orphan is found
        self.log = root / "nats.log"  # rotated by the server
        self.console = root / "nats.out"  # what the server wrote before it had a log
        self.store = root / "store"

    @classmethod
    def below(cls, data_dir: Path) -> BrokerFiles:
        """Those of the broker of ``data_dir``."""
        return cls(data_dir.resolve() / "nats")

    def make_folders(self) -> None:
        """Create the folder for this user only."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.store.mkdir(mode=0o700, exist_ok=True)

    def load_identity(self) -> BrokerIdentity:
        """The kept identity; a new one, already saved, where there is none.

        Raises:
            BrokerError: If the file is there and unreadable.
        """
        if not self.identity.exists():
            self.save_identity(BrokerIdentity())
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
        """The stored credentials of agents; none at first or if they cannot be read, because the journal has them."""
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
        return self.log.stat().st_size if self.log.exists() else 0

    def log_since(self, offset: int) -> str:
        """The part of the log after ``offset`` bytes; all of it if it was rotated since."""
        return _read_from(self.log, offset if self.log_size() >= offset else 0)

    def tail(self, log_offset: int) -> str:
        """The end of the output of a server that was started when the log was ``log_offset`` bytes long."""
        return f"{_read_from(self.console, 0)}\n{self.log_since(log_offset)}".strip()[-LOG_TAIL_BYTES:]


def _read_from(path: Path, offset: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""


_agents: Final = TypeAdapter(list[AgentUser])
