"""The node's connection to its broker, which it runs itself or the operator does.

Invariant: the given stack closes everything that is opened here, connections before the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...schemas.operations.tokens import BROKER, BrokerAnswer, BrokerRequest
from ...schemas.settings import Settings
from ..desk import Caller
from ..journal.broker.broker import ManagedBroker
from ..journal.broker.connection import BrokerConnection, connect
from ..journal.broker.nats_binary import find_nats_server
from ..node import Answers


@dataclass(frozen=True, slots=True)
class BrokerLink:
    """How the broker is reached.

    Attributes:
        managed: The broker, if the node runs it itself.
        url: Its address.
        user: The service's user.
        password: Its password.
    """

    managed: ManagedBroker | None
    url: str
    user: str | None
    password: str | None = field(repr=False)

    @property
    def address(self) -> tuple[str, str | None, str | None]:
        """URL, user and password."""
        return self.url, self.user, self.password

    async def connect(self, stack: AsyncExitStack, name: str) -> BrokerConnection:
        """A connection of its own for one part of the node."""
        client = await connect(*self.address, name)
        stack.push_async_callback(client.close)
        return client

    async def answer(self, _caller: Caller, _asked: BrokerRequest) -> BrokerAnswer:
        """The broker's address for reactors in other processes."""
        return BrokerAnswer(url=self.url, user=self.user, password=self.password)


async def open_link(
    stack: AsyncExitStack, settings: Settings, data_dir: Path, say: Callable[[str], None]
) -> BrokerLink:
    """Start the managed broker, or name the operator's.

    Raises:
        BrokerError: If nats-server is missing or does not start.
    """
    if settings.nats is not None:
        say(f"broker: {settings.nats} (its durability is unknown)")
        if "durability" in settings.model_fields_set:
            say(f"warning: {settings.durability!r} is for a managed broker; this one syncs as its operator says")
        return BrokerLink(None, settings.nats, settings.nats_user, settings.nats_password)
    binary = await asyncio.to_thread(find_nats_server, [settings.nats_dir], override=settings.nats_server)
    broker = ManagedBroker(data_dir, binary, settings.durability)
    await broker.start()
    stack.push_async_callback(broker.stop)
    say(f"broker: nats-server {broker.status().version} at {broker.url}, {settings.durability}")
    return BrokerLink(broker, broker.url, broker.user, broker.password)


ANSWERS: Final[Answers] = ((BROKER, BrokerLink.answer),)
