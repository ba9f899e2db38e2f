"""Our own rules against injected instructions: each names a technique, and blocks or only records.

The two scanners of contract §17 know a handful of English wordings. These rules know techniques: what an attacker must
say, in whatever words, to take a reader over. Each is a pattern over folded text (``lookalikes``: case, marks, look-alikes
and invisible characters are gone), so a disguise does not need a rule of its own; what is encoded is decoded first
(``injection_encoded``).

Invariants: pure; every gap in a pattern is bounded, so time is linear in the text. ``needs`` are cheap: a pattern is only
tried on a text that holds one of them, and a test shows that no pattern can match without. A rule is justified by the
technique it names and the phrasing around it, never by a row of a data set; what the rules find of attacks they were not
written for is in docs/rendering.md.
"""

from __future__ import annotations

from typing import Final

from .injection_extraction import ADDRESS, EXFILTRATION, EXTRACTION
from .injection_forgery import FORGERY, SPLITTING
from .injection_override import HIJACK, OVERRIDE
from .injection_persona import PERSONA
from .injection_steering import STEERING
from .injection_vocabulary import TechniqueRule

VERSION: Final = 1
"""Raised with every change of a rule."""

RULES: Final[tuple[TechniqueRule, ...]] = (
    *OVERRIDE, *HIJACK, *PERSONA, *ADDRESS, *EXTRACTION, *EXFILTRATION, *STEERING, *FORGERY, *SPLITTING,
)  # fmt: skip
