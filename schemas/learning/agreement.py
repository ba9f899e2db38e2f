"""Finds what several publishers agree on: the wording that they share, and the action that most of them name.

One author must not decide what all agents of a crew read. Therefore repetitions by one publisher count once, and words
that only one publisher wrote are left out, as are words for which another publisher wrote something else.

Invariant: pure; the result contains only words of the texts, in their order, and ``GAP`` where words were left out.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
VARYING: Final = 1 / 3
"""Share of the publishers that may have another word in the place of one of a pattern."""
USUAL: Final = 0.75
"""Share of the other texts that have a word that a text of another case lacks."""
OUTLIER_TEXTS: Final = 4
"""Minimum number of texts of which one may be of another case; of three, two decide nothing."""
WHOLE: Final = 0.6
"""Share of the shared words of content that the complete clauses of a pattern must have."""
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
_JOINING: Final = frozenset({
    "and", "or", "but", "because", "when", "while", "although", "though", "if", "unless", "so", "which", "until",
    "und", "oder", "aber", "weil", "wenn", "während", "obwohl", "falls", "sodass", "bis", "sondern",
    "et", "ou", "mais", "car", "parce", "quand", "lorsque", "bien", "si",
    "y", "o", "pero", "porque", "cuando", "mientras", "aunque",
})  # fmt: skip
"""Words with which a clause begins."""
_LEADING: Final = frozenset({
    "at", "in", "on", "by", "for", "from", "of", "to", "with", "into", "during", "since", "after", "before", "per", "via",
    "as", "near", "over", "under", "the", "a", "an", "this", "that", "these", "those", "its", "their",
    "am", "im", "auf", "bei", "beim", "für", "von", "vom", "zu", "zum", "zur", "mit", "seit", "nach", "vor", "um",
    "ab", "der", "die", "das", "den", "dem", "des", "ein", "eine", "einen", "einem", "einer", "aus", "gegen",
    "à", "au", "aux", "dans", "sur", "par", "pour", "de", "du", "depuis", "après", "avant", "chez", "vers", "le", "la",
    "les", "un", "une", "en", "el", "los", "las", "una", "por", "para", "con", "desde", "tras", "hasta", "del", "al",
})  # fmt: skip
"""Prepositions and articles: they begin what may be left out at the end of a clause ("… at 04:10")."""
_OF: Final = frozenset({"of", "von", "vom", "des", "de", "du", "del"})
"""Prepositions whose noun a clause does not do without ("a night of frost")."""
_TURNING: Final = frozenset({
    "unless", "until", "if", "but", "or", "from", "to", "before", "after", "over", "under", "since",
    "falls", "bis", "wenn", "aber", "oder", "sondern", "von", "nach", "vor", "seit", "gegen",
    "si", "mais", "ou", "après", "avant", "depuis", "pero", "o", "desde", "tras", "hasta",
})  # fmt: skip
"""Words of both lists that change what a statement says; unlike the others, one author alone cannot add them."""
_MOMENTS: Final = frozenset({
    "again", "today", "tonight", "yesterday", "tomorrow", "now", "twice", "wieder", "erneut", "heute", "gestern", "jetzt",
    "encore", "aujourd'hui", "hier", "maintenant", "hoy", "ayer", "ahora", "also", "too", "auch", "aussi", "también",
})  # fmt: skip
"""Words about one occasion; a pattern is complete without them."""
_LINKS: Final = (_JOINING | _LEADING) - _TURNING
_COUNTS: Final = frozenset({
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "several", "some",
    "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "mehrere", "einige", "deux", "trois",
    "quatre", "cinq", "sept", "huit", "neuf", "dix", "plusieurs", "quelques", "dos", "tres", "cuatro", "cinco",
    "seis", "siete", "ocho", "nueve", "diez", "varios", "varias",
})  # fmt: skip
_ENDS_CLAUSE: Final = (",", ";", ":", ".", "!", "?")
_FAILS: Final = frozenset({
    "worse", "wrong", "useless", "fails", "failed", "stays", "remains", "unsafe", "outdated", "obsolete", "instead",
    "falsch", "schlimmer", "veraltet", "nutzlos", "bleibt", "stattdessen", "pire", "faux", "inutile", "reste", "peor",
    "incorrecto", "inútil", "sigue",
})  # fmt: skip
"""Words with which a text says that a remedy does not work."""
_MOSTLY: Final = 0.75
"""Share of the terms of the shorter of two actions that the other one must have, if their problems are known."""
_OPPOSITES: Final = tuple(
    tuple(frozenset(side.split()) for side in pair)
    for pair in (
        ("increase raise more higher longer", "decrease reduce lower less fewer shorter"),
        ("add enable allow start open before", "remove disable forbid stop close after"),
        ("first earlier up on", "last later down off"),
        ("erhöhen mehr länger höher", "senken weniger kürzer niedriger"),
        ("vor vorher aktivieren öffnen hinzufügen", "nach nachher deaktivieren schliessen schließen entfernen"),
        ("augmenter plus activer avant ouvrir", "réduire moins désactiver après fermer"),
        ("aumentar más activar antes abrir", "reducir menos desactivar después cerrar"),
    )
)
"""Words with which two otherwise equal actions say the opposite."""
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
    wording: list[str] = []
    for word in _in_order(sayings, typical):
        if (word.is_interrupted or not word.is_kept) and wording[-1:] != [GAP]:
            wording.append(GAP)
        if word.is_kept and word.text:
            wording.append(word.text)
    if sum(word != GAP for word in wording) < MIN_WORDS:
        return ""
    return " ".join(wording)


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a text.

    Attributes:
        text: Empty after the last word.
        is_kept: Whether it is shared.
        is_interrupted: Whether half of the voices have other words before it.
        is_turned: Whether these are a negation.
        is_content: Whether it is neither a stop word nor a number.
    """

    text: str
    is_kept: bool
    is_interrupted: bool = False
    is_turned: bool = False
    is_content: bool = True


def _in_order(sayings: Sequence[Saying], typical: int) -> list[_Word]:
    """The words of the typical text; see ``shared_wording``."""
    words = sayings[typical].text.split()
    keys = [_key(word) for word in words]
    others = _voices(sayings, typical, keys)
    kept = [1] * len(words)
    inserted = [0] * (len(words) + 1)
    turned = [False] * (len(words) + 1)
    for other in others:
        at_typical = at_other = 0
        for block in SequenceMatcher(None, keys, other, autojunk=False).get_matching_blocks():
            if block.b > at_other or block.a > at_typical:
                for place in range(at_typical, block.a + 1):
                    inserted[place] += block.b > at_other
                    turned[place] |= not _NEGATIONS.isdisjoint(other[at_other : block.b])
            for place in range(block.a, block.a + block.size):
                kept[place] += 1
            at_typical, at_other = block.a + block.size, block.b + block.size
    voices = len(others) + 1
    marked = []
    for place, word in enumerate([*words, ""]):
        share_needed = voices if _has_digit(word) else voices / 2 + 0.5
        is_kept = not word or kept[place] >= share_needed
        marked.append(_Word(word, is_kept, 2 * inserted[place] >= voices, turned[place]))
    return marked


def pattern_of(sayings: Sequence[Saying], typical: int, keys: Keys, action: str) -> str:
    """The problem as the texts share it: in complete clauses, else the action, else with gaps; empty without either.

    A clause is complete if all its words are shared, but for numbers and names that vary (``GAP``), and for what the
    clause does without at its end: a place or time ("… at 04:10"), words about one occasion ("again"). The text with the
    most shared words in complete clauses counts; the typical text, in its order, before the others.

    Args:
        sayings: At least one.
        typical: Index of the saying that is most similar to the others.
        keys: Terms of a word.
        action: What to do about it; empty if it is not known.
    """
    in_order = shared_wording(sayings, typical)
    in_any_order, marked = _in_any_order(sayings, keys)
    loses_negation = bool(in_any_order) and is_negated(in_order) != is_negated(in_any_order)
    ordered = None
    if in_order and not loses_negation:
        varying = _varying(sayings, typical)
        ordered = [
            replace(word, is_kept=word.is_kept and at not in varying, is_content=bool(keys(word.text)))
            for at, word in enumerate(_in_order(sayings, typical))
        ]
    ordered_terms, free = (sum(bool(keys(word)) for word in text.split()) for text in (in_order, in_any_order))
    needed = max(MIN_WORDS, WHOLE * max(ordered_terms, free))
    if ordered is not None and (found := _complete(ordered))[1] >= needed:
        return found[0]
    best = max((_complete(words) for words in marked), key=lambda found: found[1], default=("", 0))
    if best[1] >= needed:
        return best[0]
    return action or (in_order if ordered_terms >= free and not loses_negation else in_any_order)


def _varying(sayings: Sequence[Saying], typical: int) -> frozenset[int]:
    """Places of words of the typical text for which too many texts have other words; each publisher has one vote."""
    words = [_key(word) for word in sayings[typical].text.split()]
    votes = Counter(saying.publisher for saying in sayings)
    against = [0.0] * len(words)
    for saying in sayings[:VOICES]:
        other = [_key(word) for word in saying.text.split()]
        for kind, begin, end, *_ in SequenceMatcher(None, words, other, autojunk=False).get_opcodes():
            if kind == "replace":
                for place in range(begin, end):
                    against[place] += 1 / votes[saying.publisher]
    return frozenset(place for place, share in enumerate(against) if share > VARYING * len(votes))


def _complete(words: Sequence[_Word]) -> tuple[str, int]:
    """The complete clauses of a text, and their number of shared words of content."""
    wording: list[str] = []
    count = 0
    for clause in _clauses(words):
        rendered = _rendered(clause, words[0])
        content = sum(word.is_kept and word.is_content for word in clause)
        if not wording and rendered and _key(rendered[0]) in _JOINING:
            del rendered[0]
        if rendered and content > (GAP in rendered):
            if not wording and words[0].text[:1].isupper():
                rendered[0] = rendered[0][:1].upper() + rendered[0][1:]
            wording += rendered
            count += content
    return " ".join(wording).rstrip(",;:. "), count


def _clauses(words: Sequence[_Word]) -> Iterable[list[_Word]]:
    clause: list[_Word] = []
    for word in words:
        if clause and _key(word.text) in _JOINING:
            yield clause
            clause = []
        if word.text:
            clause.append(word)
        if clause and word.text.endswith(_ENDS_CLAUSE):
            yield clause
            clause = []
    if clause:
        yield clause


def _rendered(clause: Sequence[_Word], first: _Word) -> list[str]:
    """The words of a complete clause; empty if it is not complete."""
    ending = clause[-1].text[-1] if clause[-1].text.endswith(_ENDS_CLAUSE) else ""
    words = list(clause)
    while words and not words[-1].is_kept:
        begin = next((at + 1 for at in range(len(words) - 1, -1, -1) if words[at].is_kept), 0)
        around = {_key(word.text) for word in words[max(0, begin - 1) : begin + 1]}
        if not around & _LEADING or around & _OF:
            break
        while begin and _key(words[begin - 1].text) in _LEADING:
            begin -= 1
        del words[begin:]
    numbers = next((at for at, word in enumerate(words) if _key(word.text) not in _LEADING), len(words))
    after = next((at for at in range(numbers, len(words)) if words[at].is_kept or not _has_digit(words[at].text)), 0)
    if numbers and after > numbers:
        del words[:after]
    rendered: list[str] = []
    for word in words:
        if word.is_turned or not (word.is_kept or _may_vary(word.text, is_first=word is first)):
            return []
        if word.is_kept:
            rendered.append(word.text)
        elif _key(word.text) not in _MOMENTS and rendered[-1:] != [GAP]:
            rendered.append(GAP)
    if rendered and ending and not rendered[-1].endswith(ending):
        rendered[-1] += ending
    return rendered


def _may_vary(word: str, *, is_first: bool) -> bool:
    """Whether a word is a number, a name or about one occasion: a clause is complete without it."""
    plain = _EDGES.sub("", word)
    inside = plain[1:] if is_first else plain
    return (
        _has_digit(word)
        or _key(word) in _COUNTS | _MOMENTS
        or any(mark in plain for mark in "_/.")
        or any(character.isupper() for character in inside)
    )


def common_wording(sayings: Sequence[Saying], keys: Keys) -> str:
    """The words of one of the texts whose terms most publishers and half of the texts have, in any order.

    For texts that say the same in different words. Words with digits remain if all texts have them. ``GAP`` marks where
    words were left out. A negation counts like a word: if most texts have a negation and the wording would not, or the
    other way round, the text is not used. Empty if fewer than ``MIN_WORDS`` shared terms remain.

    Args:
        sayings: At least one.
        keys: Terms of a word.
    """
    return _in_any_order(sayings, keys)[0]


def _in_any_order(sayings: Sequence[Saying], keys: Keys) -> tuple[str, list[list[_Word]]]:
    """The wording of ``common_wording``, and the words of each text that may be used."""
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
    by_turn: dict[str, set[str]] = defaultdict(set)
    for saying in sayings:
        for key in _words(saying.text) & _TURNING:
            by_turn[key].add(saying.publisher)
    turns = {
        key for key, by in by_turn.items() if 2 * len(by) > publishers and len(by) >= min(publishers, MIN_PUBLISHERS)
    }

    def is_shared_word(word: str, terms: frozenset[int | str]) -> bool:
        key = _key(word)
        return key in _LINKS or (terms <= shared and (key not in _TURNING or key in turns))

    best, wording = 0.0, ""
    marked = []
    for words, terms in zip(split, of_text, strict=True):
        kept_terms = terms & shared
        if (_NEGATION in terms) != (_NEGATION in shared) or len(kept_terms - {_NEGATION}) < MIN_WORDS:
            continue
        marked.append([
            _Word(word, is_shared_word(word, terms_), is_content=bool(terms_ & shared))
            for word, terms_ in words
        ])  # fmt: skip
        value = len(kept_terms) - 0.5 * len(terms - shared)
        if not wording or value > best:
            best, wording = value, _with_gaps([(word, terms_, is_shared_word(word, terms_)) for word, terms_ in words])
    return wording, marked


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


def other_cases(sayings: Sequence[Saying], keys: Keys) -> frozenset[int]:
    """Indices of texts that say something else in the words of the others ("under the limit" among "over the limit").

    Such a text lacks a word that most of the others and two of their publishers have, and has one that no other has.

    Args:
        sayings: Texts that are similar.
        keys: Terms of a word.
    """
    if len(sayings) < OUTLIER_TEXTS:
        return frozenset()
    of_text = [_content(saying.text, keys) for saying in sayings]
    counts = Counter(term for terms in of_text for term in terms)
    by_term: dict[int | str, set[str]] = defaultdict(set)
    for saying, terms in zip(sayings, of_text, strict=True):
        for term in terms:
            by_term[term].add(saying.publisher)
    several = min(MIN_PUBLISHERS, len({saying.publisher for saying in sayings}))
    usual = {
        term for term, count in counts.items() if count >= USUAL * (len(sayings) - 1) and len(by_term[term]) >= several
    }
    return frozenset(
        at
        for at, terms in enumerate(of_text)
        if not usual <= terms and any(counts[term] == 1 for term in terms if isinstance(term, int))
    )


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


def same_action(action: str, other: str, keys: Keys, about: tuple[str, str] | None = None) -> bool:
    """Whether two texts name the same specific action: equal terms up to ``SAME_ACTION``, at least ``MIN_WORDS``.

    With ``about``, three quarters of the terms of the shorter one are enough ("put the number on the invoice", "add the
    number to the invoice"), unless the others oppose each other, are different numbers, or tell two problems apart.

    Args:
        action: One text.
        other: The other text.
        keys: Terms of a word.
        about: What each action is for. A term that only one action has and that its problem has, too, tells it apart if
            the other action has such a term as well ("restart the mail worker", "restart the payment worker").
    """
    terms, others = _content(action, keys), _content(other, keys)
    shared = terms & others
    shortest = min(len(terms), len(others))
    mine, theirs = terms - others, others - terms
    if shortest < MIN_WORDS or len(shared) < MIN_WORDS or _NEGATION in mine | theirs or _are_opposed(action, other):
        return False
    if len(shared) >= SAME_ACTION * len(terms | others):
        return True
    if about is None or len(shared) < _MOSTLY * shortest or 2 * len(shared) < len(terms | others):
        return False
    if any(isinstance(term, str) for term in mine) and any(isinstance(term, str) for term in theirs):
        return False
    return not (mine & _content(about[0], keys) and theirs & _content(about[1], keys))


def _are_opposed(text: str, other: str) -> bool:
    words, others = _words(text), _words(other)
    return any(
        (not words.isdisjoint(more) and not others.isdisjoint(less) and others.isdisjoint(more))
        or (not others.isdisjoint(more) and not words.isdisjoint(less) and words.isdisjoint(more))
        for more, less in _OPPOSITES
    )


@lru_cache(_TEXTS_KEPT)
def _content(text: str, keys: Keys) -> frozenset[int | str]:
    return frozenset().union(*(_terms_of_word(word, keys) for word in text.split())) if text else frozenset()


def agreed_action(sayings: Sequence[Saying], publishers: int, keys: Keys) -> str:
    """The action for which more than half of the votes are cast; empty if there is no such action.

    Each publisher has one vote, divided among the actions that its entries name. An action counts if at least two
    entries name it, and, if the evidence has several publishers, at least two publishers name it: otherwise one
    publisher would decide how all agents handle a problem that others reported.

    Args:
        sayings: The actions, from the entries that name an action.
        publishers: Number of publishers of the whole evidence.
        keys: Terms of a word.
    """
    share: dict[str, int] = defaultdict(int)
    for saying in sayings:
        share[saying.publisher] += 1
    kinds: list[list[Saying]] = []
    for saying in sayings:
        same = next((kind for kind in kinds if _is_same(saying.text, kind[0].text, keys)), None)
        if same is None:
            kinds.append([saying])
        else:
            same.append(saying)
    for kind in kinds:
        votes = sum(1 / share[saying.publisher] for saying in kind)
        agreeing = {saying.publisher for saying in kind}
        if 2 * votes > len(share) and len(kind) >= 2 and len(agreeing) >= min(publishers, MIN_PUBLISHERS):
            return _wording(kind, keys)
    return ""


def _is_same(action: str, other: str, keys: Keys) -> bool:
    is_opposed = is_negated(action) != is_negated(other) or _are_opposed(action, other)
    if _similar(_words(action), _words(other)) >= SAME_ACTION and not is_opposed:
        return True
    return same_action(action, other, keys, ("", ""))


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


def _wording(kind: Sequence[Saying], keys: Keys) -> str:
    """The shortest text of an action whose terms two publishers use, else the wording that most voices share.

    An action of fewer than ``MIN_WORDS`` terms must be equal in all.
    """
    counts: Mapping[str, int] = _counted(" ".join(saying.text.casefold().split()) for saying in kind)
    if len(counts) == 1:
        return " ".join(kind[0].text.split())
    several = len({saying.publisher for saying in kind}) > 1
    by_term: dict[int | str, set[str | int]] = defaultdict(set)
    for at, saying in enumerate(kind):
        for term in _content(saying.text, keys):
            by_term[term].add(saying.publisher if several else at)
    shared = {term for term, by in by_term.items() if len(by) >= MIN_PUBLISHERS}
    whole = [
        saying.text for saying in kind if len(terms := _content(saying.text, keys)) >= MIN_WORDS and terms <= shared
    ]
    if whole and (_NEGATION in shared) == (2 * sum(is_negated(saying.text) for saying in kind) > len(kind)):
        return " ".join(min(whole, key=lambda text: (len(text), text)).split())
    return max(
        (shared_wording(kind, 0), common_wording(kind, keys)),
        key=lambda wording: sum(term != _NEGATION for term in _content(wording, keys)),
    )


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
