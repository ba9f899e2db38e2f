"""The format of document writes: owners with their kind, keys that may be paths, and what a write says of itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import EPOCH_MS, document
from support.format_strategies import documents

from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.envelope import DocumentWritten
from crew_journal.schemas.core.errors import FoldError
from crew_journal.schemas.core.subjects import (
    MAX_DOCUMENT_KEY,
    document_subject,
    is_document_key,
    journal_subject,
    key_token,
    parse_subject,
)
from crew_journal.schemas.decode import decode
from crew_journal.schemas.documents.events import encode_document

LONGEST_SUBJECT = 255
ID = "x" * 64
KEYS = st.lists(st.sampled_from(["a", "A", "b.md", "Größe", ".hidden", "...", "_", "h-" + "0" * 32]), min_size=1).map(
    "/".join
)


def read(message: OutgoingMessage) -> DocumentWritten:
    event = decode(7, message.subject, message.headers, message.body, EPOCH_MS)
    assert isinstance(event, DocumentWritten)
    return event


def refused(message: OutgoingMessage, **change: Any) -> str:
    body = {**json.loads(message.body), **change}
    with pytest.raises(FoldError) as caught:
        decode(7, message.subject, message.headers, json.dumps(body).encode(), EPOCH_MS)
    return caught.value.message


@pytest.mark.parametrize(
    "owner", ["w", "a-ada", "a-" + ID, "a--_", "c-platform", "u-" + "0af9" * 4, "u-" + "0af9" * 16]
)
def test_an_owner_says_what_kind_it_is(owner: str) -> None:
    assert parse_subject(f"document.w1.{owner}.AGENT._").owner == owner


@pytest.mark.parametrize(
    "owner", ["ada", "W", "w-1", "a-", "a-_", "a-" + ID + "x", "x-ada", "u-maria", "u-0AF90AF90AF90AF9", "u-0af9", "*"]
)
def test_an_owner_without_a_kind_is_refused(owner: str) -> None:
    with pytest.raises(FoldError, match="grammar of document"):
        parse_subject(f"document.w1.{owner}.AGENT._")


def test_the_longest_subjects_are_shorter_than_256_characters() -> None:
    assert len(journal_subject(ID, ID, ID, "x" * 48)) <= LONGEST_SUBJECT
    longest = document_subject(ID, "a-" + ID, "t" * 32, ID)
    assert len(longest) <= LONGEST_SUBJECT
    assert parse_subject(longest).key == ID
    assert len(document_subject(ID, "a-" + ID, "t" * 32, "k" * MAX_DOCUMENT_KEY)) <= LONGEST_SUBJECT


@pytest.mark.parametrize("key", ["a", "2026-11-21", "a/b.md", "Größe 1/ü.md", "...", ".hidden", "k" * MAX_DOCUMENT_KEY])
def test_a_key_may_be_a_path(key: str) -> None:
    assert is_document_key(key)
    assert read(document(key=key)).key == key


@pytest.mark.parametrize(
    "key",
    ["", "/a", "a/", "a//b", "..", "a/../b", ".", "./a", "a\\b", "a\x00", "a\nb", "\x7f", "k" * (MAX_DOCUMENT_KEY + 1)],
)
def test_a_key_that_is_no_path_within_its_tier_is_refused(key: str) -> None:
    assert not is_document_key(key)
    assert "malformed" in refused(document(key="a"), key=key)


@given(KEYS, KEYS)
def test_two_keys_never_share_a_token(one: str, other: str) -> None:
    assert (key_token(one) == key_token(other)) == (one == other)
    assert key_token(one) != key_token(None)


def test_a_plain_key_is_its_own_token_and_a_path_shows_its_hash_alone() -> None:
    assert document(key="2026-11-21").subject == "document.w1.a-a1.daily.2026-11-21"
    hidden = document(key="people/maria.md")
    assert "maria" not in hidden.subject
    assert parse_subject(hidden.subject).key == key_token("people/maria.md")


@pytest.mark.parametrize("key", ["another", None, "a/c.md"])
def test_a_write_whose_key_is_not_that_of_its_subject_is_refused(key: str | None) -> None:
    assert "does not match its subject" in refused(document(key="a/b.md"), key=key)


@pytest.mark.parametrize(
    "change",
    [
        {"action": "shred"},
        {"action": "retract"},
        {"source": "Mirror!"},
        {"write_id": "_"},
        {"write_id": None},
        {"actor_type": "robot"},
        {"derived_from": ["no id!"]},
        {"content": "x" * 262_145},
        {"data_subject_id": "two\nlines"},
    ],
)
def test_a_write_that_breaks_the_format_is_refused_without_quoting_it(change: dict[str, Any]) -> None:
    assert refused(document(content="# secret"), **change) == "the document write at 7 is malformed"


def test_a_field_of_a_newer_version_is_ignored() -> None:
    message = document(action="replace")
    newer = json.dumps({**json.loads(message.body), "language": "de"}).encode()
    assert read(OutgoingMessage(message.subject, newer, message.headers)) == read(message)


@given(documents())
def test_a_write_reads_as_it_was_written(message: OutgoingMessage) -> None:
    try:
        event = read(message)
    except FoldError:
        return
    again = encode_document(event)
    assert (again.subject, again.headers) == (message.subject, message.headers)
    assert read(again) == event


def test_a_write_that_is_sent_twice_has_one_message_id_whatever_it_says() -> None:
    ids = [document("w_9", content=text).headers["Nats-Msg-Id"] for text in ("one", "two")]
    assert ids[0] == ids[1] != document("w_8").headers["Nats-Msg-Id"]
