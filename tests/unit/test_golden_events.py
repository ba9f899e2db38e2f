"""Every published event version has a golden file; what was published once is read for ever.

A golden file is never rewritten: a field that the format gets later is optional, so the old file still says everything
that it said, and the new field has its default.
"""

import importlib
import json
import pkgutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from crew_journal import schemas
from crew_journal.schemas.catalogue import control_payloads
from crew_journal.schemas.core.derived import OutgoingMessage, encode_link, encode_vector
from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.envelope import (
    ChunkVectorDerived,
    DocumentWritten,
    EntryRecorded,
    LinkDerived,
    TokenBitsDerived,
    VectorDerived,
)
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.decode import decode, upcast
from crew_journal.schemas.documents.events import encode_document
from crew_journal.schemas.models.events import encode_chunk_vector, encode_token_bits

GOLDEN = Path(__file__).parents[1] / "golden" / "events"
SEQ, PUBLISHED = 42, 1_763_700_000_000


def golden(name: str) -> dict:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def read(record: dict):
    body = bytes.fromhex(record["body_hex"]) if "body_hex" in record else json.dumps(record["body"]).encode()
    return decode(SEQ, record["subject"], record["headers"], body, PUBLISHED)


NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))
CONTROL = [name for name in NAMES if golden(name)["subject"].startswith("control.")]


def says(found: Any, stored: Any) -> bool:
    """Whether ``found`` holds all that ``stored`` holds; its objects may have further fields."""
    if isinstance(stored, dict):
        return isinstance(found, dict) and all(says(found.get(name), value) for name, value in stored.items())
    if isinstance(stored, list):
        return isinstance(found, list) and len(found) == len(stored) and all(map(says, found, stored))
    return bool(found == stored)


def with_unknown_fields(payload: Any) -> Any:
    """A payload as a newer version may have written it: each model in it has a field more."""
    if isinstance(payload, BaseModel):
        fields = {name: with_unknown_fields(getattr(payload, name)) for name in type(payload).model_fields}
        return {**fields, "of_the_future": {"n": 1}}
    if isinstance(payload, (tuple, list)):
        return [with_unknown_fields(part) for part in payload]
    return payload


def test_every_control_payload_is_listed():
    for module in pkgutil.walk_packages(schemas.__path__, f"{schemas.__name__}."):
        importlib.import_module(module.name)
    made = [model for model in ControlPayload.__subclasses__() if model.__module__.startswith(schemas.__name__)]
    assert set(made) == set(control_payloads().values())
    assert len(made) == len(control_payloads()), "two classes have one type"


@pytest.mark.parametrize("payload", control_payloads().values(), ids=lambda p: f"{p.ENTRY_TYPE}.v{p.VERSION}")
def test_every_control_payload_has_a_golden_file(payload: type[ControlPayload]):
    assert f"{payload.ENTRY_TYPE}.v{payload.VERSION}" in CONTROL


@pytest.mark.parametrize("name", CONTROL)
def test_a_golden_decision_of_whatever_version_still_says_what_it_said(name: str):
    record = golden(name)
    event = read(record)
    assert isinstance(event, EntryRecorded)
    assert event.control
    payload = control_payloads()[event.entry.entry_type].model_validate(event.entry.payload)
    assert event.entry.schema_version == payload.VERSION, "an upcaster is missing"
    assert says(payload.model_dump(mode="json"), event.entry.payload)


@pytest.mark.parametrize("name", CONTROL)
def test_fields_that_a_newer_version_wrote_are_ignored(name: str):
    record = golden(name)
    event = read(record)
    assert isinstance(event, EntryRecorded)
    model = control_payloads()[event.entry.entry_type]
    payload = model.model_validate(event.entry.payload)
    assert model.model_validate(with_unknown_fields(payload)) == payload
    newer = read({**record, "body": {**record["body"], "of_the_future": {"n": 1}}})
    assert isinstance(newer, EntryRecorded)
    assert newer.entry == event.entry


ENTRIES = ["entry.v1", "entry.superseding.v1", "entry.vouched.v1"]


@pytest.mark.parametrize("name", ENTRIES)
def test_a_golden_entry_reads_as_it_was_written(name: str):
    record = golden(name)
    event = read(record)
    assert isinstance(event, EntryRecorded)
    assert event.entry.to_record() == record["body"]
    assert event.vouched == (name == "entry.vouched.v1")


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
UPDATE = LinkDerived(
    SEQ,
    "default",
    "j_3",
    41,
    "j_1",
    40,
    "supersedes",
    0.85,
    PUBLISHED,
    "link@1",
    "platform",
    'says what is so now: "6:30 → 7:00"',
    1_764_547_200_000,
)
TOKEN_BITS = TokenBitsDerived(
    SEQ, "default", "j_1", 41, "all-MiniLM-L6-v2", 1, 128, bytes(range(32)), 1, PUBLISHED, "embed@1"
)
CHUNK_VECTOR = ChunkVectorDerived(
    SEQ,
    "default",
    "all-MiniLM-L6-v2",
    0x0F00_0000_0000_00AB,
    3,
    struct.pack("<3f", 0.6, 0.0, 0.8),
    "w_1",
    PUBLISHED,
    "embed_chunks@1",
)
DOCUMENT = DocumentWritten(
    SEQ,
    "default",
    "a-ada",
    "topics",
    "people/maria.md",
    "replace",
    "# Notes\nä\n",
    "consolidation",
    "w_1",
    "agent",
    PUBLISHED,
    actor_id="ada",
    data_subject_id="maria",
    derived_from=("j_1", "w_0"),
    reason="tidied up",
)
LINE = DocumentWritten(
    SEQ, "default", "c-platform", "daily", "2026-11-21", "append", "- ä\n", "mcp", "w_2", "agent", PUBLISHED
)
RETRACTED = replace(DOCUMENT, action="retract", content="", source="api", write_id="w_3", derived_from=())
RESTORED = replace(DOCUMENT, action="restore", source="api", write_id="w_4", derived_from=("w_1",))
PINS = replace(LINE, owner="w", tier="pins", key=None, write_id="w_5", action="replace")
PERSON = replace(PINS, owner="u-0af90af90af90af9", tier="USER", write_id="w_6", actor_type="system")


FACTS = [
    ("derived.vector.v1", VECTOR, encode_vector(VECTOR, 1)),
    ("derived.token_bits.v1", TOKEN_BITS, encode_token_bits(TOKEN_BITS, 1)),
    ("derived.chunk_vector.v1", CHUNK_VECTOR, encode_chunk_vector(CHUNK_VECTOR, 1)),
    ("derived.link.v1", LINK, encode_link(LINK, 1)),
    ("derived.link.supersedes.v1", UPDATE, encode_link(UPDATE, 1)),
    ("document.replace.v1", DOCUMENT, encode_document(DOCUMENT)),
    ("document.append.v1", LINE, encode_document(LINE)),
    ("document.retract.v1", RETRACTED, encode_document(RETRACTED)),
    ("document.restore.v1", RESTORED, encode_document(RESTORED)),
    ("document.workspace.v1", PINS, encode_document(PINS)),
    ("document.user.v1", PERSON, encode_document(PERSON)),
]


@pytest.mark.parametrize(("name", "event", "message"), FACTS)
def test_derived_facts_and_documents_are_written_and_read_as_the_golden_file_says(
    name, event, message: OutgoingMessage
):
    record = golden(name)
    assert record == {"subject": message.subject, "headers": message.headers, "body_hex": message.body.hex()}
    assert read(record) == event
    assert read({**record, "headers": {**record["headers"], "Crew-Of-The-Future": "1"}}) == event


def test_no_golden_file_is_left_unread():
    assert {*CONTROL, *ENTRIES, *(name for name, _, _ in FACTS)} == set(NAMES)


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
