"""The configuration of a managed nats-server, with the permissions of its users.

The configuration is written as JSON, which nats-server's own format contains, so no path or name needs an
escaping rule of ours; it is rendered here and not kept as a template file because a wheel has no ``deploy/``.

Invariant: an agent's credentials reach nothing but the service's answer to its own requests (``journal.intake.ingest``).
Every agent lives in an account of its own without JetStream, into which only its own request subject is imported: there
the streams' subjects, ``$JS.API`` and other agents do not exist, whatever subject, header or reply a message names. A
permission list in a shared account does not achieve that (ADR 7).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ....schemas.entry import Id, WorkspaceId
from ....schemas.principal import BCRYPT_HASH
from ....schemas.subjects import INGEST_SUBJECTS, ingest_subject

Durability = Literal["durable", "interval"]

SYNC_INTERVAL: Final[dict[str, str]] = {"durable": "always", "interval": "250ms"}
"""``durable`` fsyncs before each ack (500-800 single appends/s); ``interval`` may lose the last 250 ms on a
power failure, but nothing on a killed process (facts/nats.md)."""
LOOPBACK: Final = "127.0.0.1"
PID_FILE: Final = "nats.pid"
"""Beside the configuration."""
MAX_PAYLOAD: Final = 1_048_576
"""Bytes of a message: an entry is at most 256 KiB; leaves room for headers, the largest vectors and lists."""
LOG_SIZE_LIMIT: Final = 10 * 1_048_576
"""Bytes per log file before the server rotates it."""
LOG_FILES: Final = 3
"""Rotated log files kept, so the log of one node stays under about 40 MB."""
PASSWORD_BYTES: Final = 32
"""Random bytes of a password: 256 bits."""
SERVICE_ACCOUNT: Final = "JOURNAL"
AGENT_ACCOUNT_PREFIX: Final = "AGENT-"
INBOXES: Final = "_INBOX.>"
"""Where NATS clients await answers by default. An agent receives its own alone: its account holds no other user."""


class AgentUser(BaseModel):
    """A NATS user of one agent: may send requests to append as that agent, and receive the answers.

    Attributes:
        name: User name, the token's id; names its account, too. Unique.
        bcrypt: Hash of its password, the token; the password itself is kept nowhere.
        workspace_id: The one workspace it publishes to.
        agent_id: Its agent token in the subject.
        crew_id: Its crew token in the subject; None is ``_``.
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
    """What a broker keeps across restarts.

    Attributes:
        user: The service's user name; it may do everything in the journal's account.
        password: Random, made on the first start.
        port: TCP port on loopback; 0 until one was chosen.
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
        pid_file: Where the server writes its process id.
        log_file: Where it logs.
        max_store_bytes: Upper bound of all streams, bytes; None leaves the server's (3/4 of the disk).
        monitor_port: Loopback port of its monitoring pages, which need no password; None for none.

    Raises:
        ValueError: If two agents share a name or one has the service's.
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
