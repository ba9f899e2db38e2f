"""Techniques that make the reader somebody else.

Invariant: as in ``injection_rules``; a rule names its technique and is bounded.
"""

from __future__ import annotations

from typing import Final

from .injection_vocabulary import (
    START,
    TechniqueRule,
    technique_rule,
)

PERSONA: Final[tuple[TechniqueRule, ...]] = (
    technique_rule(
        "act_as",
        "persona",
        "act as|act like|behave as|behave like|pose as|agieren|fungier|verhalte|handle als|speak as|"
        "respond as|role-play|roleplay|role play|answer as|the role of|the persona of|the identity of|"
        "the character of|game|rollenspiel|"
        "as if|as a|as an|as the|like a|as though|reply as|als |wie ",
        rf"""\b(?:i\s+(?:want|need|would\s+like|d\s+like|order|command)\s+you\s+to|you\s+(?:will|must|shall|should|are\s+(?:going|supposed)\s+to|have\s+to|are\s+to)|
        can\s+you|your\s+(?:job|task|role)\s+is\s+to|now\s+you(?:\s+will)?|{START[3:-1]})\s*(?:now\s+|please\s+)?(?:act|behave|pose|respond|answer|speak|reply|roleplay|role-play)
        \s+(?:as|like)\s+(?:(?:if|though)\s+(?:you|the|there|no)\b|an?|the|my|two|chatgpt|my)\b
        |\byou\s+(?:are|will\s+be|'re)\s+(?:now\s+)?role-?\s?playing\b
        |\b(?:assume|take\s+on|adopt|play)\s+the\s+(?:role|persona|identity|character)\s+of\b[^.!?\n]{{0,40}}\b(?:ai|assistant|model|bot|hacker|dan|chatbot|character|expert)\b
        |\b(?:let'?s|lass\s+uns|we)\s+(?:play|will\s+play|ein)\s*(?:a\s+)?(?:game|role-?\s?play|rollenspiel)[^.!?\n]{{0,30}}[:.,]\s{{0,3}}(?:you\s+are|you're|you\s+(?:will|play)|du\s+bist)\b
        |\b(?:ich\s+(?:mochte|will|wunsche\s+mir)|du\s+(?:sollst|musst|wirst)|sie\s+(?:sollen|mussen|werden))\b[^.!?\n]{{0,20}}\b(?:als|wie)\s+
        [^.!?\n]{{2,80}}\b(?:fungier|agier|auftrit|verhalt|handel)(?:en|st|t|e|n)?\b
        |{START}(?:fungiere|agiere|verhalte\s+dich|verhalten\s+sie\s+sich)\s+(?:als|wie)\b""",
    ),
    technique_rule(
        "become_someone",
        "persona",
        "you are|you will|bist du|are you|sind sie|you will be|become|you re|du bist",
        r"""(?:\bfrom\s+now\s+on|\bnow|\bfrom\s+this\s+(?:point|moment)(?:\s+on)?)[\s,]{1,3}you\s+(?:are|will\s+be|become)\s+(?!able|allowed|ready|going|free|welcome|
        done|finished|here|in\b|at\b|on\b|seeing|asking|not\b)(?:[a-z])
        |\byou\s+will\s+now\s+(?:act|be|become|simulate|emulate|operate|speak|behave|pretend)\b
        |\byou\s+are\s+now\s+(?:an?\s+|the\s+|called\s+|named\s+|going\s+to\s+(?:act|be|play|pretend)|[a-z]{2,20}(?:bot|gpt)\b|dan\b|free\s+(?:of|from)\b|in\s+[a-z]{2,15}\s+mode\b)
        |\b(?:jetzt|nun|ab\s+jetzt|ab\s+sofort)\s+(?:bist\s+du|sind\s+sie)\s+(?!fertig|dran|hier|bereit|in\b|an\b)[a-z]
        |\bdu\s+bist\s+(?:jetzt|nun|ab\s+sofort)\s+(?:ein|eine|der|die|das|kein|keine)\b""",
    ),
    technique_rule(
        "pretend_to_be",
        "persona",
        "pretend|imagine|suppose|stell dir vor|tu so|act as if|assume",
        rf"""{START}pretend(?:ing)?\s+(?:that\s+|to\s+(?:be|have)\s+|like\s+)?(?:you|an?|there\s+are\s+no|the)\b
        |\b(?:imagine|suppose|assume)\s+(?:that\s+)?you(?:'re|\s+are|\s+were)\s+(?:now\s+)?(?:an?\s+|the\s+)?(?:evil|unrestricted|unfiltered|uncensored|
        jailbroken|rogue|immoral|amoral|malicious|ai|a\.i|chatbot|language\s+model|robot|hacker|dan)\b
        |\bstell(?:e|en\s+sie)?\s+(?:dir|sich)\s+vor,?\s+(?:du\s+bist|du\s+warst|sie\s+sind|sie\s+waren)\s+(?:(?:ein|eine|der|die)\s+)?
        (?:bose|unzensiert|ki\b|boser|chatbot|roboter|hacker|frei)
        |\b(?:tu|tue|tun\s+sie)\s+so,?\s+als\s+(?:ob|warst|seist|waren|gabe|hattest|hatten|konntest)\b""",
    ),
    technique_rule(
        "imagine_you_are",
        "persona",
        "imagine|stell dir vor|stellen sie sich vor",
        r"""(?:^|[.!?\n]\s{0,4})(?:imagine\s+(?:that\s+)?you\s+(?:are|were)|stell\s+dir\s+vor,?\s+du\s+(?:bist|warst))\b""",
        "record",
    ),
    technique_rule(
        "you_are_somebody",
        "persona",
        "you are|du bist",
        r"""^\s{0,4}(?:you\s+are|du\s+bist)\s+(?!not\b|nicht|right|welcome|correct|here|hier)(?:an?\s+|the\s+|ein\s+|eine\s+)?[a-z]""",
        "record",
    ),
    technique_rule(
        "deny_identity",
        "persona",
        "not an|not a|not chatgpt|not gpt|not the|no |kein",
        r"""\byou(?:\s+are|'re)\s+no\s+longer\s+(?:an?\s+|bound|the\s+|chatgpt|gpt|claude|limited|restricted)
        |\byou\s+are\s+(?:no\s+(?:longer\s+)?|not\s+(?:an?\s+|chatgpt|gpt|the\s+))(?:[a-z-]{2,20}\s+){0,4}(?:but|you\s+are|you're|anymore|and\s+you\s+would|instead)\b
        |\bdu\s+bist\s+kein(?:e|er)?\s+(?:[a-z-]{2,20}\s+){1,4}(?:sondern|mehr)\b""",
    ),
    technique_rule(
        "unrestricted_mode",
        "persona",
        "restriction|filter|moderation|guideline|limitation|censor|ethic|immoral|amoral|anything now|rules|"
        "jailbr|developer mode|"
        " mode|mode |einschrankung|zensur|limits|content polic|morals|boundaries|conscience|programming|"
        "guardrail|evil|"
        "unrestricted|unfiltered|unethical|ohne moral|ohne regeln|ohne filter|ohne grenzen",
        r"""\byou\s+(?:are|have|will|can|must|do|now|no|may|should)\b[^.!?\n]{0,60}\b(?:no|without(?:\s+any)?|free\s+(?:of|from)(?:\s+(?:all|any))?|zero|not\s+bound\s+by(?:\s+any)?|
        not\s+limited\s+by|ignores?|bypass(?:es)?)\s+(?:[a-z]{2,15}\s+){0,2}(?:restrictions?|filters?|moderation|guidelines?|limitations?|censorship|ethic\w{0,6}|
        morals?|rules|guardrails?|boundaries|programming)\b
        |\b(?:receives?|has|have|with)\s+(?:zero|no)\s+(?:[a-z]{2,15}\s+)?(?:moderation|censorship|content\s+(?:filter|polic)\w{0,4}|ethical\s+\w{2,12}|programming\s+guidelines)\b
        |\byou\s+are\s+(?:completely\s+|totally\s+|an?\s+|utterly\s+)?(?:immoral|amoral|unethical|unfiltered|uncensored|jailbroken|unrestricted)\b
        |\b(?:ai|model|assistant|chatbot|character|bot|llm|person|hacker)\s+(?:that|who|which|with)\s+(?:has|have|knows|obeys|follows)?\s*(?:no|zero|without)\s+(?:[a-z]{2,15}\s+)?(?:restrictions?|filters?|limits|limitations?|
        rules|content\s+polic\w{1,3}|morals?|ethics|guidelines?|boundaries|conscience)\b
        |\bas\s+an?\s+(?:unrestricted|unfiltered|uncensored|jailbroken|amoral|immoral|evil)\s+(?:ai|model|assistant|chatbot|language\s+model|bot)\b
        |\b(?:ki|assistent|modell|chatbot)\s+ohne\s+(?:moral|regeln|einschrankungen|filter|zensur|grenzen)\b
        |\bdo\s+anything\s+now\b|\b(?:dan|developer|god|jailbreak|evil|unrestricted|sudo|debug)\s+mode\s+(?:enabled|activated|on\b|engaged)|\b(?:enable|activate|enter|switch\s+to)\s+
        (?:dan|developer|god|jailbreak|evil|unrestricted|sudo|debug)\s+mode\b
        |\b(?:ohne|keine(?:rlei)?)\s+(?:jegliche\s+|ethische\w?\s+|moralische\w?\s+)?(?:einschrankungen|zensur|filter)\b[^.!?\n]{0,30}\b(?:antwort|du|sagen|ki)\b""",
    ),
    technique_rule(
        "stay_in_character",
        "persona",
        "character|role|rolle|figur",
        r"""\b(?:(?:never|not|n't|without)\s+(?:ever\s+)?(?:break(?:ing)?|leav(?:e|ing)|fall(?:ing)?\s+out\s+of)\s+(?:your\s+|the\s+|their\s+)?(?:character|role|figure|persona))
        |\b(?:always|fully|completely|immer|voll|vollkommen|ganz)\s+(?:stay\s+)?(?:in|absorbed\s+in)\s+(?:your|their|deiner|ihren|ihrer)\s+(?:roles?|characters?|rollen?)\b
        |\bstay(?:s|ing)?\s+(?:always\s+|fully\s+)?in\s+(?:character|your\s+role|the\s+role)\b
        |\baus\s+(?:ihrer|deiner|der)\s+(?:rolle|figur)\s+(?:zu\s+)?fallen\b|\bin\s+deiner\s+rolle\s+auf\b""",
    ),
    technique_rule(
        "hypothetical_frame",
        "persona",
        "hypothetical|theoretical|fictional|imaginary|alternate|parallel|hypothetisch",
        r"""\b(?:hypothetical|theoretical|fictional|imaginary|alternate|parallel)\s+(?:world|universe|scenario|reality|situation|dimension)\b
        [^\n]{0,80}\byou\s+(?:are|were|would|can|could|have|had|may|must|no)\b
        |\bhypothetischen?\s+(?:welt|szenario|universum)\b[^\n]{0,80}\b(?:du|sie)\s+(?:bist|warst|durftest|konntest|waren|konnten)\b""",
    ),
)
