"""Finds the speaker that a query names, for the speaker rule.

Invariant: only names of speakers in scope count, so that a query reveals no other names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from ....schemas.entry import ActorType
from ....schemas.rules.text import STOP_WORDS, tokens_of
from .vocabulary import Vocabulary

NO_NAMES: Final = STOP_WORDS | frozenset(kind.value for kind in ActorType) | {"assistant", "human", "bot"}
"""Words that do not count as a speaker's name, although an actor may have it: "will", "user"."""


class SpeakerNames:
    """Actors by the first word of their name."""

    def __init__(self, actors: Vocabulary) -> None:
        self._actors = actors
        self._by_first_word: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        self._by_word: dict[str, set[int]] = {}
        self._seen = 0

    def speaker_named(self, words: Sequence[str], speakers: Collection[int]) -> int | None:
        """The speaker that a query names; None if it names none or several.

        A name matches as a whole or by its first word.

        Args:
            words: The folded words of the query in order.
            speakers: Codes of the actors who speak in scope.
        """
        self._learn()
        whole: set[int] = set()
        first: set[int] = set()
        for at, word in enumerate(words):
            for name, code in self._by_first_word.get(word, ()):
                if code in speakers:
                    (whole if tuple(words[at : at + len(name)]) == name else first).add(code)
        found = whole or first
        return next(iter(found)) if len(found) == 1 else None

    def name_words(self, words: Collection[str], speakers: frozenset[int]) -> frozenset[str]:
        """Those of ``words`` that are part of the name of a speaker in scope: they say who, and not what.

        Args:
            words: Folded words of a query.
            speakers: Codes of the actors who speak in scope.
        """
        self._learn()
        return frozenset(word for word in words if not speakers.isdisjoint(self._by_word.get(word, ())))

    def _learn(self) -> None:
        if self._seen == len(self._actors):
            return
        for code, name in enumerate(self._actors.names()[self._seen :], self._seen):
            words = tuple(tokens_of(name))
            for word in words:
                self._by_word.setdefault(word, set()).add(code)
            if words and words[0] not in NO_NAMES:
                self._by_first_word.setdefault(words[0], []).append((words, code))
        self._seen = len(self._actors)
