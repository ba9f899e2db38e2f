"""Size limits of a rendered block."""

from __future__ import annotations

from typing import Final

RENDER_CHARS_DEFAULT: Final = 2_000
"""Default budget in characters (contract §8)."""
RENDER_CHARS_MAX: Final = 100_000
"""Largest budget: 50 hits with summaries of 2,000 characters. A larger one is reduced to it."""
