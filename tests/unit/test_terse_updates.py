"""Terse plans of a team's chat, and where people live and work: what retires an older turn, and what leaves it as it is.

Cosines are those that MiniLM gives such pairs, rounded down: .35 where the older text must share more than its meaning.
"""

from __future__ import annotations

import pytest

from crew_journal.schemas.relations.rules import Statement
from crew_journal.schemas.relations.updates import elaborates, update
from crew_journal.schemas.text.dates import days_from_civil

MAY_4 = days_from_civil(2026, 5, 4)

RETIRES = [
    ("Hosting will be Hetzner.", "We go with OVH instead of Hetzner, better price."),
    ("Plan: rent the van from Sixt.", "Europcar it is, not Sixt."),
    ("The logo will be done by Studio Kern.", "Studio Kern is too expensive, Ines draws the logo herself."),
    ("Budget for the set: 900 euros.", "Final budget: 1,200 euros for the set."),
    (
        "Estimated price is 20 euros per ticket, drinks extra.",
        "Final price: 24 euros per ticket, because of the hall rent.",
    ),
    ("We use Trello for the tasks.", "We leave Trello and take Linear."),
    ("Login goes via Auth0.", "Dropped Auth0, login is Keycloak now."),
    ("Standup is at 9:30.", "Standup moves to 10:00."),
    ("We meet at Café Luna.", "Café Luna is out, we meet at the library."),
    ("Tickets cost 12 euros.", "Tickets go up to 14 euros."),
    ("Our rehearsal space is the old fire station.", "New rehearsal space: the gym of the Lindner school."),
    ("We take Postgres on the small server.", "we switched to SQLite, Postgres was overkill"),
    ("Jana does the accounting.", "Malte takes over the accounting from Jana."),
    ("The sensor sends every 10 minutes.", "The sensor sends every 30 minutes from now on."),
    ("Release is planned for May.", "Release slips to July."),
    ("Flyers are printed at Druckhaus Nord.", "Flyers now come from PrintPro, Druckhaus Nord was late twice."),
    ("Map tiles will come from Mapbox.", "Today's decision: OpenFreeMap instead of Mapbox, no key needed."),
    ("Batteries: three AA cells, replaced in spring.", "We change to one lithium cell, the AA cells are out."),
    ("Radio: Zigbee mesh.", "We drop Zigbee, Thread does the same with less work."),
    ("Parcels go out with Hermes.", "Shipping: UPS takes the parcels instead of Hermes."),
    ("Die Plakate druckt Rapid Druck.", "Die Plakate druckt jetzt Flyerwelt statt Rapid Druck."),
    ("Wir proben im Pfarrsaal.", "Der Pfarrsaal fällt weg, wir proben in der Mensa."),
    ("Als Datenbank nehmen wir MySQL.", "Wir nehmen Postgres statt MySQL."),
    ("On imprime les affiches chez Duval.", "On imprime les affiches chez Morel au lieu de Duval."),
    ("I live in Boston.", "I moved to Denver."),
    ("I live in a flat in Leeds with my sister.", "We've moved to a house in York."),
    ("I live in Boston.", "I've just moved from Boston to Denver."),
    ("I'm based in Hamburg.", "I relocated to Munich last month."),
    ("I work at Siemens as a tester.", "I changed jobs, I'm at Bosch now."),
    ("I work for Siemens.", "I started a new job at Bosch."),
    ("I work at Siemens.", "I work at Bosch now."),
    ("I drive a red Golf.", "I sold the Golf."),
    ("I have a Golf.", "I sold my Golf and bought a cargo bike."),
    ("My dentist is Dr Wolf.", "My new dentist is Dr Lang."),
    ("Mia goes to Oak School.", "Mia changed schools, she goes to Elm Grove now."),
    ("My phone is a Pixel 6.", "My new phone is a Fairphone 5."),
    ("I use an iPhone.", "I switched from the iPhone to a Pixel."),
    ("I smoke.", "I don't smoke any more."),
    ("My sister lives in Porto.", "My sister moved to Lisbon."),
    ("Ich wohne in Bonn.", "Ich bin nach Köln gezogen."),
    ("Ich wohne in Bonn.", "Wir sind nach Köln umgezogen."),
    ("Ich arbeite bei Otto.", "Ich arbeite jetzt bei Zalando."),
    ("Ich arbeite bei Otto.", "Ich habe den Job gewechselt, ich bin jetzt bei Zalando."),
    ("Je travaille chez Renault.", "Je travaille maintenant chez Peugeot."),
    ("I really like Tom Waits.", "I used to really like Tom Waits, but lately I listen to Nick Cave."),
    ("I'm into 1970s films.", "I used to be into 70s films, but I've gone off them."),
    (
        "Speaking of food, I love Thai curries.",
        "Speaking of changes, I used to love Thai curries, but now they are too hot for me.",
    ),
    (
        "I used to love Tom Waits, but lately I'm into Nick Cave.",
        "I used to be into Nick Cave, but now it's all Bach for me.",
    ),
    ("I always admired T.S. Eliot, I like his poems.", "I used to like T.S. Eliot, but recently I prefer Rilke."),
    ("I need to paint the fence soon.", "I've completed painting the fence, you can take it off my list."),
]
# A turn of a conversation must say more than a note.
NOTES_RETIRE = [
    ("Frames are milled from MDF.", "From now on the frames are milled from birch."),
    ("Flour comes from the Abt mill.", "We changed the supplier, flour comes from the Roth mill."),
    ("My dentist is Dr Wolf.", "I switched dentists, now I see Dr Lang."),
    ("I bank with ING.", "I switched my bank to N26."),
    ("Our database is Postgres 14.", "We upgraded the database to Postgres 16."),
    ("The build uses Gradle 7.", "The build was migrated to Gradle 8."),
]
KEEPS = [
    ("I live in Boston.", "My sister moved to Denver."),
    ("The production database is Postgres 14.", "We upgraded the test database to Postgres 16."),
    ("The README is in English.", "The README was updated to mention Docker."),
    ("I live in Boston.", "My brother lives in Denver."),
    ("I live in Boston.", "I travelled to Denver."),
    ("I live in Boston.", "I moved the sofa to the attic."),
    ("I live in Boston.", "I moved to Denver in 2015."),
    ("I live in Boston.", "We moved the meeting to Denver."),
    ("I live in Boston.", "I might move to Denver."),
    ("I live in Boston.", "I moved to the second floor."),
    ("I live in Boston.", "I grew up in Denver."),
    ("I live in Boston.", "I want to move to Denver."),
    ("I live in Boston.", "I'm in Denver for a conference."),
    ("I live in Boston.", "Before that I lived in Denver."),
    ("I live in Boston.", "We switched to Denver time."),
    ("I work at Siemens.", "I worked at Bosch before that."),
    ("I work at Siemens.", "I have an interview at Bosch."),
    ("I work at Siemens.", "My wife works at Bosch."),
    ("I work at Siemens.", "I started yoga at Bosch."),
    ("I work at Siemens.", "I joined the choir."),
    ("I work at Siemens.", "Ada joined Bosch."),
    ("I work at Siemens.", "I also work at Bosch on Fridays."),
    ("I work at Siemens.", "I joined a call with Bosch."),
    ("I drive a red Golf.", "I sold the bike."),
    ("I drive a red Golf.", "My neighbour sold his Golf."),
    ("I drive a red Golf.", "I sold the winter tyres of the Golf."),
    ("My dentist is Dr Wolf.", "My daughter's dentist is Dr Lang."),
    ("My dentist is Dr Wolf.", "Dr Lang is a good dentist."),
    ("My sister lives in Porto.", "My cousin moved to Lisbon."),
    ("We use Trello for the tasks.", "Trello is down."),
    ("We use Trello for the tasks.", "Trello sent the invoice."),
    ("We use Trello for the tasks.", "My brother uses Linear instead of Trello."),
    ("The logo will be done by Studio Kern.", "Studio Kern is too far for a visit, I call them."),
    ("We meet at Café Luna.", "Café Luna is out of cake."),
    ("We sell bread to Café Luna.", "We meet at the library instead of Café Luna."),
    ("Tickets cost 12 euros.", "Tickets for the gala go for 40 euros."),
    ("Auth0 sent the contract.", "Login is Keycloak instead of Auth0."),
    ("The exam is on 3 May.", "The final exam is on 4 June."),
    ("The exam is on 3 May.", "Final exam: 4 June."),
    ("The parcel with the lamps came with Hermes.", "UPS takes the parcels instead of Hermes."),
    ("Zigbee has a range of 20 metres.", "We drop Zigbee, Thread does the same with less work."),
    ("We order the new album for the shop.", "The album is out!"),
    ("Petra likes Mapbox.", "Today's decision: OpenFreeMap instead of Mapbox."),
    ("Ravi wrote the first chapter.", "Ravi has no time, Petra writes the manual now."),
    ("The old fire station has no heating.", "New rehearsal space: the gym of the Lindner school."),
    ("The sensor sends every 10 minutes.", "The gateway sends every 30 minutes from now on."),
    ("I love Thai curries.", "My father used to love Thai curries, but now they are too hot for him."),
    ("I love Thai curries.", "I used to love Thai boxing, but now it hurts."),
    ("I like Tom Waits.", "Ada used to like Tom Waits, but lately she listens to Nick Cave."),
    ("Ich wohne in Bonn.", "Meine Schwester ist nach Köln gezogen."),
    ("Ich wohne in Bonn.", "Ich bin nach Köln gefahren."),
    ("Ich arbeite bei Otto.", "Meine Frau arbeitet jetzt bei Zalando."),
    ("J'habite à Lille.", "Ma sœur a déménagé à Lyon."),
    ("Our partners are the swimming club and the library.", "New partner for the summer: the zoo."),
    ("Adults pay 12 euros, children 6 euros, students 8 euros.", "Children now pay 7 euros."),
    ("We meet at Café Luna.", "We met at the library, Café Luna was closed."),
    ("Flyers are printed at Druckhaus Nord.", "The posters are printed at PrintPro now."),
    ("I have a Golf.", "I bought a cargo bike."),
    ("I have a meeting with Bosch on Monday.", "I've joined Bosch."),
]


def found(older: str, newer: str, *, turn: bool, cosine: float = 0.55, same_speaker: bool = True) -> bool:
    said = (Statement(newer, MAY_4, "ada", turn), Statement(older, MAY_4 - 30, "ada", turn))
    one = update(*said, cosine=cosine, same_speaker=same_speaker)
    return one is not None and one.retires


@pytest.mark.parametrize("turn", [True, False])
@pytest.mark.parametrize(("older", "newer"), RETIRES)
def test_a_terse_plan_or_a_new_home_retires_the_older_one(older: str, newer: str, turn: bool) -> None:
    assert found(older, newer, turn=turn)


@pytest.mark.parametrize(("older", "newer"), NOTES_RETIRE)
def test_a_note_that_changes_no_number_or_name_retires(older: str, newer: str) -> None:
    assert found(older, newer, turn=False, cosine=0.65)


@pytest.mark.parametrize("turn", [True, False])
@pytest.mark.parametrize(("older", "newer"), KEEPS)
def test_other_people_events_and_uses_retire_nothing(older: str, newer: str, turn: bool) -> None:
    assert not found(older, newer, turn=turn)


@pytest.mark.parametrize("text", ["I moved to Team Blue.", "We moved to Slack."])
def test_a_move_that_is_far_from_the_home_by_meaning_retires_nothing(text: str) -> None:
    assert not found("I live in Boston.", text, turn=False, cosine=0.3)


def test_another_speaker_moves_without_moving_the_first() -> None:
    assert not found("I live in Boston.", "I moved to Denver.", turn=True, same_speaker=False)


@pytest.mark.parametrize(
    "text",
    [
        "I love her voice, it is so warm.",
        "He plays with so much energy!",
        "Seine Stimme ist so warm.",
        "I could walk around there for hours.",
    ],
)
def test_a_turn_without_a_subject_of_its_own_speaks_of_the_one_before(text: str) -> None:
    assert elaborates(Statement(text))


@pytest.mark.parametrize(
    "text",
    ["I love Nina's voice.", "Do you like her?", "I went swimming.", "On Monday I saw her in Lisbon.", ""],
)
def test_a_turn_with_a_subject_a_question_or_no_pronoun_does_not(text: str) -> None:
    assert not elaborates(Statement(text))
