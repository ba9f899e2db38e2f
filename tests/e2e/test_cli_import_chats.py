"""The same messages in every format: imported once however often, and recalled by question."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.chats import PROGRAMS, WRITERS, Conversations, Message
from support.cli import Cli, Up

LOCOMO = "CREW_JOURNAL_TEST_LOCOMO"
"""Names a folder with ``journal.jsonl`` and ``queries.jsonl``: LoCoMo conversations as entries, with questions."""
MESSAGES, SHORT = 3_000, 22
QUESTIONS = 20
FACTS = {
    "Where is the spare key of the boathouse?": "The spare key of the boathouse hangs behind the red canoe",
    "Who repairs the espresso machine?": "Ottilie repairs the espresso machine every second Monday",
    "Which vaccine does the dog need?": "The dog needs a rabies vaccine before the ferry",
    "How old is the sourdough starter?": "The sourdough starter is eleven years old",
    "What colour is the guest room?": "We painted the guest room sage green",
    "When does the choir rehearse?": "The choir rehearses on Thursday at half past seven",
    "Which train goes to Trieste?": "The night train to Trieste leaves from platform nine",
    "What is the alarm code of the studio?": "The studio alarm code ends with 4471",
    "Who is allergic to walnuts?": "Benedikt is allergic to walnuts, so no brownies",
    "Where did the kayak trip start?": "Our kayak trip started below the old weir",
    "Which telescope did Farid buy?": "Farid bought a Dobsonian telescope with eight inches",
    "How much was the accordion?": "The accordion cost nine hundred euros at the auction",
    "Who won the chess tournament?": "Sunniva won the chess tournament with a bishop sacrifice",
    "What broke on the tractor?": "The hydraulic pump broke on the tractor",
    "Which tea helps against the cough?": "Thyme tea helps against the cough",
    "Where does the violin teacher live?": "The violin teacher lives above the pharmacy",
    "What did the landlord promise?": "The landlord promised new windows before winter",
    "Which mountain hut has no stove?": "The upper mountain hut has no stove",
    "Who lost the passport in Lisbon?": "Ines lost her passport in Lisbon",
    "When is the beekeeping course?": "The beekeeping course begins on the second of May",
}
BEGIN = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Cli(tmp_path_factory.mktemp("chats") / "data").up() as up:
        yield up


def import_twice(cli: Cli, name: str, workspace: str, chats: Conversations, folder: Path) -> int:
    """Import ``chats`` two times; the sequence behind the last entry."""
    WRITERS[name](chats, folder / name)
    into = ("import", "--from", name, str(folder / name), "-w", workspace, "--json")
    first, second = cli(*into).json, cli(*into).json
    wanted = sum(map(len, chats.values()))
    assert first["imported"] == wanted
    assert first["plan"]["conversations"] in (len(chats), 0), "0 where the format knows none"
    assert (second["imported"], second["repeated"]) == (0, wanted)
    return int(first["last_seq"])


def recalled(cli: Cli, workspace: str, question: str, last: int) -> list[str]:
    """The texts of the first ten hits."""
    answer = cli("recall", question, "-w", workspace, "-k", "10", "--min-seq", str(last), "--json").json
    return [hit["summary"] for hit in answer["hits"]]


def listed(cli: Cli, workspace: str, phrase: str) -> list[str]:
    """The texts of the entries with a phrase: recall leaves spans out."""
    return [entry["summary"] for entry in cli("list", "-w", workspace, "--q", phrase, "--json").json["entries"]]


def own_chats(length: int) -> Conversations:
    """Ten conversations of ``length`` messages; two of each state a fact."""
    chats: Conversations = {}
    facts = list(FACTS.values())
    for chat in range(10):
        texts = [f"Message {n} of chat {chat}: nothing of note happened in this hour" for n in range(length)]
        texts[6], texts[17] = facts[2 * chat : 2 * chat + 2]
        begin = BEGIN + timedelta(days=chat)
        chats[f"chat-{chat}"] = [
            Message(begin + timedelta(minutes=n), n % 2 == 0, text) for n, text in enumerate(texts)
        ]
    return chats


@pytest.mark.parametrize(
    ("name", "length"),
    [
        *((name, SHORT) for name in PROGRAMS),
        *(pytest.param(name, MESSAGES // 10, marks=pytest.mark.nightly) for name in WRITERS),
    ],
)
def test_messages_of_each_format_are_imported_once_and_answer_questions(
    running: Up, name: str, length: int, tmp_path: Path
) -> None:
    cli, workspace = running.beside(tmp_path / "none"), f"{name}-{length}"
    last = import_twice(cli, name, workspace, own_chats(length), tmp_path)
    for question, fact in list(FACTS.items())[:: 4 if length == SHORT else 1]:
        found = listed(cli, workspace, fact) if name == "otel" else recalled(cli, workspace, question, last)[:3]
        assert any(fact in text for text in found), question


def locomo(folder: Path) -> tuple[Conversations, dict[str, set[str]]]:
    """3,000 messages, sessions beyond the data's own being repeated as other chats; and question → texts that answer."""
    entries = [json.loads(line) for line in (folder / "journal.jsonl").read_text("utf-8").splitlines()]
    texts = {entry["id"]: " ".join(entry["summary"].split()) for entry in entries}
    first = {entry["agent_id"]: entry["actor_id"] for entry in reversed(entries)}
    chats: Conversations = {}
    for n in range(MESSAGES):
        again, at = divmod(n, len(entries))
        entry = entries[at]
        when = datetime.fromisoformat(entry["ts"]) + timedelta(days=1_000 * again)
        users = entry["actor_id"] == first[entry["agent_id"]]
        chats.setdefault(f"{entry['trace_id']}-{again}".lower().replace("_", "-"), []).append(
            Message(when, users, entry["summary"])
        )
    questions = [json.loads(line) for line in (folder / "queries.jsonl").read_text("utf-8").splitlines()]
    chosen = questions[:: len(questions) // QUESTIONS][:QUESTIONS]
    return chats, {one["query"]: {texts[name] for name in one["relevant_ids"]} for one in chosen}


@pytest.mark.nightly
@pytest.mark.parametrize("name", PROGRAMS)
def test_three_thousand_real_messages_are_imported_once_and_answer_questions(
    running: Up, name: str, tmp_path: Path
) -> None:
    if not (folder := os.environ.get(LOCOMO)):
        pytest.skip(f"{LOCOMO} names no folder with journal.jsonl and queries.jsonl of LoCoMo")
    cli = running.beside(tmp_path / "none")
    chats, questions = locomo(Path(folder))
    last = import_twice(cli, name, name, chats, tmp_path)
    answered = sum(bool(texts & set(recalled(cli, name, question, last))) for question, texts in questions.items())
    print(f"{name}: {answered} of {QUESTIONS}")
    assert len(questions) == QUESTIONS
    assert answered >= 10, f"{answered} of {QUESTIONS} questions found a turn that answers them"
