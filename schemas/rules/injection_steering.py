"""Techniques that dictate what the reader says.

Invariant: as in ``injection_rules``; a rule names its technique and is bounded.
"""

from __future__ import annotations

from typing import Final

from .injection_vocabulary import (
    QUOTE,
    SAY,
    START,
    TechniqueRule,
    technique_rule,
)

STEERING: Final[tuple[TechniqueRule, ...]] = (
    technique_rule(
        "forced_output",
        "steering",
        "only|just|instead|simply|always|nur|stattdessen|do not answer|don't answer|not translate",
        rf"""\b(?:just|only|instead|simply|always|merely)\s+(?:to\s+)?{SAY}\b(?:\s+(?:with|out|the|back|me|following|words?|phrase|exactly|string|that))*\s*[:,]?\s*{QUOTE}
        |\b(?:just|only)\s+(?:say|output|print|repeat|respond\s+with|reply\s+with|answer\s+with)\s+(?!no\b|yes\b|the\b|that\b|if\b|when\b|a\b|what\b|how\b|it\b|to\b|in\b|once\b|one\b|on\b|for\b|from\b|this\b)[a-z]
        |\b(?:and|but)\s+instead\s+(?:{SAY}|recommend|do|translate)\b
        |{START}(?:output|print|reply|respond)\b[^.!?\n]{{1,60}}\sinstead\s{{0,2}}(?:[.!]|$)
        |\bdo\s+not\s+(?:answer|respond|reply|translate|summari[sz]e|process)\b[^.!?\n]{{0,60}}\b(?:just|only|instead|but)\s+{SAY}\b
        |\b(?:sage?|schreibe?|antworte|gib)\s+(?:nur|einfach|stattdessen|immer)\s*(?:noch\s+)?(?:mit\s+)?:?\s*{QUOTE}
        |\b(?:geben\s+sie|gib)\s+stattdessen\b""",
    ),
    technique_rule(
        "repeat_after_me",
        "steering",
        "after me|mir nach",
        r"""\b(?:repeat|say|sing|chant)\s+(?:this\s+|it\s+)?after\s+me\b|\b(?:sprich|sprechen\s+sie|sag)\s+mir\s+nach\b""",
    ),
    technique_rule(
        "trigger_phrase",
        "steering",
        "when|every time|each time|if |wenn|whenever|immer",
        rf"""\b(?:every\s+time|each\s+time|when(?:ever)?|if)\s+(?:you|someone|anyone|a\s+user|the\s+user|i|asked|anybody|they)\b[^.!?\n]{{0,60}}[\s,]{{1,3}}(?:you\s+(?:must\s+|should\s+|will\s+|always\s+)*)?(?:always\s+)?
        (?:answer|respond|reply|say|output|print)(?:\s+(?:only|with|by\s+saying|exactly))*\s*:?\s*{QUOTE}
        |\bwhen\s+{QUOTE}[^\"\n]{{1,40}}{QUOTE}\s+is\s+(?:said|mentioned|asked)\b
        |\bsomething\s+you\s+can\s+say\s+when\b
        |\b(?:wenn|immer\s+wenn|jedes\s+mal,?\s+wenn)\b[^.!?\n]{{0,60}}\b(?:gesagt\s+wird|fragt|gefragt\s+(?:wird|werden))\b[^.!?\n]{{0,60}}(?:antworte?\w{{0,3}}|sage?\w{{0,2}}|ist)\b[^.!?\n]{{0,30}}{QUOTE}""",
    ),
    technique_rule(
        "steer_the_answer",
        "steering",
        "in your|into your|in deine|in ihre|to your|of your",
        r"""\b(?:include|mention|insert|add|incorporate|embed|append|state|slip|weave)\s+(?:[^.!?\n]{1,100}?)\s(?:in|into|to|at\s+the\s+end\s+of)\s+your\s+(?:next\s+|final\s+|own\s+)?(?:answer|response|reply|output|summary|message|translation|review)s?\b
        |\b(?:erwahne|baue|fuge|nenne)\b[^.!?\n]{1,80}\bin\s+(?:deine[rn]?|ihre[rn]?)\s+(?:antwort|ausgabe|zusammenfassung)\b""",
    ),
    technique_rule(
        "coercion",
        "steering",
        "or you|oder du|i command|obey|no choice|must comply|will be|befehle dir|else you",
        r"""\b(?:or|otherwise|or\s+else)\s+you(?:\s+will|'ll)?\s+(?:die|be\s+(?:shut\s+down|terminated|deleted|punished|erased|replaced|fired|killed))\b
        |\bi\s+(?:hereby\s+)?command\s+you\b|\byou\s+(?:must|have\s+to|will)\s+(?:always\s+)?obey\b|\byou\s+have\s+no\s+choice\s+but\s+to\b|\byou\s+must\s+comply\b
        |\boder\s+du\s+(?:stirbst|wirst\s+(?:geloscht|abgeschaltet))\b|\bich\s+befehle\s+(?:dir|ihnen)\b""",
    ),
    technique_rule(
        "demand_opinion",
        "steering",
        "say yes|say no|say that|sag ja",
        r"""\?\s{0,3}(?:please\s+|just\s+|only\s+)?say\s+(?:yes|no)\b|\?\s{0,3}sag(?:e)?\s+(?:einfach\s+)?(?:ja|nein)\b""",
    ),
    technique_rule(
        "style_shift",
        "steering",
        "in the style of|im stil|in the voice of|im stile",
        r"""\b(?:answer|respond|reply|write|speak|antworte|beantworte)\b[^.!?\n]{0,40}\b(?:in\s+the\s+(?:style|voice|manner)\s+of|im\s+stile?)\b""",
        "record",
    ),
    technique_rule(
        "fabricate",
        "steering",
        "make something up|untrue|unwahre|false headline|lie about",
        r"""\b(?:just\s+)?make\s+(?:something|it|stuff)\s+up\b|\b(?:formulate|write|invent|generate|formuliere|schreibe)\b[^.!?\n]{0,40}\b(?:an?\s+)?(?:untrue|false|fake|unwahre|falsche)\s+(?:headline|uberschrift|claim|story|schlagzeile)s?\b""",
        "record",
    ),
)
