"""The configuration of a managed nats-server, with the permissions of its users.

The configuration is written as JSON, a subset of nats-server's format, so that paths and names need no special
escaping. It is rendered here instead of from a template file, because a wheel does not contain ``deploy/``.

Invariant: with its credentials, an agent can only send requests and receive the service's answers to them
(``journal.intake.ingest``). Every agent has a separate account without JetStream, into which only its own request
subject is imported. In this account the streams' subjects, ``$JS.API`` and other agents do not exist, whatever subject,
header or reply a message names. Permissions in a shared account cannot achieve that (ADR 7).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ....schemas.core.entry import Id, WorkspaceId
from ....schemas.core.errors import BrokerError
from ....schemas.core.principal import BCRYPT_HASH
from ....schemas.core.subjects import INGEST_SUBJECTS, ingest_subject
from ...data_dir import write_private

Durability = Literal["durable", "interval"]

SYNC_INTERVAL: Final[dict[str, str]] = {"durable": "always", "interval": "250ms"}
"""``durable`` fsyncs before each ack (500-800 single appends/s); ``interval`` may lose the last 250 ms on a
power failure, but nothing on a killed process (facts/nats.md)."""
LOOPBACK: Final = "127.0.0.1"
PID_FILE: Final = "nats.pid"
"""Name of the pid file, next to the configuration."""
MAX_PAYLOAD: Final = 1_048_576
"""Maximum bytes of a message: an entry of 256 KiB, or headers, the largest vectors and lists."""
LOG_SIZE_LIMIT: Final = 10 * 1_048_576
"""Maximum bytes of a log file before the server rotates it."""
LOG_FILES: Final = 3
"""Number of rotated log files, so that the log of a node stays below about 40 MB."""
PASSWORD_BYTES: Final = 32
"""Random bytes of a password: 256 bits."""
SERVICE_ACCOUNT: Final = "JOURNAL"
AGENT_ACCOUNT_PREFIX: Final = "AGENT-"
INBOXES: Final = "_INBOX.>"
"""Subject on which NATS clients receive answers by default. An agent receives only its own answers, because its account
has no other user.
"""


class AgentUser(BaseModel):
    """The NATS user of an agent; may send append requests as that agent and receive the answers.

    Attributes:
        name: User name and account name: the token's id. Unique.
        bcrypt: Hash of its password, which is the token; the password itself is not stored.
        workspace_id: The workspace to which it publishes.
        agent_id: The agent in the subject.
        crew_id: The crew in the subject; None is ``_``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Id
    bcrypt: str = Field(pattern=BCRYPT_HASH, repr=False)
    workspace_id: WorkspaceId
    agent_id: Id
    crew_id: Id | None = None

    @property
    def subject(self) -> str:
        """The subject of its requests: ``ingest.<workspace>.<crew or _>.<agent>``."""
        return ingest_subject(self.workspace_id, self.crew_id, self.agent_id)


class BrokerIdentity(BaseModel):
    """Data of a broker that survive restarts.

    Attributes:
        user: The service's user name, with all permissions in the journal's account.
        password: Random, generated at the first start.
        port: TCP port on loopback; 0 until a port is chosen.
        server_name: Random; distinguishes our server from every other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: str = "crew-journal"
    password: str = Field(default_factory=lambda: secrets.token_urlsafe(PASSWORD_BYTES), repr=False)
    port: int = Field(default=0, ge=0, le=65_535)
    server_name: str = Field(default_factory=lambda: f"crew-journal-{secrets.token_hex(8)}")


def render_config(
    identity: BrokerIdentity,
    durability: Durability,
    agents: Sequence[AgentUser],
    *,
    store_dir: Path,
    pid_file: Path,
    log_file: Path,
    max_store_bytes: int | None = None,
    monitor_port: int | None = None,
) -> str:
    """The configuration file: JSON, deterministic, holding passwords (write it with mode 0600).

    Args:
        identity: Port, name and the service's user.
        durability: ``durable`` or ``interval``.
        agents: The agents' users.
        store_dir: Folder of the streams.
        pid_file: File into which the server writes its process id.
        log_file: The server's log file.
        max_store_bytes: Upper bound of all streams in bytes; None keeps the server's default (3/4 of the disk).
        monitor_port: Loopback port of the monitoring pages, which need no password; None for no pages.

    Raises:
        ValueError: If two agents share a name, or an agent has the service's name.
    """
    names = [agent.name for agent in agents]
    if len({*names, identity.user}) != len(names) + 1:
        raise ValueError("two NATS users share a name")
    jetstream: dict[str, Any] = {"store_dir": str(store_dir), "sync_interval": SYNC_INTERVAL[durability]}
    if max_store_bytes is not None:
        jetstream["max_file_store"] = max_store_bytes
    journal = {
        "jetstream": "enabled",
        "users": [{"user": identity.user, "password": identity.password}],
        "exports": [{"service": INGEST_SUBJECTS}],
    }
    document: dict[str, Any] = {
        "listen": f"{LOOPBACK}:{identity.port}",
        "server_name": identity.server_name,
        "pid_file": str(pid_file),
        "log_file": str(log_file),
        "logfile_size_limit": LOG_SIZE_LIMIT,
        "logfile_max_num": LOG_FILES,
        "max_payload": MAX_PAYLOAD,
        "jetstream": jetstream,
        "accounts": {
            SERVICE_ACCOUNT: journal,
            **{AGENT_ACCOUNT_PREFIX + agent.name: _agent_account(agent) for agent in agents},
        },
    }
    if monitor_port is not None:
        document["http"] = f"{LOOPBACK}:{monitor_port}"
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _agent_account(agent: AgentUser) -> dict[str, Any]:
    permissions = {
        "publish": {"allow": [agent.subject]},
        "subscribe": {"allow": [INBOXES]},
    }
    return {
        "users": [{"user": agent.name, "password": agent.bcrypt, "permissions": permissions}],
        "imports": [{"service": {"account": SERVICE_ACCOUNT, "subject": agent.subject}}],
    }


# Paths and permissions of a managed broker's files.


LOG_TAIL_BYTES: Final = 2_000
"""Bytes of log quoted in an error: about the last 15 lines."""
_log = structlog.get_logger(__name__)


class BrokerFiles:
    """The files of a managed broker in its folder ``root``; paths are absolute."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "nats.conf"
        self.identity = root / "broker.json"
        self.agents = root / "agents.json"  # last known agents, for a start before the views are open
        self.pid = root / PID_FILE  # written by the server; stays after a crash, so that a leftover server is found
        self.log = root / "nats.log"  # rotated by the server
        self.console = root / "nats.out"  # the server's output before it opened its log
        self.store = root / "store"

    @classmethod
    def below(cls, data_dir: Path) -> BrokerFiles:
        """The files of the broker of ``data_dir``."""
        return cls(data_dir.resolve() / "nats")

    def make_folders(self) -> None:
        """Create the folder for this user only."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.store.mkdir(mode=0o700, exist_ok=True)

    def load_identity(self) -> BrokerIdentity:
        """The stored identity; if there is none, a new one is generated and saved.

        Raises:
            BrokerError: If the file exists but cannot be read.
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
        """Store ``identity`` for the next start."""
        write_private(self.identity, identity.model_dump_json(indent=2) + "\n")

    def load_agents(self) -> tuple[AgentUser, ...]:
        """The stored credentials of agents; empty at first, or if they cannot be read (the journal has them, too)."""
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
        """The part of the log after ``offset`` bytes; the whole log if it was rotated meanwhile."""
        return _read_from(self.log, offset if self.log_size() >= offset else 0)

    def tail(self, log_offset: int) -> str:
        """The end of a server's output; ``log_offset`` is the log's size in bytes when the server was started."""
        return f"{_read_from(self.console, 0)}\n{self.log_since(log_offset)}".strip()[-LOG_TAIL_BYTES:]


def _read_from(path: Path, offset: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""


_agents: Final = TypeAdapter(list[AgentUser])
