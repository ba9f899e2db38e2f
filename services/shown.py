"""Waits until the views show what was recorded.

Invariant: what is stored is not answered with an error. A view that is late shows it in a moment, and the answer has its
sequence, which a later request can pass as ``min_seq``.
"""

from __future__ import annotations

import contextlib

from ..schemas.errors import ViewsBehind
from ..schemas.ports import ViewReader
from ..schemas.settings import MIN_SEQ_WAIT_S


async def until_shown(views: ViewReader, seq: int, *projections: str) -> None:
    """Wait, for ``MIN_SEQ_WAIT_S`` at most, until projections have passed a sequence that was recorded."""
    with contextlib.suppress(ViewsBehind):
        await views.wait_for(seq, MIN_SEQ_WAIT_S, *projections)
