"""Operator models and peer cards: slug, eligibility, checks of proposed facts, merging, and the text (contract §13).

Invariant: every fact is the person's own statement: its quote is part of one of their turns. A fact stays until a newer
statement with the same key replaces it. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, get_args

from ..core.grants import person_of
from ..text.injection import finding_in
from ..text.secrets import REDACTED, find_secrets
from .events import QUOTE_CHARS, VALUE_CHARS, FactKey, StatedFact

VERSION: Final = 2  # names are compared by ``core/grants.person_of``

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
    """The facts after new ones: the order of the prior ones is kept, and for each key the newest statement counts.

    The result is cut to ``CAP_BYTES`` of text by whole facts from the end.
    """
    facts: dict[str, StatedFact] = {}
    for fact in (*prior, *new):
        known = facts.get(fact.key)
        if known is None or fact.seq > known.seq:
            facts[fact.key] = fact
    kept = list(facts.values())
    while len(as_markdown(kept).encode()) > CAP_BYTES:
        kept.pop()
    return tuple(kept)


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


OPERATOR_FACTS_VERSION: Final = 1

_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED_LINE: Final = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_OPERATOR_FACTS_SENTENCE: Final = re.compile(r"(?:[^.!?\n]|[.!?](?=[\w/@]))+[.!?]*")
_FROM: Final = "from"
_LONGEST_TURN: Final = 20_000
"""Number of characters of a turn that are read; pasted logs are longer."""


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The compiled file."""

    uncertain: tuple[re.Pattern[str], ...]
    ends: tuple[re.Pattern[str], ...]
    empty: tuple[re.Pattern[str], ...]
    facts: tuple[tuple[str, tuple[re.Pattern[str], ...]], ...]


@cache
def _patterns() -> _Patterns:
    file = tomllib.loads(resources.files(__package__).joinpath("operator_facts.toml").read_text("utf-8"))

    def compiled(patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(pattern.replace("{often}", file["often"]), re.IGNORECASE) for pattern in patterns)

    facts = tuple((key, compiled(patterns)) for key, patterns in file["facts"].items())
    return _Patterns(compiled(file["uncertain"]), compiled(file["ends"]), compiled(file["empty"]), facts)


def proposed_facts(turns: Iterable[OwnTurn]) -> Iterator[Proposed]:
    """Facts in the order of the turns."""
    for turn in turns:
        text = _CODE.sub(" ", _QUOTED_LINE.sub("", turn.text[:_LONGEST_TURN]))
        for sentence in _OPERATOR_FACTS_SENTENCE.findall(text):
            yield from _in_sentence(sentence.strip())


def _in_sentence(sentence: str) -> Iterator[Proposed]:
    patterns = _patterns()
    if not sentence or len(sentence) > QUOTE_CHARS or sentence.endswith("?"):
        return
    if any(pattern.search(sentence) for pattern in patterns.uncertain):
        return
    for key, ways in patterns.facts:
        found_match = next((match for way in ways if (match := way.search(sentence))), None)
        if found_match is not None and (value := _value(sentence, found_match)):
            yield Proposed(key, value, sentence)


def _value(sentence: str, match: re.Match[str]) -> str | None:
    """The text from the pattern to the end of the clause; None if it has no content."""
    begin = match.start(_FROM) if _FROM in match.re.groupindex else match.end()
    value = sentence[begin:]
    offset = match.end() - begin
    ends = [ending.start() for pattern in _patterns().ends if (ending := pattern.search(value, offset))]
    value = value[: min(ends, default=len(value))].strip().rstrip(".!, ")
    empty = len(value) <= offset or any(pattern.match(value) for pattern in _patterns().empty)
    return None if empty or len(value) > VALUE_CHARS else value
