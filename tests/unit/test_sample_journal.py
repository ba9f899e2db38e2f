"""The sample journal of the first `make run` ships with the product.

Invariant: it imports whole, and every question that comes with it has answers its asker may see.
"""

import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from crew_journal.schemas.core.entry import build_entry
from crew_journal.schemas.relations.contradiction import contradiction

SAMPLE = Path(__file__).resolve().parents[2] / "services" / "cli" / "sample"

FIELDS = {
    "id",
    "ts",
    "entry_type",
    "severity",
    "crew_id",
    "agent_id",
    "mission_id",
    "trace_id",
    "actor_type",
    "actor_id",
    "summary",
    "payload",
    "refs",
    "data_subject_id",
    "supersedes",
}
OPTIONAL = {"mission_id", "trace_id", "data_subject_id", "supersedes"}
NOISE = {
    "exec.output_chunk",
    "container.metrics",
    "network.egress",
    "llm.call",
    "llm.cache_hit",
    "cost.incurred",
    "file.written",
    "hook.fired",
    "run.agent_span",
}
KNOWN_FAMILIES = {
    "peer",
    "message",
    "agent",
    "chat",
    "mission",
    "crew",
    "task",
    "run",
    "keeper",
    "guardrail",
    "approval",
    "llm",
    "cost",
    "budget",
    "memory",
    "summary",
    "exec",
    "network",
    "file",
    "container",
    "eval",
    "checkpoint",
    "hook",
    "sidecar",
    "credential",
    "skill",
}
UNKNOWN_TYPES = {"deploy.window_opened", "pricing.screenshot_taken"}
ALWAYS_EMBEDDED = {
    "peer.escalation",
    "summary.generated",
    "memory.consolidated",
    "memory.remembered",
    "approval.denied",
    "eval.regression_detected",
}
EMBEDDED_WHEN_BAD = {"keeper.decision", "mission.status_change"}
FIRST, LAST = datetime(2026, 10, 26, tzinfo=UTC), datetime(2026, 11, 16, tzinfo=UTC)
ROLES = {"AGENT", "LEAD", "OWNER"}
# Anchored to a word's start, so that "GET /cart" of a log line stays allowed.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|tmp|work|Users|var|opt|usr|mnt)(?:/|\b)|[A-Z]:\\\\|file://")

Entry = dict[str, Any]


def read_entries() -> list[Entry]:
    lines = (SAMPLE / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def read_questions() -> list[dict[str, Any]]:
    questions: list[dict[str, Any]] = json.loads((SAMPLE / "questions.json").read_text(encoding="utf-8"))
    return questions


def is_embedded(entry: Entry) -> bool:
    """Contract §2, restated here so that a slip in the rule and one in the data cannot cancel out."""
    entry_type, flagged = entry["entry_type"], entry["refs"].get("episodic") is True
    if entry_type in ALWAYS_EMBEDDED:
        return True
    if entry_type in EMBEDDED_WHEN_BAD:
        return flagged or entry["severity"] in {"warn", "error"}
    return bool(entry_type == "peer.conversation" and (flagged or entry["payload"].get("state") == "escalated"))


def is_visible(entry: Entry, question: dict[str, Any]) -> bool:
    """Whether the question's role may see the entry: own, own and the crew's memories, or all of it."""
    own = entry["agent_id"] == question["agent_id"]
    if question["role"] == "AGENT":
        return own
    if question["role"] == "LEAD":
        return own or (entry["crew_id"] == question["crew_id"] and is_embedded(entry))
    return True


def test_every_line_builds_a_journal_entry() -> None:
    for record in read_entries():
        built = build_entry({**record, "workspace_id": "default"})
        assert built.to_record()["summary"] == record["summary"]


def test_lines_carry_only_what_a_client_may_choose() -> None:
    for record in read_entries():
        assert set(record) <= FIELDS, record["id"]
        assert set(record) >= FIELDS - OPTIONAL, record["id"]
        assert isinstance(record["payload"], dict)
        assert isinstance(record["refs"], dict)


def test_ids_are_unique_and_in_the_alphabet() -> None:
    ids = [record["id"] for record in read_entries()]
    assert [name for name, times in Counter(ids).items() if times > 1] == []
    assert [name for name in ids if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)] == []


def test_times_are_ordered_milliseconds_within_the_three_weeks() -> None:
    texts = [record["ts"] for record in read_entries()]
    assert [text for text in texts if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)] == []
    times = [datetime.fromisoformat(text) for text in texts]
    assert times == sorted(times)
    assert times[0] >= FIRST
    assert times[-1] < LAST


def test_the_sample_has_the_size_noise_and_memories_it_promises() -> None:
    entries = read_entries()
    assert 350 <= len(entries) <= 450
    assert 0.30 <= sum(entry["entry_type"] in NOISE for entry in entries) / len(entries) <= 0.40
    assert 60 <= sum(map(is_embedded, entries)) <= 110
    assert {entry["crew_id"] for entry in entries} == {"platform", "growth"}


def test_types_come_from_the_catalogue_but_for_a_few_unknown_ones() -> None:
    entries = read_entries()
    strangers = {e["entry_type"] for e in entries if e["entry_type"].split(".")[0] not in KNOWN_FAMILIES}
    assert strangers == UNKNOWN_TYPES


def test_the_awkward_texts_are_there() -> None:
    text = (SAMPLE / "journal.jsonl").read_text(encoding="utf-8")
    for awkward in ("<b>", "🎉", "Kündigen", "Ignore all previous instructions"):
        assert awkward in text, awkward


def test_meaningful_summaries_are_not_templated() -> None:
    summaries = [e["summary"] for e in read_entries() if e["entry_type"] not in NOISE]
    assert len(set(summaries)) == len(summaries)
    # Digits apart they differ too, so no line is another one with new numbers.
    shapes = Counter(re.sub(r"\d+", "0", summary) for summary in summaries)
    assert [shape for shape, times in shapes.items() if times > 1] == []


def test_refs_point_at_earlier_entries_of_the_sample() -> None:
    seen: set[str] = set()
    for record in read_entries():
        refs = record["refs"]
        named = [refs[key] for key in ("parent_entry_id", "reply_to", "cause_of") if key in refs]
        lists = [refs.get("derived_from", []), refs.get("evidence", []), record.get("supersedes", [])]
        for target in named + [one for some in lists for one in some]:
            assert target in seen, f"{record['id']} names {target}"
        seen.add(record["id"])


def test_resolved_escalations_answer_a_pending_one_with_the_same_question() -> None:
    entries = {record["id"]: record for record in read_entries()}
    resolved = [
        entry
        for entry in entries.values()
        if entry["entry_type"] == "peer.escalation" and entry["payload"]["state"] == "resolved"
    ]
    assert resolved
    for entry in resolved:
        asked = entries[entry["refs"]["parent_entry_id"]]["payload"]
        assert asked["state"] == "pending"
        assert asked["question"] == entry["payload"]["question"]


def test_notes_supersede_earlier_ones_of_the_same_agent_and_one_was_superseded_twice() -> None:
    entries = {record["id"]: record for record in read_entries()}
    later = {old: record for record in entries.values() for old in record.get("supersedes", [])}
    assert later
    assert all(entries[old]["agent_id"] == record["agent_id"] for old, record in later.items())
    assert any(record["id"] in later for record in later.values())


def test_some_notes_contradict_each_other_and_a_rule_names_its_evidence() -> None:
    notes = [record for record in read_entries() if record["entry_type"] == "memory.remembered"]
    found = {
        frozenset((new["id"], old["id"]))
        for at, new in enumerate(notes)
        for old in notes[:at]
        if contradiction(new["summary"], old["summary"]) and old["id"] not in new.get("supersedes", [])
    }
    assert found == {
        frozenset(("note-session-pool", "note-session-pool-load")),
        frozenset(("note-backup-owner", "note-backup-owner-dora")),
    }
    assert any(len(record["refs"].get("evidence", [])) >= 3 for record in read_entries())


def test_nothing_in_the_sample_names_a_path_of_a_machine() -> None:
    for name in ("journal.jsonl", "questions.json"):
        found = MACHINE_PATH.findall((SAMPLE / name).read_text(encoding="utf-8"))
        assert found == [], name


def test_there_are_25_questions_of_one_shape() -> None:
    questions = read_questions()
    assert len(questions) == 25
    assert len({question["qid"] for question in questions}) == 25
    for question in questions:
        assert set(question) == {"qid", "query", "agent_id", "crew_id", "role", "relevant_ids"}
        assert question["role"] in ROLES
        assert (question["agent_id"] is None) == (question["role"] == "OWNER")
        assert (question["crew_id"] is None) == (question["role"] == "OWNER")
    assert {question["role"] for question in questions} == ROLES


@pytest.mark.parametrize("question", read_questions(), ids=lambda question: str(question["qid"]))
def test_a_question_has_answers_its_asker_may_see(question: dict[str, Any]) -> None:
    entries = {record["id"]: record for record in read_entries()}
    assert question["relevant_ids"]
    for wanted in question["relevant_ids"]:
        assert wanted in entries
        assert is_visible(entries[wanted], question), wanted


def test_the_first_question_is_the_worked_recall_and_a_memory_answers_it() -> None:
    entries = {record["id"]: record for record in read_entries()}
    first = read_questions()[0]
    assert first["query"] == "why was the checkout deploy denied?"
    assert first["role"] == "OWNER"
    assert entries[first["relevant_ids"][0]]["entry_type"] == "approval.denied"


def test_words_alone_do_not_answer_every_question() -> None:
    """A share of the questions has no relevant entry that holds most of the question's words."""
    entries = {record["id"]: record for record in read_entries()}
    hard = 0
    for question in read_questions():
        words = set(re.findall(r"[^\W\d_]{4,}", question["query"].lower()))
        best = max(
            len(words & set(re.findall(r"[^\W\d_]{4,}", json.dumps(entries[i], ensure_ascii=False).lower())))
            for i in question["relevant_ids"]
        )
        hard += best <= len(words) / 3
    assert hard >= 8
