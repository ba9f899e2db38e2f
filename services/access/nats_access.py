"""Keeps the managed broker's users for agents equal to the tokens in the journal.

Invariants: every user has a valid token and can use only the subject of its workspace, crew and agent. The password is
the token itself; the broker gets a bcrypt hash of it. A change that the broker refuses is retried until it is accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from ...schemas.core.errors import BrokerError, BrokerNotOurs, BrokerUnavailable
from ...schemas.core.principal import Principal
from ...schemas.core.subjects import INGEST_SUBJECTS, ingest_subject
from ..endings import end_task
from ..journal.broker.broker import ManagedBroker
from ..journal.broker.config import AgentUser
from ..parts import Part

BCRYPT_ROUNDS: Final = 4
"""Minimum cost of bcrypt: a token of 256 random bits needs no slow hash, and the server computes it at each connection
(1 ms).
"""
RETRY_S: Final = 2.0
"""Seconds until a refused change is retried."""
SETTLE_S: Final = 40.0
"""Seconds to wait for a change: two reloads of at most 15 s, or a server that is restarting; usually 50 ms."""

_log = structlog.get_logger(__name__)


def bcrypt_hash(token: str) -> str:
    """The hash of a token that nats-server gets; takes 1 ms."""
    import bcrypt  # imported late, because only this function needs it

    return bcrypt.hashpw(token.encode(), bcrypt.gensalt(BCRYPT_ROUNDS)).decode()


def nats_user(bound: Principal, hashed: str) -> AgentUser:
    """The NATS user of an agent's token, which has a workspace and an agent.

    Raises:
        pydantic.ValidationError: If it has not.
    """
    named = {"name": bound.token_id, "bcrypt": hashed, "workspace_id": bound.workspace_id}
    return AgentUser.model_validate({**named, "agent_id": bound.agent_id, "crew_id": bound.crew_id})


def broker_not_ours(bound: Principal) -> BrokerNotOurs:
    """The error for a node with ``--nats``, which cannot create NATS users; it says how to configure the broker instead."""
    subject = ingest_subject(str(bound.workspace_id), bound.crew_id, str(bound.agent_id))
    agent = (
        f'AGENT-{bound.agent_id}: {{users: [{{user: {bound.agent_id}, password: "BCRYPT HASH", permissions: '
        f'{{publish: "{subject}", subscribe: "_INBOX.>"}}}}], '
        f'imports: [{{service: {{account: JOURNAL, subject: "{subject}"}}}}]}}'
    )
    return BrokerNotOurs(
        "the broker is not this node's own (--nats), so it cannot be given users",
        hint=f"put under accounts in its configuration: {agent}; JOURNAL is the account of the journal, with exports: "
        f'[{{service: "{INGEST_SUBJECTS}"}}]; reload it twice',
        field="nats",
    )


class NatsUsers(Part):
    """Keeps the users of a running managed broker equal to the wanted users."""

    def __init__(self, broker: ManagedBroker, *, retry_s: float = RETRY_S, settle_s: float = SETTLE_S) -> None:
        self._broker = broker
        self._retry_s = retry_s
        self._settle_s = settle_s
        self._wanted: tuple[AgentUser, ...] = broker.agent_users
        self._due = asyncio.Event()
        self._told = asyncio.Condition()
        self._trouble = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Where agents connect, ``nats://host:port``."""
        return self._broker.url

    def want(self, users: Sequence[AgentUser]) -> None:
        """Set the wanted users; the broker is reloaded in the background."""
        self._wanted = tuple(sorted(users, key=lambda user: user.name))
        self._due.set()

    async def start(self) -> None:
        """Send the current users to the broker, then follow changes.

        Raises:
            BrokerError: If it refuses.
        """
        await self._tell()
        self._task = asyncio.create_task(self._follow(), name="nats-users")

    async def stop(self) -> None:
        """Stop following changes."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    async def settled(self, name: str) -> None:
        """Return once the broker has added or removed the user ``name``, as wanted.

        Raises:
            BrokerUnavailable: If that takes too long; attempts continue.
        """
        try:
            async with asyncio.timeout(self._settle_s), self._told:
                await self._told.wait_for(lambda: _named(self._wanted, name) == _named(self._broker.agent_users, name))
        except TimeoutError:
            raise BrokerUnavailable(
                f"nats-server did not take {name} within {self._settle_s:g} s: {self._trouble or 'it is busy'}",
                hint="it is sent again until the server takes it; see crew-journal status",
            ) from None

    async def _follow(self) -> None:
        while True:
            await self._due.wait()
            try:
                await self._tell()
            except (BrokerError, OSError) as error:  # OSError: our own files, a full disk
                self._trouble = str(error)
                self._due.set()
                _log.error("nats_users.not_told", error=str(error), retry_in_s=self._retry_s)
                await asyncio.sleep(self._retry_s)

    async def _tell(self) -> None:
        self._due.clear()
        wanted = self._wanted
        if wanted != self._broker.agent_users:
            await self._broker.set_agent_users(wanted)
        self._trouble = ""
        async with self._told:
            self._told.notify_all()


def _named(users: Sequence[AgentUser], name: str) -> AgentUser | None:
    return next((user for user in users if user.name == name), None)
