"""Names that texts state to be one person's, and names that are misspelt or shortened."""

from __future__ import annotations

import pytest

from crew_journal.schemas.text.names import edits, misspelt, name_words, shortened, stated_names


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("Emi is what everybody calls Kate", ("Emi", "Kate")),
        ("Everybody calls Katherine Kit.", ("Kit", "Katherine")),
        ("Muhhamed goes by Mo", ("Muhhamed", "Mo")),
        ("Robert (aka Bob) is here", ("Robert", "Bob")),
        ("Johanna wird von allen Hanne genannt", ("Johanna", "Hanne")),
        ("Tout le monde appelle Marguerite Margot", ("Marguerite", "Margot")),
        ("Todos llaman Pepe a José", ("Pepe", "José")),
        ("No worries, my name is Bella, and yours?", ("Bella", "Ada")),
        ("Ich heiße Jo", ("Jo", "Ada")),
    ],
)
def test_a_text_states_two_names_of_one_person(text, pair):
    assert stated_names(text, "Ada") == [pair]


@pytest.mark.parametrize(
    "text",
    ["Call me later", "Max is actually Dutch", "Her name is Dua", "We call the plumber", "Kate and Emi are friends"],
)
def test_other_texts_state_none(text):
    assert stated_names(text, "Ada") == []


def test_words_that_may_be_names_are_capitalised_and_no_function_words_or_months():
    assert name_words("What did Kate eat in May? When does Emi go on Monday?") == ["Kate", "Emi"]


def test_a_name_is_misspelt_by_one_letter_or_two_in_a_long_one_after_the_first():
    assert misspelt("muhammed", "muhhamed")
    assert misspelt("elisa", "elise")
    assert not misspelt("emi", "eli"), "too short"
    assert not misspelt("anna", "hanna"), "another first letter"
    assert not misspelt("maria", "marcus")
    assert (edits("abcd", "acbd", 2), edits("abc", "abcde", 2), edits("abcdef", "uvwxyz", 2)) == (1, 2, 3)


def test_the_begin_of_a_name_stands_for_it_unless_it_is_an_everyday_word():
    assert shortened("mel", "melanie")
    assert shortened("samantha", "sam")
    assert not shortened("car", "carla")
    assert not shortened("jo", "johanna"), "too short"
