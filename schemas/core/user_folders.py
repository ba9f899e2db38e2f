"""Where the journal of a user is, if no other is named.

Invariant: standard library only, because hooks import this module; nothing is read at import.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def state_folder() -> Path:
    """The folder of what Crew Journal keeps for this user: below ``XDG_STATE_HOME``, else where the system keeps state.

    Raises:
        RuntimeError: If there is no home directory.
    """
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # the specification says to ignore it then
        base = Path.home().joinpath(
            *(("Library", "Application Support") if sys.platform == "darwin" else (".local", "state"))
        )
    return base / "crew-journal"


def own_journal() -> Path:
    """The data directory of the user's own journal, which commands find from every folder.

    Raises:
        RuntimeError: If there is no home directory.
    """
    return state_folder() / "journal"
