"""Publishes the facts of reactors once, even if a client has used their message ids.

Invariant: a duplicate that the broker reports counts only if the stored message is a fact with the same subject, because
every NATS publisher can use a message id that it can predict.
"""

from __future__ import annotations

from ...schemas.events import headers as h
from ...schemas.events.derived import OutgoingMessage
from ...schemas.ids import unforeseen
from ...schemas.ports import Published, Publisher
from .pull import PullConsumer


async def publish_fact(publisher: Publisher, source: PullConsumer, fact: OutgoingMessage) -> Published:
    """Publish a fact; returns after the ack.

    Args:
        publisher: Publishes to JOURNAL.
        source: Any consumer of JOURNAL, to read the stored message of a duplicate.
        fact: The fact, its deterministic ``Nats-Msg-Id`` included.

    Raises:
        BrokerUnavailable: If no ack came within the bound.
    """
    published = await publisher.publish(fact.subject, fact.body, fact.headers)
    if not published.duplicate or await source.subject_at(published.seq) in (fact.subject, None):
        return published
    headers = {**fact.headers, h.MSG_ID: unforeseen(fact.headers[h.MSG_ID])}
    return await publisher.publish(fact.subject, fact.body, headers)
