"""Hypothesis strategies of journals to fold: few ids and workspaces, so that repeats and conflicts are common.

Rare cases are drawn often: broken messages, hostile text, facts about entries that do not exist.
"""

from __future__ import annotations

from hypothesis import strategies as st
from support.control_strategies import controls
from support.events import EPOCH_MS, chunk_vector, entry, link, token_bits, vector
from support.format_strategies import RARE_FIELDS, documents
from support.memory_strategies import IDS

from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.schemas.core import headers as h
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.models.rules import REMEMBERED

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
    made = entry(  # type: ignore[arg-type]  # an object of JSON
        draw(st.one_of(IDS, st.none())),
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
    if draw(st.booleans()):
        made.headers[h.ACTOR_VOUCHED] = draw(st.sampled_from([h.VOUCHED, h.VOUCHED, "yes"]))
    return made


@st.composite
def vectors(draw: st.DrawFn) -> OutgoingMessage:
    """A vector fact, often about an entry that does not exist, sometimes a tombstone or broken."""
    made = vector(
        draw(IDS),
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
    """A link fact in either direction, sometimes of an entry to itself or to an entry that does not exist yet."""
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
    """A consolidated rule with evidence, from an operator, or from an agent, whose evidence does not count."""
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
    """The word-piece bits of an entry, often of one that does not exist, sometimes broken."""
    made = token_bits(
        draw(IDS),
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
