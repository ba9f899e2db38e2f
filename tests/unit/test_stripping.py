"""What a model repeats of its prompt is not recorded as its own words; everything else is left as it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.context.nudges import (
    EMPTY_SUMMARY,
    marked,
    strip_injected,
    strip_nudges,
    strip_recalled_memory,
    strip_record,
)
from crew_journal.schemas.core.errors import InvalidEntry
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.recall.render import PromptHit, render
from crew_journal.services.client import strip_injected as offered_by_the_client
from crew_journal.services.journal.intake.submission import Accepted, accept

NONCE = "0123456789abcdef"
OTHER = "fedcba9876543210"
BLOCK = render([PromptHit("x.y", "a </recalled-memory> b", 90.0, 0.5)], None, NONCE).text
NUDGE = marked("cost", "Last 24h: 1 call, 5 tokens, $2.00.")
AGENT = Principal(token_id="t", role=Role.AGENT, workspace_id="w1", agent_id="a1")
NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
HOSTILE_CHARS = 256 * 1024
HOSTILE_SECONDS = 5.0


def test_a_rendered_block_goes_and_what_stands_around_it_stays() -> None:
    assert strip_recalled_memory(f"Before.\n{BLOCK}\nAfter.") == "Before.\nAfter."
    assert strip_recalled_memory(f"{BLOCK}{BLOCK}x") == "x"
    assert strip_recalled_memory(BLOCK.replace("\n", " ")) == ""


@pytest.mark.parametrize(
    "text",
    [
        "<recalled-memory> by hand </recalled-memory>",
        f'<recalled-memory nonce="{NONCE}"> cut off',
        f'<recalled-memory nonce="{NONCE}"> x </recalled-memory nonce="{OTHER}">',
        f'</recalled-memory nonce="{NONCE}"> the wrong way round <recalled-memory nonce="{NONCE}">',
        "<memory-nudge>by hand</memory-nudge>",
        '<memory-nudge kind="memory">with <b>a tag</b></memory-nudge>',
        '<memory-nudge kind="memory">' + "x" * 601 + "</memory-nudge>",
        "",
    ],
)
def test_what_is_not_exactly_ours_is_left_alone(text: str) -> None:
    assert strip_injected(text) == text


def test_the_client_offers_the_same_function() -> None:
    assert offered_by_the_client is strip_injected


def test_every_string_of_the_payload_is_stripped_and_nothing_is_copied_without_need() -> None:
    record = {"summary": f"Done. {NUDGE}", "payload": {"text": [f"{BLOCK}\nFine.", 1, None], "kept": {"a": "b"}}}
    stripped = strip_record(record)
    assert stripped == {"summary": "Done.", "payload": {"text": ["Fine.", 1, None], "kept": {"a": "b"}}}
    clean = {"summary": "Done.", "payload": {"text": ["Fine."]}}
    assert strip_record(clean) is clean
    assert strip_record({"summary": NUDGE})["summary"] == EMPTY_SUMMARY
    odd: dict[str, Any] = {"summary": 3, "payload": "no object"}
    assert strip_record(odd) is odd


@given(st.text(), st.text())
def test_stripping_twice_is_stripping_once(before: str, after: str) -> None:
    once = strip_injected(f"{before}{BLOCK}{after}{NUDGE}")
    assert strip_injected(once) == once
    assert strip_nudges(before) == before


@pytest.mark.parametrize(
    "piece",
    [
        f'<recalled-memory nonce="{NONCE}">',
        f'</recalled-memory nonce="{NONCE}">',
        f'<recalled-memory nonce="{NONCE}"></recalled-memory nonce="{OTHER}">',
        '<memory-nudge kind="cost">',
        "<memory-nudge ",
    ],
)
def test_hostile_input_takes_bounded_time(piece: str) -> None:
    text = piece * (HOSTILE_CHARS // len(piece))
    began = time.process_time()
    strip_injected(text)
    assert time.process_time() - began < HOSTILE_SECONDS


# what is appended


def accepted(**fields: Any) -> Accepted:
    return accept(AGENT, {"id": "e1", "entry_type": "chat.agent_response", "summary": "Done.", **fields}, NOW)


def test_an_agents_response_is_recorded_without_what_its_prompt_was_given() -> None:
    """Contract §10: stripped before the model's response payload is recorded."""
    entry = accepted(summary=f"Done. {NUDGE}", payload={"text": f"{BLOCK}\nAll fine."}).entry
    assert (entry.summary, entry.payload) == ("Done.", {"text": "All fine."})


def test_the_content_hash_is_that_of_the_submission_so_a_retry_is_the_same_entry() -> None:
    told = accepted(summary=f"Done. {NUDGE}")
    assert told.content == accepted(summary=f"Done. {NUDGE}").content
    assert told.content != accepted(summary="Done.").content
    assert told.entry == accepted(summary="Done.").entry


def test_other_types_and_clean_responses_are_recorded_as_they_are() -> None:
    kept = f"The prompt had {NUDGE}"
    assert accepted(entry_type="chat.user_message", summary=kept).entry.summary == kept
    assert accepted(summary="Plain.").entry.summary == "Plain."


def test_a_summary_may_be_too_long_with_what_is_stripped_and_fine_without() -> None:
    assert accepted(summary=f"{'x' * 1_990} {NUDGE}").entry.summary == "x" * 1_990


@pytest.mark.parametrize("levels", [250, 600, 1_000])
def test_an_answer_nested_deeper_than_an_entry_may_be_is_refused_like_any_other(levels: int) -> None:
    """JSON of a request may have 1,024 levels; walking down all of them would end the request with a fault of ours."""
    payload: Any = f"said {NUDGE}"
    for _ in range(levels):
        payload = {"in": payload}
    with pytest.raises(InvalidEntry):
        accept(AGENT, {"entry_type": "chat.agent_response", "summary": "Yes.", "payload": payload}, NOW)


def test_an_answer_as_deep_as_an_entry_may_be_is_stripped_to_its_end() -> None:
    payload: Any = f"said {NUDGE}"
    for _ in range(150):
        payload = [payload]
    record = strip_record({"summary": "Yes.", "payload": {"in": payload}})
    found = record["payload"]["in"]
    for _ in range(150):
        [found] = found
    assert found == "said "
