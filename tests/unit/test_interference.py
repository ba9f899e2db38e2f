"""Which facts contradict each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.facts.rules import Claim, conflicts


def claim(fact_id: str, predicate: str, value: str, *, single: bool = False, namespace: str = "", **also: str) -> Claim:
    subject = also.get("subject", "Ann")
    return Claim(fact_id, namespace, subject, predicate, value, f"{subject} {predicate} {value}", single)


def pairs(*claims: Claim) -> list[tuple[str, str, str]]:
    return [(conflict.first, conflict.second, conflict.kind) for conflict in conflicts(claims)]


def test_two_values_of_a_single_valued_predicate_conflict() -> None:
    home = claim("t2", "lives in", "Berlin", single=True)
    assert pairs(home, claim("t1", "lives in", "Hamburg")) == [("t1", "t2", "values")]
    assert pairs(home, claim("t1", "lives in", "Berlin")) == []
    assert pairs(home, claim("t1", "works in", "Hamburg")) == []


def test_values_of_a_predicate_that_may_have_several_do_not_conflict() -> None:
    assert pairs(claim("t1", "speaks", "German"), claim("t2", "speaks", "English")) == []


def test_a_negation_in_equal_words_conflicts_across_predicates() -> None:
    assert pairs(claim("t1", "uses", "Redis"), claim("t2", "does not use", "Redis")) == [("t1", "t2", "polarity")]
    assert pairs(claim("t1", "doesn't use", "Redis"), claim("t2", "uses", "Redis")) == [("t1", "t2", "polarity")]
    assert pairs(claim("t1", "uses", "Redis"), claim("t2", "does not use", "Kafka")) == []
    assert pairs(claim("t1", "never uses", "Redis"), claim("t2", "does not use", "Redis")) == []


def test_facts_of_other_namespaces_and_subjects_do_not_conflict() -> None:
    one = claim("t1", "lives in", "Berlin", single=True, namespace="a")
    assert pairs(one, claim("t2", "lives in", "Hamburg", single=True, namespace="b")) == []
    assert pairs(one, claim("t3", "lives in", "Hamburg", single=True, namespace="a", subject="Bob")) == []


CLAIMS = st.builds(
    claim,
    st.sampled_from([f"t{n}" for n in range(20)]),
    st.sampled_from(["uses", "does not use", "is", "is not"]),
    st.sampled_from(["Redis", "Kafka"]),
    single=st.booleans(),
    namespace=st.sampled_from(["", "team"]),
)


@given(st.lists(CLAIMS, max_size=12, unique_by=lambda one: one.fact_id), st.randoms())
def test_each_pair_is_found_once_in_order_whatever_the_order_of_the_facts(claims: list[Claim], chance) -> None:  # type: ignore[no-untyped-def]
    found = conflicts(claims)
    mixed = list(claims)
    chance.shuffle(mixed)
    assert conflicts(mixed) == found == sorted(found)
    named = [(one.first, one.second) for one in found]
    assert len(named) == len(set(named))
    assert all(one < other for one, other in named)
