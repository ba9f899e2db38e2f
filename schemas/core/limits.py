"""Limits of requests that the service and its clients share.

Invariant: this module imports nothing else of ours.
"""

from __future__ import annotations

from typing import Final

DEFAULT_WORKSPACE: Final = "default"
MAX_BATCH: Final = 1_000
"""Maximum number of entries of one HTTP batch (DESIGN §10)."""
MAX_BATCH_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of an HTTP request body in bytes."""
REQUEST_BYTES: Final = 2 * 1024 * 1024
"""Maximum bytes of entries in one request of a client: half of an agent token's write burst."""
ATOMIC_BATCH: Final = 500
"""Messages in one atomic batch. Batches of 1,000 reach 23,000 messages/s with fsync; batches of 500 lose less on an
error.
"""

# queries (contract §1, §4, §5)
LIST_LIMIT_DEFAULT: Final = 100
LIST_LIMIT_MAX: Final = 500
Q_MAX_CHARS: Final = 200
RECALL_K_DEFAULT: Final = 5
RECALL_K_MAX: Final = 50
COLLECTED_MOST: Final = 130
RECALL_QUERY_MAX_CHARS: Final = 4_000
RENDER_CHARS_DEFAULT: Final = 2_000
"""Default budget of a recall's block, in characters (contract §8)."""
RENDER_CHARS_MAX: Final = 100_000
"""Largest budget: 50 hits with summaries of 2,000 characters. A larger one is reduced to it."""
TAIL_SEED: Final = 50
TAIL_REPLAY_MAX: Final = 500
