"""Keeps texts that the injection scanners refused, for the operators of the machine (contract §14).

Invariant: a text is in a file of mode 0600 below the data directory and nowhere else: not in the journal, from which views,
recall and prompts are made.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from ....schemas.rules.documents import sha256_of
from ....schemas.timestamps import format_ts
from ...data_dir import write_private

QUARANTINE_FOLDER: Final = "quarantine"


class Quarantine:
    """The folder ``quarantine`` of a data directory.

    Args:
        data_dir: The data directory.
        clock: The time now, UTC.
    """

    def __init__(self, data_dir: Path, clock: Callable[[], datetime]) -> None:
        self._folder = data_dir / QUARANTINE_FOLDER
        self._clock = clock

    def keep(self, text: str, about: dict[str, str]) -> Path:
        """Write ``<sha256>.md``: the time, ``about`` and the hash as a header, then the text; blocking.

        The same text has one file, whose header is that of the last refusal.

        Raises:
            OSError: If it cannot be written.
        """
        sha256 = sha256_of(text)
        header = {"time": format_ts(self._clock()), **about, "sha256": sha256}
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{sha256}.md"
        write_private(path, "\n".join(["---", *(f"{name}: {value}" for name, value in header.items()), "---", text]))
        return path
