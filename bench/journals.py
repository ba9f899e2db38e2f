"""Ready-made messages, and data directories that hold a journal before anything of ours reads it.

Invariant: what is written here is in the event format, as the service writes it; only the way to the broker is the raw
one, because filling a journal is not what is measured.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from nats.aio.client import Client
from support.nats import connected, running_broker

from bench.corpus import Corpus, random_units
from bench.figures import say
from bench.raw_nats import RawWriter
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.consumers.host.folding import Parked
from crew_journal.schemas.core import headers as h
from crew_journal.schemas.core.derived import OutgoingMessage, encode_vector
from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.envelope import VectorDerived
from crew_journal.schemas.core.ids import message_id
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.core.subjects import control_subject, journal_subject
from crew_journal.schemas.core.timestamps import parse_ts, to_ms
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.config import Durability
from crew_journal.services.journal.broker.streams import DeclaredStreams, declare_streams

OWNER: Final = Principal(token_id="bench", role=Role.OWNER, workspace_id=None)
FILL_WINDOW: Final = 1_024
FILL_BLOCK: Final = 20_000
"""Messages made before they are sent; bounds the memory of a million."""
DIM: Final = 384
"""Dimensions of MiniLM's vectors."""
MODEL: Final = "bench-vectors"


def entry_message(entry: JournalEntry, content: str, *, control: bool = False) -> OutgoingMessage:
    """The message of an entry, in the event format: what the service would publish."""
    workspace, kind = entry.workspace_id, entry.entry_type
    subject = (
        control_subject(workspace, kind) if control else journal_subject(workspace, entry.crew_id, entry.agent_id, kind)
    )
    headers = {
        h.MSG_ID: message_id(workspace, entry.id),
        h.ENTRY_ID: entry.id,
        h.CONTENT_HASH: content,
        h.FORMAT: h.FORMAT_VERSION,
    }
    return OutgoingMessage(subject, orjson.dumps(entry.to_record()), headers)


def ready_made(corpus: Corpus, first: int, last: int) -> list[OutgoingMessage]:
    """Entries ``first`` to before ``last`` as messages."""
    made = []
    for n in range(first, last):
        submission = {**corpus.submission(n), "workspace_id": corpus.workspace(n)}
        content = hashlib.blake2b(orjson.dumps(submission, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
        made.append(entry_message(JournalEntry.model_validate(submission), content))
    return made


def raw(messages: Sequence[OutgoingMessage], first_seq: int) -> list[RawMessage]:
    """Messages as the broker would deliver them, from a sequence on."""
    now = int(time.time() * 1_000)
    return [RawMessage(first_seq + i, m.subject, m.headers, m.body, now) for i, m in enumerate(messages)]


def vector_messages(
    corpus: Corpus, seqs: dict[int, int], model: str, dim: int, seed: int = 3
) -> Iterator[OutgoingMessage]:
    """Vector facts with random directions.

    Args:
        corpus: Whose entries.
        seqs: Entry number → its stream sequence.
        model: Model id.
        dim: Dimensions.
        seed: Of the directions.
    """
    units = random_units(len(seqs), dim, seed)
    for (n, seq), unit in zip(seqs.items(), units, strict=True):
        entry = corpus.submission(n)
        event = VectorDerived(
            seq=0,
            workspace_id=corpus.workspace(n),
            entry_id=entry["id"],
            entry_seq=seq,
            model=model,
            dim=dim,
            vector=unit.tobytes(),
            text_hash=hashlib.blake2b(entry["summary"].encode(), digest_size=16).hexdigest(),
            entry_type=entry["entry_type"],
            severity=entry["severity"],
            priority="normal",
            crew_id=entry["crew_id"],
            agent_id=entry["agent_id"],
            ts_ms=to_ms(parse_ts(entry["ts"])),
            published_ms=0,
            reactor="embed@1",
        )
        yield encode_vector(event, 1)


@dataclass(frozen=True, slots=True)
class Filled:
    """What a prepared journal holds: last sequence, and how many entries and vectors."""

    last_seq: int
    entries: int
    vectors: int


@asynccontextmanager
async def open_broker(
    data_dir: Path, durability: Durability
) -> AsyncIterator[tuple[ManagedBroker, Client, DeclaredStreams]]:
    """A managed broker with our streams declared, and a connection to it."""
    async with running_broker(data_dir, durability) as broker, connected(broker) as client:
        yield broker, client, await declare_streams(client)


async def fill(client: Client, corpus: Corpus, vectors: int, *, model: str = MODEL, dim: int = DIM) -> Filled:
    """Write the corpus into an empty JOURNAL, then vectors of its first embeddable entries.

    Args:
        client: A connection to a broker with the streams declared and nothing in them.
        corpus: What to write.
        vectors: How many vector facts.
        model: Model id of the vectors.
        dim: Their dimensions.
    """
    writer = RawWriter(client, FILL_WINDOW)
    await writer.open()
    said = (await client.jetstream().stream_info("JOURNAL")).state.last_seq
    chosen: dict[int, int] = {}
    for first in range(0, corpus.entries, FILL_BLOCK):
        last = min(corpus.entries, first + FILL_BLOCK)
        # one connection and one stream: the broker stores in the order we send, so sequences are known beforehand
        await writer.publish_all(ready_made(corpus, first, last))
        for n in range(first, last):
            if len(chosen) < vectors and corpus.is_embedded(n):
                chosen[n] = said + n + 1
        if corpus.entries > 5 * FILL_BLOCK and last % (5 * FILL_BLOCK) == 0:
            say(f"filling the journal: {last:,} of {corpus.entries:,} entries")
    if len(chosen) < vectors:
        raise RuntimeError(f"the corpus has {len(chosen)} embeddable entries, {vectors} vectors were asked for")
    if chosen:
        await writer.publish_all(list(vector_messages(corpus, chosen, model, dim)))
    await writer.close()
    state = (await client.jetstream().stream_info("JOURNAL")).state
    if state.messages != said + corpus.entries + len(chosen):
        raise RuntimeError(f"the journal holds {state.messages} messages, not what was written")
    return Filled(state.last_seq, corpus.entries, len(chosen))


async def prepare(data_dir: Path, corpus: Corpus, vectors: int, *, model: str = MODEL, dim: int = DIM) -> Filled:
    """A data directory whose broker holds the corpus, ready for ``up``; the ``interval`` profile fills it."""
    async with open_broker(data_dir, "interval") as (_, client, _):
        return await fill(client, corpus, vectors, model=model, dim=dim)


async def never_park(parked: Parked) -> None:
    """The corpus holds nothing that cannot be folded.

    Raises:
        RuntimeError: Always.
    """
    raise RuntimeError(f"{parked.projection} parked {parked.message.seq}: {parked.reason}")
