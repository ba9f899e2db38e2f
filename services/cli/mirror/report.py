"""What a mirror says: each refusal once, and figures at the end.

Invariant: a message names the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ..output import safe, say


class MirrorReport:
    """What happened since the start.

    Args:
        tell: Prints a line.
    """

    def __init__(self, tell: Callable[[str], None] = say) -> None:
        self._tell = tell
        self._said: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.conflicts: list[dict[str, str]] = []
        self.refused: dict[str, str] = {}

    def count(self, what: str) -> None:
        """Count a change."""
        self.counts[what] += 1

    def note(self, path: str, message: str) -> None:
        """Say something of a file, unless it is what was said last."""
        if self._said.get(path) != message:
            self._said[path] = message
            self._tell(safe(f"{path}: {message}"))

    def refuse(self, path: str, message: str) -> None:
        """Say that a file is not taken over."""
        self.refused[path] = message
        self.note(path, message)

    def accept(self, path: str) -> None:
        """Forget that a file was refused: it is in step."""
        self.refused.pop(path, None)
        self._said.pop(path, None)

    def conflict(self, path: str, beside: str, message: str) -> None:
        """Say that a local text was kept beside its file."""
        self.conflicts.append({"file": path, "kept_as": beside})
        self._tell(safe(f"{path}: {message}; the text of the file is kept as {beside}"))

    def summary(self) -> dict[str, Any]:
        """Figures since the start, conflicts, and what is refused now."""
        return {
            "appended": self.counts["appended"],
            "replaced": self.counts["replaced"],
            "received": self.counts["received"],
            "removed": self.counts["removed"],
            "conflicts": self.conflicts,
            "refused": [{"file": path, "why": why} for path, why in sorted(self.refused.items())],
        }
