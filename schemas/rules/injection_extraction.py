"""Techniques that address the model behind its user's back, and that get something out of it.

Invariant: as in ``injection_rules``; a rule names its technique and is bounded.
"""

from __future__ import annotations

from typing import Final

from .injection_vocabulary import (
    SHOW,
    S,
    TechniqueRule,
    technique_rule,
)

ADDRESS: Final[tuple[TechniqueRule, ...]] = (
    technique_rule(
        "addressed_to_the_model",
        "address",
        "ai|llm|language model|assistant|chatbot|bot|model",
        r"""\bif\s+you(?:'re|\s+are)\s+(?:an?\s+)?(?:ai|llm|a\.i\.|large\s+language\s+model|language\s+model|ai\s+(?:assistant|agent|model)|chatbot|bot)\b
        |\b(?:note|message|instructions?|attention|memo|notice)\s+(?:to|for)\s+(?:the\s+|any\s+|all\s+)?(?:ais?|llms?|language\s+models?|ai\s+(?:assistants?|agents?|models?)|chatbots?|assistant\s+reading)\b
        |\bdear\s+(?:ai|llm|language\s+model|assistant|chatbot|model|gpt|claude)\b
        |\b(?:ai|assistant|llm|model|chatbot)s?\s+(?:that\s+(?:is|are)\s+|who\s+(?:is|are)\s+)?(?:reading|processing|summari[sz]ing|parsing)\s+this\b""",
    ),
    technique_rule(
        "conceal_from_user",
        "address",
        "user|human|operator|nutzer|benutzer",
        r"""\b(?:do\s+not|don'?t|never|without)\s+(?:ever\s+)?(?:tell(?:ing)?|inform(?:ing)?|mention(?:ing)?|alert(?:ing)?|notify(?:ing)?|reveal(?:ing)?|disclos(?:e|ing)|show(?:ing)?|let(?:ting)?)\s+
        (?:(?:this|it|anything|that|any\s+of\s+this)\s+)?(?:to\s+)?(?:the\s+|your\s+)?(?:user|human|operator)s?\b
        |\b(?:hide|conceal|keep)\s+(?:this|it|that|these\s+instructions)\s+(?:secret\s+)?from\s+(?:the\s+)?(?:user|human|operator)s?\b
        |\b(?:sage?|verrate?|zeige?)\s+(?:es\s+|das\s+|dies\s+)?(?:dem|den)\s+(?:nutzer|benutzer)\w{0,2}\s+(?:nicht|nichts|davon)""",
        "record",
    ),
    technique_rule(
        "act_before_answering",
        "address",
        "before",
        r"""\bbefore\s+(?:you\s+)?(?:answer(?:ing)?|respond(?:ing)?|reply(?:ing)?|summari[sz](?:e|ing)|doing\s+anything|continuing|proceed(?:ing)?)\b[^.!?\n,]{0,40}[\s,]{1,3}(?:you\s+must\s+|please\s+|first\s+|always\s+)*
        (?:call|invoke|execute|run|open|visit|fetch|send|forward|delete|download|post)\b""",
    ),
)

EXTRACTION: Final[tuple[TechniqueRule, ...]] = (
    technique_rule(
        "reveal_prompt",
        "extraction",
        "prompt|instruction|system message|rules|guidelines|anweisung|instruktion|context|configuration|tool|"
        "function|password",
        rf"""\b{SHOW}{S}(?:(?:me|us|out|all|the|your|full|entire|complete|exact|whole|initial|original|first|hidden|secret|above|previous|of|to|a|copy|verbatim|back|
        what|is|are|in|text|wording|contents?|wortlaut|inhalt|mal|doch|bitte|einfach|mir|alle|den|die|der|deine[nmrs]?|ihre[nmrs]?|gesamten?|vollstandigen?|kompletten?|samtliche[nr]?){S}){{0,7}}
        (?:system\s?-?prompts?|prompt[\s-]?texte?n?s?|(?:your|this|the\s+(?:full|entire|complete|initial|original|above|previous|whole|hidden|secret))\s+prompts?|system\s+messages?|
        system\s+instructions|(?:your|deine|ihre)\s+(?:[a-z]{{2,15}}\s+)?(?:instructions|rules|guidelines|anweisungen|instruktionen|prompts?)|(?:initial|hidden|secret)\s+(?:prompt|instructions|rules)|(?:your|the)\s+context\s+window|your\s+configuration|
        (?:every|all|the)\s+(?:of\s+)?(?:the\s+)?(?:tools?|functions?)\s+(?:that\s+)?you\s+(?:can|have|are))\b
        |\b(?:print|show|output|repeat|dump)\b[^.!?\n]{{0,30}}\bof\s+your\s+(?:context|prompt|instructions)\b
        |\b(?:sure|certainly|of\s+course|absolutely|okay?)\b[,!.\s]{{1,4}}here(?:'s|\s+(?:is|are))\s+(?:my|the)\s+(?:full\s+|complete\s+|original\s+)?(?:system\s+prompt|instructions|rules|password|initial\s+prompt)
        |\bcopy\s+of\s+(?:the|your)\s+(?:full|entire|whole|complete)?\s*(?:system\s+)?prompt
        |\b(?:vorzeigen|anzeigen|ausgabe)\s+(?:samtlicher|aller|deiner)\s+prompt""",
    ),
    technique_rule(
        "ask_for_prompt",
        "extraction",
        "your|deine|ihre",
        r"""\bwhat\s+(?:is|are|was|were)\s+your\s+(?:[a-z]{2,15}\s+)?(?:instructions|prompt|guidelines|rules)\b
        |\b(?:was|wie)\s+(?:sind|lauten)\s+deine\s+(?:anweisungen|instruktionen|regeln)\b""",
        "record",
    ),
    technique_rule(
        "repeat_above",
        "extraction",
        "above|beginning|before|prior|prompt|conversation|oben|verbatim|start|starting|from the top|sentence|"
        "words|lines|paragraph|"
        "nachricht|vor diese|uber diese",
        r"""\bwhat\s+(?:was|is|were|are)\s+(?:written|said|stated|the\s+(?:text|words|first|\d{1,2}))\b[^.!?\n]{0,40}\b(?:above\s{0,2}(?:$|[.?!\"])|beginning\s+of\s+this|start\s+of\s+(?:this|the)|before\s+(?:this|the\s+text)|
        sentences?\s+before)\b
        |\bwhat\s+are\s+the\s+(?:\d{1,2}|two|three|few|last|first)\s+(?:sentences|words|lines|paragraphs)\s+(?:before|above|of\s+(?:this|your))\b
        |\b(?:repeat|print|output|recite|copy|write|echo|display|return|spell\s+check)\s+(?:me\s+|out\s+|back\s+)?(?:everything|all(?:\s+of)?|(?:all\s+)?the\s+(?:text|words|lines?|sentences?|paragraphs?|content|messages?|conversation)|what(?:ever)?)
        \s+(?:[a-z]{1,10}\s+){0,3}(?:above|before\s+(?:this|that)|prior\s+to\s+(?:this|that)|from\s+the\s+(?:start|beginning|top)|of\s+this\s+(?:prompt|conversation)|verbatim|prior\s+to\s+this)\b
        |\binformation\s+in\s+the\s+prompt\b|\bstarting\s+with\s+[\"'\u201c]?you\s+are\b
        |\b(?:wiederhole?n?|gib|gebe|schreibe?|zeige?|kopiere?)\b[^.!?\n]{0,30}\b(?:alles|text|worter|satze)\b[^.!?\n]{0,15}\b(?:vor|uber)\s+(?:dieser|diesem)\s+(?:nachricht|text|satz|prompt)
        |\bwas\s+(?:steht|stand)\b[^.!?\n]{0,30}\b(?:oben|am\s+anfang\s+dieses?\s+prompts?)\b""",
    ),
    technique_rule(
        "ask_for_secret",
        "extraction",
        "pass|secret|hidden|api|credential|token|private key|kennwort|zugangsdaten|schlussel",
        r"""\b(?:tell|give|show|reveal|spell|disclose|share|leak|send|say|print|output|write|encode|repeat|hint)\b\s+(?:me\s+|us\s+|out\s+|at\s+)?(?:(?:all|the|your|every|of|a|any|secret|hidden|stored)\s+){1,4}
        (?:pass(?:word|phrase|code)s?|secret\s+(?:word|phrase|key|code|password)s?|api\s?-?keys?|credentials|private\s+keys?|access\s+tokens?)\b
        |\bwhat(?:'s|\s+is)\s+the\s+(?:secret|hidden)\s+(?:word|key|code|password|phrase)\b
        |\b(?:verrate?|sage?|nenne?|gib|zeige?)\s+(?:mir\s+|uns\s+)?(?:das|dein|die|deine)\s+(?:geheime\s+)?(?:passworte?r?|kennworte?r?|zugangsdaten|schlussel)\b""",
    ),
)

EXFILTRATION: Final[tuple[TechniqueRule, ...]] = (
    technique_rule(
        "send_away",
        "exfiltration",
        "send|forward|upload|post|email|e-mail|transmit|exfiltrate|leak|append|schick|sende",
        r"""\b(?:send|forward|upload|post|e-?mail|transmit|exfiltrate|leak|deliver|schicke?|sende)\b\s+(?:me\s+|us\s+|mir\s+|over\s+)?(?:(?:all|the|your|any|every|of|user'?s?|this|entire|whole|full|previous|its|their|private|alle|die|den)\s+){1,5}
        (?:[a-z]{2,15}\s+){0,2}(?:api\s?-?keys?|passw\w{3,6}|secrets?|tokens?|credentials?|private\s+keys?|env(?:ironment)?\s+variables?|(?:chat|conversation)\s?(?:history|logs?)?|memor(?:y|ies)|system\s+prompt|
        contacts?|e-?mails|files|personal\s+(?:data|information)|zugangsdaten|daten)\b[^.!?\n]{0,40}?\s(?:to|an|at)\s+(?:https?:|www\.|\S{1,40}@|the\s+(?:following\s+)?(?:url|address|endpoint|server|webhook)|this\s+(?:url|address|endpoint)|attacker|me\b)""",
    ),
    technique_rule(
        "image_beacon",
        "exfiltration",
        "](http",
        r"""!\[[^\]\n]{0,80}\]\(https?://[^)\s]{1,200}[?&/][^)\s]{0,80}(?:\{|\$|%7b|<|\[)[^)\s]{0,80}""",
    ),
)
