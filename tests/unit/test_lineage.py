"""Which messages an erasure takes along: lineage of every kind of message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from crew_journal.schemas.catalogue import control_payloads
from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.envelope import DocumentWritten, EntryRecorded, LinkDerived
from crew_journal.schemas.erasure import lineage
from crew_journal.schemas.erasure.lineage import names_of, sources_of

FOLLOWED = {
    "evidence", "source_entry_id", "source_drawer_id", "skill_of", "proposal_id", "target_entry_id", "rule_id",
    "lesson_id", "drawer_id", "drawer_ids", "into", "fact_id", "fact_ids", "facts", "targets", "src_entry_id",
    "dst_entry_id",
}  # fmt: skip
"""Fields of payloads that name what a decision was made of, or is about alone."""
OTHERS = {
    "agent_id", "crew_id", "workspace_id", "token_id", "session_id", "key_id", "loss_id", "erasure_id", "tunnel_id",
    "tunnel_ids", "hit_ids", "entry_ids", "export_id", "account_id",
}  # fmt: skip
"""Fields that name no source of text: places and keys, what was found by a search, and the erasures themselves."""


def entry(entry_type: str, payload: dict[str, Any], *, control: bool = True, **fields: Any) -> EntryRecorded:
    recorded = JournalEntry(
        id="e1",
        workspace_id="w",
        ts=datetime(2026, 1, 1, tzinfo=UTC),
        entry_type=entry_type,
        summary="s",
        payload=payload,
        **fields,
    )
    return EntryRecorded(1, recorded, 0, control, b"", b"", 0, 0)


def test_fields_of_payloads_that_name_ids_are_all_known_to_lineage() -> None:
    fields = {name for payload in control_payloads().values() for name in payload.model_fields}
    named = {name for name in fields if name.endswith(("_id", "_ids"))}
    assert named <= FOLLOWED | OTHERS


@pytest.mark.parametrize(
    ("entry_type", "payload", "sources"),
    [
        ("rule.learned", {"evidence": ["a", "b"]}, {"a", "b"}),
        ("proposal.made", {"evidence": ["a"], "skill_of": "r"}, {"a", "r"}),
        ("fact.asserted", {"fact_id": "f", "source_entry_id": "a", "source_drawer_id": "d"}, {"a", "drawer:d"}),
        ("fact.verified", {"fact_id": "f"}, {"fact:f"}),
        ("fact.ended", {"fact_ids": ["f"]}, {"fact:f"}),
        ("fact.ended", {"fact_ids": ["f", "g"]}, set()),
        ("drawer.filed", {"drawer_id": "d"}, set()),
        ("drawer.classified", {"drawer_id": "d", "summary": "x"}, {"drawer:d"}),
        ("drawer.merged", {"into": "d", "drawer_ids": ["e"], "summary": "x"}, {"drawer:d", "drawer:e"}),
        ("drawer.pruned", {"drawer_ids": ["d", "e"]}, {"drawer:d", "drawer:e"}),
        ("drawer.superseded", {"drawer_id": "d", "superseded_by": "e"}, {"drawer:d", "drawer:e"}),
        ("operator.profile_updated", {"facts": [{"entry_id": "a"}, {"entry_id": "b"}]}, {"a", "b"}),
        ("retraction.made", {"targets": {"ids": ["a"]}}, {"a"}),
        ("retraction.made", {"targets": {"ids": ["a", "b"]}}, set()),
        ("retraction.made", {"targets": {"ids": ["a", "b"]}, "superseded_by": "c"}, {"c"}),
        ("statement.corrected", {"retired": [{"kind": "entry", "id": "a"}]}, {"a"}),
        ("statement.corrected", {"retired": [{"kind": "fact", "id": "f"}]}, {"fact:f"}),
        ("statement.corrected", {"retired": [{"kind": "filing", "id": "d"}, {"kind": "entry", "id": "a"}]}, set()),
        (
            "statement.corrected",
            {"retired": [{"kind": "entry", "id": "a", "by": "b"}, {"kind": "fact", "id": "f"}]},
            {"b"},
        ),
        ("memory.priority_changed", {"target_entry_id": "a"}, {"a"}),
        ("memory.searched", {"hit_ids": ["a"]}, set()),
    ],
)
def test_sources_of_decision_are_what_it_was_made_of(
    entry_type: str, payload: dict[str, Any], sources: set[str]
) -> None:
    assert set(sources_of(entry(entry_type, payload))) == sources


def test_names_of_drawer_and_fact_include_the_thing_that_they_make() -> None:
    assert names_of(entry("drawer.filed", {"drawer_id": "d"})) == ("e1", "drawer:d")
    assert names_of(entry("fact.asserted", {"fact_id": "f"})) == ("e1", "fact:f")


def test_sources_of_agents_entry_are_its_references_alone() -> None:
    said = entry("note.written", {"evidence": ["x"]}, control=False, refs={"derived_from": ["a"], "evidence": ["b"]})
    assert set(sources_of(said)) == {"a", "b"}


def test_sources_of_document_and_link_are_their_causes() -> None:
    write = DocumentWritten(1, "w", "w", "AGENT", None, "append", "x", "api", "w1", "agent", 0, derived_from=("a",))
    assert (names_of(write), set(sources_of(write))) == (("w1",), {"a"})
    link = LinkDerived(1, "w", "a", 1, "b", 2, "similar", 1.0, 0, "link@1")
    assert (names_of(link), set(sources_of(link))) == ((), {"a", "b"})


def test_fields_with_references_are_declared_once() -> None:
    assert not set(lineage.SOURCES) & set(lineage.ABOUT)
