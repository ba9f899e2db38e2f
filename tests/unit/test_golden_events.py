"""Every published event version has a golden file; what was published once is read for ever."""

import json
import struct
from pathlib import Path

import pytest
from pydantic import ValidationError

from crew_journal.schemas.decode import decode
from crew_journal.schemas.entry import JournalEntry
from crew_journal.schemas.events.control import ControlPayload, control_payloads
from crew_journal.schemas.events.derived import OutgoingMessage, encode_link, encode_vector
from crew_journal.schemas.events.documents import encode_document
from crew_journal.schemas.events.envelope import (
    DocumentWritten,
    EntryRecorded,
    LinkDerived,
    TokenBitsDerived,
    VectorDerived,
)
from crew_journal.schemas.events.token_bits import encode_token_bits
from crew_journal.schemas.upcasters import upcast

GOLDEN = Path(__file__).parents[1] / "golden" / "events"
SEQ, PUBLISHED = 42, 1_763_700_000_000


def golden(name: str) -> dict:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def read(record: dict):
    body = bytes.fromhex(record["body_hex"]) if "body_hex" in record else json.dumps(record["body"]).encode()
    return decode(SEQ, record["subject"], record["headers"], body, PUBLISHED)


@pytest.mark.parametrize("payload", control_payloads().values(), ids=lambda p: f"{p.ENTRY_TYPE}.v{p.VERSION}")
def test_every_control_payload_has_a_golden_file_that_still_reads(payload: type[ControlPayload]):
    name = f"{payload.ENTRY_TYPE}.v{payload.VERSION}"
    grown = sorted(path.stem for path in GOLDEN.glob(f"{name}.*.json"))  # with the optional fields that came later
    for file in (name, *grown):
        event = read(golden(file))
        assert isinstance(event, EntryRecorded)
        assert event.control
        assert event.entry.schema_version == payload.VERSION
        read_back = payload.model_validate(event.entry.payload)
        assert read_back.model_dump(mode="json", exclude_unset=True) == event.entry.payload


def test_the_golden_entry_reads_as_it_was_written():
    record = golden("entry.v1")
    event = read(record)
    assert isinstance(event, EntryRecorded)
    assert event.entry.to_record() == record["body"]


VECTOR = VectorDerived(
    SEQ,
    "default",
    "j_1",
    41,
    "all-MiniLM-L6-v2",
    3,
    struct.pack("<3f", 0.6, 0.0, 0.8),
    "ab" * 16,
    "peer.escalation",
    "warn",
    "normal",
    "platform",
    "ada",
    1_763_690_000_123,
    PUBLISHED,
    "embed@1",
)
LINK = LinkDerived(SEQ, "default", "j_2", 41, "j_1", 40, "similar", 0.91, PUBLISHED, "link@1", "platform")
TOKEN_BITS = TokenBitsDerived(
    SEQ, "default", "j_1", 41, "all-MiniLM-L6-v2", 1, 128, bytes(range(32)), 1, PUBLISHED, "embed@1"
)
DOCUMENT = DocumentWritten(SEQ, "default", "ada", "daily", "2026-11-21", "# Notes\nä\n", "ada", PUBLISHED)


@pytest.mark.parametrize(
    ("name", "event", "message"),
    [
        ("derived.vector.v1", VECTOR, encode_vector(VECTOR, 1)),
        ("derived.token_bits.v1", TOKEN_BITS, encode_token_bits(TOKEN_BITS, 1)),
        ("derived.link.v1", LINK, encode_link(LINK, 1)),
        ("document.v1", DOCUMENT, encode_document(DOCUMENT, "w_1")),
    ],
)
def test_derived_facts_and_documents_are_written_and_read_as_the_golden_file_says(
    name, event, message: OutgoingMessage
):
    record = golden(name)
    assert record == {"subject": message.subject, "headers": message.headers, "body_hex": message.body.hex()}
    assert read(record) == event


def test_upcasters_run_in_a_chain_up_to_the_newest_version():
    chain = {
        ("run.started", 1): lambda r: {**r, "payload": {**r["payload"], "host": "unknown"}},
        ("run.started", 2): lambda r: {**r, "payload": {"where": r["payload"]["host"]}},
    }
    stored = {"entry_type": "run.started", "payload": {}, "schema_version": 1}
    lifted = upcast(stored, chain)
    assert lifted == {"entry_type": "run.started", "payload": {"where": "unknown"}, "schema_version": 3}
    assert upcast({"entry_type": "run.started", "payload": {}, "schema_version": 9}, chain)["schema_version"] == 9
    assert stored["schema_version"] == 1


@pytest.mark.parametrize(("version", "read_as"), [(1.0, 1), (True, 1), ("1", 1), ([1], None), ({}, None), (None, None)])
def test_a_version_is_read_by_upcasters_as_the_envelope_reads_it(version, read_as):
    chain = {("run.started", 1): lambda r: {**r, "lifted": True}}
    record = {"entry_type": "run.started", "schema_version": version}
    expected = record if read_as is None else {**record, "lifted": True, "schema_version": read_as + 1}
    assert upcast(record, chain) == expected
    entry = {"id": "a", "workspace_id": "w", "ts": "2026-11-22T09:30:00Z", "summary": "s"} | record
    if read_as is None:
        with pytest.raises(ValidationError):
            JournalEntry.model_validate(entry)
    else:
        assert JournalEntry.model_validate(entry).schema_version == read_as
