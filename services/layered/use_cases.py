"""Layered memory of a node: the use-cases that write it, read it, and assemble contexts of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from ...schemas.operations.layered import (
    LayeredQueryAnswer,
    LayeredQueryRequest,
    LayeredReadAnswer,
    LayeredReadRequest,
    LayeredWriteAnswer,
    LayeredWriteRequest,
)
from ...schemas.ports import ViewReader
from ...schemas.rules.text import Analyzer
from ...schemas.settings import LayeredSettings
from ...schemas.views import FACTS_PROJECTION
from ..desk import Caller
from ..journal.intake.recorder import Recorder
from ..kept import Kept
from ..memory.block import DocumentsByOwner
from ..memory.documents.use_cases import JournalDocuments
from ..memory.registry import Registry
from ..palace.graph import KnowledgeGraph
from ..palace.use_cases import Palace
from ..query.chunks.documents import RecordSearch
from ..query.entries.queries import JournalQueries
from ..query.recall import RecallService
from .assembling import Assembling, Tokenizer
from .choices import LayeredChoices, kept_choices
from .fact_index import FactIndexes
from .facts import LayeredFacts
from .memories import Memories
from .moment import Moments
from .procedures import Procedures
from .runs import Runs, since_of
from .uses import UseCounts


@dataclass(frozen=True, slots=True)
class Layered:
    """The use-cases."""

    facts: LayeredFacts
    procedures: Procedures
    runs: Runs
    assembling: Assembling
    uses: UseCounts
    choices: Kept[str, LayeredChoices]
    views: ViewReader
    moments: Moments

    @classmethod
    def over(
        cls,
        views: ViewReader,
        journal: Recorder,
        graph: KnowledgeGraph,
        palace: Palace,
        documents: JournalDocuments,
        owned: DocumentsByOwner,
        registry: Registry,
        queries: JournalQueries,
        recall: RecallService,
        analyzer: Analyzer,
        record: RecordSearch,
        settings: LayeredSettings,
        clock: Callable[[], datetime],
        tokenizer: Tokenizer | None = None,
    ) -> Layered:
        """The layered memory that these views show.

        Args:
            views: The views.
            journal: Records verifications.
            graph: Records facts.
            palace: Its drawers.
            documents: Procedures.
            owned: The present documents by owner.
            registry: The registered agents.
            queries: Reads entries.
            recall: Recalls entries.
            analyzer: Turns texts into terms.
            record: Records which memories are in a context.
            settings: The node's settings.
            clock: The time now, UTC.
            tokenizer: Counts tokens; an estimate if absent.
        """
        choices, moments = kept_choices(LayeredChoices.of(settings), views), Moments(clock)
        indexes = FactIndexes(views, analyzer, budget_bytes=recall.indexes.status.budget_bytes)
        uses = UseCounts(views)
        facts = LayeredFacts(views, journal, graph, indexes, choices, uses, moments, recall.embed)
        runs = Runs(queries)
        memories = Memories(views, uses, facts, recall, runs, palace, owned, registry, analyzer)
        assembling = Assembling(views, memories, indexes, record, choices, tokenizer or Tokenizer(), moments)
        return cls(facts, Procedures(documents), runs, assembling, uses, choices, views, moments)

    def close(self) -> None:
        """Stop following the views."""
        self.uses.close()
        self.choices.close()
        self.assembling.close()

    async def write(self, caller: Caller, asked: LayeredWriteRequest) -> LayeredWriteAnswer:
        """Write a fact or a procedure."""
        return await (self.facts if asked.kind == "fact" else self.procedures).write(caller, asked)

    async def read(self, caller: Caller, asked: LayeredReadRequest) -> LayeredReadAnswer:
        """Read a fact, a procedure, or the working memory of a run."""
        if asked.kind == "procedure":
            return await self.procedures.read(caller, asked)
        if asked.kind == "working":
            return await self.runs.working(caller, asked.name)
        fact = await self.facts.read(caller, asked.name)
        return LayeredReadAnswer(kind="fact", fact=fact, view_seq=self.views.view_seq(FACTS_PROJECTION))

    async def query(self, caller: Caller, asked: LayeredQueryRequest) -> LayeredQueryAnswer:
        """Query episodes, facts or procedures."""
        if asked.kind == "procedure":
            return await self.procedures.query(caller, asked)
        if asked.kind == "fact":
            return await self.facts.query(caller, asked)
        choices = await self.choices.of(caller.workspace_id)
        return await self.runs.episodes(caller, asked, since_of(choices.episodic_ttl_hours, self.moments.ms(asked.now)))
