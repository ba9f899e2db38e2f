"""The durables of reactors: their configuration, declaration and backlog.

Invariant: a durable is read back after its declaration; a difference from the request is an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from ...schemas.core.errors import BrokerUnavailable, StreamMismatch
from ...schemas.core.subjects import JOURNAL_STREAM
from ..feed.jetstream import API_TIMEOUT_S, FILTERS_SINCE, UNLIMITED

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Durable:
    """The configuration of a reactor's durable consumer of JOURNAL.

    Attributes:
        name: ``[A-Za-z0-9_-]``; processes that use the same name share the messages.
        filter_subjects: Subjects to deliver, without overlaps. Servers before ``FILTERS_SINCE`` deliver all messages,
            unless the durable is ``sparse``.
        ack_wait_s: Seconds until an unacked message is redelivered; ``in_progress`` restarts this time.
        max_ack_pending: Maximum number of unacked messages of all processes together, including postponed messages.
        description: Shown by the broker's tools.
        sparse: Whether matching messages are rare, so that servers of every version filter: filtering is slow per
            delivered message, but cheaper than reading all.
    """

    name: str
    filter_subjects: tuple[str, ...]
    ack_wait_s: float
    max_ack_pending: int
    description: str = ""
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class Remaining:
    """The backlog of a durable, as the broker counts it.

    Attributes:
        acked: Stream sequence up to which everything is acked.
        delivered: Stream sequence up to which everything was delivered at least once.
        unacked: Messages delivered and not acked: being handled, postponed or returned.
        to_come: Messages never delivered.
        waiting: Pull requests that wait at the broker.
    """

    acked: int = 0
    delivered: int = 0
    unacked: int = 0
    to_come: int = 0
    waiting: int = 0


async def declare(client: Client, wanted: Durable) -> None:
    """Create or update the durable, then read it back and compare.

    Raises:
        BrokerUnavailable: If the broker does not answer or has no JOURNAL.
        StreamMismatch: If the broker's durable differs from ``wanted``.
    """
    filters = _filters(client, wanted)
    config = ConsumerConfig(
        name=wanted.name,
        durable_name=wanted.name,
        description=wanted.description or None,
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=wanted.ack_wait_s,
        max_deliver=UNLIMITED,
        max_ack_pending=wanted.max_ack_pending,
        filter_subjects=list(filters) or None,
    )
    js = client.jetstream(timeout=API_TIMEOUT_S)
    try:
        await js.add_consumer(JOURNAL_STREAM, config)
        info: ConsumerInfo = await js.consumer_info(JOURNAL_STREAM, wanted.name)
    except (NotFoundError, ServiceUnavailableError) as error:
        raise BrokerUnavailable(
            f"the broker has no stream {JOURNAL_STREAM} for the consumer {wanted.name} at the moment: {error}",
            hint="the journal service declares its streams when it starts: is it running?",
        ) from error
    except APIError as error:
        raise StreamMismatch(
            f"the consumer {wanted.name} cannot be declared: {error.description}",
            hint=f"delete the consumer {wanted.name} of {JOURNAL_STREAM}; it is then recreated from the beginning",
        ) from error
    except (NatsError, TimeoutError) as error:
        raise unavailable(error) from error
    _compare(info.config, wanted, filters)


def _compare(existing: ConsumerConfig, wanted: Durable, wanted_filters: Sequence[str]) -> None:
    filters = existing.filter_subjects or ([existing.filter_subject] if existing.filter_subject else [])
    same = (
        sorted(filters) == sorted(wanted_filters)
        and existing.ack_policy == AckPolicy.EXPLICIT
        and existing.ack_wait == wanted.ack_wait_s
        and existing.max_ack_pending == wanted.max_ack_pending
        and existing.max_deliver in (None, UNLIMITED)
    )
    if not same:
        raise StreamMismatch(
            f"the consumer {wanted.name} is not what was declared (filters, ack wait or acks pending)",
            hint=f"delete the consumer {wanted.name} of {JOURNAL_STREAM}; it is then recreated from the beginning",
        )


def _filters(client: Client, wanted: Durable) -> tuple[str, ...]:
    version = client.connected_server_version
    filters = wanted.sparse or (version.major, version.minor) >= FILTERS_SINCE
    return wanted.filter_subjects if filters else ()


async def info_of(client: Client, durable: str, timeout_s: float = API_TIMEOUT_S) -> ConsumerInfo | None:
    """The state of a durable of JOURNAL at the broker; None if it does not exist.

    Raises:
        BrokerUnavailable: If the broker does not answer within ``timeout_s`` seconds.
    """
    return await answered(client.jetstream(timeout=timeout_s).consumer_info(JOURNAL_STREAM, durable))


async def answered(request: Awaitable[T]) -> T | None:
    """The answer to a request to the broker; None if the requested object does not exist.

    Raises:
        BrokerUnavailable: If the broker does not answer.
    """
    try:
        return await request
    except NotFoundError:
        return None
    except (NatsError, TimeoutError) as error:
        raise unavailable(error) from error


async def remaining(client: Client, durable: str) -> Remaining:
    """The backlog of a durable of JOURNAL; zeros if the durable does not exist.

    Raises:
        BrokerUnavailable: If the broker does not answer.
    """
    info = await info_of(client, durable)
    if info is None:
        return Remaining()
    return Remaining(
        acked=info.ack_floor.stream_seq if info.ack_floor else 0,
        delivered=info.delivered.stream_seq if info.delivered else 0,
        unacked=info.num_ack_pending or 0,
        to_come=info.num_pending or 0,
        waiting=info.num_waiting or 0,
    )


def unavailable(error: BaseException) -> BrokerUnavailable:
    """The error for a request that the broker did not answer."""
    problem = "no JetStream" if isinstance(error, NoRespondersError) else str(error) or type(error).__name__
    return BrokerUnavailable(f"the broker does not answer: {problem}", hint="see the broker's log; it is tried again")
