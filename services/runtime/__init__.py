"""The composition root, in rooms: the node itself, its embedding, its reactors.

Invariant: this package is the one place, the command line aside, where consumers and services meet.
"""

from crew_journal.services.runtime.node import Runtime, utc_now
from crew_journal.services.runtime.views import VIEWS_FILE

__all__ = ["VIEWS_FILE", "Runtime", "utc_now"]
