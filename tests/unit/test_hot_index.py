"""A hot index answers alike however it came to be, and shows nothing of what is out of scope."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recall import ANALYZER, extend_by, index_of, recorded, vector_fact

from crew_journal.services.index.arrays import GrowableArray
from crew_journal.services.index.arrow import Texts
from crew_journal.services.index.documents import EntryColumns
from crew_journal.services.index.postings import Postings, build_segment, merge_segments
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.index.sessions import EMPTY_ORDER, neighbours, sort_sessions
from crew_journal.services.index.vectors import normalised, query_vector
from crew_journal.services.recall.asking import Query
from crew_journal.services.recall.recipes import RECIPES
from crew_journal.services.recall.search import search

WORDS = ["deploy", "checkout", "parser", "rollback", "memory", "night", "shift", "billing", "Ada", "maria"]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "summary": st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join),
            "agent_id": st.sampled_from(["a1", "a2", None]),
            "crew_id": st.sampled_from(["c1", "c2", None]),
            "trace_id": st.sampled_from(["t1", "t2", "t3", None]),
            "actor_id": st.sampled_from(["Ada", "maria", None]),
            "entry_type": st.sampled_from(
                ["chat.user_message", "peer.escalation", "exec.output_chunk", "run.completed"]
            ),
            "minute": st.integers(0, 5),
            "vector": st.one_of(st.none(), st.lists(st.integers(-3, 3), min_size=3, max_size=3)),
        }
    ),
    min_size=1,
    max_size=30,
)
SCOPES = [
    RecallScope(ScopeKind.WORKSPACE),
    RecallScope(ScopeKind.OWN, "a1"),
    RecallScope(ScopeKind.CREW_SHARED, "a1", "c1"),
]


def journal(rows):
    events, vectors = [], []
    for seq, row in enumerate(rows, 1):
        fields = {k: v for k, v in row.items() if k not in ("summary", "minute", "vector")}
        event = recorded(seq * 3, row["summary"], ts=f"2026-11-21T09:0{row['minute']}:00.000Z", **fields)
        events.append(event)
        if row["vector"] is not None and row["entry_type"] == "peer.escalation":
            vectors.append(vector_fact(event, row["vector"]))
    return events, vectors


def asked(text, vector=(1.0, 2.0, -1.0)):
    return Query(text, ANALYZER.terms(text), query_vector(np.array(vector, "<f4").tobytes()))


def answers(index, query, k=7):
    return {
        (name, scope.kind): [
            (index.documents.id_of(hit.doc), hit.score, hit.explanation)
            for hit in search(index, scope, query, recipe, k, explain=True)
        ]
        for name, recipe in RECIPES.items()
        for scope in SCOPES
    }


@given(ROWS, st.integers(1, 6), st.booleans(), st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join))
def test_extended_step_by_step_it_answers_as_if_loaded_at_once(rows, step, asked_between, text):
    events, vectors = journal(rows)
    whole = index_of(events, vectors)
    whole.sort()
    steps = index_of([], [])
    for first in range(0, len(events), step):
        part = events[first : first + step]
        extend_by(steps, part, [v for v in vectors if v.entry_seq in {e.seq for e in part}])
        if asked_between:
            answers(steps, asked(text))
    assert answers(steps, asked(text)) == answers(whole, asked(text))


@given(ROWS, st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join))
def test_what_is_out_of_scope_influences_nothing(rows, text):
    events, vectors = journal(rows)
    own = [event for event in events if event.entry.agent_id == "a1"]
    index, alone = index_of(events, vectors), index_of(own, [v for v in vectors if v.agent_id == "a1"])
    index.sort()
    key = SCOPES[1]
    for recipe in RECIPES.values():
        one = [(index.documents.id_of(h.doc), h.score) for h in search(index, key, asked(text), recipe, 9)]
        two = [(alone.documents.id_of(h.doc), h.score) for h in search(alone, key, asked(text), recipe, 9)]
        assert one == two


@given(ROWS, st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join))
def test_the_shares_of_an_explanation_add_up_to_the_score(rows, text):
    index = index_of(*journal(rows))
    for name in ("rrf", "robust"):
        for hit in search(index, SCOPES[0], asked(text), RECIPES[name], 9, explain=True):
            assert sum(hit.explanation.shares.values()) == pytest.approx(hit.score)


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 4), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 40),
)
def test_neighbours_are_the_nearest_in_scope_by_time_and_sequence(rows, covered):
    index = index_of(
        [
            recorded(seq, "word", trace_id=None if s < 0 else f"t{s}", ts=f"2026-11-21T09:0{minute}:00.000Z")
            for seq, (s, minute, _) in enumerate(rows, 1)
        ]
    )
    docs = index.documents
    covered = min(covered, len(docs))
    order = sort_sessions(docs.session[:covered], docs.ts_ms[:covered]) if covered else EMPTY_ORDER
    mask = np.array([row[2] for row in rows])
    inside = np.flatnonzero(mask).astype(np.int32)
    previous, following = neighbours(order, docs, len(rows), inside, mask)  # type: ignore[arg-type]  # narrower
    for doc, before, after in zip(inside.tolist(), previous.tolist(), following.tolist(), strict=False):
        session = sorted((i for i in inside.tolist() if rows[i][0] == rows[doc][0]), key=lambda i: (rows[i][1], i))
        place = session.index(doc)
        alone = rows[doc][0] < 0
        assert before == (-1 if alone or place == 0 else session[place - 1])
        assert after == (-1 if alone or place == len(session) - 1 else session[place + 1])


@given(st.lists(st.sets(st.integers(0, 9), max_size=6), max_size=30), st.lists(st.integers(1, 5), max_size=8))
def test_merged_segments_hold_the_postings_of_their_parts(docs, cuts):
    postings, first = Postings(), 0
    for length in [*cuts, len(docs)]:
        part = list(enumerate(docs))[first : first + length]
        first += length
        rows = [(term, doc, 1 + (term + doc) % 3) for doc, terms in part for term in terms]
        if rows:
            term, doc, tf = zip(*rows, strict=False)
            postings.append(build_segment(np.array(term, np.uint64), np.array(doc, np.int32), np.array(tf, np.uint16)))
    before = postings.of(range(10))
    if postings.segments:
        assert postings.replace(postings.segments, merge_segments(postings.segments))
        assert len(postings.segments) == 1
    for number in range(10):
        expected = {doc: 1 + (number + doc) % 3 for doc, terms in enumerate(docs) if number in terms}
        for found in (before[number], *postings.of([number])):
            assert found.once.tolist() == [doc for doc, tf in expected.items() if tf == 1]
            assert found.often.tolist() == [doc for doc, tf in expected.items() if tf > 1]
            assert found.tf.tolist() == [tf for tf in expected.values() if tf > 1]


def test_sorted_runs_give_the_same_segment_as_any_order():
    rng = np.random.default_rng(3)
    doc = np.repeat(np.arange(4_000, dtype=np.int32), 10)
    term = np.concatenate([rng.choice(500, 10, replace=False) for _ in range(4_000)]).astype(np.uint64)
    tf = rng.integers(1, 4, len(doc)).astype(np.uint16)
    runs = []
    for half in (doc >= 2_000, doc < 2_000):  # the younger run comes first
        where = np.flatnonzero(half)
        runs.append(where[np.lexsort((doc[where], term[where]))])
    order = np.concatenate(runs)
    one, two = build_segment(term[order], doc[order], tf[order]), build_segment(term, doc, tf)
    for left, right in ((one.once, two.once), (one.often, two.often)):
        assert left.terms.tolist() == right.terms.tolist()
        assert left.starts.tolist() == right.starts.tolist()
        assert left.docs.tolist() == right.docs.tolist()


def test_a_tombstone_takes_a_vector_back_and_a_second_vector_replaces_the_first():
    events = [recorded(seq, "parser broke", entry_type="peer.escalation") for seq in (1, 2)]
    index = index_of(events, [vector_fact(events[0], [1, 0, 0]), vector_fact(events[1], [0, 1, 0])])
    near = asked("zebra", (1.0, 0.0, 0.0))

    def found():
        return [index.documents.id_of(h.doc) for h in search(index, SCOPES[0], near, RECIPES["dense"], 5)]

    assert found() == ["e1", "e2"]
    extend_by(index, [], [vector_fact(events[1], [5, 0.1, 0]), vector_fact(events[0], [0, 0, 1])])
    assert found() == ["e2", "e1"]
    extend_by(index, [], [vector_fact(events[1], [])])
    assert found() == ["e1"]


def test_a_vector_of_another_length_or_without_a_norm_counts_as_no_likeness():
    events = [recorded(seq, "parser broke", entry_type="peer.escalation") for seq in (1, 2, 3)]
    facts = [vector_fact(e, v) for e, v in zip(events, ([0.5, 0.1, 0.0], [1.0, 0.0], [0.0, 0.0, 0.0]), strict=False)]
    hits = search(index_of(events, facts), SCOPES[0], asked("zebra", (1.0, 0.0, 0.0)), RECIPES["dense"], 5)
    assert [round(hit.score, 3) for hit in hits] == [0.981, 0.0, 0.0]


def test_vectors_of_another_model_are_passed_over():
    event = recorded(1, "parser broke", entry_type="peer.escalation")
    index = index_of([event], [vector_fact(event, [1, 0, 0], model="another")])
    assert search(index, SCOPES[0], asked("zebra"), RECIPES["dense"], 5) == []


def test_a_live_priority_brings_an_entry_into_its_crews_memory_and_out_again():
    event = recorded(1, "parser broke", agent_id="a2", crew_id="c1")
    index = index_of([event])

    def found():
        return len(search(index, SCOPES[2], asked("parser"), RECIPES["lexical"], 5))

    assert found() == 0
    for seq, priority, expected in ((2, "pin", 1), (3, "normal", 0)):
        change = recorded(
            seq, "priority changed", control=True, agent_id=None, actor_type="system",
            entry_type="memory.priority_changed",
            payload={"target_entry_id": "e1", "previous_priority": "normal", "new_priority": priority, "reason": "r"},
        )  # fmt: skip
        extend_by(index, [change])
        assert found() == expected


def test_the_newest_records_stay_when_their_room_is_full():
    index = index_of([])
    index.records._cap = 4_000
    for seq in range(1, 60):
        extend_by(index, [recorded(seq, f"parser broke {seq}", payload={"big": 2**70, "n": seq})])
    held = [index.records.get(doc) for doc in range(len(index))]
    assert held[0] is None
    assert held[-1].summary == "parser broke 59"
    assert held[-1].payload == {"big": 2**70, "n": 59}
    first = next(i for i, record in enumerate(held) if record is not None)
    assert [record.entry_id for record in held[first:]] == [f"e{i + 1}" for i in range(first, 59)]


def test_an_appended_array_keeps_what_was_read_before():
    array = GrowableArray(np.int32)
    array.append([1, 2, 3])
    seen = array.rows
    for _ in range(12):
        array.append(np.arange(100))
    assert seen.tolist() == [1, 2, 3]
    assert len(array) == 1203


@given(
    st.lists(st.text("abé", max_size=4), unique=True, max_size=30),
    st.lists(st.text("abé", max_size=4), max_size=30),
    st.integers(0, 30),
)
def test_many_ids_are_found_at_once_where_each_of_them_is(known, asked_for, cut):
    """Ids that are a part of another, or of two that lie side by side, are none."""
    documents = EntryColumns()
    for part in (known[:cut], known[cut:]):
        zeros = np.zeros(len(part), np.int64)
        documents.append(
            zeros, zeros.astype(np.uint8), Texts.of([one.encode() for one in part]), zeros.astype(np.uint16)
        )
    expected = [known.index(one) if one in known else -1 for one in asked_for]
    assert documents.find_ids(asked_for).tolist() == expected


def test_the_priorities_of_a_workspace_are_set_with_one_look_at_its_ids(monkeypatch):
    """A look costs a millisecond at 200,000 documents; one for each of 10,000 priorities held a load up for 11 s."""
    index = index_of([recorded(seq, "parser broke", agent_id="a2", crew_id="c1") for seq in range(1, 51)])
    looks = []
    find_ids = EntryColumns.find_ids
    monkeypatch.setattr(EntryColumns, "find_ids", lambda self, ids: looks.append(len(ids)) or find_ids(self, ids))
    changes = [
        recorded(
            50 + seq, "priority changed", control=True, agent_id=None, actor_type="system",
            entry_type="memory.priority_changed",
            payload={"target_entry_id": f"e{seq}", "previous_priority": "normal", "new_priority": "pin", "reason": "r"},
        )
        for seq in range(1, 41)
    ]  # fmt: skip
    extend_by(index, changes)
    assert looks == [40]
    assert len(search(index, SCOPES[2], asked("parser"), RECIPES["lexical"], 50)) == 40


@given(st.lists(st.floats(width=32), min_size=1, max_size=40))
def test_a_querys_vector_is_normalised_to_the_bit_as_an_entrys_is(values):
    vector = np.array(values, "<f4")
    assert query_vector(vector.tobytes()).tobytes() == normalised(vector[None, :])[0].tobytes()
