"""Questions in other words than the turns that answer them, through the static table of the real model."""

import numpy as np
import pytest
from support.minilm import minilm_cache
from support.recall import ANALYZER, index_of, recorded

from crew_journal.consumers.adapters.minilm_weights import find_static_table
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.recall.asking import query_of
from crew_journal.services.recall.recipes import RECIPES
from crew_journal.services.recall.search import search

GERMAN = [
    "Hallo, ich habe bald meine Führerscheinprüfung",
    "Das klingt spannend! Wie ist die Stimmung?",
    "Vor allem bei Regen bin ich unsicher",
    "Ich empfehle dir ein Fahrsicherheitstraining",
    "Danke, gute Idee. Wo gibt es das?",
    "Der Verkehrsclub bietet das an vielen Orten an",
    "Meine Schwester kocht heute Abend Nudeln",
    "Guten Appetit euch beiden!",
    "Bis morgen dann",
]
ENGLISH = [
    "I have my driving test soon",
    "Exciting! Are you nervous?",
    "Yes, I feel unsafe in the rain above all",
    "I recommend a safety training for drivers",
    "Thanks, where is that offered?",
    "The automobile club does it in many places",
    "My sister is cooking pasta tonight",
    "Enjoy your evening!",
    "See you tomorrow",
]


@pytest.fixture(scope="module")
def table():
    return find_static_table(minilm_cache()).view(np.uint64)


def found(turns, text, table, recipe):
    events = [
        recorded(
            seq,
            turn,
            agent_id="talk",
            trace_id="t1",
            entry_type="chat.user_message" if seq % 2 else "chat.agent_response",
            actor_type="user" if seq % 2 else "agent",
            ts=f"2026-11-21T09:{seq:02d}:00Z",
        )
        for seq, turn in enumerate(turns, 1)
    ]
    hits = search(
        index_of(events), RecallScope(ScopeKind.OWN, "talk"), query_of(text, ANALYZER, None, None, table), recipe, 10
    )
    return [turns[hit.doc] for hit in hits]


@pytest.mark.parametrize("recipe", ["conversational", "conversational-static"])
@pytest.mark.parametrize(
    ("turns", "question", "answer"),
    [
        (GERMAN, "Was hast du mir empfohlen?", GERMAN[3]),
        (ENGLISH, "When is the exam?", ENGLISH[0]),
        (ENGLISH, "anxious", ENGLISH[1]),
    ],
)
def test_a_question_that_shares_no_word_with_any_turn_is_answered(turns, question, answer, table, recipe):
    assert not found(turns, question, table, RECIPES["robust"])
    assert not found(turns, question, None, RECIPES[recipe])
    assert found(turns, question, table, RECIPES[recipe])[0] == answer


@pytest.mark.parametrize(
    "question", ["When was the server restarted?", "kubernetes rollout failed", "quarterly report"]
)
def test_a_question_about_something_else_brings_up_no_turn(question, table):
    assert found(ENGLISH, question, table, RECIPES["conversational"]) == []
