"""Figures and trouble of the parts that are not started by ``Parts``: broker, connection, views, feed.

Invariant: reading figures changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ...consumers.feed.live import LiveFeed
from ...consumers.reactor import Reactor
from ...schemas.errors import ViewsDamaged
from ...schemas.ports import ViewReader
from ..journal.broker.broker import ManagedBroker
from ..journal.broker.connection import BrokerConnection
from ..journal.broker.nats_binary import version_text
from ..journal.broker.streams import stream_figures
from ..operating.status import as_json
from ..parts import Parts
from .views import NodeViews


def mapping(value: object) -> dict[str, Any]:
    """Any figures as JSON."""
    figures: dict[str, Any] = as_json(value)
    return figures


def broker_figures(broker: ManagedBroker | None, url: str, client: BrokerConnection) -> Mapping[str, Any]:
    """The managed broker, or the operator's at ``url``, to which ``client`` is connected."""
    if broker is None:
        server = client.connected_server_version
        version = version_text((server.major, server.minor, server.patch))
        return {"managed": False, "url": url, "version": version, "durability": "unknown"}
    return {"managed": True, **mapping(broker.status())}


async def statuses(reactors: Mapping[str, Reactor]) -> dict[str, Mapping[str, Any]]:
    """How each reactor is doing, by its name; all are asked at once, because each waits for the broker while it is away."""
    parts = dict(reactors)
    return dict(
        zip(parts, map(mapping, await asyncio.gather(*(part.status() for part in parts.values()))), strict=True)
    )


async def stream_section(client: BrokerConnection, views: ViewReader) -> dict[str, Any]:
    """Head, messages and bytes of JOURNAL; the sequence of the views as head while the broker is away."""
    try:
        return dict(await stream_figures(client))
    except Exception as error:
        return {"head": views.view_seq(), "unavailable": str(error) or type(error).__name__}


def connection_trouble(client: BrokerConnection) -> str | None:
    """That the broker is away, None if it is not."""
    state = client.state
    return None if state.connected else f"the broker is not connected: {state.last_error or 'reconnecting'}"


def show_views(parts: Parts, views: NodeViews, feed: LiveFeed) -> None:
    """Show the file of the views, the folding into them, and the feed."""
    store, host = views.store, views.host

    def unusable() -> str | None:
        if store.damage is not None:
            return f"{store.damage} ({ViewsDamaged.HINT})"
        trouble = store.trouble
        return trouble and f"the views cannot be used and are being reopened automatically: {trouble}"

    def stopped() -> str | None:
        reason = host.status().stopped
        return reason and f"folding has stopped: {reason}"

    parts.show("views", trouble=unusable)
    parts.show("folding", host.status, stopped)
    parts.show("feed", feed.status)
