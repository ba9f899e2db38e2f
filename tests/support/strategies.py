"""Journals to fold, as hypothesis draws them: few ids and workspaces, so that repeats and conflicts are common.

Biased towards the nasty cases: broken messages, hostile text, facts of entries that are not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from support.events import EPOCH_MS, chunk_vector, control, entry, link, token_bits, vector
from support.format_strategies import RARE_FIELDS, documents

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.schemas.entry import Priority
from crew_journal.schemas.events import headers as h
from crew_journal.schemas.events.derived import OutgoingMessage
from crew_journal.schemas.events.embeddings import (
    EmbeddingsActivated,
    EmbeddingsAdded,
    EmbeddingsDropped,
    ReindexRequested,
)
from crew_journal.schemas.events.erasure import ErasureCompleted, ErasureRequested, ErasureScoped, LossAccepted
from crew_journal.schemas.events.health import HealthMetrics, HealthRecorded
from crew_journal.schemas.events.letters import DeadLetterDiscarded, DeadLetterRetried, EventParked
from crew_journal.schemas.events.memory import (
    MemoryReferenced,
    MemorySearched,
    NudgeOffered,
    PriorityChanged,
    ReferencedEntry,
)
from crew_journal.schemas.events.memory_documents import MemoryConfigUpdated, MemoryVersionsSwept
from crew_journal.schemas.events.payload import ControlPayload
from crew_journal.schemas.events.relations import RelationAsserted, RelationRetracted
from crew_journal.schemas.events.retractions import RetractionMade, RetractionRestored
from crew_journal.schemas.events.sweeps import SweepFinished, SweepTicked
from crew_journal.schemas.events.tokens import TokenCreated, TokenNatsAllowed, TokenRevoked
from crew_journal.schemas.events.workspaces import AgentRegistered, CrewRegistered, WorkspaceConfigured
from crew_journal.schemas.principal import Role
from crew_journal.schemas.rules.embed_policy import REMEMBERED
from crew_journal.schemas.sequence_set import SequenceSet
from crew_journal.schemas.timestamps import format_ms

_IDS = st.sampled_from(["e1", "e2", "e3", "e4", "e5", "E1", "-", "x" * 64])
_WORKSPACES = st.sampled_from(["w1", "w1", "w2", "W1"])
_WORDS = st.sampled_from(
    [
        "deploy",
        "deployed",
        "the",
        "Größe",
        "ﬁnal",
        "İstanbul",
        "日本語",
        "naïve",
        "don't",
        "a_b",
        "x1",
        "42",
        "\x00",
        "🦜",
        "ß",
        "Ⅷ",
        "I",
        "yesterday",
        "last Friday",
        "vor 2 Wochen",
        "7 May 2023",
        "why?",
    ]
)
_TEXTS = st.one_of(
    st.lists(_WORDS, min_size=1, max_size=12).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    st.just("word " * 399 + "end"),
    st.just("i"),
)
_JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), _TEXTS
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)),
    max_leaves=8,
)
_PAYLOADS = st.one_of(
    st.just({}),
    st.dictionaries(st.sampled_from(["run_id", "state", "question", "data", ""]), _JSON, max_size=3),
    st.just({"run_id": "r1", "state": "escalated"}),
    st.just({"deep": [[[[[[[["too deep"]]]]]]]]}),
    st.just({"long": "lorem ipsum dolor " * 5_000}),
)
_TYPES = st.sampled_from(
    [
        "run.completed",
        "peer.conversation",
        "chat.user_message",
        "peer.escalation",
        "exec.output_chunk",
        "keeper.decision",
        REMEMBERED,
    ]
)
_TIMES = st.one_of(
    st.integers(EPOCH_MS, EPOCH_MS + 10**9), st.sampled_from([0, -1, -62_135_596_800_000, 253_402_300_799_999])
)


@st.composite
def entries(draw: st.DrawFn) -> OutgoingMessage:
    """An entry of an agent; its summary may be blank or too long, which ``decode`` refuses."""
    return entry(  # type: ignore[arg-type]  # an object of JSON
        draw(st.one_of(_IDS, st.none())),
        summary=draw(st.one_of(_TEXTS, _TEXTS, _TEXTS, st.sampled_from([" ", "x" * 2_001, "y" * 2_000]))),
        workspace=draw(_WORKSPACES),
        crew=draw(st.sampled_from(["c1", "c2", None])),
        agent=draw(st.sampled_from(["a1", "a2", None])),
        entry_type=draw(_TYPES),
        ts_ms=draw(_TIMES),
        severity=draw(st.sampled_from(["info", "warn", "error", "loud"])) if draw(st.booleans()) else "info",
        payload=draw(_PAYLOADS),
        refs=draw(st.sampled_from([{}, {"episodic": True}, {"parent_entry_id": "e1"}])),
        trace_id=draw(st.sampled_from([None, "", "t1"])),
        **draw(RARE_FIELDS),
    )


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
    st.builds(ErasureRequested, erasure_id=st.just("x1"), entry_ids=_IDS.map(lambda one: (one,))),
    st.builds(ErasureScoped, erasure_id=st.just("x1"), scope=_SCOPES),
    st.builds(ErasureCompleted, erasure_id=st.just("x1"), counts=st.just({"messages": 2})),
    st.builds(LossAccepted, loss_id=st.just("l1"), lost=_SCOPES),
    st.builds(DeadLetterDiscarded, projection=st.sampled_from(["entries", "tokens"]), seq=st.integers(1, 3)),
)
_DUES = st.one_of(
    st.integers(-5, 400).map(lambda days: format_ms(EPOCH_MS + 86_400_000 * days)),
    st.sampled_from(
        ["2026-11-21T03:00:00+01:00", "2026-11-21 03:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", ""]
    ),
)
_SWEEPS = st.sampled_from(["decay", "decay", "decay", "health", "index"])
_CONTROL_IDS = st.sampled_from([f"n{i}" for i in range(1, 20)])
_MEMORY = st.one_of(
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
    st.builds(SweepTicked, sweep=_SWEEPS, due=_DUES),
    st.builds(
        SweepFinished,
        sweep=_SWEEPS,
        due=_DUES,
        counts=st.dictionaries(st.sampled_from(["decayed", "written", "refused"]), st.integers(-1, 2**70), max_size=2),
        error=st.sampled_from([None, "the model is away"]),
    ),
    st.builds(
        RetractionMade,
        targets=st.lists(_IDS, max_size=2, unique=True).map(lambda ids: SequenceSet(ids=tuple(sorted(ids)))),
        stale=st.booleans(),
        superseded_by=st.one_of(st.none(), _IDS),
        reason=st.just("r"),
    ),
    st.builds(RetractionRestored, targets=_IDS.map(lambda one: SequenceSet(ids=(one,))), reason=st.just("r")),
    st.builds(
        PriorityChanged,
        target_entry_id=_IDS,
        previous_priority=st.just(Priority.NORMAL),
        new_priority=st.sampled_from(list(Priority)),
        reason=st.just("r"),
    ),
    st.builds(
        MemoryReferenced,
        entries=st.lists(
            st.builds(ReferencedEntry, entry_id=_IDS, count=st.sampled_from([1, 1, 2, 7, 2**62, 2**80])),
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
        hit_ids=st.lists(_IDS, max_size=3).map(tuple),
        mean_cosine=st.one_of(st.none(), st.floats(-1, 1)),
        scores=st.lists(st.floats(0, 1), max_size=3).map(tuple),
        rendered=st.one_of(st.none(), st.lists(_IDS, max_size=3).map(tuple)),
    ),
)
"""What acts on importance and sweeps; the workspaces are mostly those of the entries."""


@st.composite
def controls(draw: st.DrawFn) -> OutgoingMessage:
    """A control entry, sometimes with a payload that is none."""
    of_memory = draw(st.integers(0, 2)) == 0
    made = draw(_MEMORY if of_memory else _CONTROLS)
    payload: ControlPayload | Mapping[str, Any] = made
    if (odd := draw(st.integers(0, 8))) < 2:
        whole = odd or isinstance(made, EventParked)  # a view that cannot read of a parking is suspended: ADR 10
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


@st.composite
def vectors(draw: st.DrawFn) -> OutgoingMessage:
    """A vector fact, often for an entry that is not there, sometimes a tombstone or broken."""
    made = vector(
        draw(_IDS),
        entry_seq=draw(st.integers(1, 3)),
        model=draw(st.sampled_from(["mini", "nomic"])),
        dim=draw(st.sampled_from([0, 1, 4])),
        seed=draw(st.integers(0, 3)),
        workspace=draw(_WORKSPACES),
    )
    if draw(st.integers(0, 9)) == 0:
        made.headers.pop(draw(st.sampled_from([h.DIM, h.MODEL, h.TS])))
    return made


@st.composite
def links(draw: st.DrawFn) -> OutgoingMessage:
    """A link fact either way round, sometimes of an entry with itself or of the future."""
    ends = [("e1", 1), ("e2", 2), ("e3", 3), ("e4", 400)]
    (src, src_seq), (dst, dst_seq) = draw(st.sampled_from(ends)), draw(st.sampled_from(ends))
    return link(
        src,
        dst,
        src_seq=src_seq,
        dst_seq=dst_seq,
        relation=draw(st.sampled_from(["similar", "similar", "contradicts", "supports", "likes"])),
        weight=draw(st.sampled_from([0.8, 0.9, 1.0])),
        workspace=draw(_WORKSPACES),
        crew=draw(st.sampled_from(["c1", None])),
        reason=draw(st.sampled_from(["", "3 is not 4"])),
    )


@st.composite
def rules(draw: st.DrawFn) -> OutgoingMessage:
    """A consolidated rule with evidence, of an operator or (which does not count) of an agent."""
    evidence = draw(
        st.sampled_from([[], ["e1"], ["e1", "e2", "e1"], ["e3", 7, "", "no id!"], "e1", None, ["r1", "e1"]])
    )
    operator = draw(st.booleans())
    return entry(
        draw(st.sampled_from(["r1", "r2"])),
        summary="parser builds need a clean cache",
        workspace=draw(_WORKSPACES),
        crew=None if operator else "c1",
        agent=None if operator else "a1",
        entry_type="memory.consolidated",
        control=operator,
        refs={"evidence": evidence},
    )


@st.composite
def token_facts(draw: st.DrawFn) -> OutgoingMessage:
    """A fact about tokens, often for an entry that is not there, sometimes broken."""
    made = token_bits(
        draw(_IDS),
        entry_seq=draw(st.integers(1, 3)),
        model=draw(st.sampled_from(["mini", "nomic"])),
        tokens=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 3)),
        workspace=draw(_WORKSPACES),
    )
    if draw(st.integers(0, 9)) == 0:
        made.headers[draw(st.sampled_from([h.DIM, h.QUANTISER, h.FIRST_PASSAGE]))] = draw(
            st.sampled_from(["", "0", "9", "-1", "x"])
        )
    return made


@st.composite
def chunk_vectors(draw: st.DrawFn) -> OutgoingMessage:
    """The vector of a text of documents, sometimes a tombstone, sometimes broken."""
    made = chunk_vector(
        draw(st.sampled_from(["the parser is green", "a clean cache"])),
        draw(st.sampled_from([(1.0, 0.0), (0.0, 1.0), ()])),
        model=draw(st.sampled_from(["mini", "nomic"])),
        workspace=draw(_WORKSPACES),
    )
    if draw(st.integers(0, 9)) == 0:
        made.headers[draw(st.sampled_from([h.DIM, h.TEXT_HASH, h.DERIVED_FROM]))] = draw(
            st.sampled_from(["", "9", "-1", "x"])
        )
    return made


_BROKEN = st.sampled_from(
    [
        OutgoingMessage("journal.w1.c1.a1.x", b"", {}),
        OutgoingMessage("journal.w1.c1.a1.x", b"\xff\xfe", {}),
        OutgoingMessage("journal.w1.c1.a1.x", b'{"summary": "\\ud800", "id": "s1"}', {}),
        OutgoingMessage("journal.w1.c1.a1.x", b'{"id": "no summary"}', {}),
        OutgoingMessage("journal.w1.c1.a1.x", b'{"summary": "other workspace", "workspace_id": "w2"}', {}),
        OutgoingMessage("journal.w1.c1.a1.token.created", b'{"summary": "not yours"}', {}),
        OutgoingMessage("journal.w1", b"{}", {}),
        OutgoingMessage("unknown.w1.x", b"{}", {}),
        OutgoingMessage("derived.w1.link", b"[]", {}),
        OutgoingMessage("derived.w1.of_the_future", b"anything", {}),
        OutgoingMessage("document.w1.a1.AGENT._", b'{"content": "notes"}', {}),
        OutgoingMessage("journal.w1.c1.a1.x", b"[" * 100_000, {}),
    ]
)


@st.composite
def journals(draw: st.DrawFn, max_messages: int = 30) -> list[RawMessage]:
    """A stream: consecutive messages with gaps of erased ones and repeats of earlier ones."""
    kinds = st.one_of(
        entries(),
        entries(),
        controls(),
        vectors(),
        token_facts(),
        chunk_vectors(),
        links(),
        rules(),
        documents(),
        documents(),
        documents(),
        _BROKEN,
    )
    made = draw(st.lists(kinds, min_size=1, max_size=max_messages))
    seq = 0
    stream: list[RawMessage] = []
    for message in made:
        seq += draw(st.sampled_from([1, 1, 1, 1, 2, 7]))
        repeated = bool(stream) and draw(st.integers(0, 5)) == 0
        again = draw(st.sampled_from(stream)) if repeated else None
        published = EPOCH_MS + 10 * seq
        if again is not None:
            stream.append(RawMessage(seq, again.subject, again.headers, again.data, published))
        else:
            stream.append(RawMessage(seq, message.subject, message.headers or None, message.body, published))
    return stream
