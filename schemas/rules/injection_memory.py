"""Scanner (a) of contract §17: the memory scanner, for every text that is put into a prompt or written as memory.

Invariant: the first hit wins, in a fixed order: invisible characters, raw rules, folded rules (``_homoglyph``),
base64 (``_base64``). Time is linear in the text whatever it holds: every rule is a chain of searches, each beginning
where the last ended, over one line, one comment or one URL; none backtracks over more than a bounded stretch.
``injection_rules`` cover what it cannot find: other wordings, other alphabets, other languages.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from .lookalikes import EMOJI_JOINER, INVISIBLE

VERSION: Final = 2

BASE64_RUNS: Final = 256
PRINTABLE_SHARE: Final = 0.5
"""Share of printable characters from which on decoded bytes count as text."""
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
    """Whether some line holds all patterns, one after the other; none does in a text without ``need``."""
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
