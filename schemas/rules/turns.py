"""What a turn of a conversation shows of itself, for recipes that understand conversation.

Invariant: pure; a word, pattern or rule that changes is a new ``VERSION`` and a rebuild of the view of turns. A word
means what it means in the text's own language ("die" and "am" are no English here).
Evidence: facts/conversational-recall.md; without all of these recall@10 falls by .033 to .038.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..entry import ActorType
from .dates import Days, days_named, explicit_days
from .languages import Language, language_of, languages
from .text import fold, tokens_of

VERSION: Final = 2

FIRST_PERSON: Final = 1
"""Flag: the speaker speaks of himself or his group."""
TIME: Final = 2
"""Flag: it has a time expression."""
NUMBER: Final = 4
"""Flag: it states a number."""
QUESTION: Final = 8
"""Flag: it ends with a question mark; a caption in brackets behind it does not count."""
TIME_IN_DATE: Final = 16
"""Of a word only, never of a turn: it is a time if it is part of a date ("may", "march")."""
TURN: Final = 128
"""Flag: it is a turn of a conversation at all, so that 0 is everything else."""

MAX_INTERVAL_DAYS: Final = 40
"""A longer interval ("last year") says nothing of a day."""
MAX_INTERVALS: Final = 4
MAX_WORDS: Final = 1_000
"""Words of a turn that are looked at."""
_SIDES: Final = {"chat.user_message": True, "chat.agent_response": False}
_USER_NAMES: Final = frozenset({"user", "human"})
_ASSISTANT_NAMES: Final = frozenset({"agent", "ai", "assistant", "bot", "chatbot", "model", "system"})
"""What a chat calls its two sides where actors have no names."""
_YEAR: Final = re.compile(r"(?:19|20)\d\d\Z")
_QUESTION: Final = re.compile(r"\?[\s\"')\]*»”’]*(?:\[[^\]]*\]\s*)?\Z")
_QUESTION_TAIL: Final = 400
"""Characters from the end in which the question mark of a text with a caption is looked for."""


class WordMeaning(NamedTuple):
    """What a word says in one language: whether it is a function word of it, and its flags."""

    function: bool
    flags: int


def meanings_of(word: str) -> tuple[WordMeaning, ...]:
    """What a folded word says in each of ``languages()``."""
    number = NUMBER if any(map(str.isdecimal, word)) else 0
    time = TIME if _YEAR.match(word) else 0
    return tuple(
        WordMeaning(
            word in language.function_words,
            (FIRST_PERSON if word in language.first_person else 0)
            | (TIME if word in language.time_words else time)
            | (TIME_IN_DATE if word in language.ambiguous_months else 0)
            | (NUMBER if word in language.number_words else number),
        )
        for language in languages()
    )


def ends_with_question(text: str) -> bool:
    """Whether a text asks something at its end."""
    return "?" in text[-_QUESTION_TAIL:] and _QUESTION.search(text[-_QUESTION_TAIL:]) is not None


def side_of_type(entry_type: str) -> bool | None:
    """Whether a type's turns are the user's (True), the assistant's (False), or either's (None)."""
    return _SIDES.get(entry_type)


def side_of_name(actor_id: str) -> bool | None:
    """The same of an actor who is called after his side ("user", "assistant"); None for every other name."""
    name = actor_id.casefold()
    return True if name in _USER_NAMES else False if name in _ASSISTANT_NAMES else None


def is_users(entry_type: str, actor_type: str, actor_id: str | None) -> bool:
    """Whether a turn is the user's own and not the assistant's, for queries in the first person.

    An actor called after his side says it, for a recorded chat often has the same ``actor_type`` on both; then a type that
    names a side; else the ``actor_type``.
    """
    side = None if actor_id is None else side_of_name(actor_id)
    if side is None:
        side = side_of_type(entry_type)
    return actor_type == ActorType.USER if side is None else side


def intervals_of(summary: str, own_day: int, language: Language) -> list[Days]:
    """The days a turn speaks of: at most ``MAX_INTERVALS``, none longer than ``MAX_INTERVAL_DAYS``."""
    named = days_named(fold(summary), own_day, language)
    return [days for days in named if days.length <= MAX_INTERVAL_DAYS][:MAX_INTERVALS]


class Question(NamedTuple):
    """What a query asks for.

    Attributes:
        asks_when: For a time.
        asks_number: For a number.
        first_person: It speaks in the first person.
        asks_assistant: For what the assistant said or did ("can you remind me what you recommended"), and is no request
            to do something now ("can you recommend").
        days: The intervals it names: those with a year, and if the day it was asked on is known, relative ones.
    """

    asks_when: bool
    asks_number: bool
    first_person: bool
    asks_assistant: bool
    days: tuple[Days, ...]


def question_of(query: str, own_day: int | None = None) -> Question:
    """What a query asks for, by the patterns of its language.

    Args:
        query: The text.
        own_day: The day it was asked on, days since 1970-01-01 (UTC), from which "last week" counts as it does in an
            entry said that day; None if it is not known, and only dates with a year count.
    """
    folded = fold(query)
    words = tokens_of(query)
    language = language_of(words)
    return Question(
        asks_when=language.asks_when.search(folded) is not None,
        asks_number=language.asks_number.search(folded) is not None,
        first_person=not language.first_person.isdisjoint(words),
        asks_assistant=language.asks_assistant.search(folded) is not None,
        days=tuple(explicit_days(folded, language) if own_day is None else days_named(folded, own_day, language)),
    )
