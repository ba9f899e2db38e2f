"""What each reader makes of a faithful sample: what is left out, whose it is, when it was, and always the same ids."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from crew_journal.services.cli.importing.command import SOURCES, Plan, Selection
from crew_journal.services.cli.importing.lines import read_line
from crew_journal.services.cli.importing.sources.found import Notes
from crew_journal.services.cli.main import main

SAMPLES = Path(__file__).parents[1] / "data" / "imports"
FILES = {
    "claude-code": "claude-code",
    "codex": "codex",
    "chatgpt": "chatgpt.json",
    "claude": "claude.json",
    "openai-messages": "openai-messages.jsonl",
    "mem0": "mem0.json",
    "mcp-memory": "mcp-memory.jsonl",
    "otel": "otel.json",
    "cloudevents": "cloudevents.json",
    "slack": "slack",
    "omp": "omp/01_evidence_and_derivation.json",
}


def selected(name: str, path: Path | None = None, **more: Any) -> Selection:
    return Selection(name, SOURCES[name], path or SAMPLES / FILES[name], **more)


def read(name: str, path: Path | None = None, **more: Any) -> tuple[list[dict[str, Any]], Notes]:
    notes = Notes()
    return list(selected(name, path, **more).records(notes)), notes


def said(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(record.get("actor_id", ""), record["summary"]) for record in records]


def test_every_format_has_a_sample() -> None:
    assert FILES.keys() == SOURCES.keys()


@pytest.mark.parametrize("name", FILES)
def test_every_record_is_a_valid_entry_and_has_the_same_id_each_time(name: str) -> None:
    records, _ = read(name)
    assert records
    for number, record in enumerate(records, 1):
        assert read_line(number, json.dumps(record).encode(), None).record == record
    assert [record["id"] for record in read(name)[0]] == [record["id"] for record in records]
    assert len({record["id"] for record in records}) == len(records)


@pytest.mark.parametrize("name", FILES)
def test_the_plan_counts_what_is_read(name: str) -> None:
    plan = Plan.of(selected(name)).as_json()
    assert plan["entries"] == len(read(name)[0]) == sum(plan["types"].values())


def test_side_chains_reminders_and_commands_of_claude_code_are_left_out() -> None:
    records, notes = read("claude-code")
    assert said(records) == [
        ("user", "How often does the payment client retry a failed request?"),
        ("claude-code", "It retries five times, with exponential backoff of at most 30 seconds."),
        ("user", "Lower it to three."),
    ]
    assert {record["crew_id"] for record in records} == {"shop"}
    assert notes.left_out["of a side chain"] == notes.left_out["command of the program"] == 1


def test_codex_instructions_and_events_that_repeat_messages_are_left_out() -> None:
    records, notes = read("codex")
    assert [text for _, text in said(records)] == [
        "Which port does the scanner service listen on?",
        "The scanner service listens on port 7421.",
    ]
    assert notes.left_out["instructions"] == 3


def test_an_edited_chat_follows_its_current_branch() -> None:
    records, notes = read("chatgpt")
    assert said(records) == [
        ("user", "How long does wheat sourdough rest in the fridge?"),
        ("chatgpt", "Between twelve and thirty-six hours at four degrees."),
    ]
    assert notes.left_out["of a branch that was edited or answered again"] == 2
    assert notes.untimed == 1
    assert records[1]["ts"] == records[0]["ts"], "a message without a time stays behind the one before"


def test_an_old_chat_without_a_current_node_follows_its_newest_branch(tmp_path: Path) -> None:
    chats = json.loads((SAMPLES / "chatgpt.json").read_text())
    del chats[0]["current_node"]
    old = tmp_path / "conversations.json"
    old.write_text(json.dumps(chats))
    assert read("chatgpt", old)[0] == read("chatgpt")[0]


def test_an_export_is_read_from_its_archive_and_from_its_directory(tmp_path: Path) -> None:
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(SAMPLES / "chatgpt.json", "conversations.json")
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(SAMPLES / "chatgpt.json", folder / "conversations.json")
    assert read("chatgpt", archive)[0] == read("chatgpt", folder)[0] == read("chatgpt")[0]


def test_a_file_in_another_format_than_the_one_named_is_answered_with_the_option_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(SAMPLES / "chatgpt.json", "conversations.json")
    for file in (SAMPLES / "chatgpt.json", archive):
        assert main(["import", str(file)]) == 2
        assert "name its format, such as --from chatgpt" in capsys.readouterr().err
        assert main(["import", "--from", "claude", str(file), "--dry-run"]) == 0
        assert f"{file} holds no entries in the format claude" in capsys.readouterr().err


def test_an_answer_that_was_asked_for_again_replaces_the_first_one_of_claude() -> None:
    records, _ = read("claude")
    assert [text for _, text in said(records)] == [
        "Which tyre pressure suits gravel?",
        "About 2.4 bar in front and 2.6 bar behind for 40 mm tyres.",
    ]


def test_messages_without_times_are_counted() -> None:
    records, notes = read("openai-messages")
    assert notes.untimed == len(records) == 4
    assert len({record["trace_id"] for record in records}) == 2
    assert all("ts" not in record for record in records)


def test_a_conversation_that_went_on_keeps_the_ids_of_its_beginning(tmp_path: Path) -> None:
    lines = (SAMPLES / "openai-messages.jsonl").read_text().splitlines()
    longer = json.loads(lines[0])
    longer["messages"].append({"role": "user", "content": "Thank you"})
    grown = tmp_path / "grown.jsonl"
    grown.write_text("\n".join([json.dumps(longer), lines[1]]))
    before, after = ({record["id"] for record in read("openai-messages", path)[0]} for path in (None, grown))
    assert before < after


def test_memories_of_mem0_name_the_person_and_are_promoted_only_on_request() -> None:
    records, notes = read("mem0")
    assert [(record["entry_type"], record["data_subject_id"]) for record in records] == [
        ("memory.imported", "maria")
    ] * 2
    assert records[0]["ts"] == "2026-08-01T10:12:45.123Z"
    assert notes.zoneless == 1
    assert {record["entry_type"] for record in read("mem0", promote=True)[0]} == {"memory.remembered"}


def test_observations_and_relations_of_the_mcp_server_become_statements() -> None:
    assert [text for _, text in said(read("mcp-memory")[0])] == [
        "Anna_Berg (person): Speaks fluent Danish",
        "Anna_Berg (person): Works from Aarhus on Fridays",
        "Anna_Berg works_at Nordlys",
    ]


def test_a_failed_span_is_an_error_with_its_reason() -> None:
    chat, tool = read("otel")[0]
    assert (chat["summary"], chat["severity"], chat["payload"]["duration_ms"]) == ("chat gpt-5: gpt-5", "info", 1_250.0)
    assert chat["payload"]["attributes"]["gen_ai.usage.input_tokens"] == 812
    assert tool["severity"] == "error"
    assert "order 4711 is locked" in tool["summary"]


def test_an_event_never_gets_a_type_that_only_the_service_writes() -> None:
    records, notes = read("cloudevents")
    assert [record["entry_type"] for record in records] == ["event.example.order.created", "event.fact.asserted"]
    assert sum(notes.left_out.values()) == 1


def test_a_thread_of_slack_is_a_conversation_with_names_instead_of_ids() -> None:
    records, _ = read("slack")
    assert said(records) == [
        ("maria", "@Bo Lund the freezer in general broke & leaks, see the ticket"),
        ("Bo Lund", "The technician comes on Thursday at nine"),
    ]
    assert len({record["trace_id"] for record in records}) == 1


def titles(records: list[dict[str, Any]]) -> list[dict[str, str] | None]:
    return [record.get("payload", {}).get("conversation") for record in records]


def test_turns_carry_the_title_of_their_conversation() -> None:
    assert titles(read("chatgpt")[0]) == [{"title": "Sourdough timing"}] * 2
    assert titles(read("claude")[0]) == [{"title": "Bike tyres"}] * 2


def test_a_renamed_conversation_has_the_same_entries_and_those_of_an_import_without_titles(tmp_path: Path) -> None:
    chats = json.loads((SAMPLES / "chatgpt.json").read_text())
    ids = [record["id"] for record in read("chatgpt")[0]]
    for title in ("Bread", "", None, 7):
        chats[0]["title"] = title
        (tmp_path / "conversations.json").write_text(json.dumps(chats))
        renamed, _ = read("chatgpt", tmp_path / "conversations.json")
        assert [record["id"] for record in renamed] == ids
        assert titles(renamed) == ([{"title": "Bread"}] * 2 if title == "Bread" else [None] * 2)
        assert all(record.get("payload") != {} for record in renamed)


def test_thanks_and_assent_are_not_found_by_the_title_and_a_long_title_is_cut(tmp_path: Path) -> None:
    said = ["How long does the dough rest?", "Thank you!", "12 hours", "ok"]
    chat = {"title": "Bread " * 100, "messages": [{"role": "user", "content": text} for text in said]}
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    first, thanks, answer, assent = titles(read("openai-messages", tmp_path / "chat.json")[0])
    assert first == answer
    assert first is not None
    assert len(first["title"]) <= 200
    assert first["title"].endswith("Bread…")
    assert (thanks, assent) == (None, None)


def test_a_reply_in_slack_has_the_first_message_of_its_thread_as_title(tmp_path: Path) -> None:
    records, _ = read("slack")
    assert titles(records) == [
        {"channel": "general"},
        {"title": "@Bo Lund the freezer in general broke & leaks, see the ticket", "channel": "general"},
    ]
    export = tmp_path / "export"
    shutil.copytree(SAMPLES / "slack", export)
    channels = json.loads((export / "channels.json").read_text())
    channels[0] |= {"topic": {"value": "Kitchen and cold storage"}, "purpose": {"value": "Kitchen and cold storage"}}
    (export / "channels.json").write_text(json.dumps(channels))
    day = json.loads((export / "general" / "2026-10-20.json").read_text())
    (export / "general" / "2026-10-21.json").write_text(json.dumps([{**day[2], "ts": "1792576600.000400"}]))
    (export / "general" / "2026-10-20.json").write_text(json.dumps(day[:2]))
    first, reply = read("slack", export)[0]
    assert titles([first]) == [{"channel": "general", "topic": "Kitchen and cold storage"}]
    assert first["id"] == records[0]["id"]
    assert titles([reply]) == [titles(records)[1] | {"topic": "Kitchen and cold storage"}], "a day later"  # type: ignore[operator]


def test_another_agent_gets_entries_of_its_own() -> None:
    records, _ = read("claude-code", agent="ada", crew="platform")
    assert {(record["agent_id"], record["crew_id"]) for record in records} == {("ada", "platform")}
    assert {record["actor_id"] for record in records} == {"user", "ada"}
    assert {record["id"] for record in records}.isdisjoint(record["id"] for record in read("claude-code")[0])
