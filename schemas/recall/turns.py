"""Properties of a turn of a conversation, for the conversational recipes.

Invariant: pure; a changed word, pattern or rule is a new ``VERSION`` and a rebuild of the view of turns. Words are
interpreted in the language of the text ("die" and "am" can be German). Without these properties, recall@10 falls by
.033 to .038.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..core.entry import ActorType
from ..core.grants import USER_NAMES
from ..entries.rules import AGENT_RESPONSE, USER_MESSAGE
from ..text.analyzer import fold, tokens_of
from ..text.dates import Days, days_named, periods_asked
from ..text.languages import Language, date_language_of, language_of, languages

VERSION: Final = 5

FIRST_PERSON: Final = 1
"""Flag: the turn is in the first person."""
TIME: Final = 2
"""Flag of a word, not of a turn: it may be part of a date."""
QUESTION: Final = 8
"""Flag: it ends with a question mark, which may be followed by a caption in brackets."""
INSTRUCTION: Final = 32
"""Flag: it states a standing instruction or preference ("always … when I ask")."""
TURN: Final = 128
"""Flag: set for every turn, so that 0 means that an entry is not a turn."""

MAX_INTERVAL_DAYS: Final = 40
"""Longer intervals ("last year") are ignored."""
MAX_INTERVALS: Final = 4
MAX_WORDS: Final = 1_000
"""Only this many words of a turn are read."""
_SIDES: Final = {USER_MESSAGE: True, AGENT_RESPONSE: False}
_ASSISTANT_NAMES: Final = frozenset({"agent", "ai", "assistant", "bot", "chatbot", "model", "system"})
"""Names of the two sides of a chat whose actors have no names of their own."""
_YEAR: Final = re.compile(r"(?:19|20)\d\d\Z")
_QUESTION: Final = re.compile(r"\?[\s\"')\]*»”’]*(?:\[[^\]]*\]\s*)?\Z")
_QUESTION_TAIL: Final = 400
"""Number of characters at the end of a text in which the question mark before a caption is searched."""


_INSTRUCTION_CHARS: Final = 1_000


class WordMeaning(NamedTuple):
    """A word in one language: whether it is a function word, and its flags."""

    function: bool
    flags: int


def meanings_of(word: str) -> tuple[WordMeaning, ...]:
    """The meaning of a folded word in each of ``languages()``."""
    year = _YEAR.match(word) is not None
    return tuple(
        WordMeaning(
            word in language.function_words,
            (FIRST_PERSON if word in language.first_person else 0)
            | (TIME if year or word in language.time_words or word in language.ambiguous_months else 0),
        )
        for language in languages()
    )


def ends_with_question(text: str) -> bool:
    """Whether a text ends with a question."""
    return "?" in text[-_QUESTION_TAIL:] and _QUESTION.search(text[-_QUESTION_TAIL:]) is not None


def instructs(summary: str) -> bool:
    """Whether a text states a standing instruction or preference, in any language."""
    folded = fold(summary[:_INSTRUCTION_CHARS])
    return any(
        any(map(folded.__contains__, language.instruction_needs)) and language.instructs.search(folded) is not None
        for language in languages()
    )


def side_of_type(entry_type: str) -> bool | None:
    """The side whose turns have this type: True for the user, False for the assistant, None for either side."""
    return _SIDES.get(entry_type)


def side_of_name(actor_id: str) -> bool | None:
    """The side of an actor named "user" or "assistant", as in ``side_of_type``; None for other names."""
    name = actor_id.casefold()
    return True if name in USER_NAMES else False if name in _ASSISTANT_NAMES else None


def is_users(entry_type: str, actor_type: str, actor_id: str | None) -> bool:
    """Whether a turn is the user's, for queries in the first person.

    The name of the actor decides, then the type, then ``actor_type``, which is often the same for both sides in
    recorded chats.
    """
    side = None if actor_id is None else side_of_name(actor_id)
    if side is None:
        side = side_of_type(entry_type)
    return actor_type == ActorType.USER if side is None else side


def intervals_of(summary: str, own_day: int, language: Language) -> list[Days]:
    """The intervals that a turn names: at most ``MAX_INTERVALS``, none longer than ``MAX_INTERVAL_DAYS``."""
    intervals = days_named(fold(summary), own_day, language)
    return [days for days in intervals if days.length <= MAX_INTERVAL_DAYS][:MAX_INTERVALS]


class Question(NamedTuple):
    """The kind of answer for which a query asks.

    Attributes:
        asks_assistant: Whether the query asks what the assistant said or did ("can you remind me what you recommended";
            not "can you recommend").
        asks_past: Whether it asks what happened or was said.
        days: The periods that the query is about: those that it names with a year, and all others if the day of the question
            is known.
    """

    first_person: bool
    asks_assistant: bool
    asks_past: bool
    days: tuple[Days, ...]


def question_of(query: str, own_day: int | None = None) -> Question:
    """The kind of answer that a query asks for, by the patterns of its language.

    Args:
        query: The text.
        own_day: The day of the question, days since 1970-01-01 (UTC), from which relative dates count; None if it is
            not known.
    """
    folded = fold(query)
    words = tokens_of(query)
    language = language_of(words)
    return Question(
        first_person=not language.first_person.isdisjoint(words),
        asks_assistant=any(map(folded.__contains__, language.addresses))
        and language.asks_assistant.search(folded) is not None,
        asks_past=any(one.asks_past.search(folded) is not None for one in languages()),
        days=tuple(periods_asked(folded, own_day, date_language_of(words))),
    )
