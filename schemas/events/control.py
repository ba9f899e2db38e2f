"""The payload model of every control entry that the service publishes.

Invariant: none is missing (a test).
"""

from __future__ import annotations

from typing import Final

from .compaction import MemoryCompacted
from .drawers import (
    CentroidComputed,
    DrawerAnswerRejected,
    DrawerClassified,
    DrawerDeleted,
    DrawerFiled,
    DrawerLinked,
    DrawerMerged,
    DrawerPruned,
    DrawerReinforced,
    DrawerRestored,
    DrawerSuperseded,
    DrawerUpdated,
    PalaceIdentitySet,
    PalaceIngestAsked,
)
from .embeddings import EmbeddingsActivated, EmbeddingsAdded, EmbeddingsDropped, ReindexRequested
from .erasure import ErasureCompleted, ErasureRequested, ErasureScoped, LossAccepted
from .facts import EntityNamed, FactAsserted, FactConflictFound, FactEnded, FactVerified, VerificationRequested
from .health import HealthRecorded
from .learning import LessonRecorded, MemoryConsolidated, RuleLearned, RulePromoted
from .letters import DeadLetterDiscarded, DeadLetterRetried, EventParked
from .memory import MemoryReferenced, MemorySearched, NudgeOffered, PriorityChanged
from .memory_documents import (
    MemoryConfigUpdated,
    MemoryVersionsSwept,
    MemoryWriteRejected,
    MemoryWriteVerifierBlocked,
)
from .operators import OperatorDeleted, OperatorForgotten, OperatorKeyReplaced, OperatorNamed, OperatorProfileUpdated
from .payload import ControlPayload
from .proposals import ProposalDecided, RuleProposed
from .relations import RelationAsserted, RelationRetracted
from .restored import JournalRestored
from .retractions import RetractionMade, RetractionRestored
from .sweeps import SweepFinished, SweepTicked
from .tokens import TokenCreated, TokenNatsAllowed, TokenRevoked
from .tools import ToolCalled
from .tunnels import TunnelCreated, TunnelDeleted, TunnelFollowed
from .workspaces import AgentRegistered, ConsentChanged, CrewRegistered, WorkspaceConfigured

CONTROL_PAYLOADS: Final[tuple[type[ControlPayload], ...]] = (
    TokenCreated,
    TokenNatsAllowed,
    TokenRevoked,
    EmbeddingsActivated,
    EmbeddingsAdded,
    EmbeddingsDropped,
    ReindexRequested,
    EventParked,
    DeadLetterRetried,
    DeadLetterDiscarded,
    PriorityChanged,
    MemoryReferenced,
    MemorySearched,
    NudgeOffered,
    RelationAsserted,
    RelationRetracted,
    RetractionMade,
    RetractionRestored,
    ToolCalled,
    HealthRecorded,
    WorkspaceConfigured,
    AgentRegistered,
    CrewRegistered,
    ConsentChanged,
    SweepFinished,
    SweepTicked,
    MemoryCompacted,
    ErasureRequested,
    ErasureScoped,
    ErasureCompleted,
    LossAccepted,
    JournalRestored,
    MemoryConfigUpdated,
    MemoryVersionsSwept,
    MemoryWriteRejected,
    MemoryWriteVerifierBlocked,
    FactAsserted,
    FactEnded,
    FactVerified,
    VerificationRequested,
    FactConflictFound,
    EntityNamed,
    DrawerFiled,
    DrawerClassified,
    DrawerUpdated,
    DrawerMerged,
    DrawerSuperseded,
    DrawerLinked,
    DrawerReinforced,
    DrawerAnswerRejected,
    CentroidComputed,
    DrawerPruned,
    DrawerDeleted,
    DrawerRestored,
    PalaceIdentitySet,
    PalaceIngestAsked,
    TunnelCreated,
    TunnelFollowed,
    TunnelDeleted,
    RuleLearned,
    RulePromoted,
    LessonRecorded,
    MemoryConsolidated,
    RuleProposed,
    ProposalDecided,
    OperatorProfileUpdated,
    OperatorForgotten,
    OperatorDeleted,
    OperatorNamed,
    OperatorKeyReplaced,
)


def control_payloads() -> dict[str, type[ControlPayload]]:
    """Every control payload model by its entry type."""
    return {model.ENTRY_TYPE: model for model in CONTROL_PAYLOADS}
