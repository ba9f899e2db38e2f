"""``python -m crew_journal.services.cli``: the command, for a program that starts it with its own Python."""

import sys

from .entry import script

if __name__ == "__main__":
    sys.exit(script())
