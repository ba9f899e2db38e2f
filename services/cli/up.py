"""``up``: everything in one process, in the foreground, until it is asked to stop.

Invariant: after SIGTERM, Ctrl-C or closing the terminal, the process drains and exits with 0. A second SIGTERM or
Ctrl-C ends it at once without losing acked entries; even then the managed nats-server is ended.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import click

from ...schemas.core.errors import DataDirBusy, Unavailable
from ..client.find import data_dir_of
from ..client.project import JOURNAL_FOLDER, check_journal
from ..data_dir import is_owned, read_running
from ..printable import safe
from .commands import Option
from .connection import OWNER_TOKEN_FILE, Target, async_client
from .options import DataDir, Embedder, Json, settings_from
from .output import emit, plain, say
from .run import imports

if TYPE_CHECKING:
    import asyncio

    from ...schemas.settings import Settings
    from ..runtime.node import Runtime

FORCED: Final = 130
"""Exit code of a process that a second signal ended."""
YOUNG_OBJECTS: Final = 10_000
"""Objects made before the youngest are searched for garbage, not 700: a batch of entries is then mostly freed without it."""


def up(
    data_dir: DataDir = None,
    http: Annotated[str | None, Option("--http", help="HOST:PORT; port 0 picks one. [default: 127.0.0.1:9119]")] = None,
    nats: Annotated[
        str | None,
        Option(
            "--nats",
            help="URL of a broker of your own, with commas between the servers of a cluster.",
        ),
    ] = None,
    replicas: Annotated[
        int | None, Option("--replicas", help="Copies of the streams in a cluster. [default: as they are, else 1]")
    ] = None,
    node: Annotated[
        str | None, Option("--node", help="Name of this node, if several share the journal of --nats. [default: alone]")
    ] = None,
    durability: Annotated[
        str | None,
        Option("--durability", help="durable: fsync before the ack; interval: every 250 ms. [default: durable]"),
    ] = None,
    embedder: Embedder = None,
    anchor: Annotated[
        list[str] | None,
        Option("--anchor", help="File to which signed checkpoints of the journal are appended; repeatable."),
    ] = None,
    leaf: Annotated[
        str | None,
        Option(
            "--leaf", help="URL of a hub to exchange entries and documents with; its token: CREW_JOURNAL_LEAF_TOKEN."
        ),
    ] = None,
    here: Annotated[
        bool, Option("--here", help="A journal of this folder alone, in .crew-journal; commands find it from here.")
    ] = False,
    sample: Annotated[
        bool, Option("--sample", help="Load the sample journal, once, and answer a question from it.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Run everything in one process: broker, views, reactors and HTTP. Ctrl-C stops it.

    Prints on stderr what it starts; with --json, prints one JSON document on stdout when it is ready.
    """
    with imports():
        import uvloop

        from ..http.server import parse_address
        from .logs import configure_logging

        if here and data_dir is not None:
            raise click.BadParameter("does not go with --data-dir", param_hint="--here")
        folder = data_dir_of(data_dir) if not here else _own_folder()
        settings = settings_from(
            data_dir=folder,
            http=http,
            nats=nats,
            replicas=replicas,
            node=node,
            durability=durability,
            embedder=embedder,
            anchors=os.pathsep.join(anchor) if anchor else None,
            leaf=leaf,
        )
        if settings.leaf and not settings.leaf_token:
            raise click.BadParameter("needs a token of the hub in CREW_JOURNAL_LEAF_TOKEN", param_hint="--leaf")
        address = parse_address(settings.http)
    configure_logging(settings.log_level, service=True)
    if is_owned(settings.data_dir):
        if (runs := read_running(settings.data_dir)) is not None:
            raise DataDirBusy(
                f"a node runs on {settings.data_dir.absolute()} already: {runs.http} (process {runs.pid})",
                hint="use it; `crew-journal down` stops it; for another journal, name another --data-dir",
            )
    else:
        refuse_taken(*address)
    uvloop.run(_up(settings, sample=sample, as_json=json_output))


def _own_folder() -> Path:
    """The data directory of the current folder; one that came with the folder must be trusted."""
    folder = Path(JOURNAL_FOLDER)
    check_journal(folder)
    return folder


def refuse_taken(host: str, port: int) -> None:
    """Check that an address can be bound.

    Raises:
        Unavailable: If another program listens there, or the address is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {host}:{port}: {error.strerror}",
                hint="choose another port with --http or CREW_JOURNAL_HTTP, such as 127.0.0.1:9120; port 0 picks a free one",
            ) from None


def stop_on_signals(at_once: Callable[[], object] = lambda: None) -> asyncio.Event:
    """An event that the first SIGINT, SIGTERM or SIGHUP sets; a second SIGINT or SIGTERM ends the process.

    A closed terminal sends SIGHUP, often twice, and later writes to it fail, so the streams are redirected. If SIGHUP
    is ignored (``nohup``), it stays ignored.

    Args:
        at_once: Called before a second signal ends the process, to end child processes.
    """
    import asyncio

    event = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if event.is_set():
            try:
                at_once()
            finally:
                os._exit(FORCED)
        event.set()

    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def on_hangup() -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in terminals:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        event.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, on_hangup)
    return event


async def _up(settings: Settings, *, sample: bool, as_json: bool) -> None:
    with imports():
        import asyncio

        from ..journal.broker.broker import terminate_children
        from ..journal.broker.config import BrokerFiles
        from ..runtime.node import Runtime

    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    broker = BrokerFiles.below(settings.data_dir)
    event = stop_on_signals(lambda: terminate_children(broker.config))
    runtime = Runtime(settings, log=say)
    stopping = asyncio.create_task(event.wait())
    exchange: asyncio.Task[None] | None = None
    try:
        starting = asyncio.create_task(runtime.start())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        await starting
        there = Target(runtime.http_url, runtime.owner_token, settings.data_dir)
        await _announce(runtime, settings, there, as_json=as_json)
        _freeze_modules()
        if settings.leaf:
            exchange = asyncio.create_task(_exchange(settings, there))
        if sample:  # in a daemon thread, so that `up` stops without waiting for it
            threading.Thread(target=_show_sample, args=(there, as_json), name="sample", daemon=True).start()
        closed = asyncio.create_task(runtime.wait_closed())
        await asyncio.wait({closed, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if closed.done():
            await closed  # raises a fatal error of the runtime
        else:
            say("stopping (press Ctrl-C again to stop at once)")
            closed.cancel()
    finally:
        stopping.cancel()
        if exchange is not None:
            exchange.cancel()
            await asyncio.gather(exchange, return_exceptions=True)
        await runtime.stop()
    say("stopped")


async def _exchange(settings: Settings, there: Target) -> None:
    """Exchange entries and documents with the hub until cancelled."""
    from .leaf import STATE_FILE, Leaf

    assert settings.leaf is not None
    assert settings.leaf_token is not None
    hub = Target(settings.leaf, settings.leaf_token, None)
    async with async_client(there) as here, async_client(hub) as away:
        leaf = Leaf(here, away, settings.data_dir / STATE_FILE, settings.leaf, settings.leaf_workspace)
        await leaf.run()


def _freeze_modules() -> None:
    """Exclude the 200,000 objects of modules and routes from garbage collection: each full one took 0.14 s."""
    gc.unfreeze()  # frees garbage from the imports
    gc.collect()
    gc.freeze()


async def _announce(runtime: Runtime, settings: Settings, there: Target, *, as_json: bool) -> None:
    async with async_client(there) as journal:
        report = plain(await journal.status())
    model = report.get("embedder") or {}
    facts = {
        "http": runtime.http_url,
        "nats": runtime.nats_url,
        "pid": os.getpid(),
        "data_dir": str(settings.data_dir.absolute()),
        "durability": (report.get("broker") or {}).get("durability", settings.durability),
        "embedder": model.get("model") or model.get("kind") or "none",
        "embedder_reason": model.get("reason"),
        "owner_token_file": str((settings.data_dir / OWNER_TOKEN_FILE).absolute()),
        "view_seq": report.get("view_seq"),
    }
    if as_json:
        emit(facts)
    why = f" ({facts['embedder_reason']})" if facts["embedder_reason"] else ""
    for line in (
        f"HTTP         {facts['http']}  (pages at /, documentation at /docs)",
        f"NATS         {facts['nats']}",
        f"data         {facts['data_dir']}",
        f"durability   {facts['durability']}",
        f"embedder     {facts['embedder']}{why}",
        f"owner token  in {facts['owner_token_file']}",
    ):
        say(safe(line))


def _show_sample(there: Target, as_json: bool) -> None:
    from . import demo as sample_journal

    try:
        last_seq = sample_journal.load_sample(there)
        if not as_json:
            sample_journal.show_worked_recall(there, last_seq)
            sys.stdout.flush()
    except Exception as error:  # the journal runs without the sample
        say(f"warning: the sample could not be shown: {error}")
