"""The vectors of a workspace: put together they stand exactly as put one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.services.index.vectors import VectorMatrix

Fact = tuple[int, bytes, int]
NUMBERS = st.floats(width=32, allow_nan=True, allow_infinity=True)


def body(dim: int) -> st.SearchStrategy[bytes]:
    return st.lists(NUMBERS, min_size=dim, max_size=dim).map(lambda values: np.array(values, "<f4").tobytes())


BODIES = st.one_of(body(3), body(3), body(3), body(2), st.just(b""))
BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 12), BODIES), max_size=8), max_size=5)


def columns(matrix: VectorMatrix) -> tuple[object, ...]:
    rows = matrix.rows_of(np.arange(15, dtype=np.int32)).tolist()
    return matrix.dim, matrix.vectors.tobytes(), matrix.doc.tolist(), matrix.fact_seq.tolist(), rows


def put_all(matrix: VectorMatrix, facts: list[Fact]) -> None:
    docs = np.array([doc for doc, _, _ in facts], np.int32)
    values = np.frombuffer(b"".join(data for _, data, _ in facts), "<f4")
    counts = np.array([len(data) // 4 for _, data, _ in facts], np.int64)
    matrix.put_all(docs, values, counts, np.array([seq for _, _, seq in facts], np.int64))


@given(BATCHES)
def test_vectors_put_together_stand_as_if_put_one_by_one(batches: list[list[tuple[int, bytes]]]) -> None:
    together, alone, seq = VectorMatrix("m"), VectorMatrix("m"), 0
    for batch in batches:
        facts: list[Fact] = []
        for doc, data in batch:
            seq += 1
            facts.append((doc, data, seq))
        put_all(together, facts)
        for fact in facts:
            alone.put(*fact)
        assert columns(together) == columns(alone)


def test_a_wide_vector_has_the_same_bits_in_a_batch_of_any_size() -> None:
    drawn = np.random.default_rng(5).standard_normal((64, 384), dtype=np.float32)
    together, alone = VectorMatrix("m"), VectorMatrix("m")
    facts = [(doc, row.tobytes(), doc + 1) for doc, row in enumerate(drawn)]
    put_all(together, facts)
    for fact in facts:
        alone.put(*fact)
    assert columns(together) == columns(alone)
