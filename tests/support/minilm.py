"""The MiniLM weights for tests, in the project's cache: fetched on first use, never skipped."""

from __future__ import annotations

from pathlib import Path

from crew_journal.consumers.adapters.minilm_weights import ensure_static_table, install_minilm

MODEL_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "models"


def minilm_cache() -> Path:
    """The cache directory, with MiniLM installed in it."""
    install_minilm(MODEL_CACHE)
    ensure_static_table(MODEL_CACHE)
    return MODEL_CACHE
