"""Starts the node's memory use-cases and the parts that they share.

Invariant: the node's stack stops everything that is started here, before the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...schemas.ports import ViewReader
from ...schemas.settings import Settings
from ..data_dir import subject_key
from ..journal.intake.append import Journal
from ..journal.intake.secrets import MODE_OF_SETTING
from ..journal.publishing.writer import Writer
from ..memory.after_runs import AfterRuns
from ..memory.agents import Agents
from ..memory.bundles import Bundles
from ..memory.documents.administration import Administration
from ..memory.documents.journal_store import JournalStore
from ..memory.documents.provision import Provision
from ..memory.documents.use_cases import JournalDocuments
from ..memory.files import Files
from ..memory.learning import Learning
from ..memory.nudges import NudgeService
from ..memory.operators import Operators
from ..memory.priorities import Priorities
from ..memory.proposals import Proposals
from ..memory.receipt_log import ReceiptLog
from ..memory.receipts import Receipts
from ..memory.registry import Registry
from ..memory.reindex import Reindexing
from ..memory.relations import Relations
from ..memory.retractions import Retractions
from ..memory.skills import Skills
from ..memory.stores import MemoryStores
from ..memory.sweep_now import SweepNow
from ..memory.sweeps import Sweeps
from ..memory.workspace_settings import WorkspaceSettingsService
from ..operating.status import as_json
from ..palace.graph import KnowledgeGraph
from ..query.chunks.documents import RecordSearch, no_record
from ..query.entries.queries import JournalQueries
from ..query.recall import Record, no_receipts


@dataclass(frozen=True, slots=True)
class Memory:
    """The use-cases of one node."""

    receipt_log: ReceiptLog
    record: Record
    record_search: RecordSearch
    receipts: Receipts
    priorities: Priorities
    timekeeper: Sweeps
    sweep_now: SweepNow
    learning: Learning
    proposals: Proposals
    operators: Operators
    bundles: Bundles
    relations: Relations
    retractions: Retractions
    registry: Registry
    agents: Agents
    documents: JournalDocuments
    document_store: JournalStore
    administration: Administration
    files: Files
    stores: MemoryStores
    reindexing: Reindexing
    nudges: NudgeService
    workspace_settings: WorkspaceSettingsService
    knowledge: KnowledgeGraph

    def figures(self, workspace_id: str | None, node: bool) -> dict[str, Any]:
        """Figures for ``status``: the sweeps of a workspace (of all if None), and the node's logs if ``node``; blocking."""
        shown: dict[str, Any] = self.timekeeper.figures(workspace_id, reasons=node)
        shown["operators"] = self.operators.figures()
        if node:
            shown["receipts"] = as_json(self.receipt_log.figures())
        return shown


async def start_memory(
    stack: AsyncExitStack,
    journal: Journal,
    writer: Writer,
    queries: JournalQueries,
    views: ViewReader,
    settings: Settings,
    clock: Callable[[], datetime],
    connected: Callable[[], bool],
) -> Memory:
    """Make and start them; ``timekeeper`` is started by the node, once everything that follows a tick is up."""
    receipt_log = ReceiptLog(journal, connected)
    await receipt_log.start()
    stack.push_async_callback(receipt_log.stop)
    registry = Registry(views)
    stack.callback(registry.close)
    agents = Agents(views, journal, registry, Provision(views, writer))
    store = JournalStore(views, writer, journal, agents, settings.data_dir, clock=clock)
    stack.callback(store.close)
    documents = JournalDocuments(store, clock=clock)
    scrubber = MODE_OF_SETTING[settings.secrets]
    administration = Administration(views, journal, clock=clock, scrubber=scrubber)
    after_runs = AfterRuns(journal, views, clock=clock)

    async def also_due() -> None:
        await administration.sweep_due()
        await after_runs.check()

    retractions = Retractions(views, queries, journal)
    timekeeper = Sweeps(journal, views, clock=clock, also=also_due)
    stack.push_async_callback(timekeeper.stop)
    operators = Operators(views, journal, documents, key=subject_key(settings.data_dir))
    return Memory(
        receipt_log=receipt_log,
        record=receipt_log.record if settings.query_log else no_receipts,
        record_search=receipt_log.keep if settings.query_log else no_record,
        receipts=Receipts(views, journal, receipt_log),
        priorities=Priorities(journal, views),
        timekeeper=timekeeper,
        sweep_now=SweepNow(journal, views, clock=clock, catch_up=timekeeper.catch_up),
        learning=Learning(journal, views, clock=clock, catch_up=timekeeper.catch_up),
        proposals=Proposals(journal, views, retractions, Skills(store)),
        operators=operators,
        bundles=Bundles(views, documents, operators),
        relations=Relations(views, queries, journal),
        retractions=retractions,
        registry=registry,
        agents=agents,
        documents=documents,
        document_store=store,
        administration=administration,
        files=Files(views, store, clock=clock),
        stores=MemoryStores(views, store, registry),
        reindexing=Reindexing(journal, views, clock=clock),
        nudges=NudgeService(views, journal, clock=clock),
        workspace_settings=WorkspaceSettingsService(views, journal, clock=clock),
        knowledge=KnowledgeGraph(views, journal, clock=clock),
    )
