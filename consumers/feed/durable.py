"""The live feed's durable consumer: its configuration, and when an existing one can be used.

Invariant: a durable is kept only if its position is exactly the checkpoint and nothing is in flight; any other is recreated,
because the checkpoint decides what was folded, and an ack does not.
"""

from __future__ import annotations

from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy

from .jetstream import FEED_ACK_PENDING, FEED_ACK_WAIT_S, UNLIMITED


def wanted_consumer(durable: str, start_seq: int) -> ConsumerConfig:
    """The consumer of a feed that wants everything from ``start_seq`` on, acked in bulk, delivered without limit."""
    return ConsumerConfig(
        name=durable,
        durable_name=durable,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=start_seq,
        ack_policy=AckPolicy.ALL,
        ack_wait=FEED_ACK_WAIT_S,
        max_deliver=UNLIMITED,
        max_ack_pending=FEED_ACK_PENDING,
    )


def agrees(info: ConsumerInfo, durable: str, start_seq: int) -> bool:
    """Whether a consumer is as wanted, has acked everything before ``start_seq`` and delivered nothing beyond."""
    wanted, config = wanted_consumer(durable, start_seq), info.config
    same = (
        config.ack_policy == wanted.ack_policy
        and config.max_ack_pending == wanted.max_ack_pending
        and not config.filter_subject
        and not config.filter_subjects
    )
    delivered, floor = info.delivered, info.ack_floor
    return (
        same
        and delivered is not None
        and floor is not None
        and delivered.stream_seq == floor.stream_seq == start_seq - 1
        and not info.num_ack_pending
    )
