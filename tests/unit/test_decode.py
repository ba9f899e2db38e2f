import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core import headers as h
from crew_journal.schemas.core.envelope import EntryRecorded, UnknownDerived
from crew_journal.schemas.core.errors import FoldError
from crew_journal.schemas.decode import decode

BODY = {"entry_type": "run.started", "summary": "go"}


def entry(subject="journal.w.c.a.run.started", headers=None, seq=7, **change) -> EntryRecorded:
    event = decode(seq, subject, headers, json.dumps({**BODY, **change}).encode(), 1_700_000_000_000)
    assert isinstance(event, EntryRecorded)
    return event


def refused(subject="journal.w.c.a.run.started", body: bytes | None = None, **change) -> str:
    with pytest.raises(FoldError) as caught:
        decode(7, subject, None, json.dumps({**BODY, **change}).encode() if body is None else body, 0)
    return caught.value.message


def test_what_a_direct_publisher_leaves_out_comes_from_the_subject_and_the_broker():
    read = entry().entry
    assert (read.workspace_id, read.crew_id, read.agent_id) == ("w", "c", "a")
    assert read.id.startswith("n_")
    assert entry().entry.id == read.id
    assert entry().ts_ms == 1_700_000_000_000
    assert entry(seq=8).entry.id != read.id


@pytest.mark.parametrize(
    "change",
    [{"workspace_id": "other"}, {"crew_id": "other"}, {"agent_id": "other"}, {"entry_type": "run.failed"}],
)
def test_a_body_that_disagrees_with_its_subject_is_refused(change):
    assert "its subject" in refused(**change)


def test_a_body_may_not_name_a_crew_that_its_subject_leaves_open():
    assert "its subject has none" in refused(subject="journal.w._._.run.started", crew_id="c")


def test_an_id_that_only_the_service_derives_is_refused_from_agents():
    assert "reserved for derived ids" in refused(id="d_" + "0af9" * 8)


@pytest.mark.parametrize("change", [{"priority": "pin"}, {"entry_type": "token.created"}])
def test_control_types_and_priorities_are_believed_on_control_subjects_only(change):
    kind = change.get("entry_type", "run.started")
    assert "only the service may publish" in refused(subject=f"journal.w.c.a.{kind}", **change)
    assert entry(subject=f"control.w.{kind}", **change).control


@pytest.mark.parametrize(
    "subject",
    [
        "journal.w.c.a",
        "journal._system.c.a.x",
        "other.w.x",
        "journal.w.c.a.X",
        "journal..c.a.x",
        "control.w",
        "derived.w",
    ],
)
def test_subjects_outside_the_grammar_are_refused(subject):
    with pytest.raises(FoldError):
        decode(1, subject, None, b"{}", 0)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a":NaN}', b"\xff", b'"x"'])
def test_bodies_that_are_no_json_object_are_refused(body):
    assert "JSON" in refused(body=body)


def test_a_derived_kind_of_a_newer_version_is_no_error():
    assert isinstance(decode(3, "derived.w.of_another_day", None, b"", 0), UnknownDerived)


def test_the_content_hash_of_the_header_counts_and_is_made_from_the_body_otherwise():
    assert entry(headers={h.CONTENT_HASH: "ab" * 16}).content == bytes.fromhex("ab" * 16)
    assert entry().content == entry(headers={h.CONTENT_HASH: "no hash"}).content
    assert entry().content == entry(headers={h.CONTENT_HASH: "ab  " * 7 + "abcd"}).content
    assert entry().content == entry(headers={h.CONTENT_HASH: "\u0661" * 32}).content
    assert entry().content != entry(summary="stop").content


@given(
    st.binary(max_size=300),
    st.sampled_from(["journal.w.c.a.x", "control.w.x", "document.w.o.t.k", "derived.w.vector", "derived.w.link"]),
    st.dictionaries(st.text(max_size=10), st.text(max_size=10)),
)
def test_every_invalid_message_raises_a_fold_error(body, subject, headers):
    with suppress(FoldError):
        decode(9, subject, headers, body, 0)
