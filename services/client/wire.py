"""What the core asks of a transport, and what it gets: plain values.

Invariant: the core never does I/O; both flavours of the client carry out the same steps.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

TIMEOUT_S: Final = 40.0
"""Seconds for one answer; an append may wait 30 for the broker's ack."""

Params = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request.

    Attributes:
        method: GET, POST or DELETE.
        path: Below the service's URL.
        params: Query parameters, repeated ones as several pairs.
        json: The body; None for none.
        content: The body where it is JSON already; None for none.
        repeatable: Whether doing it twice is the same as once.
        headers: Beside the token's.
    """

    method: str
    path: str
    params: Params = ()
    json: Any = None
    repeatable: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None

    def arguments(self) -> dict[str, Any]:
        """What httpx is called with, ``request`` and ``stream`` alike."""
        typed = {} if self.content is None else {"Content-Type": "application/json"}
        return {
            "method": self.method,
            "url": self.path,
            "params": list(self.params),
            "json": self.json,
            "content": self.content,
            "headers": {**self.headers, **typed},
        }


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever its status."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Broken:
    """No answer: the connection failed or timed out; ``reason`` names the failure's kind."""

    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


Step = Request | Pause
Outcome = Reply | Broken | None
Steps = Generator[Step, Outcome, _T]
"""A use of the service: yields what to do, is sent what came of it, returns the result."""
