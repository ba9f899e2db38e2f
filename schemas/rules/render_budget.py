"""How large a rendered block may be."""

from __future__ import annotations

from typing import Final

RENDER_CHARS_DEFAULT: Final = 2_000
"""Characters of a block if no budget is named (contract §8)."""
RENDER_CHARS_MAX: Final = 100_000
"""The largest budget: 50 hits with summaries of 2,000 characters. A larger one counts as this."""
