"""Decides without a model whether a text contradicts a similar one; it prefers precision to recall.

It proposes a contradiction only if two sentences are equal except for one thing: a number of the same measure, a
negation, an opposite, or the value of something that has one value at a time. Paraphrases, added detail, other
entities (build 12, node 3), measurements and events of another moment are ignored, and so is a text that reports a
change (``now``, ``no longer``, ``increased to``), because it supersedes the older one.

Invariant: pure and symmetric but for time: ``newer`` may supersede ``older``. A changed rule or list is a new
``VERSION``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

from ..text.sentences import (
    APPROXIMATE,
    ATTRIBUTES,
    COPULAS,
    ENTITIES,
    EVENTS,
    FUNCTIONS,
    HEDGES,
    HOLDING,
    LABELS,
    MOMENTARY,
    OPPOSITES,
    PLACES,
    PREPOSITIONS,
    SCHEDULES,
    STABLE,
    UPDATE_PHRASES,
    UPDATES,
    VOLATILE,
    YET,
    Sentence,
    Token,
    TokenKind,
    sentences_of,
    stem,
)
from .rules import Consequence, Verdict

VERSION: Final = 1

SHARED: Final = 0.6
"""Minimum share of tokens that two sentences have in common, 2 m / (a + b)."""
TOLERANCE: Final = 0.1
"""Relative difference that "about" covers."""
MORE_SAID: Final = 0.85
"""Factor if one text has further sentences beside the compared one."""
ALIKE: Final = 0.8
"""Two values as similar in spelling as this are one, misspelt or inflected."""
SHOWN_CHARS: Final = 60
_MAX_VALUE: Final = 4
"""Maximum number of tokens of a value."""
_MAX_KEY: Final = 6
"""Maximum number of tokens before a colon."""
_PREFIXES: Final = ("un", "in", "non-", "non", "nicht-")
_MIN_PREFIXED: Final = 4
"""Number of characters after a prefix from which on it makes an opposite: ``encrypted``, not ``to`` and ``into``."""


@dataclass(frozen=True, slots=True)
class _AlignedPair:
    """Two sentences, aligned; ``changes`` holds (newer tokens, older tokens, place in the newer sentence)."""

    newer: Sequence[Token]
    older: Sequence[Token]
    changes: Sequence[tuple[Sequence[Token], Sequence[Token], int]]


def contradiction(newer: str, older: str) -> Verdict | None:
    """The contradiction between two texts, None if the rule finds none.

    Args:
        newer: The later text.
        older: The earlier text.
    """
    if any(phrase in newer.casefold() for phrase in UPDATE_PHRASES):
        return None
    mine, theirs = sentences_of(newer), sentences_of(older)
    common = {sentence.keys for sentence in mine} & {sentence.keys for sentence in theirs}
    mine = [sentence for sentence in mine if sentence.keys not in common]
    theirs = [sentence for sentence in theirs if sentence.keys not in common]
    if not mine or not theirs or (len(mine) > 1 and len(theirs) > 1):
        return None
    if any(token.key in UPDATES or token.shown in UPDATES for sentence in mine for token in sentence.tokens):
        return None
    for sentence in mine:
        for older_sentence in theirs:
            verdict = _compare(sentence, older_sentence)
            if verdict is not None:
                more = len(mine) + len(theirs) > 2
                return replace(verdict, confidence=round(verdict.confidence * (MORE_SAID if more else 1.0), 3))
    return None


def _verdict(confidence: float, reason: str) -> Verdict:
    return Verdict(Consequence.CONTRADICTS, confidence, reason)


def _compare(newer: Sentence, older: Sentence) -> Verdict | None:
    if newer.asks or older.asks:
        return None
    words = {token.shown for token in (*newer.tokens, *older.tokens)}
    if words & HEDGES:
        return None
    mine = [token for token in newer.tokens if token.key not in APPROXIMATE]
    theirs = [token for token in older.tokens if token.key not in APPROXIMATE and token.shown not in UPDATES]
    negated = _negated(mine, theirs)
    if negated is not None:
        return negated
    keys = [token.key for token in mine], [token.key for token in theirs]
    matcher = SequenceMatcher(None, *keys, autojunk=False)
    if matcher.ratio() < SHARED:
        return None
    changes = [(mine[a0:a1], theirs[b0:b1], a0) for tag, a0, a1, b0, b1 in matcher.get_opcodes() if tag != "equal"]
    if not changes or not all(new and old for new, old, _ in changes):
        return None
    pair = _AlignedPair(mine, theirs, changes)
    roughly = bool(words & APPROXIMATE)
    return _numbers(pair, words, roughly=roughly) or _opposites(pair, words) or _values(pair, words)


def _negated(mine: Sequence[Token], theirs: Sequence[Token]) -> Verdict | None:
    """One sentence is the negation of the other."""
    (plain, negations), (old_plain, old_negations) = without_negations(mine), without_negations(theirs)
    if negations % 2 == old_negations % 2 or plain != old_plain or len(plain) < 2:
        return None
    if old_negations and {token.shown for token in theirs} & YET:
        return None  # "not yet": what comes later is progress
    words_shown = {token.shown for token in mine}
    if words_shown & (MOMENTARY | VOLATILE) or (words_shown & EVENTS and not words_shown & STABLE):
        return None
    word = next(token.shown for token in (*mine, *theirs) if token.kind is TokenKind.NEGATION)
    return _verdict(0.9, f'negation: one says "{word}", the other does not, otherwise the same')


def without_negations(tokens: Sequence[Token]) -> tuple[tuple[str, ...], int]:
    """The keys of the tokens that are no negations, in order, and the number of negations."""
    plain = tuple(token.key for token in tokens if token.kind is not TokenKind.NEGATION)
    return plain, len(tokens) - len(plain)


def _numbers(pair: _AlignedPair, words: set[str], *, roughly: bool) -> Verdict | None:
    """A number, version or date that differs in its place; several at once are another report and not a contradiction."""
    new, old, place = pair.changes[0]
    if len(pair.changes) != 1 or len(new) != 1 or len(old) != 1 or new[0].kind is not old[0].kind:
        return None
    new_token, old_token = new[0], old[0]
    before = [token.key for token in pair.newer[max(0, place - 3) : place]]
    sure = 0.0
    if new_token.kind is TokenKind.NUMBER and new_token.measure == old_token.measure:
        sure = _number(new_token, old_token, before, words, roughly=roughly)
    elif new_token.kind is TokenKind.VERSION and before and not words & EVENTS:
        sure = 0.9
    elif new_token.kind is TokenKind.DATE and before and words & SCHEDULES and not words & EVENTS:
        sure = 0.8
    if not sure:
        return None
    return _verdict(sure, f"two values of the same: {_spelling(new)} and {_spelling(old)}")


def _number(new: Token, old: Token, before: Sequence[str], words: set[str], *, roughly: bool) -> float:
    """Confidence that two numbers contradict each other, or 0."""
    if roughly and abs(new.value - old.value) <= TOLERANCE * max(abs(new.value), abs(old.value)):
        return 0.0
    if not before or (not new.measure and before[-1] in ENTITIES):
        return 0.0
    stable = words & STABLE
    if not stable and (words & EVENTS or words & VOLATILE):
        return 0.0
    if stable or before[-1] in COPULAS:
        return 0.9
    return 0.7 if words & HOLDING else 0.0


def _opposites(pair: _AlignedPair, words: set[str]) -> Verdict | None:
    """One word against its opposite."""
    if len(pair.changes) != 1:
        return None
    new, old, _ = pair.changes[0]
    if len(new) != 1 or len(old) != 1 or words & EVENTS:
        return None
    shorter, longer = sorted((new[0].shown, old[0].shown), key=len)
    known = frozenset((shorter, longer)) in OPPOSITES or frozenset((stem(shorter), stem(longer))) in OPPOSITES
    prefixed = len(shorter) > _MIN_PREFIXED and longer in [f"{prefix}{shorter}" for prefix in _PREFIXES]
    if {shorter, longer} & MOMENTARY or not (known or prefixed):
        return None
    return _verdict(0.85, f"opposites: {_spelling(new)} and {_spelling(old)}")


def _values(pair: _AlignedPair, words: set[str]) -> Verdict | None:
    """Another value of something that has one value at a time."""
    if len(pair.changes) != 1:
        return None
    new, old, place = pair.changes[0]
    if max(len(new), len(old)) > _MAX_VALUE or _alike(new, old) or words & EVENTS:
        return None
    before = [token.key for token in pair.newer[:place]]
    after = [token.key for token in pair.newer[place + len(new) :]]
    sure = _value(before, after) if before else _subject(after)
    if not sure:
        return None
    return _verdict(sure, f"two values of the same: {_spelling(new)} and {_spelling(old)}")


def _value(before: Sequence[str], after: Sequence[str]) -> float:
    """Confidence that the words after ``before`` are a unique value."""
    if before[-1] in (":", "="):
        key = set(before[:-1])
        has_attribute = bool(key & _STEMMED_ATTRIBUTES) and len(before) <= _MAX_KEY + 1 and not {":", "="} & key
        return 0.8 if has_attribute and not after and not key & LABELS else 0.0
    if any(" ".join(before[-2:]) == phrase for phrase in _STEMMED_PLACES):
        return 0.75
    joint = before[:-1] if len(before) > 1 and before[-1] in PREPOSITIONS else before
    if joint[-1] in COPULAS and len(after) <= 2 and set(joint) & _STEMMED_ATTRIBUTES:
        return 0.85
    return 0.0


def _subject(after: Sequence[str]) -> float:
    """Confidence that ``after`` can hold for one subject only."""
    words = " ".join(after)
    return 0.65 if any(words.startswith(f"{phrase} ") for phrase in FUNCTIONS) else 0.0


def _alike(new: Sequence[Token], old: Sequence[Token]) -> bool:
    """Whether two values are spellings of the same."""
    new_text, old_text = (" ".join(token.key for token in tokens) for tokens in (new, old))
    short, long = sorted((new_text, old_text), key=len)
    if len(short) >= _MAX_VALUE and long.startswith(short):
        return True
    return (
        not any(char.isdigit() for char in new_text + old_text)
        and SequenceMatcher(None, new_text, old_text).ratio() >= ALIKE
    )


def _spelling(tokens: Sequence[Token]) -> str:
    text = " ".join(token.shown for token in tokens)
    return f'"{text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"}"'


_STEMMED_PLACES: Final = frozenset(" ".join(map(stem, phrase.split())) for phrase in PLACES)
_STEMMED_ATTRIBUTES: Final = frozenset(map(stem, ATTRIBUTES))
