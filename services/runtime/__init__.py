"""The composition root: the node itself, its embedding, its reactors.

Invariant: only this package and the command line import both consumers and services.
"""

from .node import Runtime, utc_now
from .views import VIEWS_FILE

__all__ = ["VIEWS_FILE", "Runtime", "utc_now"]
