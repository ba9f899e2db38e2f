"""The composition root, in rooms: the node itself, its embedding, its reactors.

Invariant: this package is the one place, the command line aside, where consumers and services meet.
"""

from .node import Runtime, utc_now
from .views import VIEWS_FILE

__all__ = ["VIEWS_FILE", "Runtime", "utc_now"]
