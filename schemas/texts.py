"""The kinds of text that can be recalled beside entries, as the families declare them.

A new kind is a table of ``TextRow`` that its fold writes and a ``TextKind`` in its family's ``tables.py``; it is then
loaded, followed, embedded and, with ``recalled``, found by recall without further code.
"""

from __future__ import annotations

from typing import Final

from .core.texts import TextKind
from .documents import tables as documents
from .facts import tables as facts
from .palace import tables as palace

TEXT_KINDS: Final = tuple(
    kind for family in (documents, facts, palace) for kind in vars(family).values() if isinstance(kind, TextKind)
)
