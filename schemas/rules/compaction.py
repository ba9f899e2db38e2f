"""Which entries compaction archives, and how much of their text the archive keeps (contract §11).

Invariant: the types are noise in the catalogue, are never embedded and are no conversation, so they are in no hot index
and have no vectors (a test).
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
"""Entries are archived when their ``ts`` is older."""
LEAST_BUCKET: Final = 10
"""Entries of one crew, UTC day and type below which they stay where they are."""
SUMMARY_CHARS: Final = 200
PAYLOAD_CHARS: Final = 400
"""Characters of an archived payload's JSON text."""
RUN_ENTRIES: Final = 100_000
"""Entries that one sweep archives, the oldest days first; the rest is left to the next one."""
