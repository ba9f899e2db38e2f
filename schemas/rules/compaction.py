"""The entries that compaction archives, and the length of the text that the archive keeps (contract §11).

Invariant: the types are noise in the catalogue, are never embedded and are not turns of conversation, so they are in
no hot index and have no vectors (a test).
"""

from __future__ import annotations

from typing import Final

TYPES: Final = (
    "container.metrics",
    "exec.output_chunk",
    "llm.call",
    "network.port_closed",
    "network.port_opened",
)
AGE_DAYS: Final = 30
"""Age in days from which entries are archived, by ``ts``."""
LEAST_BUCKET: Final = 10
"""Minimum number of entries of one crew, UTC day and type to archive; fewer stay in the table of entries."""
SUMMARY_CHARS: Final = 200
PAYLOAD_CHARS: Final = 400
"""Maximum length of an archived payload's JSON text, in characters."""
RUN_ENTRIES: Final = 100_000
"""Maximum number of entries that one sweep archives, the oldest days first; the next sweep continues."""
