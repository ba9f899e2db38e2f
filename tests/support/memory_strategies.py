"""Hypothesis strategies of the events of memory: facts, drawers, operators, learning, sweeps, importance."""

from __future__ import annotations

from hypothesis import strategies as st
from support.events import EPOCH_MS

from crew_journal.schemas.access.events import ConsentChanged
from crew_journal.schemas.core.entry import Priority
from crew_journal.schemas.core.sequence_set import SequenceSet
from crew_journal.schemas.core.timestamps import format_ms
from crew_journal.schemas.documents.events import MemoryConfigUpdated, MemoryVersionsSwept
from crew_journal.schemas.entries.events import MemoryCompacted
from crew_journal.schemas.facts.events import (
    EntityNamed,
    FactAsserted,
    FactConflictFound,
    FactEnded,
    FactEntity,
    FactVerified,
    VerificationRequested,
)
from crew_journal.schemas.learning.events import (
    LessonRecorded,
    MemoryConsolidated,
    ProposalDecided,
    RuleChanged,
    RuleLearned,
    RulePromoted,
    RuleProposed,
)
from crew_journal.schemas.operators.events import (
    OperatorDeleted,
    OperatorForgotten,
    OperatorKeyReplaced,
    OperatorNamed,
    OperatorProfileUpdated,
    StatedFact,
)
from crew_journal.schemas.palace.events import (
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
    TunnelCreated,
    TunnelDeleted,
    TunnelEnd,
    TunnelFollowed,
)
from crew_journal.schemas.recall.events import MemoryReferenced, MemorySearched, PriorityChanged, ReferencedEntry
from crew_journal.schemas.standing.events import Retired, RetractionMade, RetractionRestored, StatementCorrected
from crew_journal.schemas.sweeps.events import SweepFinished, SweepTicked

IDS = st.sampled_from(["e1", "e2", "e3", "e4", "e5", "E1", "-", "x" * 64])
"""Few entry ids, so that repeats and conflicts are common."""
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
        retires=st.booleans(),
        steps=st.sampled_from([(), ("freeze the branch", "sign the build")]),
    ),
    st.builds(
        ProposalDecided,
        proposal_id=st.sampled_from(["n1", "n2", "n3"]),
        decision=st.sampled_from(["rejected", "reopened", "approved", "undone"]),
    ),
    st.builds(
        RuleChanged,
        rule_id=_RULE_IDS,
        state=st.sampled_from(("confirmed", "disputed", "unhelpful", "contradicted", "expired")),
        evidence=st.just(("e1", "e2")),
        by=st.just(("e3",)),
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
CONTROL_IDS = st.sampled_from([f"n{i}" for i in range(1, 20)])
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
_KEY_IDS = st.sampled_from([None, "a" * 16, "a" * 16, "b" * 16])
_CONSENTS = st.sampled_from([True, True, False])
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
    st.builds(ConsentChanged, subject_hash=_SUBJECTS, granted=_CONSENTS, key_id=_KEY_IDS),
    st.builds(OperatorNamed, subject_hash=_SUBJECTS, person_hash=_SUBJECTS, declared=_CONSENTS, key_id=_KEY_IDS),
    st.builds(OperatorKeyReplaced, key_id=st.sampled_from(["a" * 16, "b" * 16])),
)
_RETIRED = st.one_of(
    st.builds(
        Retired, kind=st.just("entry"), id=IDS, by=st.one_of(st.none(), IDS), since_ms=st.sampled_from([None, 5])
    ),
    st.builds(Retired, kind=st.just("drawer"), id=_DRAWER_IDS, by=st.one_of(st.none(), _DRAWER_IDS)),
    st.builds(Retired, kind=st.just("fact"), id=_FACT_IDS, by=st.one_of(st.none(), _FACT_IDS)),
)
MEMORY = st.one_of(
    st.builds(StatementCorrected, retired=st.lists(_RETIRED, min_size=1, max_size=4).map(tuple), reason=st.just("r")),
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
        retention=st.sampled_from([None, {}, {"chat.*": 30, "tier:daily": 1}]),
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
                entry_id=st.one_of(IDS, CONTROL_IDS),
                count=st.sampled_from([1, 1, 2, 7, 2**62, 2**80]),
            ),
            min_size=1,
            max_size=4,
        ).map(tuple),
        receipt=st.one_of(st.none(), CONTROL_IDS),
    ),
    st.builds(
        MemorySearched,
        query=st.just("what broke"),
        scope=st.just("own"),
        recipe=st.just("robust"),
        hit_ids=st.lists(IDS, max_size=3).map(tuple),
        mean_cosine=st.one_of(st.none(), st.floats(-1, 1)),
        scores=st.lists(st.floats(0, 1), max_size=3).map(tuple),
        rendered=st.one_of(st.none(), st.lists(st.one_of(IDS, CONTROL_IDS), max_size=3).map(tuple)),
    ),
)
"""Events that change importance and sweeps."""
