"""The rule of updates: what a newer statement retires, and what it leaves as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.relations.rules import Consequence, Statement
from crew_journal.schemas.relations.updates import OlderStatement, chosen, update
from crew_journal.schemas.text.dates import days_from_civil

MAY_4 = days_from_civil(2026, 5, 4)  # a Monday

RETIRES = [
    ("The bakery opens at 6:30.", "The bakery opens at 7:00."),
    ("The bakery opens at 6:30.", "The bakery now opens at 7:00"),
    ("The door code is 4471.", "Correction: the door code is 4417."),
    ("Invoices are paid by Sven.", "Invoices are no longer paid by Sven, Mira does it."),
    ("Deploys happen on Tuesdays.", "We moved deploys from Tuesdays to Thursdays."),
    ("We store backups in Frankfurt.", "We store backups in Dublin instead of Frankfurt."),
    ("The dog gets dry food in the morning.", "The dog gets wet food in the morning now."),
    ("Guests may park in the yard.", "Guests may not park in the yard."),
    ("The regatta is on 4 July.", "Actually the regatta is on 11 July."),
    ("The treasurer is Olga Brandt.", "From June on the treasurer is Paul Kern."),
    ("Helmets are mandatory in the hall.", "Forget what I said about helmets in the hall."),
    ("The test server is called juno.", "The test server is called vesta, not juno."),
    ("I still need to renew the passport.", "I've finished renewing the passport."),
    ("I love the Lagavulin.", "I used to love the Lagavulin, but lately I drink no whisky."),
    ("Ich muss noch die Rechnung schreiben.", "Ich habe die Rechnung fertig."),
    ("Der Kurs beginnt um 18 Uhr.", "Der Kurs beginnt jetzt um 19 Uhr."),
    ("Die Kasse führt Frau Lenz.", "Die Kasse führt nicht mehr Frau Lenz, sondern Herr Maas."),
    ("Wir liefern am Freitag.", "Wir verlegen die Lieferung von Freitag auf Samstag."),
    ("La réunion est le lundi à 9h.", "La réunion est désormais le mardi à 9h."),
    ("On commande le pain chez Martin.", "On commande le pain chez Duval au lieu de Martin."),
]
KEEPS = [
    ("The bakery opens at 6:30.", "The butcher opens at 7:00."),
    ("The bakery opens at 6:30.", "Does the bakery open at 7:00?"),
    ("The bakery opens at 6:30.", "If the bakery opened at 7:00, I would sleep longer."),
    ("The bakery opens at 6:30.", "In 2019 the bakery opened at 7:00."),
    ("The bakery opens at 6:30.", 'A customer wrote: "the bakery opens at 7:00 now"'),
    ("The bakery opens at 6:30.", "The bakery also opens at 14:00."),
    ("I love the Lagavulin.", "My father used to love the Lagavulin."),
    ("The bakery opens at 6:30.", "The bakery still opens at 6:30."),
    ("Room 12 has a projector.", "Room 14 has a projector."),
    ("Room 12 is cleaned on Mondays.", "Room 14 is now cleaned on Fridays."),
    ("Tom's shift ends at 16:00.", "Ida's shift ends at 17:00."),
    ("The door code is 4471.", "The alarm code is 4417."),
    ("That's great, Lea!", "That's lovely, Lea!"),
    ("I will call the plumber.", "I will call the electrician."),
    ("I still need to renew the passport.", "I've finished renewing the library card."),
    ("The passport is in the drawer.", "I've finished renewing the passport."),
    ("Der Kurs beginnt um 18 Uhr.", "Vielleicht beginnt der Kurs um 19 Uhr."),
    ("Der Kurs beginnt um 18 Uhr.", "Der zweite Kurs beginnt um 19 Uhr."),
    ("La réunion est le lundi à 9h.", "La réunion est-elle le mardi ?"),
]

STANDS_BESIDE_ONE_OFF = [
    ("The library closes at 18:00.", "The library closes at 20:00 tonight."),
    ("Yoga is at 19:00.", "Yoga is cancelled today."),
    ("Yoga is at 19:00.", "Tomorrow's yoga is cancelled."),
    ("Yoga is at 19:00.", "Next week yoga is at 18:00."),
    ("Yoga is at 19:00.", "The yoga on Wednesday is now at 18:00."),
    ("Lina is on call for the gateway.", "For now Omar is on call for the gateway."),
    ("We water the plants on Mondays.", "Monday's watering of the plants is cancelled."),
    ("Every Monday we water the plants.", "We are not watering the plants this week."),
    ("The cafeteria serves fish on Fridays.", "The cafeteria does not serve fish this Friday."),
    ("Der Markt öffnet um 8 Uhr.", "Der Markt öffnet morgen um 10 Uhr."),
    ("Jens arbeitet im Lager.", "Jens arbeitet heute nicht im Lager."),
    ("Die Probe ist donnerstags um 19 Uhr.", "Die Probe am Donnerstag ist abgesagt."),
    ("La piscine ouvre à 8h.", "La piscine ouvre à 10h demain."),
    ("Paul travaille au dépôt.", "Paul ne travaille pas au dépôt cette semaine."),
    ("Le cours est le mardi à 18h.", "Le cours de mardi est annulé."),
]
HOLDS_FROM_THEN_ON = [
    ("The library closes at 18:00.", "From tomorrow on the library closes at 20:00."),
    ("The library closes at 18:00.", "Starting next week, the library closes at 20:00."),
    ("Yoga is at 19:00.", "Yoga is cancelled from next week on."),
    ("The library closes at 18:00.", "Correction: today the library closes at 20:00."),
    ("Der Markt öffnet um 8 Uhr.", "Ab morgen öffnet der Markt um 9 Uhr."),
    ("La piscine ouvre à 8h.", "À partir de demain la piscine ouvre à 9h."),
    ("The party is on Friday.", "The party on Friday is cancelled."),
    ("Applications are accepted until 1 May.", "Applications are accepted until 15 May."),
]
OTHER_CONDITION = [
    ("The pool opens at 9 on weekdays.", "The pool opens at 11 on Saturdays."),
    ("The API runs on 2 nodes in dev.", "The API runs on 6 nodes in prod."),
    ("The dog gets 200 g in the morning.", "The dog gets 150 g in the evening."),
    ("Parking costs 3 euros for members.", "Parking costs 5 euros for visitors."),
    ("Lunch is at 12.", "Dinner is at 18."),
    ("Die Heizung steht im Winter auf 21.", "Die Heizung steht im Sommer auf 18."),
    ("Das Bad öffnet montags um 11.", "Das Bad öffnet freitags um 10."),
    ("La cantine ouvre à 11h le lundi.", "La cantine ouvre à 10h le vendredi."),
]
OTHER_SUBJECT = [
    ("My bike is red.", "My son's bike is now blue."),
    ("My bike is red.", "Actually my neighbour's bike is blue."),
    ("Mein Fahrrad ist rot.", "Das Fahrrad meiner Tochter ist jetzt blau."),
    ("Mon vélo est rouge.", "Le vélo de ma fille est maintenant bleu."),
    ("Eva is a member of the club.", "Noah is no longer a member of the club."),
    ("Eva ist Mitglied im Verein.", "Noah ist nicht mehr Mitglied im Verein."),
    ("I am allergic to pollen.", "I am not allergic to cats, only to pollen."),
    ("I eat cheese.", "I don't eat cheese for breakfast."),
    ("Ich mag Kaffee.", "Ich mag keinen Kaffee am Abend."),
    ("J'aime le café.", "Je n'aime pas le café le soir."),
]
OTHER_ADJECTIVE = [
    ("The choir sings a short song.", "The choir sings a brief song."),
    ("We answer mails quickly.", "We answer mails promptly."),
    ("Der Laden verkauft gute Brote.", "Der Laden verkauft leckere Brote."),
    ("Le magasin vend du pain frais.", "Le magasin vend du pain délicieux."),
]
SAME_SUBJECT = [
    ("My bike is red.", "My bike is now blue."),
    ("The treasurer is Olga Brandt.", "The new treasurer is Paul Kern."),
    ("Eva is a member of the club.", "Eva is no longer a member of the club."),
    ("Jens arbeitet im Lager.", "Jens arbeitet nicht mehr im Lager."),
    ("I eat cheese.", "I don't eat cheese."),
    ("The API runs on 2 nodes in dev.", "The API runs on 3 nodes in dev."),
    ("La piscine ouvre à 8h.", "La piscine ouvre à 9h."),
]


@pytest.mark.parametrize("cosine", [None, 0.7])
@pytest.mark.parametrize(
    ("older", "newer"), [*STANDS_BESIDE_ONE_OFF, *OTHER_CONDITION, *OTHER_SUBJECT, *OTHER_ADJECTIVE]
)
def test_one_off_events_other_conditions_subjects_and_adjectives_retire_nothing(
    older: str, newer: str, cosine: float | None
) -> None:
    found = update(Statement(newer, MAY_4), Statement(older, MAY_4 - 30), cosine=cosine)
    assert found is None or not found.retires, found


@pytest.mark.parametrize(("older", "newer"), [*HOLDS_FROM_THEN_ON, *SAME_SUBJECT])
def test_what_holds_from_then_on_of_the_same_subject_retires(older: str, newer: str) -> None:
    found = update(Statement(newer, MAY_4), Statement(older, MAY_4 - 30), cosine=0.7)
    assert found is not None
    assert found.retires, found


@pytest.mark.parametrize(("older", "newer"), RETIRES)
def test_what_says_that_something_changed_retires_what_was_said_of_it(older: str, newer: str) -> None:
    found = update(Statement(newer, MAY_4), Statement(older, MAY_4 - 30), cosine=0.7)
    assert found is not None
    assert found.retires, found


@pytest.mark.parametrize(("older", "newer"), KEEPS)
def test_questions_guesses_quotes_reports_additions_and_other_subjects_retire_nothing(older: str, newer: str) -> None:
    found = update(Statement(newer, MAY_4), Statement(older, MAY_4 - 30), cosine=0.7)
    assert found is None or not found.retires, found


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The retro is on Friday", "Retro moved from Friday to Wednesday"),
        ("The exam is on 12 May", "The exam moved from 12 May to 20 May"),
    ],
)
def test_what_moved_from_one_day_to_another_holds_at_once(older: str, newer: str) -> None:
    found = update(Statement(newer, MAY_4), Statement(older, MAY_4 - 30))
    assert found is not None
    assert (found.retires, found.since_day) == (True, None)


@pytest.mark.parametrize(
    ("newer", "since"),
    [
        ("From 1 June the bakery opens at 7:00.", (2026, 6, 1)),
        ("As of 12 May the bakery opens at 7:00", (2026, 5, 12)),
        ("From Wednesday on the bakery opens at 7:00.", (2026, 5, 6)),
        ("From 1 June onwards, the bakery opens at 7:00, as Tom wished.", (2026, 6, 1)),
        ("The bakery now opens at 7:00.", None),
    ],
)
def test_an_update_names_the_day_from_which_it_holds(newer: str, since: tuple[int, int, int] | None) -> None:
    found = update(Statement(newer, MAY_4), Statement("The bakery opens at 6:30.", MAY_4 - 30))
    assert found is not None
    assert found.retires
    assert found.since_day == (None if since is None else days_from_civil(*since))


def test_a_day_in_german_and_french_is_understood() -> None:
    german = update(
        Statement("Ab dem 1. Juni beginnt der Kurs um 19 Uhr.", MAY_4), Statement("Der Kurs beginnt um 18 Uhr.")
    )
    french = update(
        Statement("À partir du 1er juin la réunion est le mardi à 9h.", MAY_4),
        Statement("La réunion est le lundi à 9h."),
    )
    assert german is not None
    assert french is not None
    assert german.since_day == french.since_day == days_from_civil(2026, 6, 1)


def test_a_withdrawal_retires_without_another_value() -> None:
    found = update(
        Statement("We withdraw the parking ban in the yard."),
        Statement("There is a parking ban in the yard from Monday."),
    )
    assert found is not None
    assert (found.effect, found.retires) == (Consequence.WITHDRAWS, True)


def test_what_was_withdrawn_is_reinstated_by_retiring_the_withdrawal() -> None:
    found = update(
        Statement("The parking ban in the yard is back."),
        Statement("We withdraw the parking ban in the yard."),
        cosine=0.8,
    )
    assert found is not None
    assert (found.effect, found.retires) == (Consequence.REINSTATES, True)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            "The cabin is in Lom, sleeps six, costs 90 a night and has a stove.",
            "The cabin now sleeps eight.",
        ),
        ("On call: Ada, Bruno, Cleo and Dario.", "Bruno is off, Erik is on call now."),
    ],
)
def test_a_change_of_one_of_several_parts_retires_nothing(older: str, newer: str) -> None:
    found = update(Statement(newer), Statement(older), cosine=0.7)
    assert found is None or not found.retires


def test_of_several_versions_only_the_one_that_held_until_then_is_retired() -> None:
    texts = ["The door code is 4471.", "The door code is now 4417.", "The door code is now 9002."]
    newest = Statement(texts[2])
    candidates = [
        OlderStatement(Statement(text), found, (at, at))
        for at, text in enumerate(texts[:2])
        if (found := update(newest, Statement(text), cosine=0.9)) is not None
    ]
    assert [one.order for one in chosen(candidates)] == [(1, 1)]


def test_all_that_say_the_same_are_retired_together() -> None:
    texts = ["The door code is 4471.", "Remember, the door code is 4471!", "The alarm code is 4471."]
    newest = Statement("The door code is now 9002.")
    candidates = [
        OlderStatement(Statement(text), found, (at, at))
        for at, text in enumerate(texts)
        if (found := update(newest, Statement(text), cosine=0.9)) is not None
    ]
    assert [one.order for one in chosen(candidates)] == [(0, 0), (1, 1)]


def test_what_is_only_amended_best_keeps_a_weaker_match_from_being_retired() -> None:
    newer = Statement("The cabin now sleeps eight.")
    whole = Statement("The cabin is in Lom, sleeps six, costs 90 a night and has a stove.")
    found = update(newer, whole, cosine=0.9)
    if found is not None:
        assert chosen([OlderStatement(whole, found, (0, 0))]) == []


def test_unrelated_vectors_outweigh_common_words() -> None:
    assert update(Statement("The door code is now 9002."), Statement("The door code is 4471."), cosine=0.05) is None


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_two_texts_are_judged_and_equal_ones_retire_nothing(newer: str, older: str) -> None:
    found = update(Statement(newer, MAY_4), Statement(older, MAY_4))
    assert found is None or 0 < found.confidence <= 1
    same = update(Statement(older, MAY_4), Statement(older, MAY_4))
    assert same is None or not same.retires
