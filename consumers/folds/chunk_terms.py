"""The terms of a chunk, as a row of ``memory_chunks`` holds them.

Invariant: what a query is split into by the same analyser is found here; English stop words are kept apart under keys of
their own, by which a query of nothing but stop words is answered.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...schemas.rules.text import Analyzer

_MOST: Final = 2**16 - 1


def chunk_terms(analyzer: Analyzer, text: str) -> tuple[bytes, bytes]:
    """The terms of a text as uint64 keys, each once and sorted, and how often each occurs as uint16; little-endian."""
    keys = analyzer.terms(text) + analyzer.further_terms(text) + analyzer.stop_keys(text)
    terms, counts = np.unique(np.array(keys, "<u8"), return_counts=True)
    return terms.tobytes(), np.minimum(counts, _MOST).astype("<u2").tobytes()
