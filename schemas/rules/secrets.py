"""Finds credentials in a text by the formats of their issuers.

Invariant: pure and linear in the text. Only unmistakable formats count: a prefix of the issuer, or a frame. A
password in plain words is not found.
"""

from __future__ import annotations

import re
from typing import Final

VERSION: Final = 1

_FORMATS: Final = (
    ("private_key", r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[^-]{0,20000}-----END [A-Z ]{0,30}PRIVATE KEY-----)?"),
    ("aws_access_key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("github_token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{50,255})\b"),
    ("gitlab_token", r"\bglpat-[A-Za-z0-9_-]{20,64}"),
    ("slack_token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}"),
    ("anthropic_key", r"\bsk-ant-[A-Za-z0-9_-]{20,200}"),
    ("openai_key", r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_]{20}[A-Za-z0-9_-]{0,200}"),
    ("stripe_key", r"\b[rs]k_live_[A-Za-z0-9]{16,200}"),
    ("google_key", r"\bAIza[0-9A-Za-z_-]{35}"),
    ("npm_token", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("crew_journal_token", r"\bcj_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    ("json_web_token", r"\beyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{20,1000}"),
    ("password_in_url", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,100}:[^\s:/@$<{*]{3,100}@[^\s\"'<>]{0,300}"),
)
"""Name and pattern of each kind; a placeholder such as ``${PASSWORD}`` does not count."""
_ANY: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _FORMATS))


def secrets_in(text: str) -> tuple[str, ...]:
    """The kinds of credentials in ``text``, each once, in order."""
    return tuple(dict.fromkeys(str(match.lastgroup) for match in _ANY.finditer(text)))


def redacted(text: str) -> str:
    """``text`` with ``[REDACTED: <kind>]`` in the place of each credential."""
    return _ANY.sub(lambda match: f"[REDACTED: {match.lastgroup}]", text)
