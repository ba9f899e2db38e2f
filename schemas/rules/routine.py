"""Whether a text only reports success or routine, so that its repetition teaches nothing (DESIGN §13).

"The nightly backup finished without errors" recurs every night but is not a rule. A text counts as routine if it has a word
of success and none of a problem, a condition or an instruction; the lists (``routine.toml``) are English, German, French and
Spanish. A text in another language never counts as routine: the rule is about noise, not about safety.

Invariant: pure; the lists are data. A changed rule or list is a new ``VERSION``.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from .text import fold

VERSION: Final = 1
_WORD: Final = re.compile(r"\w+(?:['’]\w+)*")
_PREFIX: Final = "*"


@dataclass(frozen=True, slots=True)
class _RoutineWords:
    """Whole words, and beginnings of words."""

    whole: frozenset[str]
    prefixes: tuple[str, ...]

    def have(self, word: str) -> bool:
        return word in self.whole or word.startswith(self.prefixes)


def is_routine(text: str) -> bool:
    """Whether a text only reports success or routine."""
    success, trouble, absent, absent_what = _lists()
    words = _WORD.findall(fold(text))
    left: list[str] = []
    is_good = False
    for word in words:
        if left and absent_what.have(word) and absent.have(left[-1]):
            left.pop()
            is_good = True
        else:
            left.append(word)
    if any(trouble.have(word) for word in left):
        return False
    return is_good or any(success.have(word) for word in left)


@cache
def _lists() -> tuple[_RoutineWords, _RoutineWords, _RoutineWords, _RoutineWords]:
    data = tomllib.loads(resources.files(__package__).joinpath("routine.toml").read_text("utf-8"))
    success, trouble, absent, absent_words = (
        _words(data[name]) for name in ("success", "trouble", "absent", "absent_what")
    )
    return success, trouble, absent, absent_words


def _words(by_language: dict[str, str]) -> _RoutineWords:
    words = [fold(word) for text in by_language.values() for word in text.split()]
    return _RoutineWords(
        frozenset(word for word in words if not word.endswith(_PREFIX)),
        tuple(sorted({word.removesuffix(_PREFIX) for word in words if word.endswith(_PREFIX)})),
    )
