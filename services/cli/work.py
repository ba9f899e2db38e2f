"""``work``: runs reactors in a separate process, which share the load with those of ``up`` and of other ``work`` processes.

Invariant: a ``work`` process needs only the broker and opens no view, so that any number of them can run on any
machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from ...schemas.core.errors import Unavailable
from .commands import Argument, Option
from .connection import resolve, sync_client
from .options import Embedder, Json, Where, settings_from
from .output import emit, plain, say
from .up import stop_on_signals

if TYPE_CHECKING:
    from ...consumers.reactor import Reactor, ReactorContext
    from ...schemas.settings import Settings

NEEDS: Final = {
    "embed": "`crew-journal model install minilm`, or start Ollama",
    "embed_chunks": "it searches the views, so it runs only inside `crew-journal up`",
    "link": "it searches the views, so it runs only inside `crew-journal up`",
}
"""Reactor → what to do where its model or its views are missing."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Address of the broker, and the journal's models.

    Attributes:
        model: The active model, None if unknown.
        known: Model → its dimensions (None if unknown) and the sequence of its last drop.
    """

    url: str
    user: str | None
    password: str | None = field(repr=False)
    model: str | None = None
    known: Mapping[str, tuple[int | None, int]] = field(default_factory=dict)


def work(
    reactors: Annotated[list[str], Argument(metavar="REACTOR…", help="Which, like embed.")],
    nats: Annotated[str | None, Option("--nats", help="URL of the broker; by default that of a running `up`.")] = None,
    user: Annotated[str | None, Option("--user", envvar="CREW_JOURNAL_NATS_USER", help="User at the broker.")] = None,
    password: Annotated[
        str | None, Option("--password", envvar="CREW_JOURNAL_NATS_PASSWORD", help="Password at the broker.")
    ] = None,
    embedder: Embedder = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Run reactors in a process of their own, until Ctrl-C. They get the broker from a running `up`, or from --nats."""
    import uvloop

    from ...consumers.discovery import discover_reactors
    from .logs import configure_logging

    known = discover_reactors()
    if unknown := [name for name in reactors if name not in known]:
        raise click.BadParameter(f"no reactor {unknown[0]!r}; there are {', '.join(known)}", param_hint="REACTOR")
    settings = settings_from(data_dir=where.folder, embedder=embedder)
    configure_logging(settings.log_level, service=True)
    broker = _named(nats, user, password) if nats else ask_for_broker(where)
    chosen = {name: known[name] for name in dict.fromkeys(reactors)}
    uvloop.run(_work(chosen, broker, settings, as_json=json_output))


def _named(nats: str, user: str | None, password: str | None) -> Broker:
    """The broker of the options; user and password may stand in the URL instead."""
    from ...schemas.core.broker_address import broker_address

    try:
        address = broker_address(nats)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--nats") from None
    if address.user is None:
        return Broker(address.url, user or None, password or None)
    if user or password:
        raise click.BadParameter("names a user, and so does --user or --password: give one", param_hint="--nats")
    return Broker(address.url, address.user, address.password)


def ask_for_broker(where: Where) -> Broker:
    """The broker of a running ``up``.

    Raises:
        Unavailable: If none runs.
    """
    there = resolve(where)
    if there is None:
        raise Unavailable(
            f"no `up` runs on {where.folder.absolute()}",
            hint="start `crew-journal up`, or name the broker with --nats",
        )
    with sync_client(there) as journal:
        answer, active = journal.broker(), plain(journal.embedder_status()).get("model")
        known = {model.model: (model.dim, model.generation) for model in journal.embedding_models().models}
    return Broker(answer.url, answer.user, answer.password, active, known)


async def _work(chosen: dict[str, Any], broker: Broker, settings: Settings, *, as_json: bool) -> None:
    event = stop_on_signals()
    async with AsyncExitStack() as stack:
        context = await _context(broker, settings, stack)
        running: list[Reactor] = []
        for name, factory in chosen.items():
            reactor: Reactor | None = factory(context)
            if reactor is None:
                raise Unavailable(
                    f"{name} has no embedding model on this machine",
                    hint=NEEDS.get(name, "it runs inside `crew-journal up`"),
                )
            await reactor.start()
            stack.push_async_callback(reactor.stop)
            running.append(reactor)
        model = context.embedder.model_id if context.embedder is not None else None
        names = [reactor.name for reactor in running]
        if as_json:
            emit({"reactors": names, "nats": broker.url, "model": model})
        say(f"working: {', '.join(names)} at {broker.url}, model {model or 'none'} (Ctrl-C stops)")
        await event.wait()
        say("stopping (press Ctrl-C again to stop at once)")
        for reactor in running:
            status = await reactor.status()
            if as_json:
                emit(asdict(status))
            else:
                say(f"{status.name}: {', '.join(f'{name} {count}' for name, count in status.counts.items())}")


async def _context(broker: Broker, settings: Settings, stack: AsyncExitStack) -> ReactorContext:
    from ...consumers.adapters.choose import ObservedEmbedder, choose_embedder
    from ...consumers.adapters.served import Endpoint
    from ...consumers.reactor import ReactorContext
    from ..journal.broker.connection import connect
    from ..journal.publishing import Writer

    client = await connect(broker.url, broker.user, broker.password, "crew-journal-work", files=settings.nats_files)
    stack.push_async_callback(client.close)
    writer = Writer(client)
    await writer.open()
    stack.push_async_callback(writer.close)
    choice = await choose_embedder(
        settings.embedder,
        ollama_host=settings.ollama_host,
        ollama_model=settings.ollama_model,
        cache_dir=settings.models_dir,
        endpoint=Endpoint(settings.embed_base_url, settings.embed_api_key),
        endpoint_model=settings.embed_model,
        pinned_model=broker.model,
    )
    say(f"embedder: {choice.kind}, {choice.reason}")
    embedder, dim, generation = None, None, 0
    if choice.embedder is not None:
        embedder = ObservedEmbedder(choice.embedder, _now)
        stack.push_async_callback(embedder.close)
        dim, generation = broker.known.get(embedder.model_id, (None, 0))
    return ReactorContext(client, writer, embedder, dim, _now, settings, embedding_generation=generation)


def _now() -> datetime:
    return datetime.now(UTC)
