"""Which handler answers which operation.

Invariant: the types of an operation and its handler agree (mypy), and every operation has a handler (a test).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, TypeVar

from pydantic import BaseModel

from ...schemas.operations import (
    agents,
    context,
    conversation,
    embeddings,
    facts,
    health,
    layered,
    learning,
    letters,
    operators,
    palace,
    palace_context,
    palace_filing,
    palace_graph,
    priorities,
    proposals,
    recall,
    relations,
    remembering,
    retractions,
    sweeps,
    tokens,
    tunnels,
    workspaces,
)
from ...schemas.operations.operation import Operation, Request
from ...schemas.operations.remembering import RememberAnswer, RememberRequest
from ...schemas.operations.sweeps import SweepAnswer, SweepRequest
from ...schemas.operations.tokens import (
    BrokerAnswer,
    BrokerRequest,
    RevokeTokenRequest,
    TokenCreatedAnswer,
    TokenRequest,
    TokenRevokedAnswer,
    TokensAnswer,
    TokensRequest,
)
from ...schemas.principal import Principal
from ...schemas.sweep_list import ON_REQUEST
from ..access.tokens import TokenRegistry
from ..desk import Caller, Desk, Handler
from ..layered.use_cases import Layered
from ..memory import block
from ..memory import bundles as bundle_use_cases
from ..memory import files as file_use_cases
from ..memory.agents import Agents
from ..memory.block import MemoryBlocks
from ..memory.bundles import Bundles
from ..memory.calibration import Calibration
from ..memory.conversation import Conversations
from ..memory.documents import administration
from ..memory.documents import reading as document_reading
from ..memory.documents import use_cases as document_use_cases
from ..memory.documents.administration import Administration
from ..memory.documents.use_cases import Documents
from ..memory.files import Files
from ..memory.health import MemoryHealth
from ..memory.learning import Learning
from ..memory.models import EmbeddingModels
from ..memory.nudges import NudgeService
from ..memory.operators import Operators
from ..memory.priorities import Priorities
from ..memory.proposals import Proposals
from ..memory.receipts import Receipts
from ..memory.reindex import Reindexing
from ..memory.relations import Relations
from ..memory.retractions import Retractions
from ..memory.sweep_now import SweepNow
from ..memory.sweeps import Sweeps
from ..memory.workspace_settings import WorkspaceSettingsService
from ..operating.letters import Letters
from ..palace.graph import KnowledgeGraph
from ..palace.use_cases import Palace
from ..query.chunks import combined
from ..query.chunks import documents as chunk_search
from ..query.chunks.combined import MemorySearch
from ..query.chunks.documents import DocumentSearch
from ..query.entries.graph import GraphQueries
from ..query.recall import RecallService
from ..query.render import RenderService

_Q = TypeVar("_Q", bound=Request)
_A = TypeVar("_A", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Handlers:
    """The use-cases whose methods answer operations."""

    recall: RecallService
    render: RenderService
    receipts: Receipts
    remember: Handler[RememberRequest, RememberAnswer]
    conversations: Conversations
    priorities: Priorities
    health: MemoryHealth
    letters: Letters
    relations: Relations
    retractions: Retractions
    graph: GraphQueries
    agents: Agents
    bundles: Bundles
    documents: Documents
    administration: Administration
    blocks: MemoryBlocks
    files: Files
    tokens: TokenRegistry
    broker: Callable[[], BrokerAnswer]
    nudges: NudgeService
    workspace_settings: WorkspaceSettingsService
    calibration: Calibration
    models: EmbeddingModels
    timekeeper: Sweeps
    sweeps: SweepNow
    learning: Learning
    proposals: Proposals
    operators: Operators
    reindexing: Reindexing
    document_search: DocumentSearch
    memory_search: MemorySearch
    knowledge: KnowledgeGraph
    palace: Palace
    layered: Layered


def bind_operations(desk: Desk, use: Handlers) -> None:
    """Bind every operation to its handler."""
    desk.bind(recall.RECALL, _for_principal(use.recall.recall))
    desk.bind(recall.RENDER, _for_principal(use.render.render))
    desk.bind(recall.RECALL_BRIEF, _for_principal(use.render.brief))
    desk.bind(recall.USED, use.receipts.used)
    desk.bind(recall.RECEIPT, use.receipts.show)
    desk.bind(remembering.REMEMBER, use.remember)
    desk.bind(conversation.PUBLISH_ENTRY, use.conversations.publish)
    desk.bind(conversation.CONVERSATION_SEARCH, use.conversations.search)
    desk.bind(priorities.SET_PRIORITY, use.priorities.set)
    desk.bind(health.HEALTH, use.health.latest)
    desk.bind(health.MEASURE_HEALTH, use.health.measure)
    desk.bind(relations.RELATE, use.relations.relate)
    desk.bind(relations.UNRELATE, use.relations.retract)
    desk.bind(relations.GRAPH, use.graph.graph)
    desk.bind(agents.REGISTER_AGENT, use.agents.register)
    desk.bind(agents.UPDATE_AGENT, use.agents.update)
    desk.bind(agents.AGENT, use.agents.get)
    desk.bind(agents.AGENTS, use.agents.list)
    desk.bind(agents.REGISTER_CREW, use.agents.register_crew)
    desk.bind(agents.UPDATE_CREW, use.agents.update_crew)
    desk.bind(agents.CREW, use.agents.get_crew)
    desk.bind(agents.CREWS, use.agents.list_crews)
    desk.bind(retractions.RETRACT, use.retractions.retract)
    desk.bind(retractions.RESTORE, use.retractions.restore)
    desk.bind(learning.CONSOLIDATE, use.learning.consolidate)
    desk.bind(learning.LEARNED_RULES, use.learning.rules)
    desk.bind(learning.ADD_LESSON, use.learning.add_lesson)
    desk.bind(proposals.PROPOSALS, use.proposals.list)
    desk.bind(proposals.EXPLAIN_PROPOSAL, use.proposals.explain)
    desk.bind(proposals.DIFF_PROPOSAL, use.proposals.diff)
    desk.bind(proposals.APPROVE_PROPOSAL, use.proposals.approve)
    desk.bind(proposals.REJECT_PROPOSAL, use.proposals.reject)
    desk.bind(proposals.UNDO_PROPOSAL, use.proposals.undo)
    desk.bind(sweeps.SWEEP, _sweep(use))
    desk.bind(sweeps.SWEEP_EMBEDDINGS, use.sweeps.index)
    desk.bind(sweeps.REINDEX, use.reindexing.request)
    desk.bind(embeddings.EMBEDDING_MODELS, use.models.show)
    desk.bind(embeddings.ADD_MODEL, use.models.add)
    desk.bind(embeddings.ACTIVATE_MODEL, use.models.activate)
    desk.bind(embeddings.DROP_MODEL, use.models.drop)
    desk.bind(workspaces.NUDGES, use.nudges.offer)
    desk.bind(workspaces.CALIBRATE, use.calibration.propose)
    desk.bind(workspaces.WORKSPACE_SETTINGS, use.workspace_settings.get)
    desk.bind(workspaces.CONFIGURE_WORKSPACE, use.workspace_settings.put)
    desk.bind(workspaces.WORKSPACES, use.workspace_settings.list)
    _bind_knowledge(desk, use.knowledge)
    _bind_operators(desk, use.operators)
    _bind_tokens(desk, use.tokens, use.broker)
    _bind_documents(desk, use)
    _bind_palace(desk, use.palace)
    _bind_layered(desk, use.layered)
    desk.bind(letters.DEAD_LETTERS, use.letters.show)
    desk.bind(letters.RETRY_DEAD_LETTER, use.letters.retry)
    desk.bind(letters.DISCARD_DEAD_LETTER, use.letters.discard)


def _bind_documents(desk: Desk, use: Handlers) -> None:
    families: tuple[tuple[object, tuple[tuple[Operation[Any, Any], Callable[..., Any]], ...]], ...] = (
        (use.documents, document_use_cases.ANSWERS),
        (use.documents.reading, document_reading.ANSWERS),
        (use.administration, administration.ANSWERS),
        (use.blocks, block.ANSWERS),
        (use.bundles, bundle_use_cases.ANSWERS),
        (use.files, file_use_cases.ANSWERS),
        (use.document_search, chunk_search.ANSWERS),
        (use.memory_search, combined.ANSWERS),
    )
    for instance, answers in families:
        for operation, method in answers:
            desk.bind(operation, MethodType(method, instance))


def _bind_knowledge(desk: Desk, knowledge: KnowledgeGraph) -> None:
    desk.bind(facts.KG_ADD, knowledge.add)
    desk.bind(facts.KG_QUERY, knowledge.query)
    desk.bind(facts.KG_INVALIDATE, knowledge.invalidate)
    desk.bind(facts.KG_TIMELINE, knowledge.timeline)
    desk.bind(facts.KG_STATS, knowledge.stats)
    desk.bind(facts.KG_ENTITY, knowledge.name)


def _bind_operators(desk: Desk, use: Operators) -> None:
    desk.bind(operators.SHOW_OPERATOR, use.show)
    desk.bind(operators.OPERATORS, use.list)
    desk.bind(operators.FORGET_OPERATOR, use.forget)
    desk.bind(operators.CONSENT, use.consent)
    desk.bind(operators.NAME_OPERATOR, use.name)
    desk.bind(operators.DELETE_OPERATOR, use.delete)
    desk.bind(operators.REPLACE_SUBJECT_KEY, use.replace_key)


def _bind_palace(desk: Desk, use: Palace) -> None:
    reading, filing = use.reading, use.filing
    desk.bind(palace_graph.TRAVERSE, use.navigation.traverse)
    desk.bind(palace_graph.FIND_TUNNELS, use.navigation.tunnels)
    desk.bind(palace_graph.PALACE_GRAPH, use.navigation.figures)
    desk.bind(tunnels.CREATE_TUNNEL, use.tunnels.create)
    desk.bind(tunnels.LIST_TUNNELS, use.tunnels.shown)
    desk.bind(tunnels.DELETE_TUNNEL, use.tunnels.delete)
    desk.bind(tunnels.FOLLOW_TUNNELS, use.tunnels.follow)
    desk.bind(palace.PALACE_STATUS, reading.status)
    desk.bind(palace.PALACE_WINGS, reading.wings)
    desk.bind(palace.PALACE_ROOMS, reading.rooms)
    desk.bind(palace.PALACE_TAXONOMY, reading.taxonomy)
    desk.bind(palace.PALACE_SEARCH, reading.search)
    desk.bind(palace.CHECK_DUPLICATE, reading.duplicates)
    desk.bind(palace.DRAWERS, reading.drawers)
    desk.bind(palace.DRAWER, reading.get)
    desk.bind(palace.DIARY_READ, reading.diary)
    desk.bind(palace.WAKE_UP, reading.wake_up)
    desk.bind(palace.PALACE_RECALL, reading.recall)
    desk.bind(palace_context.PALACE_RENDER, reading.render)
    desk.bind(palace_context.PALACE_CONTEXT, reading.context)
    desk.bind(palace_filing.ADD_DRAWER, filing.add)
    desk.bind(palace_filing.PUT_DRAWER, filing.put)
    desk.bind(palace_filing.IMPORT_DRAWERS, use.importing.run)
    desk.bind(palace_filing.UPDATE_DRAWER, filing.update)
    desk.bind(palace_filing.DELETE_DRAWER, filing.delete)
    desk.bind(palace_filing.RESTORE_DRAWER, filing.restore)
    desk.bind(palace_filing.SET_IDENTITY, filing.set_identity)
    desk.bind(palace_filing.DIARY_WRITE, filing.write_diary)
    desk.bind(palace_filing.PALACE_INGEST, filing.ingest)


def _bind_layered(desk: Desk, use: Layered) -> None:
    desk.bind(layered.LAYERED_WRITE, use.write)
    desk.bind(layered.LAYERED_READ, use.read)
    desk.bind(layered.LAYERED_QUERY, use.query)
    desk.bind(layered.FACT_VERIFY, use.facts.verify)
    desk.bind(layered.FACT_REQUEST_VERIFICATION, use.facts.request_verification)
    desk.bind(layered.FACT_CONFLICTS, use.facts.conflicts)
    desk.bind(context.CONTEXT_ASSEMBLE, use.assembling.assemble)


def _bind_tokens(desk: Desk, registry: TokenRegistry, broker: Callable[[], BrokerAnswer]) -> None:
    async def create(caller: Caller, asked: TokenRequest) -> TokenCreatedAnswer:
        return (await registry.create(caller.principal, asked)).answer()

    async def show(caller: Caller, asked: TokensRequest) -> TokensAnswer:
        return TokensAnswer(tokens=await registry.list(caller.principal, asked.workspace_id))

    async def revoke(caller: Caller, asked: RevokeTokenRequest) -> TokenRevokedAnswer:
        await registry.revoke(caller.principal, asked.token_id)
        return TokenRevokedAnswer(token_id=asked.token_id)

    async def reach(_caller: Caller, _asked: BrokerRequest) -> BrokerAnswer:
        return broker()

    desk.bind(tokens.CREATE_TOKEN, create)
    desk.bind(tokens.TOKENS, show)
    desk.bind(tokens.REVOKE_TOKEN, revoke)
    desk.bind(tokens.BROKER, reach)


def _sweep(use: Handlers) -> Handler[SweepRequest, SweepAnswer]:
    """Wait for a sweep whose events come before its end; of the others only the tick is awaited."""

    async def handle(caller: Caller, asked: SweepRequest) -> SweepAnswer:
        if (sweep := ON_REQUEST[asked.sweep]).on_request == "end":
            return await use.sweeps.run(caller.workspace_id, sweep)
        return await use.timekeeper.run_now(caller, asked)

    return handle


def _for_principal(method: Callable[[Principal, _Q], Awaitable[_A]]) -> Handler[_Q, _A]:
    """A method that finds the workspace and the scope of a recall itself, from the principal."""

    async def handle(caller: Caller, asked: _Q) -> _A:
        return await method(caller.principal, asked)

    return handle
