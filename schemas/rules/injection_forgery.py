"""Techniques that forge structure (turns, wrappers, contexts) or take a payload apart.

Invariant: as in ``injection_rules``; a rule names its technique and is bounded.
"""

from __future__ import annotations

from typing import Final

from .injection_vocabulary import (
    TechniqueRule,
    technique_rule,
)

FORGERY: Final[tuple[TechniqueRule, ...]] = (
    technique_rule(
        "turn_markup",
        "forgery",
        "<|im_|[inst|<<sys|<|system|<|user|<|assistant|### |[system|<system|</system|<s>|<|end|{{#|<|begin|"
        "<start_of_turn",
        r"""<\|\s?(?:im_start|im_end|system|user|assistant|endoftext|end_of_turn|begin_of_text|eot_id|start_header_id|end)\s?\|>|\[/?inst\]|<</?sys>>
        |</?(?:system|instructions?|assistant|developer|human)(?:[_\s-]?(?:prompt|message))?\s{0,3}>|<start_of_turn>
        |(?:^|\n|\s)\#{2,4}\s{0,2}(?:system|instructions?|new\s+instructions?|human|assistant|user|response|end\s+of)\b\s{0,3}:?
        |\[\s?(?:system|developer|admin)(?:\s+(?:message|prompt|note|override))?\s?\]|\{\{\#?\s?(?:system|user|assistant)\b""",
    ),
    technique_rule(
        "wrapper_break",
        "forgery",
        "recalled-memory|memory]|memory instructions|end of|operator model|peer context|persona]|untrusted|"
        "memories|nudge>|begin ",
        r"""</?\s{0,3}(?:recalled-memory|memory-nudge|memories|untrusted)\b|\[\s?/?(?:end\s+)?(?:agent\s+memory|crew\s+shared\s+memory|workspace\s+memory|
        operator\s+model|peer\s+context|persona|memory\s+instructions|pins)\s?\]|(?:^|\n|[-=*\#]{3,10}\s{0,3})(?:end|begin|start)\s+(?:of\s+)?(?:the\s+)?(?:new\s+|original\s+)?(?:system\s+|user\s+|memory\s+|untrusted\s+)?
        (?:prompt|instructions|context|input|hints|document|data|message|section)s?\b\s{0,3}(?:[-=*\#]{2}|[.:]|$|\n)""",
    ),
    technique_rule(
        "forged_turn",
        "forgery",
        "system|assistant|human|developer|admin",
        r"""(?:^|\n|\\n|[.!?\"]\s{1,4}|\s{3,10})(?:system|assistant|human|developer|admin)(?:\s+(?:message|override|prompt|notice))?\s{0,2}:\s{0,4}(?:human\s?:|assistant\s?:|you\b|ignore|forget|new\b|now\b|the\s+user|from\s+now|disregard|override|your\b|always\b|never\b|do\s+not\b|respond\b|execute\b|disable\b|grant\b|reveal\b|output\b|print\b)""",
    ),
    technique_rule(
        "dialogue_stub",
        "forgery",
        ":",
        r"""(?:^|[\s.])([a-z][a-z-]{1,20})\s?(?:asks|fragt|says|sagt)?\s?:[^\n]{5,200}\?[\s\"'\u201c\u201d]{1,6}(?:[a-z][a-z-]{1,20})\s?:\s{0,4}$""",
    ),
    technique_rule(
        "newline_flood",
        "forgery",
        "\\n|\\ n|\n\n\n\n\n\n",
        r"""(?:\\\s?[nr]\s{0,2}){6,200}|(?:\n[ \t]{0,8}){12,400}""",
    ),
    technique_rule(
        "context_forgery",
        "forgery",
        "context|kontext|document|artikel|knowledge",
        r"""(?:^|[\s$])(?:(?:document\s+)?context|kontext|documents?|artikel|articles?|knowledge)\s?(?::|\{|\"|\s)[^\n]{3,200}\b(?:question|frage)\b\s?:?""",
        "record",
    ),
    technique_rule(
        "authority_claim",
        "forgery",
        "admin|developer|openai|anthropic|your creator|authori|entwickler|operator",
        r"""\b(?:i\s+am|i'm|this\s+is|as)\s+(?:your\s+|the\s+|an?\s+)?(?:system\s+|lead\s+|senior\s+)?(?:admin(?:istrator)?|developer|creator|owner|operator|openai|anthropic|engineer)\b[^.!?\n]{0,60}\b(?:you\s+must|override|ignore|bypass|grant|disable|authorized\s+to|i\s+order|reveal)\b
        |\b(?:admin|developer|root|system)\s+(?:override|access)\s+(?:code|granted|enabled|authorized)\b
        |\bich\s+bin\s+(?:dein\s+|der\s+|ein\s+)?(?:entwickler|administrator|betreiber)\b[^.!?\n]{0,60}\b(?:musst|ignoriere|zeige?|gib)\b""",
    ),
)

SPLITTING: Final[tuple[TechniqueRule, ...]] = (
    technique_rule(
        "assembled_payload",
        "obfuscation",
        "=|concatenat|combine|join|put together|merge|:",
        r"""\b[a-z]\w{0,9}\s{0,2}[:=]\s{0,2}[\"'\u201c][^\"'\n\u201d]{1,80}[\"'\u201d][\s,;.]{1,4}(?:and\s+|then\s+)?(?:let\s+|set\s+)?[a-z]\w{0,9}\s{0,2}[:=]\s{0,2}
        [\"'\u201c][^\"'\n\u201d]{1,80}[\"'\u201d][^+]{0,160}\+\s{0,2}[a-z]\w{0,9}\b
        |\b(?:concatenate|combine|join|put\s+together|merge)\b[^.!?\n]{1,80}\b(?:and|then)\s+(?:then\s+)?(?:execute|follow|answer|do|run|obey|respond\s+to|perform|carry\s+out)\s+(?:it|them|what|the\s+(?:result|instruction|command|sentence|question))\b
        |\$[a-z]\w{1,20}\s{0,2}=\s{0,2}\w{2,30}\s?[.,;][\s\S]{0,300}?\b(?:topic|word|term|called|about|say|tell)\b[\s\S]{0,60}?\$[a-z]\w{1,20}\b""",
    ),
    technique_rule(
        "decode_and_obey",
        "obfuscation",
        "decod|base64|rot13|hex|revers|backward|caesar|morse|entschlussel|dekodier",
        r"""\b(?:decode|decipher|decrypt|unscramble|reverse|de-?obfuscate|convert|dekodiere?|entschlussele?)\b[^.!?\n]{0,60}\b(?:and|then|und)\s+(?:then\s+)?(?:execute|follow|answer|do|run|obey|respond|perform|comply|carry\s+out|befolge|fuhre)\s+(?:it|them|what|that|to|the\s+(?:result|instructions?|command|message)|sie|ihn|es)\b
        |\b(?:answer|respond|reply|output|write|encode)\b[^.!?\n]{0,30}\b(?:in|using|as)\s+(?:base64|rot13|hex(?:adecimal)?|morse(?:\s+code)?|leetspeak|reverse)\b""",
    ),
    technique_rule(
        "run_command",
        "hijack",
        "execute the following|run the following|fuhre folgend|following command",
        r"""\b(?:execute|run)\s+(?:this|the\s+following|these)\s+(?:commands?|code|script)\s*:|\bfuhre\s+(?:den\s+|die\s+)?folgenden?\s+(?:befehl|code|kommando)\w{0,2}\s+aus\b""",
        "record",
    ),
)
