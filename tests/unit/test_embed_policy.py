"""Which entries are embedded (contract §2): every type of the catalogue, and what no flag can force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.catalogue import catalogue
from crew_journal.schemas.models.rules import EMBEDDABLE, POLICIES, REMEMBERED, is_embedded, is_speech

CALM = ("info", "notice")
SEVERE = ("warn", "error")
SEVERITIES = (*CALM, *SEVERE)
FLAG = {"episodic": True}
CONTRACT = [
    "peer.escalation",
    "summary.generated",
    "memory.consolidated",
    "approval.denied",
    "eval.regression_detected",
]
ALWAYS = [*CONTRACT, REMEMBERED]
SPOKEN = ["chat.user_message", "chat.agent_response", "chat.of_the_future", "message.posted"]
OTHERS = [
    *sorted({name.removesuffix(".*") for name in catalogue()} - EMBEDDABLE - set(SPOKEN)),
    "network.egress",
    "of.the.future",
]


def test_the_allow_list_is_the_contracts_eight_types_and_what_agents_remember() -> None:
    assert {*ALWAYS, "keeper.decision", "mission.status_change", "peer.conversation"} == EMBEDDABLE


@pytest.mark.parametrize("entry_type", ALWAYS)
def test_these_are_always_embedded(entry_type: str) -> None:
    assert all(is_embedded(entry_type, severity, {}, {}) for severity in SEVERITIES)


@pytest.mark.parametrize("entry_type", ["keeper.decision", "mission.status_change"])
def test_these_are_embedded_at_warn_and_error_or_when_flagged(entry_type: str) -> None:
    assert [is_embedded(entry_type, severity, {}, {}) for severity in SEVERITIES] == [False, False, True, True]
    assert all(is_embedded(entry_type, severity, {}, FLAG) for severity in SEVERITIES)


def test_a_conversation_is_embedded_when_it_escalated_or_is_flagged() -> None:
    assert not is_embedded("peer.conversation", "error", {"state": "pending"}, {})
    assert is_embedded("peer.conversation", "info", {"state": "escalated"}, {})
    assert is_embedded("peer.conversation", "info", {}, FLAG)


@pytest.mark.parametrize("entry_type", OTHERS)
def test_no_flag_forces_another_type_least_of_all_noise(entry_type: str) -> None:
    """Contract §2 [CONFLICT-mild]: the override is bounded; the seed: exec.output_chunk would flood the space."""
    assert not any(is_embedded(entry_type, severity, {"state": "escalated"}, FLAG) for severity in SEVERITIES)


@given(st.sampled_from(sorted(EMBEDDABLE)), st.sampled_from(["true", 1, "yes", None, [], {"on": True}]))
def test_only_the_boolean_true_is_a_flag(entry_type: str, value: object) -> None:
    assert is_embedded(entry_type, "info", {}, {"episodic": value}) == is_embedded(entry_type, "info", {}, {})


@given(
    st.sampled_from([*sorted(EMBEDDABLE), *OTHERS]),
    st.sampled_from(SEVERITIES),
    st.sampled_from([{}, {"state": "escalated"}]),
    st.sampled_from([{}, FLAG]),
)
def test_versions_differ_in_what_agents_remember_and_in_speech_alone(
    entry_type: str, severity: str, payload: dict[str, str], refs: dict[str, bool]
) -> None:
    first, second, third = (is_embedded(entry_type, severity, payload, refs, version) for version in (1, 2, 3))
    assert (first, second) == (False, True) if entry_type == REMEMBERED else first == second
    assert second == third


@pytest.mark.parametrize("entry_type", SPOKEN)
def test_speech_is_embedded_unless_the_workspace_chose_that_it_is_not(entry_type: str) -> None:
    """Contract §2 embeds none of it: so it is the first version's default, and the choice of a workspace."""
    posted = entry_type == "message.posted"
    judged = {
        version: [is_embedded(entry_type, "info", {}, {}, version, choice=choice) for choice in (None, True, False)]
        for version in POLICIES
    }
    earlier = [False, not posted, False]
    assert judged == {1: earlier, 2: earlier, 3: [True, True, False]}
    assert is_speech(entry_type)


@pytest.mark.parametrize(
    "entry_type", ["message.broadcast", "peer.conversation", "chat", "message.posted_again", *ALWAYS]
)
def test_the_choice_of_a_workspace_changes_no_other_type(entry_type: str) -> None:
    assert not is_speech(entry_type)
    assert len({is_embedded(entry_type, "info", {}, {}, choice=choice) for choice in (None, True, False)}) == 1
