"""Which spellings of a name are one person.

Why: consent and facts belong to a person, and a client writes a name as it likes: "Maria", "maria". Only spellings that
differ in case, in blanks, in characters that Unicode calls compatible, or in invisible characters are one person. Two
names that differ otherwise ("maria", "maria@example.org") are two persons until one is declared a name of the other
(``operator.named``): guessing would show one person's model to another. Pure.
"""

from __future__ import annotations

import unicodedata
from typing import Final

VERSION: Final = 1

USER_NAMES: Final = frozenset({"user", "human"})
"""Names of users that are not names of persons."""

_INVISIBLE: Final = "Cf"
"""Unicode category of characters without a glyph, such as the zero-width space."""


def person_of(name: str) -> str:
    """The name without differences of case, blanks, compatibility and invisible characters; the same for its result."""
    if name.isascii():
        return " ".join(name.lower().split())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join("".join(char for char in folded if unicodedata.category(char) != _INVISIBLE).split())


def is_person(name: str) -> bool:
    """Whether a name is that of a person: it is not blank, and not "user" or "human"."""
    person = person_of(name)
    return person != "" and person not in USER_NAMES
