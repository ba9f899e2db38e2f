"""Decides without a model whether a newer statement retires an older one about the same thing.

Two statements concern the same thing if their topics (what stands before the verb, or after it where the subject is a
pronoun) cover each other. The newer one retires the older one if it names what no longer holds ("from A to B", "instead
of A", "no longer A", "forget A"), gives it up ("A is too slow, B does it"), corrects it ("actually", "typo"), says that
something is so now or from a date on, that somebody lives or works elsewhere, or repeats its sentence with another value of
the same kind. Questions, conjectures, quotations, reports of the past,
additions, what "stays" and what is so for a day or a week only retire nothing. A change of one of several items or
attributes amends the older statement, which holds in its other parts.

Invariant: pure; it prefers precision to recall. A changed rule or list (``updates.toml``) is a new ``VERSION``.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from importlib import resources
from itertools import pairwise
from typing import Any, Final

from ..text.analyzer import fold, tokens_of
from ..text.dates import days_named
from ..text.kinds import kind_of
from ..text.languages import Language, languages
from ..text.sentences import EVENTS, MONTHS
from ..text.stop_words import english_stop_words, foreign_language, stop_words_of
from .rules import Consequence, Statement, Verdict

VERSION: Final = 3

MAX_CHARS: Final = 600
"""Characters of a statement; a longer text is not one statement, and no sentence retires the whole of it."""
MAX_SENTENCES: Final = 4
MOST_OLD_SENTENCES: Final = 3
_MOST_RESTATED: Final = 2
"""Sentences of a text, at most, of which one may replace another without a cue."""
MAX_TOKENS: Final = 60
"""Maximum number of tokens of a sentence that is compared."""
_NEAR: Final = 0.4
"""Cosine from which two statements concern the same thing, if one names words of the other as outdated."""
_ALIKE_VALUE: Final = 0.5
"""The same, if the words are any noun."""
_NEAR_VALUE: Final = 0.35
"""The same, if the outdated words are a name or a number that the other gives as its value."""
_ALIKE: Final = 0.6
"""Cosine from which a common date is not a coincidence."""
UNRELATED_COSINE: Final = 0.15
"""Below this cosine, shared words are a coincidence (MiniLM: two random statements of one journal have .1 on average)."""
_KNOWN: Final = ("en", "de", "fr")
_TEXTS_KEPT: Final = 512
"""Number of texts whose sentences are kept, some kilobytes each."""


class _Kind(StrEnum):
    WORD = "word"
    NAME = "name"
    NUMBER = "number"
    TIME = "time"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class _Token:
    folded: str
    stem: str
    kind: _Kind
    is_content: bool
    is_verb: bool
    is_negation: bool
    starts_clause: bool
    is_capital: bool = False


@dataclass(frozen=True, slots=True)
class _State:
    """Something that a person has one of at a time, such as a home; the group ``value`` holds which.

    Attributes:
        name: What it is, for people.
        holds: Says that it is so.
        starts: Says that it became so.
        needs_cue: Those of ``starts`` that say so only together with a word such as "now".
        ends: Says that it is over.
    """

    name: str
    holds: tuple[re.Pattern[str], ...]
    starts: tuple[re.Pattern[str], ...]
    needs_cue: frozenset[re.Pattern[str]]
    ends: tuple[re.Pattern[str], ...]

    @property
    def every(self) -> tuple[re.Pattern[str], ...]:
        """Every way to say that it is so."""
        return (*self.holds, *(pattern for pattern in self.starts if pattern not in self.needs_cue))


@dataclass(frozen=True, slots=True)
class _Cues:
    """The lists of one language."""

    code: str
    language: Language
    openers: tuple[re.Pattern[str], ...]
    leaves: tuple[re.Pattern[str], ...]
    rejects: tuple[re.Pattern[str], ...]
    gives_up: tuple[re.Pattern[str], ...]
    chose: tuple[re.Pattern[str], ...]
    attitudes: tuple[re.Pattern[str], ...]
    dislikes: tuple[re.Pattern[str], ...]
    ends: tuple[re.Pattern[str], ...]
    withdraws: tuple[re.Pattern[str], ...]
    corrects: tuple[re.Pattern[str], ...]
    present: tuple[re.Pattern[str], ...]
    moves: tuple[re.Pattern[str], ...]
    again: tuple[re.Pattern[str], ...]
    hypothetical: tuple[re.Pattern[str], ...]
    reports: tuple[re.Pattern[str], ...]
    past: tuple[re.Pattern[str], ...]
    adds: tuple[re.Pattern[str], ...]
    stays: tuple[re.Pattern[str], ...]
    rest: tuple[re.Pattern[str], ...]
    once: tuple[re.Pattern[str], ...]
    turned: tuple[re.Pattern[str], ...]
    done: tuple[re.Pattern[str], ...]
    intends: tuple[re.Pattern[str], ...]
    since: tuple[re.Pattern[str], ...]
    temporary: tuple[re.Pattern[str], ...]
    lasting: tuple[re.Pattern[str], ...]
    regular: tuple[re.Pattern[str], ...]
    anaphora: re.Pattern[str]
    past_verbs: frozenset[str]
    negations: frozenset[str]
    verbs: frozenset[str]
    ignored: frozenset[str]
    stop_words: frozenset[str]
    states: tuple[_State, ...]
    known: frozenset[str]
    """Words by which the language is recognised."""


_DATA: Final[dict[str, Any]] = tomllib.loads(resources.files(__package__).joinpath("updates.toml").read_text("utf-8"))


def with_english_months(folded: str) -> str:
    """The folded text with French months in English, and "1er" as a number, because ``dates`` knows no French."""
    return _FRENCH.sub(lambda match: _FRENCH_DATES[match[0]], folded)


_FRENCH_DATES: Final[dict[str, str]] = _DATA["french_dates"]
_FRENCH: Final = re.compile(rf"\b(?:{'|'.join(_FRENCH_DATES)})\b")


def _list(name: str) -> frozenset[str]:
    return frozenset(_DATA["every"][name].split())


@cache
def _cues(code: str) -> _Cues:
    data = _DATA[code]
    by_code = {language.code: language for language in languages()}
    values: dict[str, Any] = {name: tuple(map(re.compile, data[name])) for name in _PATTERNS}
    values |= {name: frozenset(data[name].casefold().split()) for name in _WORDS}
    stop_words = english_stop_words() if code == "en" else stop_words_of(code)
    return _Cues(
        code=code,
        language=by_code.get(code, by_code["en"]),
        anaphora=re.compile(data["anaphora"]),
        stop_words=stop_words,
        states=tuple(_state(name, patterns) for name, patterns in data["states"].items()),
        known=stop_words.union(*(values[name] for name in _WORDS)),
        **values,
    )


def _state(name: str, data: dict[str, list[str]]) -> _State:
    holds, starts, cued, ends = (
        tuple(map(re.compile, data.get(key, []))) for key in ("holds", "starts", "cued", "ends")
    )
    return _State(name, holds, (*starts, *cued, *holds), frozenset((*cued, *holds)), ends)


_PATTERNS: Final = tuple(field.name for field in fields(_Cues) if field.type == "tuple[re.Pattern[str], ...]")
_WORDS: Final = ("past_verbs", "negations", "verbs", "ignored")
_SENTENCE_END: Final = re.compile(
    r"(?<=[^\d\s.][.!?;])\s+|(?<=\d[.!?;])\s+(?=[A-ZÄÖÜÉÀ][a-zäöüß]+ )(?!"
    rf"(?i:{MONTHS})\b)|\n+"
)
_ABBREVIATED: Final = re.compile(
    r"\b(?:mr|mrs|ms|dr|st|no|nr|prof|approx|ca|z\.b|e\.g|i\.e|vs|mme|m)\.$", re.IGNORECASE
)
_TOKEN: Final = re.compile(r"\d+(?:[.,:/-]\d+)*(?:[-–]?[a-zA-Zµ°%]{1,3}\b)?|[^\W\d_]+(?:'[^\W\d_]+)?|[:,;%€$\"“”„«»]")
_TIME: Final = re.compile(r"\d{1,2}[:.h]\d{2}$|\d{1,2}(?:am|pm|h|uhr)$")
_MARKS: Final = frozenset(':,;"“”„«»')
_GERMAN_VERB: Final = ("t", "en")
"""Endings of a German verb behind its subject, which has a capital."""
_DETERMINERS: Final = _list("determiners")
"""Words before a noun, so that "the lead" is not a verb."""
_INTERJECTIONS: Final = frozenset(["no", "non", "nein"])
_QUOTES: Final = re.compile(r"[\"“„«‚](?P<said>[^\"”“»]{3,300})[\"”“»]")
_LEAST_QUOTED_WORDS: Final = 3
"""Minimum number of words of a quotation; a title in quotes is a value."""
_PREFIX: Final = 4
"""Characters two inflected forms of a word have in common, at least."""
_PREFIX_SHARE: Final = 0.6
"""Minimum share of the longer of two forms of a word that they have in common."""
_MOST_ENDING: Final = 3
_BEGINS: Final = 3
"""Letters that two forms of a word share at least: without one, two statements have no word in common."""
"""Characters in which two forms of a word differ at the end, at most."""
_INITIALS: Final = re.compile(r"\b(?:[A-Z]\. ?){2,}(?=[A-Z])")
_CONTRACTED: Final = (
    (
        re.compile(r"\b(can|could|should|would|do|does|did|is|are|was|were|has|have|had|must|wo|need)n't\b", re.I),
        r"\1 not",
    ),
    (re.compile(r"\bcannot\b", re.I), "can not"),
    (re.compile(r"\b(it|that|there|what|who|he|she|this)'s\b", re.I), r"\1 is"),
    (re.compile(r"\b(we|you|they)'re\b", re.I), r"\1 are"),
    (re.compile(r"\bi'm\b", re.I), "i am"),
    (re.compile(r"\b(i|we|you|they)'ve\b", re.I), r"\1 have"),
    (re.compile(r"\b(i|we|you|they|he|she|it|that)'ll\b", re.I), r"\1 will"),
    (re.compile(r"\b([ldjnmtsc]|qu)'(?=\w)", re.I), r"\1' "),
    (re.compile(r"(?<=\w)'s\b", re.I), ""),
)
_LABEL_WORDS: Final = 6
"""Words before a colon, at most, that name the topic or say what follows."""
_ITEM_ENDS: Final = _list("item_ends")
_LEAST_ITEMS: Final = 3
"""Items or attributes from which a statement is a list that can change in part."""
_SAME_TOPIC: Final = 0.6
"""Minimum share of a topic that the other statement has, where a cue says that something changed."""
_NAMED_OLD: Final = 0.5
"""Minimum share of the words after "instead of" or "from" that the older statement has."""
_SAME_CLAUSE: Final = 0.6
"""Minimum share of a clause with "no longer" that the older statement has."""
_EQUAL_FRAME: Final = 0.99
_OWN_WORDS: Final = 0.75


@dataclass
class _Sentence:
    """A sentence; ``folded`` is compared with the cues."""

    shown: str
    folded: str
    tokens: Sequence[_Token]
    cues: _Cues
    whole: str
    """The folded sentence that a clause is part of."""
    states: frozenset[str]
    """Names of the states that it may be about (``_State``)."""
    corrects: bool = False

    def has(self, patterns: Iterable[re.Pattern[str]]) -> bool:
        """Whether it contains a cue."""
        return any(pattern.search(self.folded) for pattern in patterns)

    def within(self, patterns: Iterable[re.Pattern[str]]) -> bool:
        """Whether the sentence that it is part of contains a cue."""
        return any(pattern.search(self.whole) for pattern in patterns)

    def matches(self, patterns: Iterable[re.Pattern[str]]) -> Iterator[re.Match[str]]:
        """Where it contains cues."""
        return (match for pattern in patterns for match in pattern.finditer(self.folded))

    @cached_property
    def content(self) -> list[_Token]:
        return [token for token in self.tokens if token.is_content]

    @cached_property
    def said(self) -> list[_Token]:
        """Its content with verbs."""
        return [token for token in self.tokens if token.is_content or token.is_verb]

    @cached_property
    def topic(self) -> list[_Token]:
        """See ``_topic``; without "final", "current" and the like before its noun."""
        topic = _topic(self)
        return topic[1:] if len(topic) > 1 and topic[0].folded in _CURRENT else topic

    @cached_property
    def negated(self) -> bool:
        return sum(token.is_negation for token in self.tokens) % 2 == 1


def update(
    newer: Statement,
    older: Statement,
    *,
    cosine: float | None = None,
    same_speaker: bool | None = None,
) -> Verdict | None:
    """What a newer statement does to an older one; None if it leaves it as it is.

    Args:
        newer: The statement of the later time.
        older: The statement of the earlier time.
        cosine: Cosine of their vectors; None without vectors.
        same_speaker: Whether one person or agent made both; None if not known.
    """
    if len(newer.text) > MAX_CHARS or len(older.text) > MAX_CHARS or (cosine is not None and cosine < UNRELATED_COSINE):
        return None
    cues = _cues_of(f"{newer.text} {older.text}")
    if cues is None:
        return None
    new_parts, old_parts = _sentences(_spoken(newer), cues), _sentences(_spoken(older), cues)
    if not 0 < len(new_parts) <= MAX_SENTENCES or not 0 < len(old_parts) <= MAX_SENTENCES:
        return None
    begins = [
        {token.folded[:_BEGINS] for part in sentences for token in part.tokens if token.is_content or token.is_verb}
        for sentences in (new_parts, old_parts)
    ]
    states = [frozenset[str]().union(*(part.states for part in sentences)) for sentences in (new_parts, old_parts)]
    if begins[0].isdisjoint(begins[1]) and states[0].isdisjoint(states[1]):
        return None
    chatter = newer.is_turn or older.is_turn or max(len(new_parts), len(old_parts)) > _MOST_RESTATED
    spoken = newer.is_turn or older.is_turn
    context = _Context(newer, cosine, same_speaker, chatter, spoken)
    updates = [
        update_
        for new in (*new_parts, *(clause for sentence in new_parts for clause in _clauses(sentence)))
        for old in old_parts
        if _asserts_anything(old) and (update_ := context.compared(new, old)) is not None
    ]
    if not updates:
        return None
    best = max(updates, key=lambda update_: (update_.retires, update_.confidence, update_.match))
    if sum(map(_tells_more, old_parts)) >= MOST_OLD_SENTENCES and best.effect is not Consequence.WITHDRAWS:
        best = replace(best, effect=Consequence.AMENDS)
    return best


def elaborates(text: Statement) -> bool:
    """Whether a text names no subject of its own, so that it speaks of what its speaker said before ("I love his voice")."""
    cues = _cues_of(text.text)
    sentences = _sentences(_spoken(text), cues) if cues is not None else ()
    if not sentences or any(map(_asks, sentences)):
        return False
    tokens = sentences[0].tokens
    has_name = any(
        token.kind is not _Kind.WORD and token.is_content and token.folded not in _FIRST_PERSONS for token in tokens
    )
    return not has_name and any(token.folded in _REFERS_BACK for token in tokens)


@dataclass(frozen=True, slots=True)
class OlderStatement:
    """An older statement that a newer one may retire.

    Attributes:
        statement: The statement.
        update: What ``update`` says about it and the newer one.
        order: Orders statements by the time from which they hold, ties included.
    """

    statement: Statement
    update: Verdict
    order: tuple[int, int]


def always(_newer: OlderStatement, _older: OlderStatement) -> bool:
    """Any statement may retire any other."""
    return True


def chosen(
    candidates: Sequence[OlderStatement], may_retire: Callable[[OlderStatement, OlderStatement], bool] = always
) -> list[OlderStatement]:
    """The candidates that a newer statement retires: the best, and those that say the same as the best.

    The best has the greatest match and confidence; a candidate that another candidate retires gives way to it, because a
    statement replaces what held until then. If the newer statement fits one best that it only amends, it retires none.

    Args:
        candidates: The older statements, with what the newer one does to each.
        may_retire: Whether the first of two candidates has the authority to retire the second.
    """
    current = [
        older
        for older in candidates
        if not any(
            other.order > older.order
            and may_retire(other, older)
            and (later_update := update(other.statement, older.statement)) is not None
            and later_update.retires
            for other in candidates
            if other.update.retires
        )
    ]
    best = max(current, key=lambda older: (older.update.match + older.update.confidence, older.order), default=None)
    if best is None or not best.update.retires:
        return []
    return [
        older
        for older in current
        if older is best or (older.update.retires and _says_same(older.statement, best.statement))
    ]


def _says_same(statement: Statement, other: Statement) -> bool:
    """Whether each of two statements has most content words of the other, and the same numbers."""
    cues = _cues_of(f"{statement.text} {other.text}")
    if cues is None:
        return False
    words, other_words = (
        [token for part in _sentences(_spoken(text), cues) for token in part.content] for text in (statement, other)
    )
    if not words or not other_words or _figures(words) != _figures(other_words):
        return False
    return min(_shared(words, other_words), _shared(other_words, words)) >= _SAME_TOPIC


def _figures(tokens: Sequence[_Token]) -> set[str]:
    """The numbers, times and dates."""
    return {token.folded for token in tokens if token.kind not in (_Kind.WORD, _Kind.NAME)}


def _shared(words: Sequence[_Token], others: Sequence[_Token]) -> float:
    """The share of some words that others have; 0 for no words."""
    return sum(_among(token, others) for token in words) / max(1, len(words))


def _cues_of(text: str) -> _Cues | None:
    """The lists of the language of two statements; None for a language without lists."""
    tokens = tokens_of(text)
    foreign = foreign_language(tokens)
    if foreign is not None and foreign.code not in _KNOWN:
        return None
    all_cues = [_cues(code) for code in _KNOWN]
    return max(all_cues, key=lambda cues: sum(token in cues.known for token in tokens))


_ANNOTATION: Final = re.compile(r"\[[^\]]{0,300}\]")
"""What was added to a message, such as the description of a picture."""


def _spoken(statement: Statement) -> str:
    """The text without the name of its speaker before it."""
    text = _ANNOTATION.sub(" ", statement.text)
    name, colon, rest = text.partition(":")
    if not colon or statement.speaker is None or fold(name).strip() != fold(statement.speaker.replace("_", " ")):
        return text
    return rest.strip()


def _sentences(text: str, cues: _Cues) -> Sequence[_Sentence]:
    """The sentences of a text; one text is compared with many, so the newest are kept."""
    return _read(text, cues.code)


@lru_cache(maxsize=_TEXTS_KEPT)
def _read(text: str, code: str) -> tuple[_Sentence, ...]:
    """The sentences of a text; a cue of correction in one that says nothing else counts for the next."""
    cues = _cues(code)
    plain = unicodedata.normalize("NFKC", text).replace("’", "'").replace("‘", "'")
    plain = _INITIALS.sub(lambda match: match[0].replace(".", "").replace(" ", "") + " ", plain)
    for pattern, written in _CONTRACTED:
        plain = pattern.sub(written, plain)
    sentences: list[_Sentence] = []
    corrects = False
    for sentence_text in _parts(plain):
        part = _without_opener(sentence_text, cues)
        folded = part.casefold().strip(" .!")
        tokens = _tokens(part, cues)
        if not tokens or len(tokens) > MAX_TOKENS:
            continue
        sentence = _Sentence(part, folded, tokens, cues, folded, _states_of(folded, cues))
        sentence.corrects = corrects or sentence.has(cues.corrects)
        corrects = sentence.corrects
        sentences.append(sentence)
    return tuple(sentences)


def _states_of(folded: str, cues: _Cues) -> frozenset[str]:
    """The states that a folded sentence may be about."""
    return frozenset(
        state.name
        for state in cues.states
        if any(pattern.search(folded) is not None for pattern in (*state.holds, *state.starts, *state.ends))
    )


def _without_opener(part: str, cues: _Cues) -> str:
    """A sentence without words that only lead to it ("By the way,", "Speaking of trains,", "Decision of today:")."""
    while True:
        opening = next((match for opener in cues.openers if (match := opener.match(part)) is not None), None)
        if opening is None or not opening[0] or not (rest := part[opening.end() :]).strip():
            return part
        part = rest


_CLAUSE_END: Final = re.compile(
    r"[,;]\s+(?:(?:and|but|so|und|aber|et|mais)\s+)?|\s+[–—-]+\s+|\s+(?:so|but|aber|mais|sondern)\s+"
)
_LEAST_CLAUSE: Final = 3
"""Tokens of a clause, at least."""
_LEAST_SAID: Final = 2
"""Verbs and content words of a clause, at least."""


def _clauses(sentence: _Sentence) -> list[_Sentence]:
    """The clauses of a sentence that say something; none if it is one clause."""
    parts = _CLAUSE_END.split(sentence.shown)
    if len(parts) < 2:
        return []
    clauses = []
    for part in parts:
        tokens = _tokens(part, sentence.cues)
        if len(tokens) >= _LEAST_CLAUSE and sum(token.is_content or token.is_verb for token in tokens) >= _LEAST_SAID:
            folded = part.casefold().strip(" .!")
            states = sentence.states and _states_of(folded, sentence.cues)
            clauses.append(_Sentence(part, folded, tokens, sentence.cues, sentence.whole, states, sentence.corrects))
    return clauses


def _parts(text: str) -> list[str]:
    """The text in sentences; one that ends with an abbreviation is joined with the next."""
    parts: list[str] = []
    for part in _SENTENCE_END.split(text):
        if parts and _ABBREVIATED.search(parts[-1]):
            parts[-1] = f"{parts[-1]} {part}"
        elif part.strip():
            parts.append(part.strip())
    return parts


def _tokens(text: str, cues: _Cues) -> list[_Token]:
    tokens: list[_Token] = []
    starts = True
    capital_names = cues.code != "de"
    quoted = after_noun = False
    for match in _TOKEN.finditer(text):
        word = match[0]
        folded = word.casefold().removesuffix("'")
        if word in _MARKS:
            quoted = (not quoted) if word in '"“”„«»' else quoted
            starts = word == ":"
            tokens.append(_Token(word, word, _Kind.WORD, False, False, False, starts))
            continue
        kind = _kind(word, folded, cues, names=capital_names and (not starts or quoted), quoted=quoted)
        said_no = folded in _INTERJECTIONS and text[match.end() : match.end() + 1] in (",", ".", "!", "")
        negation = folded in cues.negations and not said_no
        german = cues.code == "de" and word[0].islower() and after_noun and folded.endswith(_GERMAN_VERB)
        determined = bool(tokens) and tokens[-1].folded in _DETERMINERS
        verb = (
            not determined
            and kind is not _Kind.DATE
            and (folded in cues.verbs or (german and folded not in cues.stop_words))
        )
        plain = folded in cues.stop_words or folded in cues.ignored or negation
        content = kind in (_Kind.NUMBER, _Kind.TIME, _Kind.DATE) or (
            not plain and (len(folded) > 1 or (word.isupper() and not starts))
        )
        tokens.append(_Token(folded, _stem(folded), kind, content, verb, negation, starts, word[0].isupper()))
        starts = False
        after_noun = word[0].isupper()
    return tokens


def _kind(word: str, folded: str, cues: _Cues, *, names: bool, quoted: bool) -> _Kind:
    if folded[0].isdecimal():
        return _Kind.TIME if _TIME.match(folded) else _Kind.NUMBER
    language = cues.language
    bare = folded.removesuffix("s")
    if folded in language.weekdays or bare in language.weekdays or bare in _WEEKDAYS:
        return _Kind.DATE
    if (
        folded in language.months and (folded not in language.ambiguous_months or word[0].isupper())
    ) or folded in _MONTHS:
        return _Kind.DATE
    if folded in language.number_words or (folded in language.numbers and len(folded) > 2):
        return _Kind.NUMBER
    if quoted or (names and word[0].isupper()):
        return _Kind.NAME
    return _Kind.WORD


_MONTHS: Final = _list("months")
_WEEKDAYS: Final = _list("weekdays")
_ENDINGS: Final = ("ings", "ing", "edly", "ed", "ies", "es", "en", "ern", "er", "em", "e", "s", "n", "x", "y")


def _stem(word: str) -> str:
    """A word without one ending of inflection; at least three letters remain."""
    if word[0].isdecimal():
        return word.strip("-–")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            rest = word.removesuffix(ending)
            return rest[:-1] if len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "aeious" else rest
    return word


def _same(token: _Token, other: _Token) -> bool:
    """Whether two tokens are forms of one word, or the same number."""
    if token.folded[0] != other.folded[0] and not (token.folded[0].isdecimal() and other.folded[0].isdecimal()):
        return False
    if token.stem == other.stem or token.folded == other.folded:
        return True
    if token.folded[0].isdecimal() or other.folded[0].isdecimal():
        return _number(token.folded) == _number(other.folded) is not None
    short, long = sorted((token.folded, other.folded), key=len)
    common = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return common >= max(_PREFIX, _PREFIX_SHARE * len(long)) and len(long) - common <= _MOST_ENDING


def _among(token: _Token, tokens: Iterable[_Token]) -> bool:
    """Whether some tokens have a form of a word, or the same number."""
    return any(_same(token, other) for other in tokens)


_ORDINAL: Final = re.compile(r"(\d+)(?:st|nd|rd|th|er|e|ème|\.)?$")


_DECADE: Final = re.compile(r"(?:19|20)?(\d0)s$")


def _number(folded: str) -> str | None:
    if (decade := _DECADE.match(folded)) is not None:
        return f"{decade[1]}s"
    plain = folded.replace(",", "") if re.fullmatch(r"\d{1,3}(?:,\d{3})+", folded) else folded
    ordinal = _ORDINAL.match(plain)
    return ordinal[1] if ordinal else plain if plain[0].isdecimal() else None


def _asserts_anything(old: _Sentence) -> bool:
    """Whether an older sentence states something that can be retired."""
    return not _asks(old) and not old.has(old.cues.hypothetical) and bool(old.content) and not _comments(old)


def _tells_more(old: _Sentence) -> bool:
    """Whether a sentence states something of its own: no interjection, and nothing about "him" or "it" before."""
    first = old.tokens[0].folded
    elaborates = first in _THIRD_PERSON or first in _PRONOUNS or (first in _POSSESSORS and first not in _FIRST_PERSONS)
    return len(old.content) > 1 and not elaborates and _asserts_anything(old)


def _comments(sentence: _Sentence) -> bool:
    """Whether a sentence is about what was said before ("That's great", "It sounds like …"), or thanks for it."""
    tokens = [token for token in sentence.tokens if token.folded not in _MARKS]
    if any(token.folded in _THANKS for token in tokens):
        return True
    if len(tokens) < 2 or tokens[0].folded not in _PRONOUNS:
        return False
    second = tokens[1]
    return second.is_verb or not second.is_content or second.folded in _SEEMS


def _asks(sentence: _Sentence) -> bool:
    if sentence.shown.rstrip(' "”»)').endswith("?"):
        return True
    first = sentence.tokens[0].folded
    return (
        first in sentence.cues.language.opens_question
        and sentence.cues.language.asks_indirectly.search(sentence.folded) is not None
    )


def _in_past(sentence: _Sentence) -> bool:
    """Whether a verb is in the past: "we painted", but not "is played"."""
    tokens = sentence.tokens
    for at, token in enumerate(tokens):
        before = [token.folded for token in tokens[max(0, at - 3) : at]]
        if token.folded in sentence.cues.past_verbs and not _PRESENT.intersection(before):
            return True
        ended = token.folded.endswith("ed") and not token.folded.endswith("eed")
        if ended and _SUBJECTS.intersection(before[-2:]) and not _PRESENT.intersection(before):
            return True
    return False


def _is_own(new: _Sentence, start: int, pair: _Pair) -> bool:
    """Whether the word before a place is "I", or words of the older sentence, or one's favourite of something."""
    before = _tokens(new.folded[:start], new.cues)
    if not before:
        return True
    if before[-1].folded in _FIRST_PERSONS or any(token.folded in _FIRST_PERSONS for token in before[-3:]):
        return True
    return (new.has(new.cues.attitudes) and before[0].folded in _POSSESSORS) or pair.old_has(before[-1])


def _dislikes(text: str, cues: _Cues) -> bool:
    """Whether a part of a folded sentence says that somebody dislikes something."""
    return any(pattern.search(text) for pattern in cues.dislikes)


def _earlier(sentence: _Sentence) -> bool:
    """Whether a sentence is about a time that is over, longer ago than last month."""
    rest = _RECENT.sub(" ", sentence.whole)
    return any(pattern.search(rest) for pattern in sentence.cues.past)


_RECENT: Final = re.compile(_DATA["every"]["recent"])


def _happened(sentence: _Sentence) -> bool:
    """Whether the first clause reports what happened, rather than what was decided ("we went with A")."""
    if sentence.has(sentence.cues.chose):
        return False
    end = next((at for at, token in enumerate(sentence.tokens) if token.folded in (",", ";")), len(sentence.tokens))
    return _in_past(replace(sentence, tokens=sentence.tokens[:end]))


def _states(sentence: _Sentence) -> bool:
    """Whether a sentence is one that says what is so or planned, by its words; also one that changed something."""
    cues = sentence.cues
    if sentence.has(cues.leaves) or sentence.has(cues.gives_up) or sentence.has(cues.chose):
        return True
    return any(token.folded == ":" for token in sentence.tokens) or kind_of(sentence.shown) in _STATED


def _is_own_choice(sentence: _Sentence) -> bool:
    """Whether a sentence gives a choice of its speaker, rather than what somebody else does: no "the provider uses A"."""
    if not _has_subject(sentence) or _is_named(sentence) or sentence.has(sentence.cues.chose):
        return True
    return sentence.has(sentence.cues.leaves) or sentence.has(sentence.cues.gives_up)


_STATED: Final = frozenset(["decision", "preference", "fact", "task"])


def _is_named(sentence: _Sentence) -> bool:
    """Whether a sentence says what its subject is, by a colon or a form of "be"."""
    return any(token.folded in _COPULAS for token in sentence.tokens)


_SUBJECTS: Final = _list("subjects")
_PRESENT: Final = _list("present")


def _quotes(sentence: _Sentence) -> bool:
    """Whether a sentence reports what somebody said or what is written somewhere."""
    end = sentence.whole.find(sentence.folded) + len(sentence.folded)
    if any(pattern.search(sentence.whole[:end]) for pattern in sentence.cues.reports):
        return True  # behind the clause it names the source
    return any(
        len(tokens_of(match["said"])) >= _LEAST_QUOTED_WORDS for match in _QUOTES.finditer(sentence.shown)
    ) and any(mark in sentence.shown for mark in (":", ","))


def _has_subject(sentence: _Sentence) -> bool:
    """Whether a noun comes before the verb or before a colon, rather than "I" or "we"."""
    for token in sentence.tokens[_introduction_end(sentence.tokens) :]:
        if token.folded == ":":
            return True
        if token.is_verb:
            return False
        if token.is_content and token.kind not in (_Kind.DATE, _Kind.TIME, _Kind.NUMBER):
            return True
    return False


def _topic(sentence: _Sentence, skipped: frozenset[int] = frozenset()) -> list[_Token]:
    """The words that say what a sentence is about.

    They come before the verb, or before a colon; after the verb if only a pronoun comes before it. Dates and times
    are not part of it, numbers only behind a noun ("house 9").
    """
    tokens = [token for at, token in enumerate(sentence.tokens) if at not in skipped]
    begin = _introduction_end(tokens)
    before: list[_Token] = []
    verb = None
    for at, token in enumerate(tokens[begin:], begin):
        if token.folded == ":" and before and at - begin <= _LABEL_WORDS:
            return before
        if token.is_verb and not (token.kind is _Kind.NAME and before):
            verb = at
            break
        if token.folded in (",", ";") and len(before) > 1:
            continue
        if token.folded in _SUBORDINATE and before:
            return before
        _add(before, token, tokens[at - 1] if at else None)
    if verb is not None and before:
        return before
    after: list[_Token] = []
    start = begin if verb is None else verb + 1
    for at, token in enumerate(tokens[start:], start):
        if not token.is_content:
            if after and (token.folded not in _JOINS or verb is None):
                break
            continue
        if token.is_verb and not after:
            continue
        if not _add(after, token, tokens[at - 1] if at else None) and after:
            break
        if verb is None and len(after) >= 3:
            break
    return after or before


_MOST_CLEAR: Final = 20
"""Words and marks of a sentence of a conversation that says a new value clearly."""
_HORTATIVE: Final = _list("hortative")
_SUBORDINATE: Final = _list("subordinate")
_JOINS: Final = _list("joins")
"""Words within a noun phrase."""


_THANKS: Final = _list("thanks")
_SEEMS: Final = _list("seems")
_SEVERAL: Final = _list("several")
"""Verbs whose object is one of several: who likes jazz may like blues, too."""
_PRONOUNS: Final = _list("pronouns")


def _introduction_end(tokens: Sequence[_Token]) -> int:
    """The place after an introduction such as "Correction:" or "After the fire:", which does not name the topic."""
    for at, token in enumerate(tokens[:_LABEL_WORDS]):
        if token.folded == ":":
            head = [token for token in tokens[:at] if token.is_content]
            if any(token.is_verb for token in tokens[:at]):
                return 0
            rest = tokens[at + 1 :]
            is_pronoun = bool(rest) and rest[0].folded in _PRONOUNS and len(head) > 1
            return at + 1 if not head or (any(token.is_verb for token in rest) and not is_pronoun) else 0
    return 0


def _add(topic: list[_Token], token: _Token, before: _Token | None) -> bool:
    if not token.is_content or token.kind in (_Kind.DATE, _Kind.TIME):
        return False
    if token.kind is _Kind.NUMBER and (before is None or not before.is_content or before.kind is _Kind.NUMBER):
        return False
    topic.append(token)
    return True


@dataclass(frozen=True)
class _Context:
    """The newer statement and the figures of the caller."""

    statement: Statement
    cosine: float | None
    same_speaker: bool | None
    is_chatter: bool
    """Whether one of the texts says several things, so that two of its sentences are alike by chance."""
    is_spoken: bool
    """Whether one of them is a turn of a conversation."""

    def compared(self, new: _Sentence, old: _Sentence) -> Verdict | None:
        """The effect of one sentence on another."""
        cues = new.cues
        if _asks(new) or new.within(cues.hypothetical):
            return None
        pair = _Pair(new, old, self)
        if pair.other_subject:
            return None
        if self._is_temporary(pair):
            past = self.is_spoken and _in_past(new)
            return self._corrected(pair, past=past) if new.corrects and pair.changed_slots else None
        withdrawn = self._withdrawn(pair)
        if withdrawn is not None:
            return withdrawn
        if _quotes(new) or pair.other_entity or pair.other_person:
            return None
        done = self._task_done(pair)
        if done is not None:
            return done
        turned = self._turned(pair) or self._moved(pair)
        if turned is not None:
            return turned
        reinstated = self._reinstated(pair)
        if reinstated is not None:
            return reinstated
        leaves = self._leaves(pair) or self._rejected(pair)
        if leaves is not None:
            return self._as_amendment(pair, leaves, named=True)
        ended = self._no_longer_so(pair)
        if ended is not None:
            return self._as_amendment(pair, ended)
        past = new.within(cues.past) or (_in_past(new) and not new.has(cues.moves))
        stays = new.has(cues.stays)
        adds = new.within(cues.adds)
        if self.is_spoken and not (pair.changes_a_slot or self._speaks_clearly(pair)):
            return None
        if new.corrects:
            corrected = self._corrected(pair, past=new.within(cues.past) or (self.is_spoken and past))
            if corrected is not None:
                return corrected
        if past or stays or adds or _comments(new):
            return None
        negated = self._negated(pair)
        if negated is not None:
            return self._as_amendment(pair, negated)
        changed = self._changed(pair)
        if changed is not None:
            return self._as_amendment(pair, changed)
        return self._as_amendment(pair, self._restated(pair))

    def _update(self, pair: _Pair, effect: Consequence, confidence: float, reason: str) -> Verdict:
        if self.same_speaker is False:
            confidence -= 0.03
        return Verdict(
            effect, round(confidence, 3), reason, self._day_since(pair.new, whole=True), round(pair.likeness, 4)
        )

    def _as_amendment(self, pair: _Pair, update_: Verdict | None, *, named: bool = False) -> Verdict | None:
        """The update; an amendment if it changes one of several items or attributes."""
        if update_ is None or not pair.changes_a_part(named=named):
            return update_
        return replace(update_, effect=Consequence.AMENDS)

    def _is_temporary(self, pair: _Pair) -> bool:
        """Whether the newer sentence holds for a day or a week only, and the older one beyond that."""
        new, old = pair.new, pair.old
        return new.within(new.cues.temporary) and not old.has(old.cues.temporary) and not self._lasts(new)

    def _lasts(self, new: _Sentence) -> bool:
        """Whether a sentence says that it holds from a day on."""
        return new.within(new.cues.lasting) or self._day_since(new) is not None

    def _is_occurrence(self, pair: _Pair) -> bool:
        """Whether the newer sentence is about one day of what happens regularly: "Tuesday's deploy"."""
        new, old = pair.new, pair.old
        if not any(token.kind is _Kind.DATE for token in new.tokens) or new.has(new.cues.regular) or self._lasts(new):
            return False
        return old.has(old.cues.regular) or not any(token.kind is _Kind.DATE for token in old.tokens)

    def _withdrawn(self, pair: _Pair) -> Verdict | None:
        new, old = pair.new, pair.old
        if self._is_occurrence(pair):
            return None
        for match in new.matches(new.cues.withdraws):
            old_words = self._words(match["old"], new.cues)
            if not old_words or pair.other_numbers(old_words) or old.folded == new.folded:
                continue
            has = _shared(old_words, pair.old.said)
            if has >= _OWN_WORDS or (has >= _NAMED_OLD and self._near(_NEAR)):
                update_ = self._update(pair, Consequence.WITHDRAWS, 0.9, f'takes back: "{match["old"].strip()}"')
                return self._as_amendment(pair, update_)
        return None

    def _task_done(self, pair: _Pair) -> Verdict | None:
        """What was still to be done is done."""
        new, old = pair.new, pair.old
        if not old.has(old.cues.intends) or old.has(old.cues.ends) or new.negated:
            return None
        for match in new.matches(new.cues.done):
            old_words = self._words(match["old"], new.cues)
            if not old_words or pair.other_numbers(old_words):
                continue
            has = _shared(old_words, pair.old.said)
            if has >= _OWN_WORDS or (has >= _SAME_TOPIC and self._near(_ALIKE)):
                return self._update(
                    pair, Consequence.WITHDRAWS, 0.88, f'says that it is done: "{match["old"].strip()}"'
                )
        return None

    def _turned(self, pair: _Pair) -> Verdict | None:
        """What used to be so is not any more: "I used to like A, but now B"."""
        new, old = pair.new, pair.old
        if self.same_speaker is False or not new.within(new.cues.turned) or pair.of_another or pair.old_of_another:
            return None
        dropped = [token for match in old.matches(old.cues.once) for token in self._words(match["old"], old.cues)]
        for match in new.matches(new.cues.once):
            left = self._words(match["old"], new.cues)
            if not left or pair.other_numbers(left) or not _is_own(new, match.start(), pair):
                continue
            if _dislikes(match["old"], new.cues) and not old.has(old.cues.dislikes):
                continue  # the older sentence says the opposite of what used to be
            kept = [token for token in left if not token.is_verb]
            is_old = _shared(kept, pair.old.said) >= _OWN_WORDS
            names = [token for token in kept if self._identifies(token, pair)]
            if len(names) < 2 and kept and kept[-1] not in names:
                names = []  # "the idea of travelling to Peru" and "Ada Lind's songs", but not "Thai boxing"
            if not is_old and new.has(new.cues.attitudes) and old.has(old.cues.attitudes) and self._near(_ALIKE_VALUE):
                is_old = bool(names)
            if not kept or not is_old:
                continue
            if all(_among(token, dropped) for token in kept) and {token.stem for token in left if token.is_verb} <= {
                token.stem for token in dropped if token.is_verb
            }:
                continue  # the older sentence says the same of it
            update_ = self._update(
                pair, Consequence.REPLACES, 0.86, f'says what used to be so: "{match["old"].strip()}"'
            )
            return replace(update_, of_attitude=old.has(old.cues.attitudes))
        return None

    def _moved(self, pair: _Pair) -> Verdict | None:
        """Somebody lives or works elsewhere now, or gave away what they had: states that have one value at a time."""
        new, old = pair.new, pair.old
        common = new.states & old.states
        if not common or not self._near(_NEAR_VALUE) or _earlier(new) or new.negated or new.within(new.cues.adds):
            return None
        for state in (state for state in new.cues.states if state.name in common):
            for match in new.matches(state.starts):
                if match.re in state.needs_cue and not new.within(new.cues.present):
                    continue
                value = self._names(match["value"], new)
                for old_match in old.matches(state.every):
                    before = self._names(old_match["value"], old)
                    if not value or not before or any(_same(token, other) for token in value for other in before):
                        continue
                    if self._same_subject(pair, match.start(), old_match.start()):
                        change = f"{old_match['value'].strip()} → {match['value'].strip()}"
                        return self._update(pair, Consequence.REPLACES, 0.85, f'{state.name} changed: "{change}"')
            for match in new.matches(state.ends):
                ended_words = self._words(match["value"], new.cues)
                for old_match in old.matches(state.holds):
                    old_words = _tokens(old_match["value"], old.cues)
                    covered = bool(ended_words) and all(_among(token, old_words) for token in ended_words)
                    if covered and self._same_subject(pair, match.start(), old_match.start()):
                        change = match["value"].strip()
                        return self._update(pair, Consequence.WITHDRAWS, 0.85, f'{state.name} ended: "{change}"')
        return None

    def _names(self, text: str, sentence: _Sentence) -> list[_Token]:
        """The names among the words of a part of a folded sentence; in German every noun."""
        words = {token.folded for token in _tokens(text, sentence.cues) if token.is_content}
        german = sentence.cues.code == "de"
        return [
            token
            for token in sentence.tokens
            if token.folded in words and (token.kind is _Kind.NAME or (german and token.is_capital))
        ]

    def _same_subject(self, pair: _Pair, new_at: int, old_at: int) -> bool:
        """Whether the words before two places name one person: "I" of one speaker, or the same words."""
        new_tokens = _tokens(pair.new.folded[:new_at], pair.new.cues)
        old_tokens = _tokens(pair.old.folded[:old_at], pair.old.cues)
        ours, others = (
            [token for token in tokens if token.is_content and not token.is_verb] for tokens in (new_tokens, old_tokens)
        )
        if not ours and not others:
            first = all(any(token.folded in _FIRST_PERSONS for token in tokens) for tokens in (new_tokens, old_tokens))
            return first and self.same_speaker is not False
        return len(ours) == len(others) and all(_same(token, other) for token, other in zip(ours, others, strict=True))

    def _reinstated(self, pair: _Pair) -> Verdict | None:
        """What was withdrawn or ended holds again."""
        new, old = pair.new, pair.old
        if not new.has(new.cues.again) or not (old.has(old.cues.withdraws) or old.has(old.cues.ends)):
            return None
        restored = [
            token for match in old.matches(old.cues.withdraws) for token in self._words(match["old"], old.cues)
        ] or pair.old.topic
        topical = any(_same(token, other) for token in restored for other in pair.new.topic)
        if topical and _shared(restored, pair.new.said) >= _SAME_TOPIC:
            return self._update(pair, Consequence.REINSTATES, 0.88, "says that what was withdrawn holds again")
        return None

    def _leaves(self, pair: _Pair) -> Verdict | None:
        new, old = pair.new, pair.old
        if (self.is_spoken and _comments(new)) or pair.of_another or _happened(old):
            return None
        if self.is_spoken and self.same_speaker is False and "!" in new.shown:
            return None  # a remark about what the other said
        for at, pattern in enumerate(new.cues.leaves):
            for match in pattern.finditer(new.folded):
                left = self._words(match["old"], new.cues)
                if not left or any(token.folded[0].isdecimal() and not pair.old_has(token) for token in left):
                    continue
                if len(left) > 1 and any(token.kind is _Kind.DATE for token in left) and self._is_occurrence(pair):
                    continue  # "Tuesday's run is dropped"
                value = at < len(new.cues.leaves) - 1 and self._is_value(pair, left)  # "no longer" names no value
                has = _shared(left, old.content)
                near = value or not self.is_spoken or self._near(_NEAR)
                if has < (_OWN_WORDS if self.is_spoken else _NAMED_OLD) or not near:
                    continue
                if at == 0 and not (new.has(new.cues.present) or new.corrects or new.has(new.cues.moves)):
                    continue  # "from A to B" is a range unless something moved
                rest = [token for token in pair.new.content if not _among(token, left)]
                dated = not self._near(_ALIKE)
                common = [token for token in rest if pair.old_has(token) and not (dated and token.kind is _Kind.DATE)]
                topic = [token for token in pair.old.topic if not _among(token, left)]
                topical = bool(topic) and _shared(topic, pair.new.content) >= _NAMED_OLD
                if not topic and pair.old.topic and not _has_subject(old):
                    topical = self._near(_ALIKE_VALUE)  # "We use A": the object is the topic
                if common or topical or value:
                    return self._update(pair, pair.effect, 0.95, f'names what it replaces: "{match["old"].strip()}"')
        return None

    def _rejected(self, pair: _Pair) -> Verdict | None:
        """It says that something is given up, and what comes in its place: "A is too slow, B does it"."""
        new, old = pair.new, pair.old
        if not self._near(_NEAR_VALUE) or _happened(old) or pair.of_another:
            return None
        for judges, patterns in ((False, new.cues.gives_up), (True, new.cues.rejects)):
            for match in new.matches(patterns):
                left = self._words(match["old"], new.cues)
                kept = [token for token in left if self._identifies(token, pair)]
                if not kept or (len(kept) < len(left) and _shared(left, pair.old.said) < _NAMED_OLD):
                    continue
                rest = [token for token in pair.new.said if not _among(token, left)]
                kept_words = [token for token in rest if token.folded not in _LIGHT and _among(token, pair.old.said)]
                instead = any(not token.is_verb and not _among(token, pair.old.said) for token in rest)
                clear = bool(kept_words) or (
                    _is_own_choice(old) and self._is_value(pair, kept) and (not judges or new.within(new.cues.present))
                )
                if instead and clear:
                    return self._update(pair, Consequence.REPLACES, 0.85, f'gives up: "{match["old"].strip()}"')
        return None

    def _is_value(self, pair: _Pair, left: Sequence[_Token]) -> bool:
        """Whether the words are a name or number that the older sentence gives as its value, and all of it is near."""
        old = pair.old
        if not self._near(_NEAR_VALUE) or _happened(old) or "!" in old.shown:
            return False
        if old.has(old.cues.attitudes) and not pair.new.has(old.cues.attitudes):
            return False
        if not _states(old):
            return False
        new_verbs, old_verbs = (_verbs(statement, _GENERIC) for statement in (pair.new, old))
        if new_verbs and old_verbs and not new_verbs & old_verbs:
            return False
        value = pair.old_value
        return any(self._identifies(token, pair) for token in left) and all(_among(token, value) for token in left)

    def _identifies(self, token: _Token, pair: _Pair) -> bool:
        """Whether the older sentence has a word as a name, with a digit, or as its subject or value alone."""
        german = pair.old.cues.code == "de" and self._near(_ALIKE_VALUE)  # every noun has a capital
        subject = pair.old.topic if len(pair.old.topic) == 1 else []
        return any(
            old_token.is_content
            and _same(token, old_token)
            and (
                old_token.kind is _Kind.NAME
                or any(map(str.isdigit, old_token.folded))
                or german
                or (old_token.starts_clause and (old_token in subject or old_token not in pair.old.topic))
            )
            for old_token in pair.old.tokens
        )

    def _speaks_clearly(self, pair: _Pair) -> bool:
        """Whether a turn that changes no number, date or name says clearly enough that something is otherwise now."""
        new, old = pair.new, pair.old
        if not pair.have_subjects or not new.has(new.cues.present) or pair.of_another:
            return False
        if "!" in new.shown + old.shown or len(new.tokens) > _MOST_CLEAR or not (_states(new) and _states(old)):
            return False
        if new.tokens[0].folded in _HORTATIVE:
            return False
        labelled = any(token.folded == ":" for token in new.tokens)
        names = labelled and _is_named(old)  # "New room: the gym" after "The room is the fire station"
        same = (names or bool(_verbs(new, _GENERIC) & _verbs(old, _GENERIC))) and self._topics(pair, _EQUAL_FRAME)
        return same or self._other_holder(pair)

    def _no_longer_so(self, pair: _Pair) -> Verdict | None:
        new, _old = pair.new, pair.old
        if not new.has(new.cues.ends) or (pair.old.negated and new.negated):
            return None
        if not new.has(new.cues.ends[:1]) and self._is_occurrence(pair):
            return None
        clause = _clause_of(new, new.cues.ends)
        if len(clause) < 2 and not (clause and len(pair.old.said) == 1 and self.same_speaker):
            return None
        topical = _shared(pair.new.topic, pair.old.said) >= _SAME_TOPIC
        has = _shared(clause, pair.old.said)
        if (has >= _SAME_CLAUSE and topical) or (has >= _EQUAL_FRAME and not pair.new.topic):
            update_ = self._update(pair, pair.effect, 0.9, "says that this is no longer so")
            return replace(update_, of_attitude=pair.old.has(pair.old.cues.attitudes))
        return None

    def _corrected(self, pair: _Pair, *, past: bool) -> Verdict | None:
        if past:
            return None
        sure = f'corrects: "{pair.shown_change}"'
        if pair.anaphoric:
            slots = pair.changed_slots
            common = [token for token in pair.new.content if pair.old_has(token)]
            if slots and (common or self._near(0.5)):
                return self._update(pair, Consequence.REPLACES, 0.8, sure)
            return None
        mutual = _shared(pair.new.topic, pair.old.said) >= _SAME_TOPIC and (
            _shared(pair.old.topic, pair.new.said) >= _NAMED_OLD
            or (bool(pair.changed_slots) and _shared(pair.new.topic, pair.old.topic) >= _SAME_TOPIC)
        )
        if mutual and pair.new_only and (pair.have_subjects or pair.changed_slots):
            return self._update(pair, Consequence.REPLACES, 0.92, sure)
        return None

    def _negated(self, pair: _Pair) -> Verdict | None:
        if self.is_spoken or pair.new.negated == pair.old.negated or _comments(pair.new):
            return None
        if pair.old.negated and not (pair.new.has(pair.new.cues.present) or pair.new.has(pair.new.cues.again)):
            return None
        lasts = self._lasts(pair.new)
        if any(not (lasts and token.kind in (_Kind.DATE, _Kind.NUMBER)) for token in pair.new_only):
            return None  # it denies a part, or something else
        if self._is_occurrence(pair):
            return None
        topical = _shared(pair.new.topic, pair.old.said) >= _NAMED_OLD
        least = _SAME_TOPIC if self._topics(pair, _EQUAL_FRAME) else _OWN_WORDS
        if topical and _shared(pair.old.content, pair.new.said) >= least:
            return self._update(pair, pair.effect, 0.85, "one is the negation of the other")
        return None

    def _changed(self, pair: _Pair) -> Verdict | None:
        """Something is so now, again, or from a date on."""
        new = pair.new
        says = new.has if self.is_spoken else new.within
        if not (says(new.cues.present) or self._day_since(new) is not None or new.has(new.cues.again)):
            return None
        if (not pair.old_only and not pair.old_negates) or pair.other_condition:
            return None
        if not pair.have_subjects and not pair.changed_slots and not pair.old_negates:
            return None
        if self._is_occurrence(pair) and any(token.kind in (_Kind.NUMBER, _Kind.TIME) for token in pair.new_only):
            return None
        moment = says(new.cues.present) or self._day_since(new) is not None
        if not moment and not pair.changed_slots and not pair.old_negates:
            return None  # "again" without another value
        if self._topics(pair, _SAME_TOPIC) and (pair.new_only or pair.old_negates):
            return self._update(pair, pair.effect, 0.85, f'says what is so now: "{pair.shown_change}"')
        if pair.other_measure and _shared(pair.new.topic, pair.old.content) >= _EQUAL_FRAME:
            return self._update(pair, pair.effect, 0.8, f'says what is so now: "{pair.shown_change}"')
        if self._other_holder(pair):
            return self._update(pair, pair.effect, 0.8, f'says what is so now: "{pair.shown_change}"')
        return None

    def _restated(self, pair: _Pair) -> Verdict | None:
        """The same sentence with another value of the same kind."""
        if self.is_chatter or any("!" in statement.shown for statement in (pair.new, pair.old)):
            return None
        if not self._topics(pair, _EQUAL_FRAME) or pair.new.negated != pair.old.negated:
            return None
        if pair.old.has(pair.old.cues.past) or _in_past(pair.old):
            return None
        if any(token.folded in EVENTS and token.folded not in pair.new.cues.verbs for token in pair.new.tokens):
            return None
        figures = any(token.kind in (_Kind.NUMBER, _Kind.TIME, _Kind.DATE) for token in pair.changed_slots)
        if not figures and any(token.folded in _SEVERAL for token in pair.new.tokens):
            return None
        if not pair.one_value_differs or not (pair.same_frame or pair.one_word_differs):
            return None
        return self._update(pair, Consequence.REPLACES, 0.82, f'another value of the same: "{pair.shown_change}"')

    def _topics(self, pair: _Pair, least: float) -> bool:
        new_topic, old_topic = pair.new.topic, pair.old.topic
        if not new_topic or not old_topic:
            return False
        return _shared(old_topic, pair.new.content) >= least and _shared(new_topic, pair.old.content) >= least

    def _other_holder(self, pair: _Pair) -> bool:
        """Another person in the role: the value is the subject of the newer sentence."""
        new_topic = pair.new.topic
        if not new_topic or not all(token.kind is _Kind.NAME or token.starts_clause for token in new_topic):
            return False
        if any(pair.old_has(token) for token in new_topic):
            return False
        rest = [
            token
            for token in pair.new.content
            if token not in new_topic and token.kind is not _Kind.DATE and token.kind is not _Kind.NUMBER
        ]
        old_rest = [token for token in pair.old.content if token.kind is not _Kind.NAME and not (token.starts_clause)]
        names = [token for token in pair.old.content if token.kind is _Kind.NAME or token.starts_clause]
        return (
            bool(rest and old_rest and names)
            and _shared(rest, pair.old.content) >= _OWN_WORDS
            and _shared(old_rest, pair.new.content) >= _NAMED_OLD
        )

    def _near(self, least: float) -> bool:
        return self.cosine is not None and self.cosine >= least

    def _words(self, text: str, cues: _Cues) -> list[_Token]:
        """The words of a part of a folded sentence that say something."""
        return [
            token
            for token in _tokens(text, cues)
            if token.is_content and not (token.is_verb and token.folded in _LIGHT)
        ]

    def _day_since(self, new: _Sentence, *, whole: bool = False) -> int | None:
        """The day from which a sentence, or the whole of which it is a part, says that it holds, if it is a later one."""
        written_on = self.statement.day
        if written_on is None:
            return None
        for pattern in new.cues.since:
            for match in pattern.finditer(new.whole if whole else new.folded):
                words = with_english_months(match["date"]).split()[:5]
                for day in days_named(" ".join(words), written_on, new.cues.language):
                    first = day.first
                    if (
                        first < written_on
                        and written_on - first <= 7
                        and any(word.strip(",.") in new.cues.language.weekdays for word in words)
                    ):
                        first += 7  # a weekday on its own is the next one
                    if first > written_on:
                        return first
        return None


_LIGHT: Final = _list("light")
_GENERIC: Final = _LIGHT | _list("generic")
"""Verbs that do not say what a name or number is used for."""


def _clause_of(sentence: _Sentence, patterns: Iterable[re.Pattern[str]]) -> list[_Token]:
    """The content words of the part of a sentence, between commas, in which a cue stands."""
    for part in re.split(r"[,;:]", sentence.folded):
        if any(pattern.search(part) for pattern in patterns):
            return [token for token in _tokens(part, sentence.cues) if token.is_content]
    return sentence.content


@dataclass(frozen=True)
class _Pair:
    """Two sentences side by side."""

    new: _Sentence
    old: _Sentence
    context: _Context

    @cached_property
    def new_only(self) -> list[_Token]:
        return [token for token in self.new.content if not self.old_has(token) and not token.is_verb]

    @cached_property
    def old_only(self) -> list[_Token]:
        return [token for token in self.old.content if not _among(token, self.new.content) and not token.is_verb]

    def old_has(self, token: _Token) -> bool:
        """Whether the older sentence has a word."""
        return _among(token, self.old.content)

    @property
    def old_negates(self) -> bool:
        return self.new.negated != self.old.negated

    @property
    def effect(self) -> Consequence:
        return Consequence.REINSTATES if self.new.has(self.new.cues.again) else Consequence.REPLACES

    @cached_property
    def likeness(self) -> float:
        """Share of both that they have in common, and their cosine."""
        shared_share = (_shared(self.new.said, self.old.said) + _shared(self.old.said, self.new.said)) / 2
        return shared_share + (self.context.cosine or 0.0)

    @cached_property
    def old_of_another(self) -> bool:
        """Whether the older sentence is about somebody else, and the newer one about its speaker."""
        first, *rest = self.old.tokens
        noun = next((token for token in rest if token.is_content), None)
        if first.folded in _POSSESSORS and noun is not None and not noun.is_verb:
            return not self.new_has(noun) and any(token.folded in _FIRST_PERSONS for token in self.new.tokens)
        return first.folded in _THIRD_PERSON

    @property
    def changes_a_slot(self) -> bool:
        """Whether both name their subject, and the newer sentence another number, date or name."""
        says = any(token.is_verb or token.folded == ":" for token in self.new.tokens)
        return self.have_subjects and bool(self.changed_slots) and says

    @cached_property
    def old_value(self) -> list[_Token]:
        """What the older sentence says of its topic: its words without the topic, and without what it replaced itself."""
        old = self.old
        if old.has(old.cues.leaves):
            left = [token for match in old.matches(old.cues.leaves) for token in _tokens(match["old"], old.cues)]
            return [token for token in self.old.said if not _among(token, left)]
        if not _has_subject(old):
            return self.old.content
        return [token for token in self.old.content if not any(token is other for other in self.old.topic)]

    @cached_property
    def of_another(self) -> bool:
        """Whether the newer sentence is about somebody else: "my brother uses B" after "we use A"."""
        first, *rest = self.new.tokens
        noun = next((token for token in rest if token.is_content), None)
        if first.folded in _POSSESSORS and noun is not None and not noun.is_verb:
            favourite = any(pattern.search(noun.folded) for pattern in self.new.cues.attitudes)
            return not favourite and not self.old_has(noun)
        return first.folded in _THIRD_PERSON

    @property
    def have_subjects(self) -> bool:
        """Whether both sentences name their subject."""
        return _has_subject(self.new) and _has_subject(self.old)

    @property
    def anaphoric(self) -> bool:
        anaphor = self.new.cues.anaphora.search
        return anaphor(self.new.folded) is not None or (
            self.new.corrects and anaphor(self.new.folded.rsplit(": ", 1)[-1]) is not None and len(self.new.topic) < 2
        )

    @property
    def shown_change(self) -> str:
        old = " ".join(token.folded for token in self.old_only) or "…"
        new = " ".join(token.folded for token in self.new_only) or "…"
        return f"{old} → {new}"

    @cached_property
    def changed_slots(self) -> list[_Token]:
        """Numbers, times, dates and names of the newer sentence that differ from one of the same kind in the older."""
        kinds = {token.kind for token in self.old_only}
        return [token for token in self.new_only if token.kind is not _Kind.WORD and token.kind in kinds]

    @cached_property
    def same_frame(self) -> bool:
        """Whether both sentences are the same up to the first word that differs, which ends no topic.

        The words before it have a subject and a verb or a colon, so that what differs is a value.
        """
        new_frame, old_frame = _frame(self.new, self.new_only), _frame(self.old, self.old_only)
        if new_frame is None or old_frame is None:
            return False
        (new_token, words_before), (old_token, old_words_before) = new_frame, old_frame
        kinds = {new_token.kind, old_token.kind}
        if len(kinds) > 1 and _Kind.WORD in kinds and _Kind.NAME not in kinds:
            return False
        return words_before == old_words_before

    @cached_property
    def one_word_differs(self) -> bool:
        """Whether both are the same but for one number, time, date or name."""
        new_tokens, old_tokens = (
            [token for token in side.tokens if token.folded not in _MARKS] for side in (self.new, self.old)
        )
        if len(new_tokens) != len(old_tokens):
            return False
        differ = [(new, old) for new, old in zip(new_tokens, old_tokens, strict=True) if not _same(new, old)]
        alike = [token for token in new_tokens if token.is_content and self.old_has(token)]
        first = next((token for token in new_tokens if token.is_content), None)
        if len(differ) != 1 or differ[0][0] is first:
            return False
        return len(alike) >= 2 and all(token.kind is not _Kind.WORD for token in differ[0])

    @cached_property
    def one_value_differs(self) -> bool:
        """Whether one value replaces another of its kind, and all other words that say something are the same.

        A value is one word or a phrase; no adjective before a noun, and no time of day, season or environment, which say
        under what condition a value holds.
        """
        if _verbs(self.new) != _verbs(self.old):
            return False
        new_value, old_value = _value(self.new, self.new_only), _value(self.old, self.old_only)
        if new_value is None or new_value != old_value:
            return False
        values = [*self.new_only, *self.old_only]
        if any(token.folded in _CONDITIONS for token in values):
            return False
        figures = any(token.kind in (_Kind.NUMBER, _Kind.TIME) for token in self.new.content)
        dates = all(token.kind is _Kind.DATE for token in values)
        regular = all(statement.has(statement.cues.regular) for statement in (self.new, self.old))
        return not (figures and dates and regular)

    @cached_property
    def other_condition(self) -> bool:
        """Whether the two give figures under different conditions: "8080 in staging" and "9090 in production"."""
        return bool(self.changed_slots) and all(
            any(token.folded in _CONDITIONS for token in only) for only in (self.new_only, self.old_only)
        )

    @cached_property
    def other_subject(self) -> bool:
        """Whether the newer sentence names a possessor or modifier of the common subject: "my daughter's color"."""
        tokens = self.new.tokens
        in_topic = [any(token is other for other in self.new.topic) for token in tokens]
        is_name = [
            within and not self.old_has(token) and token.folded not in _CURRENT and not token.is_verb
            for token, within in zip(tokens, in_topic, strict=True)
        ]
        for at, token in enumerate(tokens[1:], 1):
            if not in_topic[at]:
                continue
            if not is_name[at] and self.old_has(token):
                first = at - 1
                while first >= 0 and is_name[first]:
                    first -= 1
                before = first + 1 < at and (first < 0 or tokens[first].folded in _DETERMINERS)
                if before and (first >= 0 or at == 1):
                    return True
            elif (
                is_name[at]
                and tokens[at - 1].folded in _POSSESSIVES
                and any(in_topic[head] and self.old_has(tokens[head]) for head in range(max(0, at - 3), at - 1))
            ):
                return True
        return False

    @cached_property
    def other_entity(self) -> bool:
        """Whether the newer sentence is about another of several of a kind: "house 11" and "house 9"."""
        for at, token in enumerate(self.new.topic):
            if token.kind is _Kind.NUMBER and at and not self.old_has(token):
                noun = self.new.topic[at - 1]
                if self.old_has(noun) and any(token.kind is _Kind.NUMBER for token in self.old.topic):
                    return True
        return False

    @cached_property
    def other_measure(self) -> bool:
        """Whether both give a number of one unit for one verb, and the numbers differ: "runs 97 minutes"."""
        verbs = {token.stem for token in self.new.tokens if token.is_verb} & {
            token.stem for token in self.old.tokens if token.is_verb
        }
        return bool(verbs) and any(
            unit == other and not _same(number, value)
            for number, unit in _measured(self.new.tokens)
            for value, other in _measured(self.old.tokens)
        )

    @cached_property
    def other_person(self) -> bool:
        """Whether the newer sentence is about its speaker, and the older one about somebody else by name."""
        speaker = self.context.statement.speaker
        first = next((token.folded for token in self.new.tokens if not token.is_content), "")
        if first not in _FIRST_PERSON or not self.old.topic:
            return False
        subject = self.old.tokens[0]
        is_person = subject.is_content and not subject.is_verb and self.old.topic[0] is subject and self.names_person
        return is_person and (speaker is None or fold(speaker) != subject.folded) and not self.new_has(subject)

    @property
    def names_person(self) -> bool:
        """Whether the first word of the older sentence, a word of its own topic, is a name: not in its plural."""
        return len(self.old.topic) == 1 and not self.old.tokens[0].folded.endswith("s")

    def new_has(self, token: _Token) -> bool:
        """Whether the newer sentence has a word of the older."""
        return _among(token, self.new.content)

    def other_numbers(self, tokens: Sequence[_Token]) -> bool:
        """Whether words name a number that the older sentence has not."""
        return any(token.kind is _Kind.NUMBER and not self.old_has(token) for token in tokens)

    def changes_a_part(self, *, named: bool) -> bool:
        """Whether the older sentence has several items or attributes, most of which the newer one leaves unmentioned.

        ``named``: whether the newer one names what it replaces, so that the words beside it explain it.
        """
        if self.new.within(self.new.cues.rest):
            return True
        items: list[list[_Token]] = [[]]
        joined = False
        for token in self.old.tokens:
            if token.folded in _ITEM_ENDS:
                items.append([])
                joined = joined or token.folded not in _MARKS
            else:
                items[-1].append(token)
        kinds = {token.kind for token in self.old_only} - {_Kind.WORD}
        differ = sum(any(token is other for token in item for other in self.old_only) for item in items)
        if differ < _LEAST_ITEMS and len(kinds) < _LEAST_ITEMS:
            return False
        units = [{unit for _, unit in _measured(item)} for item in items]
        return (
            (joined and not named)
            or any(map(_is_item, items[1:]))
            or any(
                unit in further for at, unit_of in enumerate(units) for unit in unit_of for further in units[at + 1 :]
            )
        )


def _is_item(item: Sequence[_Token]) -> bool:
    """Whether words between commas are a further item or attribute, not a remark about the words before them."""
    if not item:
        return False
    words = [token for token in item if token.folded not in _DETERMINERS and token.folded not in _ITEM_ENDS]
    bare = 0 < len(words) <= _MOST_BARE and all(token.is_content for token in words)
    counts = len(item) > 1 and any(token.kind is _Kind.NUMBER for token in item)  # "22 members"
    return (bare and not counts) or item[0].is_verb


_MOST_BARE: Final = 2
"""Words of an item of a list."""
_FIRST_PERSON: Final = _list("first_person")
_REFERS_BACK: Final = _list("refers_back")
_FIRST_PERSONS: Final = _FIRST_PERSON | _list("first_persons")
_POSSESSORS: Final = _list("possessors")
_THIRD_PERSON: Final = _list("third_person")
_CURRENT: Final = _list("current")
"""Words before a noun that leave the subject as it is."""
_POSSESSIVES: Final = _list("possessives")
"""Words between a noun and its possessor."""
_CONDITIONS: Final = _list("conditions")


def _verbs(sentence: _Sentence, light: frozenset[str] = _LIGHT) -> set[str]:
    """The stems of the verbs that say something."""
    return {token.stem for token in sentence.tokens if token.is_verb and token.folded not in light}


def _value(sentence: _Sentence, words: Sequence[_Token]) -> str | None:
    """The sort of value that words form, which stand together in a sentence: "figure", "date" or "noun"; else None."""
    places = [at for at, token in enumerate(sentence.tokens) if any(token is word for word in words)]
    if not places:
        return None
    between = [sentence.tokens[at] for at in range(places[0], places[-1]) if at not in places]
    if any(token.folded not in _SKIPPED_BEFORE | _JOINS for token in between):
        return None
    kinds = {token.kind for token in words}
    if kinds <= {_Kind.NUMBER, _Kind.TIME}:
        return "figure"
    if kinds <= {_Kind.NUMBER, _Kind.DATE}:
        return "date"
    if not kinds <= {_Kind.WORD, _Kind.NAME}:
        return None
    behind = sentence.tokens[places[-1] + 1 :][:1]
    before = sentence.tokens[: places[0]][-1:]
    if _Kind.NAME not in kinds:
        if any(token.is_content and not token.is_verb and token.kind is _Kind.WORD for token in behind):
            return None  # an adjective before its noun
        if sentence.cues.code == "fr" and any(token.is_content and not token.is_verb for token in before):
            return None  # an adjective after its noun
        if all(token.folded.endswith(_ADVERBS) for token in words):
            return None
    return "noun"


_ADVERBS: Final = ("ly", "ment")
"""Endings of an adverb."""


def _measured(tokens: Sequence[_Token]) -> list[tuple[_Token, str]]:
    """Each number that a word follows, and the stem of the word."""
    pairs = pairwise(tokens)
    return [
        (number, next_one.stem)
        for number, next_one in pairs
        if number.kind is _Kind.NUMBER and next_one.kind is _Kind.WORD
    ]


_COPULAS: Final = _list("copulas")
_SKIPPED_BEFORE: Final = _list("articles_and_titles")


def _frame(sentence: _Sentence, values: Sequence[_Token]) -> tuple[_Token, tuple[str, ...]] | None:
    """The first of the values, and the stems before it: None without a subject and a verb before it."""
    begin = _introduction_end(sentence.tokens)
    before: list[str] = []
    subject = verb = False
    labelled = not any(token.is_verb for token in sentence.tokens)
    for token in sentence.tokens[begin:]:
        if any(token is value for value in values):
            return (token, tuple(before)) if subject and verb else None
        if token.folded in _SKIPPED_BEFORE:
            continue
        copula = token.folded in _COPULAS and (labelled or token.folded != ":")
        if token.folded in _MARKS and not copula:
            return None
        verb = verb or ((copula or token.is_verb) and subject)
        subject = subject or (token.is_content and not token.is_verb and not verb)
        before.append("=" if copula else token.stem)
    return None
