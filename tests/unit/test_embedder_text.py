"""The embedded text and its cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.models.rules import cap_bytes, embedded_text


def test_question_and_reason_follow_the_summary_in_this_order() -> None:
    payload = {"reason": "no budget", "question": "may we?", "state": "pending"}
    assert embedded_text("asked", payload) == "asked :: may we? :: no budget"


def test_only_non_empty_strings_are_appended() -> None:
    for value in ("", None, 3, True, ["may we?"], {"question": "x"}):
        assert embedded_text("asked", {"question": value, "reason": "why"}) == "asked :: why"
    assert embedded_text("asked", {}) == "asked"


def test_what_was_remembered_is_embedded_whole_and_not_by_its_summary() -> None:
    assert embedded_text("cut", {"text": "cut short", "reason": "why"}, "memory.remembered") == "cut short :: why"
    assert embedded_text("short", {"text": 3}, "memory.remembered") == "short"
    assert embedded_text("cut", {"text": "cut short"}, "peer.escalation") == "cut"


@given(st.text(), st.integers(0, 80))
def test_the_cap_is_the_longest_start_that_fits(text: str, limit: int) -> None:
    capped = cap_bytes(text, limit)
    assert text.startswith(capped)
    assert len(capped.encode()) <= limit
    if capped != text:
        assert len(text[: len(capped) + 1].encode()) > limit


def test_a_lone_surrogate_does_not_break_the_cap() -> None:
    assert cap_bytes("a\ud800b", 10) == "a?b"


def test_the_title_of_a_conversation_stands_before_its_turns_and_before_nothing_else() -> None:
    about = {"conversation": {"title": "Trains to Lyon", "channel": "travel", "topic": "tickets"}}
    assert embedded_text("It takes six hours.", about, "chat.agent_response") == "Trains to Lyon :: It takes six hours."
    assert embedded_text("Six hours.", about, "message.posted") == "Trains to Lyon :: Six hours."
    for entry_type in ("peer.escalation", "peer.conversation", "memory.remembered"):
        assert embedded_text("Six hours.", about, entry_type) == "Six hours."


@pytest.mark.parametrize("about", [None, "Trains", {}, {"title": 3}, {"title": ""}, ["Trains"], {"channel": "travel"}])
def test_a_conversation_without_a_title_changes_no_text(about: object) -> None:
    assert embedded_text("Six hours.", {"conversation": about}, "chat.user_message") == "Six hours."


def test_a_title_takes_a_bounded_part_of_the_text() -> None:
    text = embedded_text("Six hours.", {"conversation": {"title": "x" * 5_000}}, "chat.user_message")
    assert text == f"{'x' * 200} :: Six hours."
