"""The command's entry point: hooks start at once, everything else is the command line.

Why: a hook runs at every prompt of a person; importing the command line's libraries takes ten times as long as the hook.
"""

from __future__ import annotations

import sys
from typing import Final

_PROGRAM: Final = "--program"
_DEFAULT_PROGRAM: Final = "claude-code"


def main() -> int:
    """Run the command; returns its exit code."""
    if len(sys.argv) >= 3 and sys.argv[1] == "hook" and not sys.argv[2].startswith("-"):
        from ..client.hook import run

        rest = sys.argv[3:]
        program = rest[rest.index(_PROGRAM) + 1] if _PROGRAM in rest[:-1] else _DEFAULT_PROGRAM
        return run(sys.argv[2], program)
    if sys.argv[1:2] == ["hook"]:  # without an event, or with --help
        from ..client.command import main as client

        return client(sys.argv[1:], "crew-journal")
    from .main import main as command

    return command()
