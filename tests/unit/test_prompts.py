"""What a prompt asks of a memory."""

import pytest

from crew_journal.schemas.recall.questions import (
    AnswerKind,
    asked_kind,
    asks_for_all,
    asks_nothing,
    collects,
    holds_kind,
    is_question,
)
from crew_journal.schemas.recall.reference_texts import reference_texts


@pytest.mark.parametrize(
    "prompt",
    [
        "please continue", "fix the typo", "make it shorter", "thanks a lot!", "ok, do it", "good morning everybody",
        "read it again", "sort this by the second column", "weiter so, danke", "korrigiere die Fehler hier",
        "merci beaucoup", "", "🙂",
    ],
)  # fmt: skip
def test_a_courtesy_or_a_request_about_what_is_at_hand_asks_nothing(prompt):
    assert asks_nothing(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "deploy the checkout to staging", "write a letter to Ottilie", "fix the sluice by the mill pond",
        "sort these invoices by supplier and project", "I'm off to the boathouse", "what should I check first?",
        "Schreib Herrn Obermoser einen Brief", "E-4711", "heap limit", "coffee", "Wetter", "run the tests",
        "commit and push", "open a pull request", "write a function that formats code in go",
    ],
)  # fmt: skip
def test_what_names_a_thing_asks_for_memories(prompt):
    assert not asks_nothing(prompt)


def test_no_prompt_that_belongs_to_a_reference_memory_asks_nothing():
    for memory in reference_texts().memories:
        for prompt in (memory.question, memory.paraphrase, memory.situation, memory.beside):
            assert not asks_nothing(prompt), prompt


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("where is the key", True), ("Wer hat den Schlüssel?", True), ("could you book the hall?", False),
        ("book the great hall", False), ("heap limit", True), ("Où est la clé", True), ("the key is gone, isn't it?", True),
    ],
)  # fmt: skip
def test_a_question_is_known_by_its_mark_or_first_word(text, asks):
    assert is_question(text) == asks


@pytest.mark.parametrize(
    ("question", "text", "holds"),
    [
        ("When does the kiln cool?", "The kiln is red", False),
        ("When does the kiln cool?", "The kiln cools on Tuesday", True),
        ("What day does the kiln cool?", "The kiln cools on Tuesdays", True),
        ("How many pegs are there?", "The pegs are green", False),
        ("How many pegs are there?", "There are twelve pegs", True),
        ("Who plays the viola?", "The viola is old", False),
        ("Who plays the viola?", "It was Ottilie who played", True),
        ("Wie viele Boote gibt es?", "Es gibt 14 Boote", True),
    ],
)
def test_a_text_holds_the_kind_of_answer_that_is_asked_for(question, text, holds):
    kind = asked_kind(question)
    assert isinstance(kind, AnswerKind)
    assert holds_kind(kind, text, set(question.casefold().strip("?").split())) == holds


def test_a_question_why_asks_for_no_kind():
    assert asked_kind("Why is the crane out of service?") is None


@pytest.mark.parametrize(
    ("question", "every"),
    [
        ("How much have I paid for fuel this month?", True),
        ("What is the total cost of the repairs?", True),
        ("Am I meeting my reading goal?", True),
        ("Am I on track with the savings?", True),
        ("List all the plumbers we called", True),
        ("Wie viel habe ich diesen Monat für Diesel bezahlt?", True),
        ("Combien avons-nous dépensé au total ?", True),
        ("How much does the fuel cost?", False),
        ("When did I pay the plumber?", False),
        ("Who called all day?", False),
        ("Was kostet der Diesel?", False),
    ],
)
def test_a_question_for_a_total_or_a_goal_asks_for_all(question, every):
    assert asks_for_all(question) is every


@pytest.mark.parametrize(
    ("question", "many"),
    [
        ("How many roller skating activities did I take part in?", True),
        ("In what order did I bring up the features?", True),
        ("Can you give me a summary of how the project has progressed?", True),
        ("What activities did we do in November?", True),
        ("Since when do we use the new broker?", True),
        ("Welche Bücher habe ich im Mai gelesen?", True),
        ("Combien de fois avons-nous changé le code ?", True),
        ("¿Cuántas reuniones tuve en marzo?", True),
        ("6月我参加了哪些活动？", True),
        ("When did I pay the plumber?", False),
        ("Which port does the broker use?", False),
        ("Where is the summary stored?", False),
        ("Wann war der Termin?", False),
    ],
)
def test_a_list_a_count_an_order_or_a_summary_collects(question, many):
    assert collects(question) is many
