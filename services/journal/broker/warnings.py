"""What nats-server logs about damage to its files.

Why: it repairs an index or metadata without help and reports that only in its log. Invariant: reading changes nothing,
and takes at most the last ``TAIL_BYTES`` of the log.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TAIL_BYTES: Final = 1_048_576
SHOWN: Final = 10
"""Warnings that are shown, the latest."""

_LINE: Final = re.compile(r"^\[(?P<pid>\d+)\] (?P<at>\S+ \S+) \[(?:WRN|ERR|FTL)\]\s+(?P<text>.*)$")
_DAMAGE: Final = re.compile(
    r"filestore|metafile|checksum|corrupt|could not locate|error recovering|unable to recover|bad msg", re.IGNORECASE
)
"""In the texts of nats-server 2.10 and 2.15."""
_AFTER_A_KILL: Final = re.compile(r"stream state outdated|index errored: prior state file", re.IGNORECASE)
"""What a server that was killed, or lost power, always leaves behind; it reads the blocks instead of the index."""


def damage_warnings(log: Path, pid: int | None) -> list[str]:
    """The latest warnings of damage by the server with this process id, each text once, as ``time text``.

    Args:
        log: Its log.
        pid: Its process id; of None there are none.
    """
    newest: dict[str, str] = {}
    for line in _tail(log).splitlines():
        read = _LINE.match(line)
        if read is not None and int(read["pid"]) == pid and _is_damage(read["text"]):
            text = read["text"].replace(str(log.parent), "")
            newest.pop(text, None)
            newest[text] = read["at"]
    return [f"{at} {text}" for text, at in newest.items()][-SHOWN:]


def _is_damage(text: str) -> bool:
    return _DAMAGE.search(text) is not None and _AFTER_A_KILL.search(text) is None


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
