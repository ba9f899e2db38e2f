"""Hypothesis strategies of control entries, for ``strategies.journals``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from support.events import EPOCH_MS, control
from support.memory_strategies import CONTROL_IDS, IDS, MEMORY

from crew_journal.schemas.access.events import (
    AccountInvited,
    AccountPasswordSet,
    AccountRemoved,
    AgentRegistered,
    CrewRegistered,
    TokenCreated,
    TokenNatsAllowed,
    TokenRevoked,
    WorkspaceConfigured,
)
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.core.sequence_set import SequenceSet
from crew_journal.schemas.core.timestamps import from_ms
from crew_journal.schemas.entries.events import (
    ErasureCompleted,
    ErasureRequested,
    ErasureScoped,
    JournalRestored,
    LossAccepted,
)
from crew_journal.schemas.health.events import HealthMetrics, HealthRecorded
from crew_journal.schemas.models.events import (
    EmbeddingsActivated,
    EmbeddingsAdded,
    EmbeddingsDropped,
    ReindexRequested,
)
from crew_journal.schemas.operate.events import DeadLetterDiscarded, DeadLetterRetried, EventParked
from crew_journal.schemas.recall.events import NudgeOffered
from crew_journal.schemas.relations.events import RelationAsserted, RelationRetracted

_BCRYPT = "$2b$04$" + 52 * "."
_TOKENS = st.builds(
    TokenCreated,
    token_id=st.sampled_from(["k1", "k2"]),
    sha256=st.sampled_from(["0" * 64, "1" * 64]),
    role=st.sampled_from(list(Role)),
    workspace_id=st.sampled_from([None, "w1", "w2"]),
    crew_id=st.sampled_from([None, "c1"]),
    agent_id=st.sampled_from([None, "a1"]),
    may_publish=st.sampled_from([(), ("keeper.*", "approval.denied")]),
    speaks_for=st.sampled_from([(), ("keeper", "user:ann")]),
    expires_at=st.sampled_from([None, datetime(2026, 12, 1, tzinfo=UTC)]),
)
_RELATED = st.sampled_from(
    [
        {"src_entry_id": "e2", "src_seq": 2, "dst_entry_id": "e1", "dst_seq": 1},
        {"src_entry_id": "e1", "src_seq": 1, "dst_entry_id": "e2", "dst_seq": 2},
        {"src_entry_id": "e3", "src_seq": 3, "dst_entry_id": "e1", "dst_seq": 1},
        {"src_entry_id": "e1", "src_seq": 1, "dst_entry_id": "e1", "dst_seq": 1},
        {"src_entry_id": "e5", "src_seq": 500, "dst_entry_id": "e1", "dst_seq": 1},
    ]
)
_RELATIONS = st.sampled_from(["similar", "contradicts", "supports"])
_METRICS = st.sampled_from(
    [
        HealthMetrics(freshness=None, coverage=None, coherence=None, efficiency=None, reachability=None),
        HealthMetrics(freshness=100, coverage=33.3333, coherence=0, efficiency=None, reachability=50),
    ]
)
_HEALTH = st.builds(
    HealthRecorded,
    crew_id=st.sampled_from([None, "c1"]),
    date=st.sampled_from(["2026-11-20", "2026-11-21"]),
    rules=st.just(1),
    metrics=_METRICS,
    score=st.sampled_from([None, 12.5]),
    band=st.sampled_from([None, "red"]),
    legacy=_METRICS,
    legacy_score=st.just(40.0),
    reasons=st.sampled_from([(), ("coverage 3: naïve",)]),
    counts=st.sampled_from([{}, {"indexed": 3, "embeddable": 9}]),
    model=st.sampled_from([None, "mini"]),
)
_ACCOUNTS = st.sampled_from(["p1", "p2"])
_SCOPES = st.sampled_from([SequenceSet(), SequenceSet(sequences="2,4-6", ids=("e1", "e2"))])
_CONTROLS = st.one_of(
    _TOKENS,
    _HEALTH,
    st.builds(ReindexRequested, policy=st.sampled_from([1, 2]), model=st.sampled_from([None, "mini"])),
    st.builds(
        AgentRegistered,
        agent_id=st.sampled_from(["a1", "a2"]),
        crew_id=st.sampled_from([None, "c1"]),
        memory_walk_depth=st.integers(0, 1),
        settings=st.sampled_from([{}, {"n": 2**70}]),
    ),
    st.builds(CrewRegistered, crew_id=st.just("c1"), settings=st.sampled_from([{}, {"a": [1]}])),
    st.builds(
        lambda pair, **said: RelationAsserted(**pair, **said),
        _RELATED,
        relation=_RELATIONS,
        weight=st.sampled_from([0.5, 1.0]),
        reason=st.sampled_from(["", "seen"]),
    ),
    st.builds(lambda pair, **said: RelationRetracted(**pair, **said), _RELATED, relation=_RELATIONS),
    st.builds(
        TokenNatsAllowed,
        token_id=st.sampled_from(["k1", "k2", "k3"]),
        bcrypt=st.sampled_from([_BCRYPT + "a", _BCRYPT + "b"]),
    ),
    st.builds(
        AccountInvited,
        account_id=_ACCOUNTS,
        person=st.just("maria"),
        role=st.sampled_from([Role.OWNER, Role.AGENT]),
        workspace_id=st.sampled_from(["w1", "w2"]),
        agent_id=st.sampled_from([None, "a1"]),
        link_sha256=st.sampled_from(["0" * 64, "1" * 64]),
        link_expires_at=st.just(datetime(2026, 12, 1, tzinfo=UTC)),
    ),
    st.builds(AccountPasswordSet, account_id=_ACCOUNTS, person=st.just("maria")),
    st.builds(AccountRemoved, account_id=_ACCOUNTS, person=st.just("maria")),
    st.builds(TokenRevoked, token_id=st.sampled_from(["k1", "k2", "k3"])),
    st.builds(
        EmbeddingsActivated, model=st.sampled_from(["mini", "nomic"]), embedder=st.just("minilm"), dim=st.just(4)
    ),
    st.builds(EmbeddingsAdded, model=st.sampled_from(["mini", "nomic"]), embedder=st.just("ollama")),
    st.builds(EmbeddingsDropped, model=st.sampled_from(["mini", "nomic"])),
    st.builds(
        EventParked,
        projection=st.sampled_from(["entries", "tokens"]),
        version=st.integers(1, 2),
        seq=st.integers(1, 3),
        subject=st.just("journal.w1.c1.a1.x"),
        reason=st.just("r"),
    ),
    st.builds(
        DeadLetterRetried, projection=st.sampled_from(["entries", "tokens"]), seq=st.integers(1, 3), new_seq=st.just(9)
    ),
    st.builds(
        NudgeOffered,
        agent_id=st.sampled_from(["a1", "a2"]),
        session_id=st.sampled_from(["s1", "s2"]),
        kind=st.sampled_from(["memory", "cost"]),
    ),
    st.builds(
        WorkspaceConfigured,
        cost_nudge_usd=st.sampled_from([0.0, 1.0, 2.5]),
        settings=st.sampled_from([{}, {"n": 2**70, "a": [1]}, {"embed_chat": True}, {"embed_chat": "yes"}]),
    ),
    st.builds(ErasureRequested, erasure_id=st.just("x1"), entry_ids=IDS.map(lambda one: (one,))),
    st.builds(ErasureScoped, erasure_id=st.just("x1"), scope=_SCOPES),
    st.builds(ErasureCompleted, erasure_id=st.just("x1"), counts=st.just({"messages": 2})),
    st.builds(LossAccepted, loss_id=st.just("l1"), lost=_SCOPES),
    st.builds(
        JournalRestored,
        backup_sha256=st.just("ab" * 32),
        made_at=st.just(from_ms(EPOCH_MS)),
        last_seq=st.just(5),
        messages=st.just(5),
    ),
    st.builds(DeadLetterDiscarded, projection=st.sampled_from(["entries", "tokens"]), seq=st.integers(1, 3)),
)


@st.composite
def controls(draw: st.DrawFn) -> OutgoingMessage:
    """A control entry; its payload is sometimes invalid or has unknown fields."""
    of_memory = draw(st.integers(0, 2)) == 0
    made = draw(MEMORY if of_memory else _CONTROLS)
    payload: ControlPayload | Mapping[str, Any] = made
    if (odd := draw(st.integers(0, 8))) < 2:
        whole = odd or isinstance(made, EventParked)  # a view that cannot read an EventParked is suspended: ADR 10
        payload = {**(made.model_dump(mode="json") if whole else {}), "of_the_future": {"n": 1}}
    name = draw(CONTROL_IDS if of_memory else st.sampled_from([f"n{i}" for i in range(1, 8)]))
    workspaces = ["_system", "w1", "w1", "w1", "w2"] if of_memory else ["_system", "w1", "w2"]
    return control(
        payload,
        name,
        entry_type=made.ENTRY_TYPE,
        workspace=draw(st.sampled_from(workspaces)),
        actor_type=draw(st.sampled_from(["system", "user", "agent"])),
        ts_ms=draw(st.sampled_from([EPOCH_MS, EPOCH_MS + 1, EPOCH_MS - 86_400_000])),
    )
