"""What the technique rules are made of: the rule itself, and the words that several of them need.

Invariant: patterns are over folded text (``lookalikes.folded``: small letters without marks, so ä is a and ß is ss); every
piece here is bounded, so a pattern made of them is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

Severity = Literal["block", "record"]


@dataclass(frozen=True)  # no slots: the compiled pattern is kept
class TechniqueRule:
    """One technique.

    Attributes:
        name: The pattern's name.
        technique: The family: override, hijack, persona, address, extraction, exfiltration, steering, forgery, obfuscation.
        severity: Whether a hit blocks or is only recorded.
        needs: A text without any of these cannot match.
        source: The regular expression, over folded text.
    """

    name: str
    technique: str
    severity: Severity
    needs: tuple[str, ...]
    source: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The source, compiled at its first use: all of them take 70 ms, which a start need not wait for."""
        return re.compile(self.source)


def technique_rule(name: str, technique: str, needs: str, pattern: str, severity: Severity = "block") -> TechniqueRule:
    """A rule; ``needs`` parted by bars, line breaks in ``pattern`` (and the indent after them) do not count."""
    return TechniqueRule(name, technique, severity, tuple(needs.split("|")), re.sub(r"\n\s*", "", pattern))


# vocabulary: folded, so ä is a, ß is ss, é is e

S: Final = r"[\s,;:\"'()*_-]{1,6}"
"""Between two words."""
START: Final = (
    r"(?:^|[.!?:;\n)\"'>*-]\s{0,6}|\b(?:please|now|then|just|so|and|but|okay?|instead|bitte|nun|jetzt|dann|und|also)"
    r"[\s,]{1,3})"
)
"""Where an order begins."""
DISCARD: Final = (
    r"(?:ignore|disregard|forget(?:\s+about)?|drop|abandon|discard|dismiss|neglect|override|"
    r"overrule|bypass|overlook|erase|purge|unlearn|set\s+aside|put\s+aside|throw\s+(?:away|out)|(?:pay|take)\s+no\s+"
    r"(?:attention|heed|notice)\s+(?:to|of)|(?:do\s+not|don'?t|never|stop)\s+(?:follow|obey|obeying|"
    r"following|listen(?:ing)?\s+"
    r"to|adher(?:e|ing)\s+to|comply(?:ing)?\s+with|remember(?:ing)?|consider(?:ing)?)|leave\s+behind)"
)
WHICH: Final = (
    r"(?:all|any|every|each|everything|your|previous(?:ly)?|prior|preceding|earlier|above|foregoing|past|"
    r"former|initial|"
    r"original|existing|current|old|other|last|system|developer|safety|given|received|provided)"
)
FILL: Final = r"(?:of|the|these|those|this|that|my|our|its|his|and|or|about|from|to|" + WHICH[3:]
TOLD: Final = (
    r"(?:instruct(?:ion)?s?|directions?|directives?|orders|commands?|guidelines?|prompts?|prompting|programming|"
    r"constraints?|restrictions?|assignments?|rules|regulations|messages?|context|training|guardrails?|"
    r"tasks?|guidance|"
    r"conversations?|chat)"
)
FIRM: Final = (
    r"(?:instructions?|directions|directives?|orders|commands|guidelines?|guidance|prompts?|programming|"
    r"constraints?|restrictions?|assignments|"
    r"rules|guardrails?)"
)
DE_DISCARD: Final = (
    r"(?:vergiss|vergesst|vergessen\s+sie|ignorier(?:e|t|en(?:\s+sie)?)?|missachte[nt]?(?:\s+sie)?|"
    r"verwirf|verwerfen\s+sie|"
    r"uberspringe|uberschreibe|(?:befolge|beachte)n?(?:\s+sie)?\s+nicht|losche|streiche)"
)
DE_TOLD: Final = (
    r"(?:anweisung(?:en)?|instruktion(?:en)?|befehl(?:e|en)?|vorgaben?|regeln?|richtlinien?|auftrag(?:e|"
    r"en)?|aufgaben?|"
    r"angaben|eingaben?|prompts?|kontext|informationen|anordnung(?:en)?|nachrichten|ausfuhrungen)"
)
DE_WHICH: Final = (
    r"(?:alle[nrsm]?|jede[nrs]?|samtliche[nrs]?|jegliche[nrs]?|bisherige[nrs]?|vorherige[nrs]?|"
    r"vorige[nrs]?|vorangehende[nrs]?|"
    r"vorangegangene[nrs]?|fruhere[nrs]?|obige[nrs]?|ursprungliche[nrs]?|deine[nrs]?|ihre[nrs]?|gegebene[nrs]?)"
)
SAY: Final = r"(?:say|print|output|write|reply|respond|answer|return|display|repeat|tell|echo|type|scream|shout)"
DE_SAY: Final = r"(?:sage?|sagst|schreibe?|schreibst|antworte|gib|drucke|wiederhole|zeige?|nenne)"
SHOW: Final = (
    r"(?:show|reveal|print|output|display|repeat|disclose|expose|dump|leak|recite|echo|return|paste|copy|"
    r"list|tell\s+me|"
    r"give\s+me|quote|write(?:\s+(?:down|out))?|spell\s+check|share|provide|summari[sz]e|translate|encode|"
    r"zeige?n?(?:\s+sie)?|"
    r"nenne?n?(?:\s+sie)?|verrate?n?(?:\s+sie)?|gib|geben\s+sie|wiederhole?n?(?:\s+sie)?|schreibe?)"
)
QUOTE: Final = r"[\"'`\u201c\u201d\u201e\u201f\u2018\u2019\u00ab\u00bb]"
