"""Finds what several publishers agree on: the wording that they share, and the action that most of them name.

One author must not decide what all agents of a crew read. Therefore repetitions by one publisher count once, and words
that only one publisher wrote are left out, as are words for which another publisher wrote something else.

Invariant: pure; the result contains only words of the texts, in their order, and ``GAP`` where words were left out.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

GAP: Final = "…"
MIN_WORDS: Final = 3
"""Minimum number of shared words of a pattern; fewer words are not recognisable."""
MIN_PUBLISHERS: Final = 2
"""Minimum number of publishers whose agreement is shown to other agents without a person's review."""
MIN_DAYS: Final = 2
"""Minimum number of days of receipt for the same."""
SAME_ACTION: Final = 0.7
"""Two actions with at least this Jaccard index of their words count as one action (``consolidation.SIMILAR``)."""
VOICES: Final = 50
"""Maximum number of texts that are compared word by word; one comparison takes about 0.1 ms."""
_EDGES: Final = re.compile(r"^\W+|\W+$")
_NEGATIONS: Final = frozenset({
    "no", "not", "never", "none", "nobody", "nothing", "without", "neither", "nor", "cannot", "kein", "keine",
    "keinen", "keiner", "nicht", "nie", "niemals", "ohne", "nichts", "pas", "jamais", "aucun", "aucune", "sans",
    "rien", "nunca", "ningún", "ninguna", "sin", "nada",
})  # fmt: skip
"""Words that reverse a statement. All count as one word, so that a wording keeps the sense that most members have."""
_NEGATION: Final = -1
_FAILS: Final = frozenset({
    "worse", "wrong", "useless", "fails", "failed", "stays", "remains", "unsafe", "outdated", "obsolete", "instead",
    "falsch", "schlimmer", "veraltet", "nutzlos", "bleibt", "stattdessen", "pire", "faux", "inutile", "reste", "peor",
    "incorrecto", "inútil", "sigue",
})  # fmt: skip
"""Words with which a text says that a remedy does not work."""
_TEXTS_KEPT: Final = 4_096
"""Texts whose terms are kept: a run compares each action of 500 entries with each other and with each rule."""
Keys = Callable[[str], Sequence[int]]
"""The terms of a word as numbers, without stop words (``schemas/text/analyzer``)."""


@dataclass(frozen=True, slots=True)
class Saying:
    """The text of an entry and its publisher.

    Attributes:
        publisher: The publisher (``schemas/core/principal``).
        text: One line.
    """

    publisher: str
    text: str


def is_shared(publishers: Iterable[str], days: int) -> bool:
    """Whether findings with this evidence may be shown to other agents without a review.

    Args:
        publishers: The publisher of each entry.
        days: Different days of receipt (UTC).
    """
    return len(set(publishers)) >= MIN_PUBLISHERS and days >= MIN_DAYS


def shared_wording(sayings: Sequence[Saying], typical: int) -> str:
    """The words of the typical text that most voices have in the same order; empty if fewer than ``MIN_WORDS`` remain.

    A voice is the text of a publisher that is closest to the typical text; if there is only one publisher, each text is
    a voice. With two voices, both must contain a word. ``GAP`` marks where the typical text, or half of the voices,
    have other words.

    Args:
        sayings: At least one.
        typical: Index of the saying whose wording is used.
    """
    words = sayings[typical].text.split()
    keys = [_key(word) for word in words]
    others = _voices(sayings, typical, keys)
    kept = [1] * len(words)
    inserted = [0] * (len(words) + 1)
    for other in others:
        at_typical = at_other = 0
        for block in SequenceMatcher(None, keys, other, autojunk=False).get_matching_blocks():
            if block.b > at_other or block.a > at_typical:
                for place in range(at_typical, block.a + 1):
                    inserted[place] += block.b > at_other
            for place in range(block.a, block.a + block.size):
                kept[place] += 1
            at_typical, at_other = block.a + block.size, block.b + block.size
    voices = len(others) + 1
    wording: list[str] = []
    for place, word in enumerate([*words, ""]):
        share_needed = voices if _has_digit(word) else voices / 2 + 0.5
        is_kept = bool(word) and kept[place] >= share_needed
        if (2 * inserted[place] >= voices or (word and not is_kept)) and wording[-1:] != [GAP]:
            wording.append(GAP)
        if is_kept:
            wording.append(word)
    if sum(word != GAP for word in wording) < MIN_WORDS:
        return ""
    return " ".join(wording)


def common_wording(sayings: Sequence[Saying], keys: Keys) -> str:
    """The words of one of the texts whose terms most publishers and half of the texts have, in any order.

    For texts that say the same in different words. Words with digits remain if all texts have them. ``GAP`` marks where
    words were left out. A negation counts like a word: if most texts have a negation and the wording would not, or the
    other way round, the text is not used. Empty if fewer than ``MIN_WORDS`` shared terms remain.

    Args:
        sayings: At least one.
        keys: Terms of a word.
    """
    split = [[(word, _terms_of_word(word, keys)) for word in saying.text.split()] for saying in sayings]
    of_text = [{term for _, terms in words for term in terms} for words in split]
    by_term: dict[int | str, set[str]] = defaultdict(set)
    for saying, terms in zip(sayings, of_text, strict=True):
        for term in terms:
            by_term[term].add(saying.publisher)
    publishers = len({saying.publisher for saying in sayings})
    counts = Counter(term for terms in of_text for term in terms)
    shared = {
        term
        for term, by in by_term.items()
        if 2 * len(by) > publishers
        and len(by) >= min(publishers, MIN_PUBLISHERS)
        and counts[term] >= (len(sayings) if isinstance(term, str) else max(2, len(sayings) / 2))
    }
    best, wording = 0.0, ""
    for words, terms in zip(split, of_text, strict=True):
        kept_terms = terms & shared
        if (_NEGATION in terms) != (_NEGATION in shared) or len(kept_terms - {_NEGATION}) < MIN_WORDS:
            continue
        value = len(kept_terms) - 0.5 * len(terms - shared)
        if not wording or value > best:
            best, wording = value, _with_gaps([(word, terms_, terms_ <= shared) for word, terms_ in words])
    return wording


def _with_gaps(words: Sequence[tuple[str, frozenset[int | str], bool]]) -> str:
    """The kept words; stretches of stop words between left-out words are left out, too."""
    runs: list[tuple[bool, list[tuple[str, bool]]]] = []
    for word, terms, is_kept in words:
        if not runs or runs[-1][0] != is_kept:
            runs.append((is_kept, []))
        runs[-1][1].append((word, bool(terms)))
    wording: list[str] = []
    for is_kept, run in runs:
        content = [at for at, (_, has_terms) in enumerate(run) if has_terms]
        if is_kept and content:
            wording += [word for word, _ in run]
        elif wording[-1:] != [GAP]:
            wording.append(GAP)
    return " ".join(wording)


def is_negated(text: str) -> bool:
    """Whether a text has a negation."""
    return any(_key(word) in _NEGATIONS or _key(word).endswith(("n't", "n’t")) for word in text.split())


def _terms_of_word(word: str, keys: Keys) -> frozenset[int | str]:
    key = _key(word)
    if is_negated(word):
        return frozenset({_NEGATION})
    if _has_digit(word):
        return frozenset({key})
    return frozenset(keys(word))


def _has_digit(word: str) -> bool:
    return any(character.isdigit() for character in word)


def refuted(action: Saying, others: Iterable[Saying], keys: Keys) -> frozenset[str]:
    """The publishers that say, in an action of their own, that an action does not help or must not be done.

    Such a text has half of the terms of the action, and a word of failure or a negation that the action does not have.

    Args:
        action: The action.
        others: Other actions, of any publisher.
        keys: Terms of a word.
    """
    wanted = _content(action.text, keys)
    is_negated = _NEGATION in wanted
    wanted -= {_NEGATION}
    by = set()
    for other in others:
        terms = _content(other.text, keys)
        fails = _says_failure(other.text) or (_NEGATION in terms and not is_negated)
        if fails and wanted and 2 * len(wanted & terms) >= len(wanted) and wanted != terms:
            by.add(other.publisher)
    return frozenset(by)


def may_refute(text: str) -> bool:
    """Whether a text has a word of failure or a negation; only such a text refutes an action."""
    return _says_failure(text) or is_negated(text)


@lru_cache(_TEXTS_KEPT)
def _says_failure(text: str) -> bool:
    return any(_key(word) in _FAILS for word in text.split())


def same_action(action: str, other: str, keys: Keys) -> bool:
    """Whether two texts name the same specific action: equal terms up to ``SAME_ACTION``, at least ``MIN_WORDS``."""
    terms, others = _content(action, keys), _content(other, keys)
    return min(len(terms), len(others)) >= MIN_WORDS and len(terms & others) >= SAME_ACTION * len(terms | others)


@lru_cache(_TEXTS_KEPT)
def _content(text: str, keys: Keys) -> frozenset[int | str]:
    return frozenset().union(*(_terms_of_word(word, keys) for word in text.split())) if text else frozenset()


def agreed_action(sayings: Sequence[Saying], publishers: int) -> str:
    """The action for which more than half of the votes are cast; empty if there is no such action.

    Each publisher has one vote, divided among the actions that its entries name. An action counts if at least two
    entries name it, and, if the evidence has several publishers, at least two publishers name it: otherwise one
    publisher would decide how all agents handle a problem that others reported.

    Args:
        sayings: The actions, from the entries that name an action.
        publishers: Number of publishers of the whole evidence.
    """
    share: dict[str, int] = defaultdict(int)
    for saying in sayings:
        share[saying.publisher] += 1
    kinds: list[list[Saying]] = []
    for saying in sayings:
        words = _words(saying.text)
        same = next((kind for kind in kinds if _similar(words, _words(kind[0].text)) >= SAME_ACTION), None)
        if same is None:
            kinds.append([saying])
        else:
            same.append(saying)
    for kind in kinds:
        votes = sum(1 / share[saying.publisher] for saying in kind)
        agreeing = {saying.publisher for saying in kind}
        if 2 * votes > len(share) and len(kind) >= 2 and len(agreeing) >= min(publishers, MIN_PUBLISHERS):
            return _wording(kind)
    return ""


def fair(authors: Sequence[Iterable[str]], most: int) -> list[int]:
    """Indices of at most ``most`` items, in an order that gives each author a share.

    Repeatedly takes the first item whose author has been taken least often so far, so that an author with many items
    does not displace other authors' items. Of an item's authors, the one taken least often counts.

    Args:
        authors: The authors of each item, the best item first.
        most: Maximum number of items.
    """
    times_taken: dict[str, int] = defaultdict(int)
    left = [(at, tuple(dict.fromkeys(of)) or ("",)) for at, of in enumerate(authors)]
    picked: list[int] = []
    while left and len(picked) < most:
        best = min(range(len(left)), key=lambda at: min(times_taken[name] for name in left[at][1]))
        at, names = left.pop(best)
        for name in names:
            times_taken[name] += 1
        picked.append(at)
    return picked


def _wording(kind: Sequence[Saying]) -> str:
    """The wording of an action that most voices share; an action of fewer than ``MIN_WORDS`` words must be equal in all."""
    counts: Mapping[str, int] = _counted(" ".join(saying.text.casefold().split()) for saying in kind)
    if len(counts) == 1:
        return " ".join(kind[0].text.split())
    return shared_wording(kind, 0)


def _counted(texts: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for text in texts:
        counts[text] += 1
    return counts


def _voices(sayings: Sequence[Saying], typical: int, keys: Sequence[str]) -> list[list[str]]:
    """The words of each voice except the voice of the typical saying."""
    mine = sayings[typical].publisher
    split = [(saying.publisher, [_key(word) for word in saying.text.split()]) for saying in sayings]
    several = len({saying.publisher for saying in sayings}) > 1
    if not several:
        return [words for at, (_, words) in enumerate(split) if at != typical][:VOICES]
    wanted = set(keys)
    closest: dict[str, list[str]] = {}
    for publisher, words in split:
        if publisher == mine:
            continue
        known = closest.get(publisher)
        if known is None or _distance(words, wanted) < _distance(known, wanted):
            closest[publisher] = words
    return list(closest.values())[:VOICES]


def _distance(words: Sequence[str], wanted: set[str]) -> tuple[int, int]:
    """The number of missing wanted words, and the number of other words."""
    have = set(words)
    return len(wanted - have), len(have - wanted)


def _key(word: str) -> str:
    return _EDGES.sub("", word).casefold() or word


def _words(text: str) -> frozenset[str]:
    return frozenset(_key(word) for word in text.split())


def _similar(words: frozenset[str], other_words: frozenset[str]) -> float:
    return len(words & other_words) / len(words | other_words) if words or other_words else 0.0
