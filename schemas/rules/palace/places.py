"""Ids and places of drawers (contract of the palace, §1 and §11)."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from ...events.drawers import PLACE_CHARS

DIARY: Final = "diary"
"""Wing of all diaries, room of an entry without a topic, and type of their drawers."""
_ID_PLACE_CHARS: Final = 120
_NOT_IN_ID: Final = re.compile(r"[^\w-]+")


def drawer_id(wing: str, room: str, content: str) -> str:
    """``drawer_<wing>_<room>_<16 hex>``: the hex is that of the first eight bytes of the content's SHA-256."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return f"drawer_{_in_id(wing)}_{_in_id(room)}_{digest}"


def agent_slug(name: str) -> str:
    """The hall of an agent's diary: trimmed, lower-case, blanks to ``_``, without apostrophes, at most ``PLACE_CHARS``.

    Some letters become several in lower case, so that a name as long as it may be can give a longer one.
    """
    return re.sub(r"\s+", "_", re.sub(r"['’]", "", name.strip().lower()))[:PLACE_CHARS]


def _in_id(place: str) -> str:
    return _NOT_IN_ID.sub("_", place)[:_ID_PLACE_CHARS]
