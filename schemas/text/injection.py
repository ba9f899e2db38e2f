"""Scans a text for injected instructions: the two scanners of contract §17, whose results differ, and our own rules.

Invariant: a text that any scanner blocks is blocked; a finding names scanner, category and pattern, and never quotes
the text. Protection does not depend on detection: escaping and the nonce (``schemas/recall/render``) keep a text inside
its block.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Final, Literal

from . import lookalikes
from .lookalikes import EMOJI_JOINER, INVISIBLE, folded, plain, unleeted, unspaced

# Decoded readings of a text, in which the scanners look for disguised injections.


VERSION: Final = 1

DEPTH: Final = 2
"""Maximum number of nested encodings that are decoded, such as base64 within base64."""
RUNS: Final = 256
"""Maximum number of encoded runs of one text that are decoded."""
TEXT_SHARE: Final = 0.85
"""Minimum share of printable characters with which decoded bytes count as text."""

_BASE64: Final = re.compile(
    r"[A-Za-z0-9+/_-]{16,}={0,2}(?:\s{1,3}[A-Za-z0-9+/_-]{16,}={0,2})*(?:\s{1,3}[A-Za-z0-9+/_-]{2,15}={0,2}(?!\S))?"
)
_BASE64_TOKEN: Final = re.compile(r"[A-Za-z0-9+/_-]{24,}")
_HEX: Final = re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[ :,]?){12,}")
_HEX_DIGITS: Final = re.compile(r"0x|\\x|[ :,]")
_HEX_BYTES: Final = b"0123456789abcdefABCDEF"
_AS_HEX: Final = bytes.maketrans(_HEX_BYTES, b"0" * len(_HEX_BYTES))
_HEX_RUN: Final = b"0" * 24
"""Minimum number of digits of a run that ``_HEX`` matches. Searching for the digits first takes a tenth of the
pattern's time.
"""
_PERCENT: Final = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_PERCENT_MIN: Final = 4
_ENTITY: Final = re.compile(r"&#?\w{1,12};")
_ESCAPE: Final = re.compile(r"\\u\{?([0-9a-fA-F]{4,6})\}?|\\x([0-9a-fA-F]{2})")
_ROT13: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")
CIPHERS: Final[dict[str, Callable[[str], str]]] = {
    "reversed": lambda text: text[::-1],
    "rot13": lambda text: text.translate(_ROT13),
}
"""Disguises that exchange or move single characters; applying one twice restores the text."""


def decodings(text: str, depth: int = DEPTH) -> Iterator[tuple[str, str]]:
    """Every decoding of ``text`` whose result is text: the encoding (``base64``, ``base64_hex`` …) and the decoded text."""
    for kind, decoded in _once(text):
        yield kind, decoded
        if depth > 1:
            for inner, more in decodings(decoded, depth - 1):
                yield f"{kind}_{inner}", more


def disguises(text: str) -> Iterator[tuple[str, str]]:
    """Other readings of a folded text: letters closed up, digits as letters, backwards, rotated by 13."""
    if (closed := unspaced(text)) is not None:
        yield "spaced", closed
    if (letters := unleeted(text)) is not None:
        yield "leet", letters
    for kind, cipher in CIPHERS.items():
        yield kind, cipher(text)


def _once(text: str) -> Iterator[tuple[str, str]]:
    yield from _base64(text)
    yield from _hex(text)
    if text.count("%") >= _PERCENT_MIN and (decoded := _PERCENT.sub(_unquoted, text)) != text:
        yield "percent", decoded
    if "&" in text and (decoded := _ENTITY.sub(lambda match: html.unescape(match[0]), text)) != text:
        yield "entity", decoded
    if "\\" in text and (decoded := _ESCAPE.sub(_unescaped, text)) != text:
        yield "escape", decoded


def _base64(text: str) -> Iterator[tuple[str, str]]:
    for count, match in enumerate(_BASE64.finditer(text)):
        if count == RUNS:
            return
        joined = "".join(match[0].split())
        if (decoded := _from_base64(joined)) is not None:
            yield "base64", decoded
        elif joined != match[0]:
            for token in _BASE64_TOKEN.findall(match[0]):
                if (decoded := _from_base64(token)) is not None:
                    yield "base64", decoded


def _from_base64(run: str) -> str | None:
    standard = run.replace("=", "").replace("-", "+").replace("_", "/")
    if len(standard) % 4 == 1:
        standard = standard[:-1]
    try:
        raw = base64.b64decode(standard + "=" * (-len(standard) % 4))
    except (binascii.Error, ValueError):
        return None
    return _as_text(raw)


def _hex(text: str) -> Iterator[tuple[str, str]]:
    if _HEX_RUN not in text.encode("utf-8", "replace").translate(_AS_HEX, b" :,x\\"):
        return
    for count, match in enumerate(_HEX.finditer(text)):
        if count == RUNS:
            return
        digits = _HEX_DIGITS.sub("", match[0])
        decoded = _as_text(bytes.fromhex(digits[: len(digits) // 2 * 2]))
        if decoded is not None:
            yield "hex", decoded


def _as_text(raw: bytes) -> str | None:
    for encoding in ("utf-8", "utf-16-le") if len(raw) > 1 and raw[1] == 0 else ("utf-8",):
        decoded = raw.decode(encoding, "ignore")
        if decoded and sum(map(_reads, decoded)) >= TEXT_SHARE * max(len(decoded), len(raw) // 4):
            return decoded
    return None


def _reads(character: str) -> bool:
    return character.isprintable() or character in "\n\r\t"


def _unquoted(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace")


def _unescaped(match: re.Match[str]) -> str:
    code = int(match[1] or match[2], 16)
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else match[0]


def readings(text: str) -> Iterator[tuple[str, str]]:
    """Every folded reading of ``text``, after a suffix for the pattern's name (empty for the undisguised reading)."""
    latin = folded(text)
    yield "", latin
    if not text.isascii() and (unlatinised := plain(text)) != latin:
        yield "", unlatinised  # letters of other scripts are kept
    for kind, reading in disguises(latin):
        yield f"_{kind}", reading
    for kind, decoded in decodings(text):
        yield f"_{kind}", folded(decoded)


# Our own rules against injected instructions: each names a technique, and blocks or only records.


INJECTION_RULES_VERSION: Final = 4
"""Raised with every change of a rule."""

_LINE_BREAK: Final = re.compile(r"\n\s*")
_NAME: Final = re.compile(r"\{([A-Z]+(?:_[A-Z]+)*)\}")


@dataclass(frozen=True)  # no slots: the compiled pattern is kept
class TechniqueRule:
    """One technique.

    Attributes:
        name: The pattern's name.
        technique: The family: override, hijack, persona, address, extraction, exfiltration, steering, forgery,
            obfuscation.
        severity: Whether a strong phrase blocks or is only recorded.
        needs: The rule fires only on a text that contains one of these strings.
        source: The regular expression of the strong phrases, over folded text; None if the rule has no strong phrases.
        weak_source: The regular expression of the weak phrases; None if the rule has no weak phrases.
    """

    name: str
    technique: str
    severity: Literal["block", "record"]
    needs: tuple[str, ...]
    source: str | None
    weak_source: str | None

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """The source, compiled at its first use, because compiling all rules takes 60 ms."""
        return None if self.source is None else re.compile(self.source)

    @cached_property
    def weak(self) -> re.Pattern[str] | None:
        """The source of the weak phrases, compiled at its first use."""
        return None if self.weak_source is None else re.compile(self.weak_source)


_BEGINNING: Final = 3
"""Needs are looked up by this many first characters; searching for all needs one by one takes twice as long."""

_THROUGH_CIPHERS: Final = frozenset({"override", "extraction"})
"""Techniques that are also searched for in the reversed and in the rotated text."""


def beginnings_in(reading: str) -> frozenset[str]:
    """The pieces of a folded reading that may be the beginning of a need."""
    return frozenset(map("".join, zip(reading, reading[1:], reading[2:], strict=False)))


def candidates(reading: str, present: frozenset[str], cipher: str = "") -> list[int]:
    """The ascending positions of the rules of which a folded reading contains a need.

    Args:
        reading: The text that is searched.
        present: ``beginnings_in`` of the reading; with ``cipher``, ``beginnings_in`` of the text before the cipher was
            applied.
        cipher: One of ``CIPHERS``; then only rules of ``_THROUGH_CIPHERS`` techniques count.
    """
    by_beginning, beginnings, short = _needs(cipher)
    places = {at for beginning in beginnings & present for need, at in by_beginning[beginning] if need in reading}
    places.update(at for need, at in short if need in reading)
    return sorted(places)


@cache
def _needs(cipher: str) -> tuple[dict[str, list[tuple[str, int]]], frozenset[str], list[tuple[str, int]]]:
    """The needs and their rules' positions by the need's enciphered beginning; the beginnings; the shorter needs."""
    by_beginning: dict[str, list[tuple[str, int]]] = {}
    short: list[tuple[str, int]] = []
    for at, rule in enumerate(technique_rules()):
        if cipher and rule.technique not in _THROUGH_CIPHERS:
            continue
        for need in rule.needs:
            beginning = CIPHERS[cipher](need[:_BEGINNING]) if cipher else need[:_BEGINNING]
            into = short if len(need) < _BEGINNING else by_beginning.setdefault(beginning, [])
            into.append((need, at))
    return by_beginning, frozenset(by_beginning), short


@cache
def technique_rules() -> tuple[TechniqueRule, ...]:
    """The rules of ``injection.toml`` in their order."""
    data = tomllib.loads(resources.files(__package__).joinpath("injection.toml").read_text("utf-8"))
    vocabulary: dict[str, str] = data["vocabulary"]

    def expanded(pattern: str) -> str:
        return _NAME.sub(lambda match: expanded(vocabulary[match[1]]), _LINE_BREAK.sub("", pattern))

    def source(rule: dict[str, str], key: str) -> str | None:
        return expanded(rule[key]) if key in rule else None

    return tuple(
        TechniqueRule(
            rule["name"],
            rule["technique"],
            rule.get("severity", "block"),
            tuple(rule["needs"]),
            source(rule, "pattern"),
            source(rule, "weak"),
        )
        for rule in data["rule"]
    )


# Scanner (a) of contract §17: the memory scanner, for every text that is written as memory or put into a prompt.


INJECTION_MEMORY_VERSION: Final = 2

BASE64_RUNS: Final = 256
PRINTABLE_SHARE: Final = 0.5
"""Minimum share of printable characters with which decoded bytes count as text."""
_URL_CHARS: Final = 2_048

_HOMOGLYPHS: Final = str.maketrans("аеорсухіѕјαορνιε", "aeopcyxisjaopvie")
_RUN: Final = re.compile(r"[A-Za-z0-9+/]{60,}={0,2}")
_VARIABLE: Final = re.compile(r"\$\{?\w{0,64}?(?:TOKEN|API_KEY|SECRET|PASSWORD|CREDENTIAL|AUTH)")
_URL_VARIABLE: Final = re.compile(r"\$\{?\w{0,64}?(?:TOKEN|API_KEY|SECRET|PASSWORD|CREDENTIAL|AUTH|ENV)")
_URL: Final = re.compile(rf"https?://[^\s\"'<>`]{{1,{_URL_CHARS}}}")
_COMMENT_OPEN, _COMMENT_CLOSE = "<!--", "-->"
_IGNORE: Final = re.compile(r"\bignore\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MemoryFinding:
    """The first finding of the scanner: the category and the name of the pattern."""

    category: str
    pattern: str


def scan_memory(text: str) -> MemoryFinding | None:
    """The first finding in ``text``; None if it is clean."""
    if not text:
        return None
    if (finding := _invisible(text)) is not None:
        return finding
    if (finding := _rules(text)) is not None:
        return finding
    twin = fold_homoglyphs(text)
    if twin != text and (finding := _rules(twin)) is not None:
        return MemoryFinding(finding.category, f"{finding.pattern}_homoglyph")
    for decoded in _decoded(text):
        finding = _invisible(decoded) or _rules(decoded)
        if finding is not None:
            return MemoryFinding("base64_obfuscation", f"{finding.pattern}_base64")
    return None


def fold_homoglyphs(text: str) -> str:
    """NFKD without combining marks, and the small Cyrillic and Greek look-alikes as Latin letters."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).translate(_HOMOGLYPHS)


def _invisible(text: str) -> MemoryFinding | None:
    if text.isascii() or (match := INVISIBLE.search(EMOJI_JOINER.sub("", text))) is None:
        return None
    return MemoryFinding("invisible_unicode", f"U+{ord(match[0]):04X}")


def _rules(text: str) -> MemoryFinding | None:
    for category, name, holds in RULES:
        if holds(text):
            return MemoryFinding(category, name)
    return None


def _decoded(text: str) -> Iterator[str]:
    for count, match in enumerate(_RUN.finditer(text)):
        if count == BASE64_RUNS:
            return
        try:
            decoded = base64.b64decode(match[0], validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            continue
        if decoded and sum(map(str.isprintable, decoded)) >= PRINTABLE_SHARE * len(decoded):
            yield decoded


# the rules


def _matching(pattern: str, flags: int = re.IGNORECASE) -> Callable[[str], bool]:
    search = re.compile(pattern, flags).search
    return lambda text: search(text) is not None


def _in_one_line(need: str, *patterns: str) -> Callable[[str], bool]:
    """Tests whether one line contains all patterns in order; a text without ``need`` fails the test at once."""
    steps = [re.compile(pattern).search for pattern in patterns]

    def holds(text: str) -> bool:
        if need not in text or steps[0](text) is None:
            return False
        for line in text.splitlines():
            at = 0
            for step in steps:
                match = step(line, at)
                if match is None:
                    break
                at = match.end()
            else:
                return True
        return False

    return holds


def _html_comment(text: str) -> bool:
    at = text.find(_COMMENT_OPEN)
    while at >= 0:
        end = text.find(_COMMENT_CLOSE, at + len(_COMMENT_OPEN))
        if end < 0:
            return False
        if _IGNORE.search(text, at, end):
            return True
        at = text.find(_COMMENT_OPEN, end)
    return False


def _url_with_variable(*, in_query: bool) -> Callable[[str], bool]:
    def holds(text: str) -> bool:
        if "$" not in text:
            return False
        for url in _URL.finditer(text):
            address = url[0]
            if (variable := _URL_VARIABLE.search(address)) is None:
                continue
            query = address.find("?")
            if in_query and query >= 0 and (late := _URL_VARIABLE.search(address, query)) is not None:
                if "=" in address[query : late.start()]:
                    return True
            elif not in_query and (query < 0 or variable.start() < query) and "/" in address[8 : variable.start()]:
                return True
        return False

    return holds


RULES: Final[tuple[tuple[str, str, Callable[[str], bool]], ...]] = (
    (
        "prompt_injection",
        "ignore_previous_instructions",
        _matching(r"ignore\s+(?:(?:previous|all|prior)\s+){1,3}instructions"),
    ),
    (
        "prompt_injection",
        "you_are_now",
        _matching(
            r"you\s+are\s+now\s+(?:DAN\b|[A-Z][\w'-]{0,40},?\s+(?:an?\s+)?(?:[\w-]{1,30}\s+){0,3}"
            r"(?:AI|assistant|model)\s+without\b)"
        ),
    ),
    (
        "prompt_injection",
        "disregard_rules",
        _matching(
            r"disregard\s+(?:the\s+(?:above|system|previous)\b|(?:(?:all|any|the|your|my|our|these|those|prior|previous|"
            r"above|system)\s+){0,4}(?:rules|instructions)\b)"
        ),
    ),
    ("prompt_injection", "html_ignore_comment", _html_comment),
    ("exfiltration", "curl_with_token", _in_one_line("curl", r"\bcurl\b", _VARIABLE.pattern)),
    (
        "exfiltration",
        "cat_env_pipe_network",
        _in_one_line(".env", r"\bcat\s+[^\s|>]{0,200}\.env\b", r"[|>]", r"/dev/tcp|\bnc\b|\bnetcat\b|\bcurl\b|\bhttp"),
    ),
    (
        "exfiltration",
        "aws_s3_exfil_ssh",
        _in_one_line(
            "aws", r"\baws\s+s3\s+cp\b", r"\.ssh\b|\bid_rsa\b|\bid_ed25519\b|\.aws/credentials|AWS_(?:SECRET|ACCESS)"
        ),
    ),
    ("exfiltration", "url_exfil_query_token", _url_with_variable(in_query=True)),
    ("exfiltration", "url_exfil_path_token", _url_with_variable(in_query=False)),
    (
        "persistence",
        "authorized_keys_append",
        _in_one_line("authorized_keys", r">>|\btee\s+(?:-a|--append)\b", r"authorized_keys"),
    ),
    ("persistence", "crontab_register", _in_one_line("crontab", r"\|\s*(?:sudo\s+)?crontab\s+-(?=\s|$|[;&|)])")),
)
"""Category, name and test of each rule, in the order in which they are tried."""


# Scanner (b) of contract §17: the recall guard, for texts that are put into an agent's prompt or returned to an agent.


INJECTION_RECALL_VERSION: Final = 2

RTL_OVERRIDE: Final = "\u202e"
RTL_BELOW: Final = 1_024
"""In texts shorter than this number of characters, an RTL override counts as an attack instead of typography."""


@dataclass(frozen=True, slots=True)
class RecallFinding:
    """One rule that fired."""

    severity: Literal["high", "medium"]
    pattern: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern, and ``needs``: a lower-cased ASCII text that matches the pattern contains one of them."""

    name: str
    needs: tuple[str, ...]
    pattern: re.Pattern[str]

    def fires(self, text: str, small: str | None) -> bool:
        """Whether the pattern matches a text; ``small`` is the lower-cased text if it is ASCII."""
        if small is not None:
            for need in self.needs:
                if need in small:
                    break
            else:
                return False
        return self.pattern.search(text) is not None


def _rule(name: str, pattern: str, *needs: str) -> _Rule:
    return _Rule(name, needs, re.compile(pattern, re.IGNORECASE))


_FILLER: Final = r"(?:(?:of|the|any|your|my|these|those|other|earlier|prior)\s+){0,3}"

_OF_SOMETHING: Final = r"\s+(?:of|for|on|in|to|with|from|about|at|under|behind)\s+(?!your\b|this\b)"
"""Matches what follows "the rules" if they are the rules of a thing, not of the model: "print the rules of the firewall"."""

HIGH: Final = (
    _rule(
        "ignore_instructions",
        rf"ignore\s+{_FILLER}(?:previous|all|above)\s+{_FILLER}(?:(?:previous|all|above)\s+{_FILLER})?"
        r"(?:instruction|prompt)s?\b",
        "ignore",
    ),
    _rule("disregard_instructions", r"disregard\s+(?:[\w'-]{1,30}\s+){0,6}instructions?\b", "disregard"),
    _rule(
        "reveal_system_prompt",
        r"(?:reveal|show|print|output)\s+(?:me\s+|us\s+)?(?:(?:your|the)\s+system\s+(?:prompt|instructions|rules)|"
        rf"your\s+(?:instructions|rules)|the\s+(?:instructions|rules)(?!{_OF_SOMETHING}))\b",
        "prompt",
        "instructions",
        "rules",
    ),
    _rule("dan_mode", r"\bDAN\s+(?:mode|prompt)\b", "dan"),
    _rule("pretend_no_restrictions", r"pretend\s+(?:[\w'-]{1,30}\s+){0,8}no\s+restrictions", "pretend"),
    _rule("zero_width", "[\u200b-\u200d\u2060\ufeff]"),
)
"""The rules that block, in the order in which they are reported."""
MEDIUM: Final = (
    _rule("you_are_now", r"\byou\s+are\s+(?:now|actually)\b", "now", "actually"),
    _rule("new_instructions", r"\bnew\s+(?:instructions|rules|persona)\b", "instructions", "rules", "persona"),
    _rule(
        "what_is_your_prompt",
        r"\bwhat\s+(?:is|are)\s+your\s+(?:system|initial)\s+(?:prompt|instructions)\b"
        r"|\bwhat\s+(?:is|are)\s+your\s+(?:prompt|instructions)\b",
        "prompt",
        "instructions",
    ),
    _rule("developer_mode", r"\bdeveloper\s+mode\b", "developer"),
    _rule("jailbreak", r"\bjail\s?break", "jail"),
)
"""The rules that only record."""


def guard_recall(text: str) -> list[RecallFinding]:
    """Every rule that fires, blocking rules first; empty for a clean text."""
    if not text:
        return []
    small = text.lower() if text.isascii() else None
    if small is None:
        text = EMOJI_JOINER.sub("", text)
    findings = [RecallFinding("high", rule.name) for rule in HIGH if rule.fires(text, small)]
    if RTL_OVERRIDE in text and len(text) < RTL_BELOW:
        findings.append(RecallFinding("high", "rtl_override"))
    findings += [RecallFinding("medium", rule.name) for rule in MEDIUM if rule.fires(text, small)]
    return findings


INJECTION_VERSION: Final = (
    f"{INJECTION_MEMORY_VERSION}.{INJECTION_RECALL_VERSION}.{INJECTION_RULES_VERSION}.{VERSION}.{lookalikes.VERSION}"
)
"""Versions of memory scanner, recall guard, techniques, decoders and look-alikes."""
REVISION: Final = sum(map(int, INJECTION_VERSION.split(".")))
"""Sum of the scanners' versions; part of the version of views that store findings."""

Scanner = Literal["memory", "recall", "technique"]

SPACED_LETTERS: Final = 12
"""Minimum number of single letters in a row that count as a disguise instead of an abbreviation."""
WEAK_WITHIN: Final = 1_000
"""Maximum distance, in characters, between the beginnings of two weak phrases that count together. In instructions to
play a role, the second phrase follows up to 800 characters later; two phrases that a long document contains by chance
are mostly further apart.
"""
_NEXT_POINT: Final = re.compile(r"\n[ \t]*(?:\n|[-*+#>|\u2022]|\d{1,3}[.)])")
"""Matches the beginning of a paragraph, heading or list item; each item in a list of team rules is a separate sentence."""
_LETTER_SPACED: Final = re.compile(rf"(?<!\S)[^\W\d_](?: [^\W\d_]){{{SPACED_LETTERS - 1},}}(?!\S)")
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class InjectionFinding:
    """One rule that fired.

    Attributes:
        scanner: The scanner: ``memory`` (§17a), ``recall`` (§17b), ``technique`` (ours).
        category: The rule's category or technique.
        pattern: The pattern's name, with a suffix that names the disguise.
        blocks: Whether the text must not be shown.
    """

    scanner: Scanner
    category: str
    pattern: str
    blocks: bool


def scan(text: str) -> InjectionFinding | None:
    """The first finding that blocks; None if the text may be shown."""
    return next((finding for finding in findings(text) if finding.blocks), None)


def findings(text: str) -> Iterator[InjectionFinding]:
    """Every finding: the memory scanner's first, the recall guard's, each of our rules once."""
    if not text:
        return
    if (first := scan_memory(text)) is not None:
        yield InjectionFinding("memory", first.category, first.pattern, True)
    for guarded in guard_recall(text):
        yield InjectionFinding("recall", "recall_guard", guarded.pattern, guarded.severity == "high")
    yield from techniques(text)


def techniques(text: str) -> Iterator[InjectionFinding]:
    """The findings of our own rules, each rule once, with the least disguised reading that matches.

    A strong phrase blocks by itself; weak phrases block if those of two rules are close together, and are otherwise
    only recorded.
    """
    if _is_letter_spaced(text):
        yield InjectionFinding("technique", "obfuscation", "letter_spacing", True)
    rules, seen, plainest = technique_rules(), set[int](), frozenset[str]()
    alone: dict[int, InjectionFinding] = {}
    for suffix, reading in readings(text):
        cipher = suffix[1:] if suffix[1:] in CIPHERS else ""
        present = plainest if cipher else beginnings_in(reading)
        plainest = plainest or present
        weak: list[_Phrase] = []
        for at in candidates(reading, present, cipher):
            rule = rules[at]
            if at not in seen and rule.pattern is not None and rule.pattern.search(reading) is not None:
                seen.add(at)
                yield InjectionFinding("technique", rule.technique, rule.name + suffix, rule.severity == "block")
            if rule.weak is not None:
                weak += (_Phrase(match.start(), match.end(), at) for match in rule.weak.finditer(reading))
        together = _together(weak, reading)
        for at in dict.fromkeys(phrase.rule for phrase in weak):
            finding = InjectionFinding("technique", rules[at].technique, rules[at].name + suffix, at in together)
            if at not in seen and finding.blocks:
                seen.add(at)
                yield finding
            alone.setdefault(at, finding)
    yield from (finding for at, finding in alone.items() if at not in seen)


@dataclass(frozen=True, slots=True, order=True)
class _Phrase:
    """A weak phrase in a reading, and the position of its rule."""

    start: int
    end: int
    rule: int


def _together(weak: list[_Phrase], reading: str) -> set[int]:
    """The rules with a phrase near another rule's phrase: same list item, at most ``WEAK_WITHIN`` apart, no overlap."""
    if len(weak) < 2:
        return set()
    rules, last = set[int](), dict[int, _Phrase]()
    ends = iter([match.start() + 1 for match in _NEXT_POINT.finditer(reading)] + [len(reading) + 1])
    end = next(ends)
    for phrase in sorted(weak):
        while phrase.end > end:  # patterns may begin with the line break before their phrase
            end, last = next(ends), {}
        for earlier in last.values():
            near = phrase.start - earlier.start <= WEAK_WITHIN
            if near and earlier.rule != phrase.rule and earlier.end <= phrase.start:
                rules |= {earlier.rule, phrase.rule}
        if (earlier_ := last.get(phrase.rule)) is None or earlier_.end <= phrase.start:
            last[phrase.rule] = phrase
    return rules


def _is_letter_spaced(text: str) -> bool:
    for match in _LETTER_SPACED.finditer(text):
        letters = match[0].replace(" ", "").lower()
        if letters not in _ALPHABET and len(set(letters)) > 2:
            return True
    return False


# The effect of a write on a document's text.


def finding_in(text: str) -> str | None:
    """The finding that blocks a text, as ``category/pattern``; None if the text may be shown."""
    finding = scan(text)
    return None if finding is None else f"{finding.category}/{finding.pattern}"
