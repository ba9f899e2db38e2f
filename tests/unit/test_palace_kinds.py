"""The second stage of the classifier, on messages of four invented groups (tests/data/palace_messages.tsv)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crew_journal.schemas.entries.rules import AGENT_RESPONSE, USER_MESSAGE
from crew_journal.schemas.palace.exchanges import Exchange, ExchangeTurn, Thresholds, exchanges_of, filed_chunks
from crew_journal.schemas.palace.rules import is_noise
from crew_journal.schemas.text.kinds import CHATTER, kind_of, kind_of_turns

MESSAGES = Path(__file__).parents[1] / "data" / "palace_messages.tsv"
PAGE = Path(__file__).parents[2] / "docs" / "palace.md"
GROUPS = ("theatre", "bakery", "sailing", "clinic")
WORDS = Thresholds(0.8, 0.5)


def messages() -> list[tuple[str, str, str]]:
    """Type, group and text."""
    lines = [line for line in MESSAGES.read_text("utf-8").splitlines() if not line.startswith("#")]
    return [(kind, group, text) for kind, group, text in (line.split("\t") for line in lines)]


def filed_type(text: str) -> str:
    """The type with which a message is filed; ``none`` if it is not filed."""
    chunks = [] if is_noise(text) else filed_chunks(f"User: {text}", WORDS)
    return chunks[0].memory_type if chunks else "none"


def test_the_page_of_the_palace_states_how_many_messages_of_each_group_get_the_right_type() -> None:
    page = PAGE.read_text("utf-8")
    right = Counter(group for kind, group, text in messages() if filed_type(text) == kind)
    count = Counter(group for _, group, _ in messages())
    for group in GROUPS:
        assert f"| {group} | {count[group]} | {right[group] / count[group]:.2f} |" in page
    assert sum(right.values()) >= 0.7 * len(messages())


def test_at_most_three_tenths_of_chatter_are_kept_and_little_else_is_lost() -> None:
    noise = [text for kind, _, text in messages() if kind == "none"]
    rest = [text for kind, _, text in messages() if kind != "none"]
    assert sum(filed_type(text) != "none" for text in noise) <= 0.3 * len(noise)
    assert sum(filed_type(text) == "none" for text in rest) <= 0.05 * len(rest)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Book a table for nine people", "task"),
        ("Booked a table for nine people", "fact"),
        ("The parser crashes on empty files.", "problem"),
        ("The parser crashed on empty files, that is fixed now.", "milestone"),
        ("Is the parser a module of its own?", CHATTER),
        ("Could you check the parser?", "task"),
        ("I hate it when logs have no dates.", "preference"),
        ("I hate this, I am so sad.", "emotional"),
        ("We use Postgres instead of MySQL from Monday on.", "decision"),
        ("Ich bin stolz auf euch.", "emotional"),
        ("Die Heizung ist defekt.", "problem"),
        ("On a décidé de garder le vieux serveur.", "decision"),
        ("thanks, see you!", CHATTER),
        ("hahaha", CHATTER),
        ("", CHATTER),
    ],
)
def test_cues_decide_the_type_of_a_message(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_an_exchange_has_the_type_of_its_clearest_turn_and_only_chatter_has_none() -> None:
    assert kind_of_turns(["thanks!", "We decided to keep Postgres."]) == "decision"
    assert kind_of_turns(["thanks!", "haha"]) == CHATTER
    assert filed_chunks("User: haha, good one\n\nAgent: you are welcome!", WORDS) == []
    assert filed_chunks("x" * 900, WORDS), "a part of a long text is kept"


def turn(seq: int, text: str, *, user: bool = True, minute: float = 0.0) -> ExchangeTurn:
    ms = int(minute * 60_000)
    return ExchangeTurn(seq, f"e{seq}", "s", USER_MESSAGE if user else AGENT_RESPONSE, "ada", text, "", ms, ms)


def texts(*turns: ExchangeTurn) -> list[str | None]:
    exchanges: list[Exchange] = exchanges_of(turns, 1 << 50)
    return [exchange.text for exchange in exchanges]


def test_a_short_answer_stays_with_its_question_even_if_it_is_noise_alone() -> None:
    asked = turn(2, "Shall I deploy on Tuesday or on Thursday?", user=False)
    said = texts(turn(1, "The importer is ready."), asked, turn(3, "yes"))
    assert said == ["User: The importer is ready.\n\nAgent: Shall I deploy on Tuesday or on Thursday?\n\nUser: yes"]


def test_a_late_answer_begins_with_its_question_for_an_hour() -> None:
    question = turn(1, "On which day do we deploy?")
    assert texts(question, turn(2, "Tuesday.", minute=40)) == [
        "User: On which day do we deploy?",
        "User: On which day do we deploy?\n\nUser: Tuesday.",
    ]
    assert texts(question, turn(2, "Tuesday it is, as ever.", minute=90))[1] == "User: Tuesday it is, as ever."


def test_a_question_or_a_long_turn_after_a_question_begins_its_own_exchange() -> None:
    question = turn(1, "On which day do we deploy?")
    for text in ("And who does it this time?", "The importer was rewritten. " * 4):
        assert texts(question, turn(2, text)) == ["User: On which day do we deploy?", f"User: {text}"]


def test_an_exchange_is_dated_by_its_turns_and_not_after_they_were_published() -> None:
    imported = ExchangeTurn(1, "e1", "s", USER_MESSAGE, "ada", "text", "", published_ms=9_000, ts_ms=5_000)
    forged = ExchangeTurn(1, "e1", "s", USER_MESSAGE, "ada", "text", "", published_ms=9_000, ts_ms=99_000)
    assert [Exchange((one,), ended=True).said_ms for one in (imported, forged)] == [5_000, 9_000]
