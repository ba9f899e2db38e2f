"""What the node's parts say of themselves, as ``status`` shows it.

Invariant: reading figures changes nothing and waits for nothing but an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...consumers.reactor import Reactor
from ..journal.broker.broker import ManagedBroker
from ..journal.broker.connection import Connection
from ..journal.broker.nats_binary import version_text
from ..operating.status import as_json
from .filling import Filling


def mapping(value: object) -> dict[str, Any]:
    """Any figures as JSON."""
    figures: dict[str, Any] = as_json(value)
    return figures


def broker_figures(broker: ManagedBroker | None, url: str, client: Connection) -> Mapping[str, Any]:
    """The managed broker, or what is known of somebody else's at ``url``: ``client`` is connected to it."""
    if broker is None:
        told = client.connected_server_version
        version = version_text((told.major, told.minor, told.patch))
        return {"managed": False, "url": url, "version": version, "durability": "unknown"}
    return {"managed": True, **mapping(broker.status())}


async def fillings(filling: Filling) -> dict[str, Mapping[str, Any]]:
    """How the filling of each model is doing."""
    return {model: mapping(await reactor.status()) for model, reactor in filling.reactors.items()}


async def reactor_figures(filling: Filling, reactors: Sequence[Reactor]) -> list[Mapping[str, Any]]:
    """How the reactors are doing, those that fill a model first."""
    models = [{**mapping(await one.status()), "model": model} for model, one in filling.reactors.items()]
    return [*models, *[mapping(await reactor.status()) for reactor in reactors]]
