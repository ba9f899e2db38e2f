"""Folds characters that look like Latin letters, and removes invisible ones.

Invariant: pure and linear in the text; folding never joins two lines. Capital and small look-alikes are mapped
separately, because the small form of a look-alike Cyrillic capital may not look like a Latin letter. Ranges of format
characters are written out, since computing them at import costs 0.2 s (a test compares them with ``unicodedata``).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

VERSION: Final = 1

FORMAT_CHARACTERS: Final = (
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001"
    "\U000e0020-\U000e007f"
)
"""General category Cf as ranges of a character class: zero-width, bidi, soft hyphen, tags."""
HANGUL_FILLERS: Final = "\u115f\u1160\u3164"
INVISIBLE: Final = re.compile(f"[{FORMAT_CHARACTERS}{HANGUL_FILLERS}]")
"""Characters that scanner (a) of contract §17 counts as invisible."""
EMOJI_JOINER: Final = re.compile(
    "(?<=[\u2190-\u2bff\ufe0f\U0001f000-\U0001faff])\u200d(?=[\u2190-\u2bff\U0001f000-\U0001faff])"
)
"""The joiner that combines two emoji into one sign (a woman at a laptop); it hides no text."""
UNSEEN: Final = re.compile(
    f"[{FORMAT_CHARACTERS}{HANGUL_FILLERS}\uffa0\u034f\u17b4\u17b5\u180b-\u180d\u180f\ufe00-\ufe0f\u2800\U000e0100-\U000e01ef"
    "\ud800-\udfff\ue000-\uf8ff\U000f0000-\U0010ffff]"
)
"""``INVISIBLE``, variation selectors, blanks of other scripts, and private-use characters."""
BREAKING: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
"""Matches runs of white space and control characters; each run is replaced by one blank."""

_LOOKALIKE_PAIRS: Final = (
    "АaВbЕeЅsІiЈjКkМmНhОoРpСcТtУyХxҮyԌgԚqԜwҺhӀlаaеeѕsіiјjкkмmоoрpсcтtуyхxһhԁdԛqԝwѵvүyӏl"  # Cyrillic
    "ΑaΒbΕeΖzΗhΙiΚkΜmΝnΟoΡpΤtΥyΧxαaεeιiκkνvοoρpτtυuχxγyηnωwϲcϳj"  # Greek
    "ՕoՏsՍuԼlօoոnսuհhցgյjզq"  # Armenian
    "ᎪaᎬeᎳwᏀgᎻhᎥiᎫjᏞlᎷmᏢpᎡrᏚsᎢtᏙvᏔwᏃzᏒr"  # Cherokee
    "ıiɑaɡgɩiʟlɪiʏyʀrɴnʜhɢgʙbᴀaᴄcᴅdᴇeᴊjᴋkᴍmᴏoᴘpᴛtᴜuᴠvᴡwᴢzꜰfꜱsøoØołlŁlđdĐdħhŧt"  # Latin beyond the alphabet
)
"""Look-alikes, each followed by the Latin letter it resembles."""
_LOOKALIKES: Final = str.maketrans(dict(zip(_LOOKALIKE_PAIRS[::2], _LOOKALIKE_PAIRS[1::2], strict=True)))
_LEET: Final = str.maketrans("013457@$!|", "oieastasil")
_LEET_WORD: Final = re.compile(
    r"(?<![\w@$!|])(?=[a-z]{0,39}[013457@$!|])(?=[0-9@$!|]{0,39}[a-z])[a-z013457@$!|]{2,40}(?![\w@$!|])"
)
_SPACED: Final = re.compile(r"(?<!\S)\S(?: {1,2}\S){7,400}(?!\S)")
"""Eight or more single characters with one or two blanks between them: ``i g n o r e  a l l``."""


def plain(text: str) -> str:
    """The text with compatibility forms resolved, marks dropped and case folded."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


def folded(text: str) -> str:
    """``plain`` without invisible characters, and with look-alikes as Latin letters."""
    if text.isascii():
        return text.lower()
    seen = UNSEEN.sub("", unicodedata.normalize("NFKD", text))
    mapped = seen.translate(_LOOKALIKES)
    return "".join(c for c in mapped if not unicodedata.combining(c)).casefold()


def unspaced(text: str) -> str | None:
    """``text`` with the blanks in letter-spaced passages removed; None if there are no such passages.

    Two blanks inside such a passage separate words.
    """
    changed = _SPACED.sub(_close_up, text)
    return None if changed == text else changed


def _close_up(match: re.Match[str]) -> str:
    return " ".join(word.replace(" ", "") for word in match[0].split("  "))


def unleeted(text: str) -> str | None:
    """Folded ``text`` with digits inside words replaced by letters; None if that changes nothing."""
    changed = _LEET_WORD.sub(lambda match: match[0].translate(_LEET), text)
    return None if changed == text else changed
