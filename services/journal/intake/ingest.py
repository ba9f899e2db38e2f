"""Handles append requests from agents on NATS: ``ingest.<workspace>.<crew or _>.<agent>``.

Only the service writes to JOURNAL. A client that published into the stream could set JetStream's headers, which no
permission forbids: ``Nats-Msg-Id`` suppresses an entry of another workspace, ``Nats-Expected-*`` reveals sequences,
open batches exhaust the server's limit. Therefore headers of requests are ignored, and a request is checked and
appended like an HTTP request.

Invariants: workspace, crew and agent come from the subject, which the broker's permissions guarantee. A reply subject
must be an inbox or the broker's reply subject for imported requests: with any other subject, the service would publish
where the caller is not allowed to, so the request is neither stored nor answered. The number of requests in memory is
limited in total and per agent; a request beyond a limit is answered with 503 at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from ....schemas.core.errors import CrewJournalError, InvalidQuery, Overloaded
from ....schemas.core.ids import NO_ID, uuid7_hex
from ....schemas.core.principal import Principal, Role
from ...budgets import SPENDER, Budgets
from ...parts import Part
from ...problem import log_unexpected, parse_json, problem, problem_of, unexpected_problem
from ..broker.connection import BrokerConnection, encode_headers
from .append import Appender, append_submitted

QUEUE: Final = "crew-journal"
"""Name of the queue group: all nodes of a journal share the requests."""
MAX_REQUESTS: Final = 1_024
"""Maximum number of requests in progress: the number of publishes that the writer has in flight."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of their bodies; as Python values, small entries take 2.7 times as much."""
MAX_REQUESTS_OF_AGENT: Final = 256
"""Maximum number of requests of one agent, so that others have room: requests are checked one after the other, about 50
µs each.
"""
MAX_BYTES_OF_AGENT: Final = 4 * 1024 * 1024
PRINCIPALS_KNOWN: Final = 4_096
"""Number of subjects whose principal is cached; building a principal costs a third of checking an entry."""
ERROR_HEADER: Final = "Nats-Service-Error"
ERROR_CODE_HEADER: Final = "Nats-Service-Error-Code"
"""Headers that mark an answer of a NATS service as an error (ADR-32 of NATS)."""
ANSWER_HEAD: Final = 256
"""Maximum bytes of an answer's headers."""
_TOO_LONG: Final = "what is wrong does not fit into one answer"
_REPLY: Final = re.compile(rb"_(?:INBOX|R_)(?:\.[A-Za-z0-9_-]+)+\Z")
"""Allowed reply subjects: inboxes in the service's own account, and the server's substitutes for reply subjects in
other accounts.
"""


def _error_head(problem_body: Mapping[str, Any]) -> bytes:
    marks = {ERROR_HEADER: problem_body["title"], ERROR_CODE_HEADER: str(int(problem_body["status"]))}
    return encode_headers(marks)


_OVERLOADED: Final = Overloaded(
    "more requests or bytes are waiting than the service holds",
    hint=f"try again in a moment, with the same ids; an agent may have {MAX_REQUESTS_OF_AGENT} requests and "
    f"{MAX_BYTES_OF_AGENT >> 20} MiB in flight",
)


@dataclass(slots=True)
class IngestFigures:
    """Counts of requests since the start, and of requests in progress.

    Attributes:
        requests: Requests that arrived.
        entries: Entries they appended, repeats included.
        refused: Requests answered with a problem.
        overloaded: Requests refused because too many were in progress.
        overloaded_at: UTC time of the last such refusal.
        unanswerable: Requests without an allowed reply subject; they are not stored.
        in_hand: Requests in progress.
        bytes_in_hand: Bytes of their bodies.
        error: Why requests do not arrive, None if they do.
    """

    requests: int = 0
    entries: int = 0
    refused: int = 0
    overloaded: int = 0
    overloaded_at: datetime | None = None
    unanswerable: int = 0
    in_hand: int = 0
    bytes_in_hand: int = 0
    error: str | None = None


@dataclass(slots=True)
class _Held:
    """Requests of one agent in progress."""

    requests: int = 0
    size: int = 0


class Ingest(Part):
    """Answers requests to append; a part of the node.

    Args:
        client: A separate connection, so that requests and acks do not wait for each other.
        journal: Appends.
        budgets: The write budgets of agents.
    """

    def __init__(self, client: BrokerConnection, journal: Appender, budgets: Budgets | None = None) -> None:
        self._client = client
        self._budgets = budgets or Budgets()
        self._journal = journal
        self._subscription: Subscription | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: dict[bytes, _Held] = {}
        self._figures = IngestFigures()

    def figures(self) -> IngestFigures:
        """For ``status``."""
        state = self._client.state
        error = state.last_error if state.connected else "not connected to the broker"
        return replace(self._figures, error=error)

    async def start(self) -> None:
        """Start to accept requests."""
        self._answer_limit = self._client.max_payload - ANSWER_HEAD
        self._subscription = await self._client.divert("ingest.*.*.*", self._on_request, queue=QUEUE)

    async def stop(self) -> None:
        """Accept no more requests, then answer the received requests, each within the writer's deadline."""
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        with contextlib.suppress(NatsError, TimeoutError):
            await subscription.unsubscribe()
            await self._client.flush()  # afterwards, everything that the broker had sent has arrived
        await self._client.release(subscription)
        while self._tasks:
            await asyncio.wait(self._tasks)
        with contextlib.suppress(NatsError, TimeoutError):
            await self._client.flush()

    def _on_request(self, subject: bytes, reply: bytes, body: bytes, headers: bytes | None) -> None:
        figures = self._figures
        figures.requests += 1
        if _REPLY.match(reply) is None:
            figures.unanswerable += 1
            return
        held = self._held.setdefault(subject, _Held())
        size = len(body)
        full = figures.in_hand >= MAX_REQUESTS or figures.bytes_in_hand + size > MAX_BYTES
        if full or held.requests >= MAX_REQUESTS_OF_AGENT or held.size + size > MAX_BYTES_OF_AGENT:
            figures.overloaded += 1
            figures.overloaded_at = datetime.now(UTC)
            self._release(subject, held)
            self._refuse(reply, _OVERLOADED)
            return
        figures.in_hand += 1
        figures.bytes_in_hand += size
        held.requests += 1
        held.size += size
        task = asyncio.create_task(self._serve(subject, held, reply, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, subject: bytes, held: _Held, reply: bytes, body: bytes) -> None:
        try:
            principal = principal_of(subject)
            SPENDER.set(self._budgets.spender(principal, subject.decode()))
            receipts = await append_submitted(self._journal, principal, parse_json(body))
        except Exception as error:
            self._refuse(reply, error)
        else:
            self._figures.entries += len(receipts)
            self._answer(reply, b"", orjson.dumps({"entries": receipts}))
        finally:
            size = len(body)
            self._figures.in_hand -= 1
            self._figures.bytes_in_hand -= size
            held.requests -= 1
            held.size -= size
            self._release(subject, held)

    def _release(self, subject: bytes, held: _Held) -> None:
        if not held.requests:
            self._held.pop(subject, None)

    def _refuse(self, reply: bytes, error: Exception) -> None:
        self._figures.refused += 1
        trace_id = uuid7_hex()
        if isinstance(error, CrewJournalError):
            body = problem_of(error, trace_id)
        else:
            log_unexpected(error, trace_id)
            body = unexpected_problem(trace_id)
        data = orjson.dumps(body)
        if (
            len(data) > self._answer_limit
        ):  # the quoted field names make it too long; the broker would close the connection
            body = problem(body["status"], body["title"], _TOO_LONG, "send fewer entries at once", trace_id)
            data = orjson.dumps(body)
        self._answer(reply, _error_head(body), data)

    def _answer(self, reply: bytes, head: bytes, body: bytes) -> None:
        if not self._client.is_connected:
            return  # the broker no longer knows the reply subject
        sizes = b"%d %d" % (len(head), len(head) + len(body)) if head else b"%d" % len(body)
        self._client.send(b"%b %b %b\r\n%b%b\r\n" % (b"HPUB" if head else b"PUB", reply, sizes, head, body))


@lru_cache(maxsize=PRINCIPALS_KNOWN)
def principal_of(subject: bytes) -> Principal:
    """The agent whose request came on ``subject``.

    Raises:
        InvalidQuery: If a part of the subject is not a valid id.
    """
    try:
        _, workspace, crew, agent = subject.decode().split(".")
        bound = {"workspace_id": workspace, "crew_id": None if crew == NO_ID else crew, "agent_id": agent}
        return Principal.model_validate({"token_id": "nats", "role": Role.AGENT, **bound})
    except ValueError:  # includes pydantic's ValidationError
        raise InvalidQuery(
            "the subject names no agent", hint="send to ingest.<workspace>.<crew or _>.<agent>", field="subject"
        ) from None
