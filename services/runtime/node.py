"""The composition root, which creates and connects all parts of a node.

Invariant: parts stop in the reverse order of their start, even after failures; acked writes are never lost. The order
of the start: lock, broker, streams, views (caught up from the stream), writer, tokens, embedder, HTTP, then
``runtime.json``, reactors. Clients find the service by ``runtime.json``, so it is written only when HTTP answers.
Reactors start after it, because no client waits for their start, but stop after HTTP, because requests wait for their
sweeps.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Any, Final

import structlog

from ...consumers.discovery import discover_reactors
from ...consumers.host.faults import damage_behind
from ...consumers.host.opening import PutAside, put_damaged_aside
from ...consumers.host.store import ViewStore, share_one_heap
from ...consumers.models.embed_reactor import EmbedReactor
from ...consumers.reactor import Reactor, ReactorContext
from ...schemas.core.errors import CrewJournalError, ViewsDamaged
from ...schemas.core.ports import DRAWER_KIND, ENTRY_KIND, NearQuery, NearText
from ...schemas.entries.tables import ADMISSION_PROJECTION
from ...schemas.settings import GIVE_BACK_GROWTH_BYTES, REST_CPU_SHARE, REST_LOOK_S, Settings
from ..access.tokens import NatsUsers, TokenRegistry, ensure_owner_token
from ..budgets import BudgetLimits, Budgets
from ..chain.anchors import anchor_places, signing_key
from ..chain.sealer import Sealer
from ..chain.use_cases import ChainProofs
from ..client.project import claim_journal, note_token
from ..cluster.membership import run_alone
from ..cluster.routing import RoutedOwnership
from ..data_dir import PASSWORDS_BYTES, PASSWORDS_FILE, announce, lock, node_id, small_file, subject_key
from ..entries.live_tail import LiveTail
from ..erasure.use_cases import Erasures
from ..http.route import HttpLimits
from ..journal.broker.connection import BrokerConnection
from ..journal.broker.streams import stream_head
from ..journal.intake.ingest import Ingest
from ..journal.publishing import Writer
from ..node import Node, PastMoments
from ..operate.backup import backup_records
from ..operate.history import resident_bytes
from ..operate.letters import DeadLetters
from ..ownership import ALONE
from ..palace.searching import DrawerSearch, NearDrawers
from ..parts import Part, Parts, end_task
from ..recall.similar import NearEntries
from ..sweeps.scheduler import Sweeps
from ..telemetry import Telemetry, is_wanted
from .composition import make_node, make_services, start_http
from .embedding import Embedding, Filling, StaticTable, connection_trouble, statuses
from .erasing import ErasedStream
from .journal_side import BrokerLink, JournalSide, open_link
from .past import PastViews
from .views import VIEWS_FILE, aside_text

# Implements ``Finder``: one function for each kind of text that reactors search.


class NodeFinder:
    """The nearest texts of a node."""

    def __init__(self, node: Node) -> None:
        self._ownership = node.ownership
        self._of = {
            ENTRY_KIND: NearEntries(node.views, node.recall.indexes).nearest,
            DRAWER_KIND: NearDrawers(node.use(DrawerSearch)).nearest,
        }

    async def nearest(self, query: NearQuery) -> list[list[NearText]]:
        """See ``Finder.nearest``."""
        return await self._ownership.nearest(query, self.here)

    async def here(self, query: NearQuery) -> list[list[NearText]]:
        """The same in the indexes of this node."""
        return await self._of[query.kind](query)


# An idle node returns freed memory to the system: 200 to 300 MiB after folding 100,000 entries or loading their hot
# index.


_log = structlog.get_logger(__name__)


class Resting:
    """Checks regularly whether the node is idle and has memory to return.

    Args:
        give_back: Returns freed memory to the system.
        resident: Resident bytes of the process; None if unknown, then memory is never returned.
        cpu: CPU seconds the process has used.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        give_back: Callable[[], Awaitable[None]],
        *,
        resident: Callable[[], int | None] = resident_bytes,
        cpu: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._give_back = give_back
        self._resident = resident
        self._cpu = cpu
        self._clock = clock
        self._left = 0  # resident bytes after the last return of memory
        self._at, self._used = clock(), cpu()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(REST_LOOK_S)
            await self.look()

    async def look(self) -> bool:
        """Return memory if the node was idle since the last check and has grown; returns whether it did."""
        if not self._rested():
            return False
        resident = self._resident()
        if resident is None or resident - self._left < GIVE_BACK_GROWTH_BYTES:
            return False
        try:
            await self._give_back()
        except Exception as error:  # the memory is kept; retried after more growth
            _log.warning("memory_not_given_back", error=type(error).__name__)
        self._left = self._resident() or resident
        self._rested()  # CPU time of returning memory does not count as work
        _log.debug("memory_given_back", before=resident, after=self._left)
        return True

    def _rested(self) -> bool:
        at, used = self._clock(), self._cpu()
        share = (used - self._used) / max(at - self._at, 1e-9)
        self._at, self._used = at, used
        return share < REST_CPU_SHARE


# The reactors of a node, as found in the families.


class Reactors(Part):
    """All reactors except the embed reactors, which ``filling`` starts.

    Args:
        context: The parts of the node.
        filling: Its embed reactors, for ``figures``.
        say: Called with one line that names the reactors.
    """

    def __init__(self, context: ReactorContext, filling: Filling, say: Callable[[str], None]) -> None:
        self._context = context
        self._filling = filling
        self._say = say
        self._stack = AsyncExitStack()
        self._started: dict[str, Reactor] = {}
        self._tried = asyncio.Event()

    async def start(self) -> None:
        """Start them. They are imported in a thread, because the node already answers."""
        try:
            for name, create in (await asyncio.to_thread(discover_reactors)).items():
                reactor = None if name == EmbedReactor.name else create(self._context)
                if reactor is not None:
                    await reactor.start()
                    self._stack.push_async_callback(reactor.stop)
                    self._started[name] = reactor
        finally:
            self._tried.set()
        self._say(f"reactors: {', '.join(self._started)}")

    async def stop(self) -> None:
        """Stop them, the last one first, even if one fails to stop."""
        await self._stack.aclose()

    async def figures(self) -> list[Mapping[str, Any]]:
        """The status of each reactor after the start; embed reactors first."""
        await self._tried.wait()
        filling, started = await asyncio.gather(statuses(self._filling.reactors), statuses(self._started))
        return [*({**status, "model": model} for model, status in filling.items()), *started.values()]


_OTHERS: Final = 0o077

log = structlog.get_logger(__name__)


def utc_now() -> datetime:
    """The clock of the services; folds never see it."""
    return datetime.now(UTC)


class Runtime:
    """All parts of one node, in one process.

    Args:
        settings: Its settings.
        log: Called with one line for each part that starts.
    """

    def __init__(self, settings: Settings, *, log: Callable[[str], None] | None = None) -> None:
        self._settings = settings
        self._say = log or (lambda _line: None)
        self._stack = AsyncExitStack()
        self._closed = asyncio.Event()
        self._failure: CrewJournalError | None = None
        self._started_at = utc_now()
        self._http_url = self._owner_token = ""
        self._link: BrokerLink | None = None
        self._aside: PutAside | None = None

    # for callers

    @property
    def http_url(self) -> str:
        """Where HTTP answers."""
        return self._http_url

    @property
    def nats_url(self) -> str:
        """Where the broker is."""
        return "" if self._link is None else self._link.url

    @property
    def owner_token(self) -> str:
        """The owner's token of this data directory."""
        return self._owner_token

    async def wait_closed(self) -> None:
        """Return when the node was stopped.

        Raises:
            CrewJournalError: If the node failed; ``stop`` must still be called.
        """
        await self._closed.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Drain and stop, in reverse order of starting; does nothing the second time."""
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            await stack.aclose()
        finally:
            self._closed.set()

    # starting

    async def start(self) -> None:
        """Start everything; returns when HTTP answers, the views have caught up and the reactors run.

        Raises:
            CrewJournalError: If the node cannot start; started parts are stopped again.
        """
        try:
            try:
                await self._start()
            except Exception as error:
                damage = damage_behind(error)
                if damage is None:
                    raise
                await self._restart_views(damage)
        except BaseException:
            await self.stop()
            raise

    async def _restart_views(self, damage: ViewsDamaged) -> None:
        """Start again without the views, which were found to be damaged after they had been opened."""
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
        path = self._settings.data_dir.resolve() / VIEWS_FILE
        self._aside = await asyncio.to_thread(put_damaged_aside, path, damage)
        self._say(aside_text(self._aside))
        await self._start()

    async def _start(self) -> None:
        settings, stack = self._settings, self._stack
        parts = Parts(stack)
        data_dir = settings.data_dir.resolve()
        if not claim_journal(data_dir):
            self._say(f"that {data_dir} is trusted could not be kept: name it with --data-dir in other commands")
        stack.callback(lock(data_dir))
        stack.callback(
            os.umask, os.umask(_OTHERS)
        )  # limits the permissions of files that DuckDB and nats-server create
        share_one_heap()
        self._owner_token = ensure_owner_token(data_dir, minted=partial(note_token, data_dir))

        link = self._link = await open_link(stack, settings, data_dir, self._say)
        base = await JournalSide.start(
            stack, parts, link, settings, data_dir, clock=utc_now, say=self._say, give_up=self._give_up
        )
        client, writer, views = base.client, base.writer, base.views
        store, host, journal = views.store, views.host, views.journal
        members = await self._members(stack, client, writer, store, data_dir)
        nats = NatsUsers(link.managed) if link.managed is not None else None
        tokens = TokenRegistry(store, journal, self._owner_token, nats=nats)
        tokens.load()
        stack.callback(tokens.close)
        if nats is not None:
            await parts.begin("nats_users", nats)
        budgets = Budgets(BudgetLimits.of(settings), lambda: store.view_seq(ADMISSION_PROJECTION))
        ingest = Ingest(await link.connect(stack, "crew-journal ingest"), journal, budgets)
        embedding = Embedding(settings, store, journal, clock=utc_now)
        await embedding.start(stack)
        parts.show("embedder", embedding.figures)
        self._say(f"embedder: {embedding.choice.kind} ({embedding.choice.reason})")

        static_table = StaticTable(settings.models_dir, self._say)
        await static_table.start(stack, compute=embedding.choice.kind == "minilm")

        node = await make_node(
            stack,
            parts,
            views=store,
            journal=journal,
            writer=writer,
            settings=settings,
            clock=utc_now,
            subject_key=subject_key(data_dir),
            embedding=embedding,
            static_table=static_table.current,
            trouble=lambda: connection_trouble(client),
            ownership=members or ALONE,
        )
        node.put(BrokerLink, link)
        node.put(DeadLetters, views.desk)
        finder = NodeFinder(node)
        context = ReactorContext(
            await link.connect(stack, "crew-journal reactors"),
            writer,
            embedding.chosen,
            None,
            utc_now,
            settings,
            views=store,
            finder=finder,
            embedder_for=embedding.running,
            embedder_trouble=embedding.trouble,
            subject_key=node.subject_key,
        )
        filling = await parts.begin("filling", Filling(embedding, context, store, self._say))
        context = replace(context, embed_unsettled=filling.unsettled)
        reactors = parts.keep("reactors", Reactors(context, filling, self._say))
        parts.show("ingest", ingest.figures)
        hashes = partial(small_file, data_dir / PASSWORDS_FILE, PASSWORDS_BYTES)
        copied = partial(backup_records, link.connect, utc_now, node.subject_key, hashes)
        operations = views.operations(base.gap_watch, copied)
        stack.push_async_callback(operations.stop)
        erased = ErasedStream(client, views, operations, base.gap_watch, node.recall.indexes.cache)
        erasures = node.put(Erasures, Erasures(node, erased))
        sealer = Sealer(
            node,
            views.source,
            partial(stream_head, client),
            signing_key(node.subject_key),
            anchor_places(data_dir, settings.anchor_files),
        )
        node.put(ChainProofs, ChainProofs(node, sealer, views.source))
        views.followers.append(sealer.take)
        tail = LiveTail(store, node.queries, head=lambda: stream_head(client), per_token=settings.tails_per_token)
        services = await make_services(
            node,
            parts,
            tail=tail,
            tokens=tokens,
            operations=operations,
            projections={projection.name: projection.version for projection in host.projections},
            about={
                "version": distribution_version("crew-journal"),
                "started_at": self._started_at,
                "views_put_aside": views.aside or self._aside,
            },
            budgets=budgets,
            limits=HttpLimits.of(settings),
            telemetry=await self._telemetry(parts, data_dir),
        )
        past = await parts.begin("past_views", PastViews(node, views, embedding, tokens, static_table.current))
        services.desk.past = past.at
        node.put(PastMoments, PastMoments(past.at, past.sequence_of, past.walk))
        await services.status.gauges()  # reads most views, so that damage is found before the node is announced
        server = await start_http(parts, services, settings)
        if members is not None:
            self._http_url = server.url
            key = hmac.digest(node.subject_key, b"crew-journal operations", "sha256")
            await members.serve(services.desk, budgets, key, erasures.refold, finder.here, node.recall.cache)
            members.on_change += [erasures.take_over, partial(node.recall.cache.keep, members.may_keep)]
            await parts.begin("cluster", members)
            self._say(f"node: {members.name}")
        await parts.begin("ingest", ingest)
        await node.use(Sweeps).start()
        store.refuse_damage()  # a background task may have found damage
        resting = asyncio.create_task(Resting(store.give_back).run(), name="resting")
        stack.push_async_callback(end_task, resting)
        self._http_url = server.url
        stack.callback(announce(data_dir, self._http_url, self.nats_url, self._owner_token))
        await parts.begin("erasures", erasures)
        await parts.begin("seals", sealer)
        await reactors.start()
        embedding.start_probing()

    async def _telemetry(self, parts: Parts, data_dir: Path) -> Telemetry | None:
        """What records spans; None if the environment names no receiver, or the extra is not installed."""
        if not is_wanted():
            return None
        version, content = distribution_version("crew-journal"), self._settings.otel_content
        try:
            made = await asyncio.to_thread(partial(Telemetry, version, node_id(data_dir), content=content))
        except ImportError as error:
            self._say(f"telemetry: off, because {error.name} is missing: install crew-journal[otel]")
            return None
        self._say(f"telemetry: OTLP over HTTP{', with texts' if content else ''}")
        return await parts.begin("telemetry", made)

    async def _members(
        self, stack: AsyncExitStack, client: BrokerConnection, writer: Writer, store: ViewStore, data_dir: Path
    ) -> RoutedOwnership | None:
        """This node among others; None if it runs alone.

        Raises:
            CrewJournalError: If it may not take part, or others run and it has no name.
        """
        settings = self._settings
        if settings.node is None:
            if settings.nats is not None:
                await run_alone(client)
            return None
        assert self._link is not None
        members = RoutedOwnership(
            settings.node,
            await self._link.connect(stack, "crew-journal cluster"),
            writer,
            store,
            subject_key=subject_key(data_dir),
            version=distribution_version("crew-journal"),
            clock=utc_now,
            http=lambda: self._http_url,
            give_up=self._give_up,
        )
        await members.check()
        return members

    def _give_up(self, why: CrewJournalError) -> None:
        self._failure = why
        self._closed.set()
