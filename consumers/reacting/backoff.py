"""Growing pauses between attempts.

Invariant: the n-th pause in a row lies between half and all of ``min(first * 2**n, last)`` seconds; the random half
keeps processes that failed together from retrying together. The caller provides the randomness, so tests are exact.
"""

from __future__ import annotations

from collections.abc import Callable


def doubled(first_s: float, last_s: float, times: int) -> float:
    """``first_s`` doubled ``times`` times, at most ``last_s``; seconds."""
    return min(first_s * 2.0 ** min(times, 62), last_s)  # 62: a larger power exceeds any pause


class Backoff:
    """The pauses of one loop.

    Args:
        first_s: Seconds before the second attempt.
        last_s: Upper bound in seconds.
        random: Uniform in [0, 1).
    """

    def __init__(self, first_s: float, last_s: float, random: Callable[[], float]) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._random = random
        self._failures = 0

    @property
    def failures(self) -> int:
        """Failures in a row so far."""
        return self._failures

    def next(self) -> float:
        """Count a failure; the seconds to wait before the next attempt."""
        full = doubled(self._first_s, self._last_s, self._failures)
        self._failures += 1
        return full * (0.5 + 0.5 * self._random())

    def reset(self) -> None:
        """Reset after a success: the next failure begins with the first pause."""
        self._failures = 0
