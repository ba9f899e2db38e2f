"""Operator models and peer cards: slug, eligibility, checks of proposed facts, merging, and the text (contract §13).

Invariant: every fact is the person's own statement: its quote is part of one of their turns, and half of the words of its
value are in the quote. A fact stays until the person states it anew, corrects or withdraws it. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Final, get_args

from ..core.grants import person_of
from ..text.injection import finding_in
from ..text.secrets import REDACTED, find_secrets
from .events import QUOTE_CHARS, VALUE_CHARS, FactKey, StatedFact

VERSION: Final = 3  # several values of a key; names are compared by ``core/grants.person_of``

CAP_BYTES: Final = 1_500
WINDOW_DAYS: Final = 14
LEAST_MESSAGES: Final = 10
LEAST_SESSION_MS: Final = 5 * 60_000
QUOTE_LEAST_CHARS: Final = 12
FACT_KEYS: Final[tuple[str, ...]] = get_args(FactKey)
ALL_KEYS: Final = ""
"""Means every key of a person in a request to forget."""
KEY_CHANGED: Final = "the journal names people by another key than the file subject.key: no consent can be recognised"
KEY_CHANGED_FIX: Final = (
    "put back the file subject.key (a backup has it); if it is lost, `crew-journal operator replace-key` removes all models "
    "and consents"
)
SINGLE_KEYS: Final = frozenset({"role", "timezone", "language"})
"""Keys of which a person has one value at a time."""
_VALUE_WORD: Final = re.compile(r"\w{3,}")
"""Words of a value that are compared; shorter ones are articles and prepositions."""
_SLUG_DIGITS: Final = 16
_OF_KEY: Final = b"crew-journal subject key"
_SENTENCE: Final = re.compile(r"[^.!?\n]*[.!?]?")


@dataclass(frozen=True, slots=True)
class OwnTurn:
    """A turn of the person: its entry, sequence and text."""

    entry_id: str
    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Proposed:
    """A fact as rules or a model propose it."""

    key: str
    value: str
    quote: str


def subject_hash(key: bytes, workspace_id: str, user: str) -> str:
    """The hash that names a person in events: HMAC-SHA256 of workspace, NUL and ``person_of(user)``, 64 hex digits."""
    return hmac.new(key, f"{workspace_id}\0{person_of(user)}".encode(), hashlib.sha256).hexdigest()


def key_id(key: bytes) -> str:
    """An id that does not reveal the key: the first 16 hex digits of its HMAC-SHA256 of a fixed text."""
    return hmac.new(key, _OF_KEY, hashlib.sha256).hexdigest()[:_SLUG_DIGITS]


def slug_of(hashed: str) -> str:
    """The name of a person's documents: the first 16 digits of the keyed hash."""
    return hashed[:_SLUG_DIGITS]


def is_eligible(messages: int, session_ms: int) -> bool:
    """Whether a person has enough turns or sessions in ``WINDOW_DAYS`` for a model or card."""
    return messages >= LEAST_MESSAGES or session_ms >= LEAST_SESSION_MS


def stated(proposed: Proposed, turns: Sequence[OwnTurn]) -> StatedFact | str:
    """The fact to store, taken from the newest turn with the quote; else why it is refused, in one word."""
    value, quote = " ".join(proposed.value.split()), " ".join(proposed.quote.split())
    if proposed.key not in FACT_KEYS:
        return "key"
    if not value or len(value) > VALUE_CHARS:
        return "value"
    if not quote or len(quote) > QUOTE_CHARS:
        return "quote"
    for turn in reversed(turns):
        text = " ".join(turn.text.split())
        if quote in text and (len(quote) >= QUOTE_LEAST_CHARS or _is_sentence(quote, text)):
            break
    else:
        return "quote"
    if finding_in(value) or finding_in(quote):
        return "injection"
    if REDACTED in quote or find_secrets(value) or find_secrets(quote):
        return "secret"
    words = frozenset(_VALUE_WORD.findall(value.casefold()))
    if 2 * len(words & frozenset(_VALUE_WORD.findall(quote.casefold()))) < len(words):
        return "value"
    return StatedFact.model_validate(
        {"key": proposed.key, "value": value, "quote": quote, "entry_id": turn.entry_id, "seq": turn.seq}
    )


def _is_sentence(quote: str, text: str) -> bool:
    return any(
        quote.rstrip(".!? ") == sentence.strip().rstrip(".!?")
        for sentence in _SENTENCE.findall(text)
        if sentence.strip()
    )


def merged(prior: Iterable[StatedFact], new: Iterable[StatedFact]) -> tuple[StatedFact, ...]:
    """The facts after new ones: the order of the prior keys is kept, and the values of a key follow their statements.

    A key of ``SINGLE_KEYS`` has the newest value. Other keys keep several; a value that has most of the words of another
    is the same one, stated again. The result is cut to ``CAP_BYTES`` of text by whole facts from the end.
    """
    kept: list[StatedFact] = []
    for fact in sorted((*prior, *new), key=lambda fact: fact.seq):
        kept = [known for known in kept if not _is_restated(known, fact)]
        kept.append(fact)
    order = list(dict.fromkeys(fact.key for fact in (*prior, *new)))
    kept.sort(key=lambda fact: (order.index(fact.key), fact.seq))
    while len(as_markdown(kept).encode()) > CAP_BYTES:
        kept.pop()
    return tuple(kept)


def _is_restated(known: StatedFact, fact: StatedFact) -> bool:
    if known.key != fact.key:
        return False
    words, others = _value_words(known.value), _value_words(fact.value)
    return known.key in SINGLE_KEYS or 2 * len(words & others) >= min(len(words), len(others))


def _value_words(value: str) -> frozenset[str]:
    return frozenset(_VALUE_WORD.findall(value.casefold())) or frozenset({value})


def remembered(facts: Iterable[StatedFact], forgotten: Mapping[str, int]) -> tuple[StatedFact, ...]:
    """The facts that were not forgotten; ``forgotten``: a key, or "" for all → sequence of the request to forget it."""
    return tuple(fact for fact in facts if fact.seq > max(forgotten.get(fact.key, 0), forgotten.get("", 0)))


def as_markdown(facts: Iterable[StatedFact]) -> str:
    """The document: a line ``- key: value`` for each fact."""
    return "".join(f"- {fact.key}: {fact.value}\n" for fact in facts)


def facts_json(facts: Iterable[StatedFact]) -> str:
    """Facts as a view holds them."""
    return json.dumps([fact.model_dump(mode="json") for fact in facts], ensure_ascii=False)


def facts_of(text: str) -> tuple[StatedFact, ...]:
    """Inverse of ``facts_json``."""
    return tuple(StatedFact.model_validate(fact) for fact in json.loads(text))


# Finds facts that people state about themselves, by the patterns of ``operator_facts.toml``; no model is needed.


_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED_LINE: Final = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_QUOTATION: Final = re.compile(r"[\"“„”«](?:[^\"“„”«»\n]*\s){2}[^\"“„”«»\n]*[\"“”»]")
"""Quoted text of three words and more: what somebody else said."""
_OPERATOR_FACTS_SENTENCE: Final = re.compile(r"(?:[^.!?\n]|[.!?](?=[\w/@.]))+[.!?]*")
_CLAUSE: Final = re.compile(r"[,;:] | [-–—] | (?:but|and so|aber|mais|pero) ")
_CONDITIONED: Final = frozenset({"prefers", "language", "contact", "process", "constraint"})
"""Keys whose statements may follow a condition: they say what to do in a case."""
_DENIABLE: Final = frozenset({"language", "tooling", "contact", "timezone", "role", "owns"})
"""Keys of which a negated statement says nothing: "do not write to me in French"."""
_WORK: Final = frozenset({"owns", "process"})
_SENTENCES_KEPT: Final = 2_048
"""Sentences whose facts are kept: models and cards of several agents read the same turns, at 0.2 ms a sentence."""
_FROM: Final = "from"
_VALUE: Final = "value"
_LONGEST_TURN: Final = 20_000
"""Number of characters of a turn that are read; pasted logs are longer."""
_CLASS: Final = re.compile(r"\{([a-z]+)\}")
_SEGMENT: Final = re.compile(
    r"; | [-–—] |: (?!\S*[@\d]|that|das |c['’]|eso )|(?<=[.!]) |,? (?:but|aber|mais|pero|sondern) "
)
_COMMA: Final = re.compile(r", ")
_BACKWARD: Final = re.compile(
    r"(?:that|this|which|das|dies|c['’]|ça|eso|esto|ever\b|period|(?:always|immer|toujours|siempre)$)",
    re.IGNORECASE,
)
_CONDITION: Final = re.compile(r"(?:if|when|unless|wenn|falls|si|cuando|quand)\b", re.IGNORECASE)
_WITH_SUBJECT: Final = frozenset({"constraint", "process"})
"""Keys whose value is not understood without the subject of its clause: "wills never get emailed"."""
_PRONOUNS: Final = re.compile(
    r"(?:(?:\w{1,4}|please|always|never|bitte|immer|siempre|toujours|nous|also)[ ,'’]+)*", re.IGNORECASE
)
_BESIDE: Final = {"tooling": _WORK, "language": frozenset({"prefers"})}
_CLAUSE_LEAST_CHARS: Final = 6
_PLACEHOLDERS: Final = ("often", "place", "language", "job", "tool", "record", "notieren")


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The compiled file."""

    openers: re.Pattern[str]
    uncertain: tuple[re.Pattern[str], ...]
    conditions: tuple[re.Pattern[str], ...]
    passing: tuple[re.Pattern[str], ...]
    attributed: re.Pattern[str]
    denied: re.Pattern[str]
    reported: tuple[re.Pattern[str], ...]
    hostile: tuple[re.Pattern[str], ...]
    ends: tuple[re.Pattern[str], ...]
    empty: tuple[re.Pattern[str], ...]
    withdrawn: tuple[re.Pattern[str], ...]
    changed: re.Pattern[str]
    facts: tuple[tuple[str, tuple[re.Pattern[str], ...]], ...]


@dataclass(frozen=True, slots=True)
class StatementEnd:
    """A turn says that earlier statements no longer hold.

    Attributes:
        seq: Sequence of the turn; earlier statements end.
        key: Statements of this key end; None for any key.
        naming: Only statements whose value has these words end; empty for all of the key.
    """

    seq: int
    key: str | None = None
    naming: str = ""

    def ends(self, fact: StatedFact) -> bool:
        """Whether a fact ends."""
        named = _value_words(self.naming) if self.naming else frozenset()
        return fact.seq < self.seq and self.key in (None, fact.key) and named <= _value_words(fact.value)


@cache
def _patterns() -> _Patterns:
    file = tomllib.loads(resources.files(__package__).joinpath("operator_facts.toml").read_text("utf-8"))

    def compiled(patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(_filled(pattern), re.IGNORECASE) for pattern in patterns)

    def _filled(pattern: str) -> str:
        for name in _PLACEHOLDERS:
            pattern = pattern.replace(f"{{{name}}}", file[name])
        return pattern

    facts = tuple((key, compiled(patterns)) for key, patterns in file["facts"].items())
    return _Patterns(
        openers=compiled([file["openers"]])[0],
        uncertain=compiled(file["uncertain"]),
        conditions=compiled(file["conditions"]),
        passing=compiled(file["passing"]),
        attributed=compiled([file["attributed"]])[0],
        denied=compiled([file["denied"]])[0],
        reported=compiled(file["reported"]),
        hostile=compiled(file["hostile"]),
        ends=compiled(file["ends"]),
        empty=compiled(file["empty"]),
        withdrawn=compiled(file["withdrawn"]),
        changed=compiled([file["changed"]])[0],
        facts=facts,
    )


def proposed_facts(turns: Iterable[OwnTurn]) -> Iterator[Proposed]:
    """Facts in the order of the turns."""
    for turn in turns:
        for sentence in _sentences(turn):
            yield from _in_sentence(sentence)


def changes_in(turns: Iterable[OwnTurn]) -> Iterator[StatementEnd]:
    """What the turns withdraw or replace, in their order.

    A turn that says what is otherwise now ("from now on three lines") ends earlier values of each key that it states, if
    they have a word in common, or of a key with one value.
    """
    patterns = _patterns()
    for turn in turns:
        sentences = list(_sentences(turn))
        for sentence in sentences:
            for way in patterns.withdrawn:
                for match in way.finditer(sentence):
                    yield StatementEnd(turn.seq, naming=match[_VALUE].strip())
        if any(patterns.changed.search(sentence) for sentence in sentences):
            for sentence in sentences:
                for proposed in _in_sentence(sentence):
                    if isinstance(stated(proposed, (turn,)), StatedFact):
                        yield StatementEnd(turn.seq, key=proposed.key)


def current(facts: Iterable[StatedFact], changes: Iterable[StatementEnd]) -> tuple[StatedFact, ...]:
    """The facts that no change ends."""
    ended = tuple(changes)
    return tuple(fact for fact in facts if not any(change.ends(fact) for change in ended))


def _sentences(turn: OwnTurn) -> Iterator[str]:
    """The sentences in the person's own words: no code, no quotation; none of a turn that gives orders to programs."""
    text = turn.text[:_LONGEST_TURN]
    for taken_out in (_QUOTED_LINE, _CODE, _QUOTATION):
        text = taken_out.sub(" ", text)
    for sentence in _OPERATOR_FACTS_SENTENCE.findall(text):
        if any(pattern.search(sentence) for pattern in _patterns().hostile):
            return
        if stripped := sentence.strip():
            yield stripped


@lru_cache(_SENTENCES_KEPT)
def _in_sentence(sentence: str) -> tuple[Proposed, ...]:
    return tuple(_statements(sentence))


def _statements(sentence: str) -> Iterator[Proposed]:
    patterns = _patterns()
    if not sentence or len(sentence) > QUOTE_CHARS or sentence.endswith("?"):
        return
    if any(pattern.search(sentence) for pattern in (*patterns.uncertain, *_clause_words().jest)):
        return
    statement = patterns.openers.sub("", sentence)
    found: dict[str, str] = {}
    for key, ways in patterns.facts:
        for way in ways:
            match = way.search(statement)
            if match is None or _is_disclaimed(statement, match, key):
                continue
            if value := _value(statement, match):
                found.setdefault(key, value)
                break
    for key in _WITH_SUBJECT & found.keys():
        found[key] = _with_subject(statement, found[key])
    for key, clause in _of_clauses(statement, found):
        found.setdefault(key, clause)
    tool, language = found.get("tooling"), found.get("language", "")
    if "prefers" in found and found["prefers"] in language:
        del found["prefers"]
    for key, value in found.items():
        if tool is None or tool not in value or key not in _WORK:  # "we plan sessions in Obsidian" names the tool alone
            yield Proposed(key, value, sentence)


@dataclass(frozen=True, slots=True)
class _ClauseWords:
    """The compiled file ``clause_words.toml``; a way is what must be found in a clause, and what must not."""

    ways: tuple[tuple[str, tuple[tuple[re.Pattern[str], ...], tuple[re.Pattern[str], ...]]], ...]
    others: tuple[re.Pattern[str], ...]
    jest: tuple[re.Pattern[str], ...]
    past: tuple[re.Pattern[str], ...]
    ended: re.Pattern[str]
    addressed: re.Pattern[str]


@cache
def _clause_words() -> _ClauseWords:
    file = tomllib.loads(resources.files(__package__).joinpath("clause_words.toml").read_text("utf-8"))
    classes = {name: f"(?:{'|'.join(words)})" for name, words in file["classes"].items()}

    def compiled(pattern: str) -> re.Pattern[str]:
        while (filled := _CLASS.sub(lambda match: classes[match[1]], pattern)) != pattern:
            pattern = filled
        return re.compile(pattern, re.IGNORECASE)

    ways = tuple(
        (
            key,
            (
                tuple(compiled(text) for text in way if not text.startswith("!")),
                tuple(compiled(text[1:]) for text in way if text.startswith("!")),
            ),
        )
        for key, of_key in file["clauses"].items()
        for way in of_key
    )
    guards = {name: tuple(compiled(text) for text in texts) for name, texts in file["guards"].items()}
    return _ClauseWords(ways, ended=compiled(file["ended"]), addressed=compiled(file["addressed"]), **guards)


def _of_clauses(statement: str, found: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Key and clause of what the clauses of a statement state, besides what was found by patterns.

    A clause is read by itself; if none states anything, all clauses of a segment together, unless some are about others.
    """
    words, patterns = _clause_words(), _patterns()
    if any(pattern.search(statement) for pattern in patterns.reported) or patterns.attributed.search(statement):
        return
    for segment in _SEGMENT.split(statement):
        clauses = _joined(_COMMA.split(segment))
        own = _own_clauses(clauses)
        stated_here = [
            (key, clause) for clause in own if (key := _key_of(clause)) is not None and not _holds(clause, found, key)
        ]
        if not stated_here and len(own) == len(clauses) > 1 and (key := _key_of(segment)) is not None:
            stated_here = [] if _holds(segment, found, key) else [(key, segment)]
        apart = [clause for clause in clauses if clause not in {stating for _, stating in stated_here}]
        if (
            len({key for key, _ in stated_here}) == 1
            and len(own) == len(clauses)
            and not any(words.ended.search(_plain(clause)) for clause in apart)
        ):
            stated_here = [(stated_here[0][0], segment)]
        for key, clause in stated_here:
            value = clause.strip().strip(".!?,:;- ")
            if len(value) <= VALUE_CHARS:
                yield key, value


def _own_clauses(clauses: Sequence[str]) -> list[str]:
    """The clauses that are not about others; a clause without a subject has that of the clause before it."""
    words = _clause_words()
    own: list[str] = []
    about_others = False
    for clause in clauses:
        plain = _plain(clause)
        about_others = any(guard.search(plain) for guard in words.others) or (
            about_others and not words.addressed.search(plain)
        )
        if not about_others:
            own.append(clause)
    return own


def _with_subject(statement: str, value: str) -> str:
    """The value from the beginning of its clause on, if more than short words, such as pronouns, precede it there."""
    starts = [0, *(boundary.end() for boundary in _CLAUSE.finditer(statement))]
    begin = statement.find(value)
    start = max((position for position in starts if position <= begin), default=begin)
    longer = statement[start : begin + len(value)]
    return value if _PRONOUNS.fullmatch(statement[start:begin]) or len(longer) > VALUE_CHARS else longer


def _joined(clauses: Sequence[str]) -> list[str]:
    """The clauses, one that begins with a word for the clause before it ("that's the law") together with that one."""
    joined: list[str] = []
    for clause in clauses:
        if joined and _BACKWARD.match(clause):
            joined[-1] = f"{joined[-1]}, {clause}"
        else:
            joined.append(clause)
    return joined


def _holds(clause: str, found: Mapping[str, str], key: str) -> bool:
    """Whether patterns found another fact in the clause; a tool is named beside work, a language beside a preference."""
    rivals = (
        found.items() if key not in _BESIDE else ((of, value) for of, value in found.items() if of not in _BESIDE[key])
    )
    return any(value in clause for _, value in rivals)


def _plain(clause: str) -> str:
    return clause.replace("’", "'").strip()


def _key_of(clause: str) -> str | None:
    """The key that a clause states; the first way of ``clause_words.toml`` decides."""
    plain = _plain(clause).rstrip(".!")
    words = _clause_words()
    if len(plain) < _CLAUSE_LEAST_CHARS or any(guard.search(plain) for guard in words.past):
        return None
    for key, (needed, barred) in words.ways:
        if (
            all(pattern.search(plain) for pattern in needed)
            and not any(pattern.search(plain) for pattern in barred)
            and not (key not in _CONDITIONED and _CONDITION.match(plain))
        ):
            return key
    return None


def _is_disclaimed(sentence: str, match: re.Match[str], key: str) -> bool:
    """Whether another person says what matched, or it depends on a condition or a time.

    A condition counts in its own clause, and a condition before the statement for what a person is, has and uses: "if you
    can, keep it short" is a preference. A condition after the statement does not count.
    """
    patterns = _patterns()
    start = match.start(_VALUE) if _VALUE in match.re.groupindex else match.start()
    end = match.end(_VALUE) if _VALUE in match.re.groupindex else match.end()
    if any(pattern.search(sentence[:end]) for pattern in patterns.reported) or patterns.attributed.search(sentence):
        return True
    if key in _DENIABLE and patterns.denied.search(sentence[: match.start()]):
        return True
    starts = [boundary.end() for boundary in _CLAUSE.finditer(sentence, 0, start + 1)]
    begin = starts[-1] if starts else 0
    ending = _CLAUSE.search(sentence, end)
    clause = sentence[begin : ending.start() if ending else len(sentence)]
    if any(pattern.search(clause) for pattern in (*patterns.passing, *_clause_words().others)):
        return True
    scope = sentence[begin:end] if key in _CONDITIONED else sentence[:end]
    return any(pattern.search(scope) for pattern in patterns.conditions)


def _value(sentence: str, match: re.Match[str]) -> str | None:
    """The named part, or the text from the pattern to the end of the clause; None if it has no content."""
    if _VALUE in match.re.groupindex:
        value, offset = match[_VALUE], 0
    else:
        begin = match.start(_FROM) if _FROM in match.re.groupindex else match.end()
        value = sentence[begin:]
        offset = match.end() - begin
        ends = [ending.start() for pattern in _patterns().ends if (ending := pattern.search(value, offset))]
        value = value[: min(ends, default=len(value))]
        if any(pattern.match(value) for pattern in _patterns().empty):
            return None
    value = value.strip().rstrip(".!, ")
    return value if offset < len(value) <= VALUE_CHARS else None
