"""Late interaction on bits, held to its formula written out plainly."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.services.index.arrays import Ragged
from crew_journal.services.index.vectors import TokenStore
from crew_journal.services.recall.late import NO_TURN, CandidateTurns, DocumentTokens, distances, interact
from crew_journal.services.recall.recipes import Interaction

DIM = 128
EVEN = 2.0


def bits(seed: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, (tokens, DIM // 64), dtype=np.uint64)


def plain_similarity(one: np.ndarray, other: np.ndarray) -> float:
    differing = sum(bin(int(a) ^ int(b)).count("1") for a, b in zip(one, other, strict=True))
    return 1 - 2 * differing / DIM


def plainly(query, weights, documents, firsts, candidates, before, before_that, long, even) -> list[float]:
    """The docstring's formula, token by token."""

    def best(t: int, doc: int, start: int = 0, end: int | None = None) -> float:
        return max((plain_similarity(query[t], token) for token in documents[doc][start:end]), default=0.0)

    def mean(values: list[float]) -> float:
        if even:
            return -math.log(average([math.exp(-even * value) for value in values])) / even
        return average(values)

    def average(values: list[float]) -> float:
        return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)

    found = []
    for at, doc in enumerate(candidates):
        tokens = len(documents[doc])
        if not tokens:
            found.append(math.nan)
            continue
        if long[doc] and 0 < firsts[doc] < tokens:
            halves = [(0, firsts[doc]), (firsts[doc], tokens)]
            m = max(mean([best(t, doc, *half) for t in range(len(query))]) for half in halves)
        else:
            answered = [best(t, doc) for t in range(len(query))]
            for helper, offset in ((before[at], 0.06), (before_that[at], 0.11)):
                if helper != NO_TURN and not long[doc] and len(documents[helper]):
                    answered = [max(a, best(t, helper) - offset) for t, a in enumerate(answered)]
            m = mean(answered)
        found.append(m - 0.015 * math.log(tokens + 8))
    return found


@given(st.data())
def test_it_is_the_formula_whatever_the_lengths_passages_and_helpers(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    n = len(lengths)
    documents = [bits(seed, length) for seed, length in enumerate(lengths)]
    firsts = [data.draw(st.integers(0, length)) for length in lengths]
    candidates = sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1)))
    helper = st.integers(NO_TURN, n - 1)
    before = [data.draw(helper) for _ in candidates]
    before_that = [data.draw(helper) for _ in candidates]
    long = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    query = bits(99, data.draw(st.integers(1, 4)))
    weights = data.draw(st.lists(st.floats(0.1, 3.0), min_size=len(query), max_size=len(query)))
    at = None
    words = np.concatenate(documents)
    if data.draw(st.booleans()):
        at, words = np.arange(len(words))[::-1].copy(), words[::-1].copy()
    tokens = DocumentTokens(words, at, np.array(lengths), np.array(firsts))
    even = data.draw(st.sampled_from([0.0, EVEN]))
    found = interact(
        query,
        np.array(weights),
        tokens,
        CandidateTurns(np.array(candidates), np.array(before), np.array(before_that), np.array(long)),
        Interaction(near=0.06, far=0.11, length=0.015, even=even),
        DIM,
    )
    expected = plainly(query, weights, documents, firsts, candidates, before, before_that, long, even)
    assert found == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_an_entry_that_answers_every_word_somewhat_stands_before_one_that_answers_a_single_word_perfectly() -> None:
    query = bits(1, 2)
    half = query.copy()
    half[:, 0] ^= np.uint64((1 << 32) - 1)  # 32 of 128 bits differ: each word is answered at .5
    single = np.stack((query[0], ~query[1]))  # 1 and about 0, where the other word does not help
    tokens = DocumentTokens(np.concatenate((half, single)), None, np.array([2, 2]), np.array([2, 2]))
    turns = CandidateTurns(np.arange(2), np.full(2, NO_TURN), np.full(2, NO_TURN), np.zeros(2, bool))
    plain, even = (
        interact(query, np.ones(2), tokens, turns, Interaction(near=0.0, far=0.0, length=0.0, even=even), DIM)
        for even in (0.0, EVEN)
    )
    assert plain[0] == pytest.approx(0.5)
    assert even[0] == pytest.approx(0.5)
    assert plain[1] - even[1] > 0.1


def test_a_token_is_most_like_itself_and_least_like_its_opposite() -> None:
    one = bits(1, 1)
    assert distances(one, np.concatenate((one, ~one))).tolist() == [[0, DIM]]


def test_runs_are_found_again_after_appends_and_replacements() -> None:
    runs = Ragged(np.int32)
    runs.append(np.array([1, 3]), np.array([10, 11, 30]), np.array([2, 1]))
    runs.append(np.array([1]), np.array([12]), np.array([1]))
    gathered = runs.gather(np.array([0, 1, 2, 3, 9]))
    assert gathered.counts.tolist() == [0, 1, 0, 1, 0]
    assert runs.values[gathered.at].tolist() == [12, 30]


def test_tokens_of_an_older_quantiser_are_let_go_whatever_order_they_come_in() -> None:
    new, old = bits(1, 2).tobytes(), bits(2, 2).tobytes()
    for order in ([(1, 1, old), (2, 2, new), (3, 1, old)], [(2, 2, new), (1, 1, old), (3, 1, old)]):
        store = TokenStore()
        for doc, quantiser, data in order:
            counts = np.array([len(data) * 8 // DIM])
            store.extend(np.array([doc]), quantiser, DIM, data, counts, np.array([1]))
        assert store.quantiser == 2
        gathered = store.runs.gather(np.array([1, 2, 3]))
        assert gathered.counts.tolist() == [0, 2, 0]
        assert store.runs.values[gathered.at].tobytes() == new
