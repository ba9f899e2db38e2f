"""Memories of several sources that say the same."""

from __future__ import annotations

from typing import Any

import pytest
from Stemmer import Stemmer

from crew_journal.schemas.context.assembly import Item
from crew_journal.schemas.context.budget import MemoryKind
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.context.memories import Distinct, Said, distinct
from crew_journal.services.recall.arranging import ComparedText, KnownTexts

ANALYZER = Analyzer(Stemmer)


def said(name: str, source: str, text: str, **also: Any) -> Said:
    kind = MemoryKind.SEMANTIC if source == "fact" else MemoryKind.EPISODIC
    return Said(Item(kind, name, f"2026-05-12 {text}", also.pop("salience", 0.5), source=source, **also), text)


def without_repeats(*memories: Said) -> Distinct:
    found = distinct(memories, ANALYZER)
    again = distinct(memories[::-1], ANALYZER)
    assert sorted(again.items, key=lambda one: one.id) == sorted(found.items, key=lambda one: one.id)
    return found


def test_an_entry_a_fact_and_a_drawer_that_say_the_same_are_one_memory() -> None:
    found = without_repeats(
        said("d", "drawer", "User: The importer runs in zone four", turn=0, salience=0.7),
        said("f", "fact", "the importer runs in zone four", since="2026-03-04"),
        said("e", "entry", "The importer runs in zone four.", turn=3),
        said("x", "entry", "The exporter runs in zone five"),
    )
    assert [item.id for item in found.items] == ["e", "x"]
    assert {(one.id, other) for one, other in found.repeated} == {("d", "e"), ("f", "e")}
    kept = found.items[0]
    assert (kept.turn, kept.salience, kept.since) == (0, 0.7, "2026-03-04"), "it ranks as the best of them"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The deploy of the importer was approved by Ann", "The deploy of the importer was not approved by Ann"),
        ("Invoice 4417 of the harbour was paid on time", "Invoice 4418 of the harbour was paid on time"),
        ("The retention of backups is thirty days", "The retention of logs is thirty days"),
    ],
)
def test_what_differs_in_a_number_a_name_or_a_negation_is_no_repeat(one: str, other: str) -> None:
    assert len(without_repeats(said("a", "entry", one), said("b", "drawer", other)).items) == 2


def test_nearly_the_same_words_are_a_repeat() -> None:
    found = without_repeats(
        said("a", "entry", "The parser reads the whole archive in a single pass"),
        said("b", "drawer", "The parser reads the archive in a single pass"),
    )
    assert [item.id for item in found.items] == ["a"]


def test_an_exchange_of_which_all_turns_are_known_is_left_out() -> None:
    found = without_repeats(
        said("q", "entry", "Where does the importer run now?"),
        said("a", "entry", "In zone four, since the move"),
        said("d", "drawer", "User: Where does the importer run now?\n\nAgent: In zone four, since the move"),
    )
    assert [item.id for item in found.items] == ["q", "a"]


def test_an_exchange_with_a_turn_that_is_not_known_takes_the_place_of_its_other_turns() -> None:
    exchange = "User: Where does the importer run now?\n\nAgent: In zone four, since the move"
    question = said("q", "entry", "Where does the importer run now?", salience=0.9)
    found = without_repeats(question, said("d", "drawer", exchange))
    assert [(item.id, item.salience) for item in found.items] == [("d", 0.9)]
    outdated = said("q", "entry", "Where does the importer run now?", until="2026-05-12")
    found = without_repeats(outdated, said("d", "drawer", exchange))
    assert {item.id for item in found.items} == {"q", "d"}, "what is known of its time stays"


def test_of_two_entries_the_one_that_counts_stays() -> None:
    old = said("old", "entry", "The importer runs in zone four", at_ms=1)
    new = said("new", "entry", "The importer runs in zone four", at_ms=2)
    ended = said("ended", "entry", "The importer runs in zone four", at_ms=3, until="2026-05-12")
    assert [item.id for item in without_repeats(old, new).items] == ["new"]
    assert [item.id for item in without_repeats(old, ended).items] == ["old"]


def test_the_first_text_kept_that_says_the_same_is_found_whichever_has_more_words() -> None:
    short, long = "The parser reads the archive in a single pass", "The parser reads the whole archive in a single pass"
    texts = [ComparedText(text, ANALYZER) for text in (short, long, "Nothing of it", "")]
    for first, other in ((0, 1), (1, 0)):
        known = KnownTexts(texts)
        known.keep(texts[2], 7)
        known.keep(texts[first], 8)
        known.keep(texts[first], 9)
        assert known.find(texts[other]) == 8
        assert known.find(texts[3]) is None
