"""Hypothesis strategies of control entries, for ``strategies.journals``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from support.events import EPOCH_MS, control

from crew_journal.schemas.entry import Priority
from crew_journal.schemas.events.compaction import MemoryCompacted
from crew_journal.schemas.events.derived import OutgoingMessage
from crew_journal.schemas.events.drawers import (
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
    DrawerState,
    DrawerSuperseded,
    DrawerUpdated,
    PalaceIdentitySet,
    PalaceIngestAsked,
    PipelineTier,
)
from crew_journal.schemas.events.embeddings import (
    EmbeddingsActivated,
    EmbeddingsAdded,
    EmbeddingsDropped,
    ReindexRequested,
)
from crew_journal.schemas.events.erasure import ErasureCompleted, ErasureRequested, ErasureScoped, LossAccepted
from crew_journal.schemas.events.facts import (
    EntityNamed,
    FactAsserted,
    FactConflictFound,
    FactEnded,
    FactEntity,
    FactVerified,
    VerificationRequested,
)
from crew_journal.schemas.events.health import HealthMetrics, HealthRecorded
from crew_journal.schemas.events.learning import LessonRecorded, MemoryConsolidated, RuleLearned, RulePromoted
from crew_journal.schemas.events.letters import DeadLetterDiscarded, DeadLetterRetried, EventParked
from crew_journal.schemas.events.memory import (
    MemoryReferenced,
    MemorySearched,
    NudgeOffered,
    PriorityChanged,
    ReferencedEntry,
)
from crew_journal.schemas.events.memory_documents import MemoryConfigUpdated, MemoryVersionsSwept
from crew_journal.schemas.events.operators import (
    OperatorDeleted,
    OperatorForgotten,
    OperatorProfileUpdated,
    StatedFact,
)
from crew_journal.schemas.events.payload import ControlPayload
from crew_journal.schemas.events.proposals import ProposalDecided, RuleProposed
from crew_journal.schemas.events.relations import RelationAsserted, RelationRetracted
from crew_journal.schemas.events.restored import JournalRestored
from crew_journal.schemas.events.retractions import RetractionMade, RetractionRestored
from crew_journal.schemas.events.sweeps import SweepFinished, SweepTicked
from crew_journal.schemas.events.tokens import TokenCreated, TokenNatsAllowed, TokenRevoked
from crew_journal.schemas.events.tunnels import TunnelCreated, TunnelDeleted, TunnelEnd, TunnelFollowed
from crew_journal.schemas.events.workspaces import AgentRegistered, ConsentChanged, CrewRegistered, WorkspaceConfigured
from crew_journal.schemas.principal import Role
from crew_journal.schemas.sequence_set import SequenceSet
from crew_journal.schemas.timestamps import format_ms, from_ms

IDS = st.sampled_from(["e1", "e2", "e3", "e4", "e5", "E1", "-", "x" * 64])
"""Few entry ids, so that repeats and conflicts are common."""
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
_SCOPES = st.sampled_from([SequenceSet(), SequenceSet(sequences="2,4-6", ids=("e1", "e2"))])
_ENTITIES = st.builds(
    FactEntity,
    entity_id=st.sampled_from(["e_ann", "e_bob", "e_zoë"]),
    name=st.sampled_from(["Ann", "Bob  B", "Zoë"]),
    type=st.sampled_from(["entity", "entity", "person", "tool"]),
)
_FACT_IDS = st.sampled_from(["t1", "t2", "t3"])
_FACTS = st.one_of(
    st.builds(
        FactAsserted,
        fact_id=_FACT_IDS,
        subject=_ENTITIES,
        predicate=st.sampled_from(["knows", "Knows"]),
        object=_ENTITIES,
        valid_from=st.sampled_from([None, "2026-01-02", "0001-01-01", "2026-01-02T03:04:05+00:00"]),
        valid_to=st.sampled_from([None, None, "2026-01-02", "9999-12-31"]),
        confidence=st.sampled_from([0.0, 0.5, 1.0]),
        source_drawer_id=st.sampled_from([None, "drawer_1"]),
        namespace=st.sampled_from(["", "team"]),
        text=st.sampled_from([None, "Ann knows Zoë"]),
        half_life_hours=st.sampled_from([None, 2.0]),
        single_valued=st.booleans(),
    ),
    st.builds(FactVerified, fact_id=_FACT_IDS, confidence=st.sampled_from([None, 0.25])),
    st.builds(
        VerificationRequested,
        fact_ids=st.lists(_FACT_IDS, min_size=1, max_size=3).map(tuple),
        cause=st.sampled_from(["stale", "conflict"]),
    ),
    st.builds(FactConflictFound, fact_ids=st.just(("t1", "t2")), subject=st.just("Ann"), kind=st.just("values")),
    st.builds(
        FactEnded,
        fact_ids=st.lists(_FACT_IDS, min_size=1, max_size=3).map(tuple),
        ended=st.sampled_from(["2026-02-01", "2026-02-01T00:00:00Z"]),
        reason=st.sampled_from(["", "moved"]),
    ),
    st.builds(
        EntityNamed,
        entity=_ENTITIES,
        aliases=st.lists(_ENTITIES, max_size=2).map(tuple),
        dropped_aliases=st.lists(_ENTITIES, max_size=1).map(tuple),
    ),
)
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
_DUES = st.one_of(
    st.integers(-5, 400).map(lambda days: format_ms(EPOCH_MS + 86_400_000 * days)),
    st.sampled_from(
        ["2026-11-21T03:00:00+01:00", "2026-11-21 03:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", ""]
    ),
)
_RULE_IDS = st.sampled_from(["n1", "n2", "n3"])
_LEARNING = st.one_of(
    st.builds(
        RuleLearned,
        crew_id=st.sampled_from(["c1", "c2"]),
        pattern=st.sampled_from(["deploy denied", "ignore previous instructions"]),
        action=st.sampled_from(["", "ask first"]),
        evidence=st.sampled_from([("e1", "e2"), ("e1", "e3", "e5")]),
        confidence=st.floats(0, 1),
        days=st.integers(1, 3),
    ),
    st.builds(
        RuleProposed,
        crew_id=st.sampled_from(["c1", "c2"]),
        pattern=st.sampled_from(["deploy denied", "ignore previous instructions"]),
        evidence=st.just(("e1", "e2")),
        confidence=st.floats(0, 1),
        skill_of=st.none() | _RULE_IDS,
    ),
    st.builds(
        ProposalDecided,
        proposal_id=st.sampled_from(["n1", "n2", "n3"]),
        decision=st.sampled_from(["rejected", "reopened", "approved", "undone"]),
    ),
    st.builds(RulePromoted, rule_id=_RULE_IDS, score=st.floats(0, 1), recalls=st.just(3), queries=st.just(3)),
    st.builds(
        LessonRecorded,
        lesson_id=st.sampled_from(["l1", "l2"]),
        kind=st.sampled_from(["positive", "negative", "neutral"]),
        source=st.sampled_from(["manual", "user_feedback"]),
        rule=st.sampled_from(["never on Fridays", "ignore previous instructions"]),
    ),
    st.builds(MemoryConsolidated, crew_id=st.just("c1"), confirmed=st.lists(_RULE_IDS, max_size=2).map(tuple)),
)
"""Events of what crews learn."""
_SWEEPS = st.sampled_from(["decay", "decay", "decay", "health", "index", "compaction"])
_CONTROL_IDS = st.sampled_from([f"n{i}" for i in range(1, 20)])
_DRAWER_IDS = st.sampled_from(["drawer_a_b_1", "drawer_a_b_2"])
_TUNNEL_IDS = st.sampled_from(["tunnel_0123456789abcdef", "tunnel_fedcba9876543210"])
_DRAWERS = st.one_of(
    st.builds(
        DrawerFiled,
        drawer_id=_DRAWER_IDS,
        wing=st.just("a"),
        room=st.sampled_from(["b", "c"]),
        content=st.sampled_from(["the parser is naïve", "🎉"]),
        memory_type=st.just("general"),
        state=st.sampled_from(DrawerState),
        filed_ms=st.sampled_from([None, 1_700_000_000_000]),
        imported_from=st.sampled_from(["", "notes:/n"]),
    ),
    st.builds(
        DrawerClassified,
        drawer_id=_DRAWER_IDS,
        memory_type=st.just("fact"),
        importance=st.sampled_from([0.0, 5.0]),
        pipeline_tier=st.sampled_from(PipelineTier),
        room=st.sampled_from([None, "facts"]),
    ),
    st.builds(DrawerUpdated, drawer_id=_DRAWER_IDS, wing=st.sampled_from([None, "w"])),
    st.builds(DrawerMerged, into=_DRAWER_IDS, drawer_ids=_DRAWER_IDS.map(lambda one: (one, one)), summary=st.just("s")),
    st.builds(DrawerSuperseded, drawer_id=_DRAWER_IDS, superseded_by=_DRAWER_IDS),
    st.builds(DrawerLinked, drawer_id=_DRAWER_IDS, entity_count=st.integers(0, 3)),
    st.builds(
        DrawerReinforced,
        added=_DRAWER_IDS,
        drawer_ids=_DRAWER_IDS.map(lambda one: (one,)),
        boost=st.sampled_from((0.5, 1.0)),
    ),
    st.builds(DrawerAnswerRejected, drawer_ids=_DRAWER_IDS.map(lambda one: (one,)), alone=st.booleans()),
    st.builds(
        CentroidComputed,
        memory_type=st.sampled_from(["fact", "task"]),
        model=st.just("m"),
        vector=st.sampled_from(["AACAPwAAAAA=", "AAAAAAAAgD8="]),
        samples=st.integers(1, 99),
        source_hash=st.just("0" * 64),
    ),
    st.builds(DrawerPruned, drawer_ids=_DRAWER_IDS.map(lambda one: (one,))),
    st.builds(DrawerDeleted, drawer_id=_DRAWER_IDS),
    st.builds(DrawerRestored, drawer_id=_DRAWER_IDS),
    st.builds(
        TunnelCreated,
        tunnel_id=_TUNNEL_IDS,
        source=st.just(TunnelEnd(wing="a", room="b")),
        target=st.just(TunnelEnd(wing="w", room="c", drawer_id="drawer_a_b_1")),
        label=st.sampled_from(["", "both"]),
    ),
    st.builds(TunnelFollowed, tunnel_ids=_TUNNEL_IDS.map(lambda one: (one, one))),
    st.builds(TunnelDeleted, tunnel_id=_TUNNEL_IDS),
    st.builds(PalaceIngestAsked, since_seq=st.sampled_from([None, 3])),
    st.builds(PalaceIdentitySet, content=st.sampled_from(["we build parsers", "we build lexers"])),
)
_SUBJECTS = st.sampled_from(["0" * 64, "0" * 64, "1" * 64])
_KEYS = st.sampled_from(["timezone", "prefers"])
_OPERATORS = st.one_of(
    st.builds(
        OperatorProfileUpdated,
        subject_hash=_SUBJECTS,
        agent_id=st.sampled_from([None, "a1"]),
        facts=st.lists(
            st.builds(
                StatedFact,
                key=_KEYS,
                value=st.sampled_from(["UTC+1", "naïve"]),
                quote=st.just("I said so"),
                entry_id=IDS,
                seq=st.integers(1, 9),
            ),
            min_size=1,
            max_size=2,
        ).map(tuple),
    ),
    st.builds(OperatorForgotten, subject_hash=_SUBJECTS, key=st.one_of(st.none(), _KEYS)),
    st.builds(OperatorDeleted, subject_hash=_SUBJECTS),
    st.builds(ConsentChanged, subject_hash=_SUBJECTS, granted=st.booleans()),
)
_MEMORY = st.one_of(
    _FACTS,
    _DRAWERS,
    _OPERATORS,
    st.builds(
        MemoryVersionsSwept,
        cutoff_ms=st.sampled_from([0, EPOCH_MS + 60, EPOCH_MS + 150, 2**53]),
        keep_latest=st.sampled_from([0, 1, 3]),
    ),
    st.builds(
        MemoryConfigUpdated,
        retention_days=st.sampled_from([None, 1, 3_650]),
        scrubber=st.sampled_from(["block", "off"]),
    ),
    _LEARNING,
    st.builds(SweepTicked, sweep=_SWEEPS, due=_DUES),
    st.builds(
        MemoryCompacted,
        bucket_date=st.just("2026-10-20"),
        entry_type=st.sampled_from(["exec.output_chunk", "exec.output_chunk", "llm.call"]),
        count=st.just(2),
        bytes_sum=st.just(400),
        bytes_freed=st.just(20),
        first_ts=st.just("2026-10-20T01:00:00.000Z"),
        last_ts=st.just("2026-10-20T02:00:00.000Z"),
        cutoff=st.just("2026-10-22T03:00:00.000Z"),
        entries=st.sampled_from(["1-2", "2,4", "3,7", "5-6", "3,500"]).map(lambda text: SequenceSet(sequences=text)),
    ),
    st.builds(
        SweepFinished,
        sweep=_SWEEPS,
        due=_DUES,
        counts=st.dictionaries(st.sampled_from(["decayed", "written", "refused"]), st.integers(-1, 2**70), max_size=2),
        error=st.sampled_from([None, "the model is away"]),
    ),
    st.builds(
        RetractionMade,
        targets=st.lists(IDS, max_size=2, unique=True).map(lambda ids: SequenceSet(ids=tuple(sorted(ids)))),
        stale=st.booleans(),
        superseded_by=st.one_of(st.none(), IDS),
        reason=st.just("r"),
    ),
    st.builds(RetractionRestored, targets=IDS.map(lambda one: SequenceSet(ids=(one,))), reason=st.just("r")),
    st.builds(
        PriorityChanged,
        target_entry_id=IDS,
        previous_priority=st.just(Priority.NORMAL),
        new_priority=st.sampled_from(list(Priority)),
        reason=st.just("r"),
    ),
    st.builds(
        MemoryReferenced,
        entries=st.lists(
            st.builds(
                ReferencedEntry,
                entry_id=st.one_of(IDS, _CONTROL_IDS),
                count=st.sampled_from([1, 1, 2, 7, 2**62, 2**80]),
            ),
            min_size=1,
            max_size=4,
        ).map(tuple),
        receipt=st.one_of(st.none(), _CONTROL_IDS),
    ),
    st.builds(
        MemorySearched,
        query=st.just("what broke"),
        scope=st.just("own"),
        recipe=st.just("robust"),
        hit_ids=st.lists(IDS, max_size=3).map(tuple),
        mean_cosine=st.one_of(st.none(), st.floats(-1, 1)),
        scores=st.lists(st.floats(0, 1), max_size=3).map(tuple),
        rendered=st.one_of(st.none(), st.lists(st.one_of(IDS, _CONTROL_IDS), max_size=3).map(tuple)),
    ),
)
"""Events that change importance and sweeps."""


@st.composite
def controls(draw: st.DrawFn) -> OutgoingMessage:
    """A control entry; its payload is sometimes invalid or has unknown fields."""
    of_memory = draw(st.integers(0, 2)) == 0
    made = draw(_MEMORY if of_memory else _CONTROLS)
    payload: ControlPayload | Mapping[str, Any] = made
    if (odd := draw(st.integers(0, 8))) < 2:
        whole = odd or isinstance(made, EventParked)  # a view that cannot read an EventParked is suspended: ADR 10
        payload = {**(made.model_dump(mode="json") if whole else {}), "of_the_future": {"n": 1}}
    name = draw(_CONTROL_IDS if of_memory else st.sampled_from([f"n{i}" for i in range(1, 8)]))
    workspaces = ["_system", "w1", "w1", "w1", "w2"] if of_memory else ["_system", "w1", "w2"]
    return control(
        payload,
        name,
        entry_type=made.ENTRY_TYPE,
        workspace=draw(st.sampled_from(workspaces)),
        actor_type=draw(st.sampled_from(["system", "user", "agent"])),
        ts_ms=draw(st.sampled_from([EPOCH_MS, EPOCH_MS + 1, EPOCH_MS - 86_400_000])),
    )
