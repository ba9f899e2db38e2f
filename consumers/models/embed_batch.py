"""Selects the entries of a batch to embed, and finds the text on which the model fails.

Why: a model server that is down and a text that the model refuses raise the same errors, but the first must stop the reactor
without a loss, while the second must not delay other texts. Invariant: ``embed_in_pieces`` raises only if a harmless probe
fails too, or if the model differs from the one in the journal; if the probe works, the batch is split down to single texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from nats.aio.msg import Msg
from pydantic_core import from_json

from ...schemas.catalogue import info_of
from ...schemas.core.derived import FLOAT_BYTES, OutgoingMessage, encode_vector
from ...schemas.core.entry import JournalEntry
from ...schemas.core.envelope import ChunkVectorDerived, EntryRecorded, TokenBitsDerived, VectorDerived
from ...schemas.core.errors import EmbedderBadAnswer, EmbedderError, FoldError
from ...schemas.core.ports import Embedder, TokenBits, TokenEmbedder
from ...schemas.core.subjects import Family, parse_subject
from ...schemas.decode import UPCASTERS, decode
from ...schemas.models.events import encode_chunk_vector, encode_token_bits
from ...schemas.models.rules import (
    ALWAYS,
    EMBEDDABLE,
    POLICIES,
    SPEECH,
    cap_bytes,
    embedded_text,
    is_embedded,
    is_speech,
)
from ...schemas.settings import EMBED_INPUT_BYTES
from ..feed.messages import position_of
from ..reacting.pull import deliveries

EMBED_VERSION: Final = 1
"""Version of the embed reactor, a part of the ids of vectors of entries, whichever reactor publishes them."""
TEXTS_VERSION: Final = 1
"""Likewise of ``embed_chunks``, for vectors of texts."""
TEXT_HASH_BYTES: Final = 16
"""BLAKE2b-128 of the embedded text, UTF-8."""

FILTER_SUBJECTS: Final = tuple(
    sorted(
        f"{pattern}.{entry_type}"
        for entry_type in (
            *EMBEDDABLE,
            *(f"{speech_type}>" if speech_type.endswith(".") else speech_type for speech_type in SPEECH),
        )
        for pattern in (f"{Family.JOURNAL.value}.*.*.*", f"{Family.CONTROL.value}.*")
    )
)
"""The types of the policy's allow-list, and speech: newer servers deliver nothing else, so the pending count of the durable
is the number of entries that may still be embedded. Skipping speech that the workspace does not embed costs 15 µs. A new
type widens the durable in place; the index sweep embeds its older entries. Any other change of the policy needs a new
version of the reactor, which has a new durable."""
_ENTRIES: Final = (Family.JOURNAL, Family.CONTROL)


@dataclass(frozen=True, slots=True)
class Embeddable:
    """An entry to embed.

    Attributes:
        seq: Its stream sequence.
        entry: The entry.
        ts_ms: Its time, milliseconds since the epoch.
        text: The text to embed, at most 4,096 bytes.
    """

    seq: int
    entry: JournalEntry
    ts_ms: int
    text: str

    def vector(self, model: str, vector: bytes, reactor: str) -> VectorDerived:
        """The fact; an empty ``vector`` (dim 0) means that the model always refuses the text."""
        entry = self.entry
        return VectorDerived(
            seq=0,
            workspace_id=entry.workspace_id,
            entry_id=entry.id,
            entry_seq=self.seq,
            model=model,
            dim=len(vector) // FLOAT_BYTES,
            vector=vector,
            text_hash=hashlib.blake2b(self.text.encode(errors="replace"), digest_size=TEXT_HASH_BYTES).hexdigest(),
            entry_type=entry.entry_type,
            severity=entry.severity.value,
            priority=entry.priority.value,
            crew_id=entry.crew_id,
            agent_id=entry.agent_id,
            ts_ms=self.ts_ms,
            published_ms=0,
            reactor=reactor,
        )

    @property
    def key(self) -> int:
        """See ``Missing``."""
        return self.seq

    @property
    def source_id(self) -> str:
        """See ``Missing``."""
        return self.entry.id

    def facts(
        self, model: str, generation: int, vector: bytes, tokens: TokenBits | None, reactor: str
    ) -> list[OutgoingMessage]:
        """The token bits, if there are any, then the vector: an entry with a vector has its token bits."""
        bits = self.token_bits(model, tokens, reactor)
        facts = [] if bits is None else [encode_token_bits(bits, EMBED_VERSION, generation)]
        return [*facts, encode_vector(self.vector(model, vector, reactor), EMBED_VERSION, generation)]

    def token_bits(self, model: str, tokens: TokenBits | None, reactor: str) -> TokenBitsDerived | None:
        """The fact with the bits of its word pieces; None if it is not a turn of a conversation or has no bits."""
        if tokens is None or not tokens.bits or not info_of(self.entry.entry_type).conversation:
            return None
        return TokenBitsDerived(
            seq=0,
            workspace_id=self.entry.workspace_id,
            entry_id=self.entry.id,
            entry_seq=self.seq,
            model=model,
            quantiser=tokens.quantiser,
            dim=tokens.dim,
            bits=tokens.bits,
            first_passage=tokens.first_passage,
            published_ms=0,
            reactor=reactor,
        )


@dataclass(frozen=True, slots=True)
class EmbeddableText:
    """A text of a ``TextKind`` to embed.

    Attributes:
        key: Its text hash.
        text: At most 4,096 bytes.
        source_id: Id of the entry or write that brought it.
    """

    workspace_id: str
    key: int
    text: str
    source_id: str

    def facts(
        self, model: str, generation: int, vector: bytes, _tokens: TokenBits | None, reactor: str
    ) -> list[OutgoingMessage]:
        """Its vector, or (an empty one) a tombstone; the id of the fact does not depend on the reactor."""
        fact = ChunkVectorDerived(
            seq=0,
            workspace_id=self.workspace_id,
            model=model,
            text_hash=self.key,
            dim=len(vector) // FLOAT_BYTES,
            vector=vector,
            write_id=self.source_id,
            published_ms=0,
            reactor=reactor,
        )
        return [encode_chunk_vector(fact, TEXTS_VERSION, generation)]


@dataclass(frozen=True, slots=True)
class DeliveredEntry(Embeddable):
    """An entry that was delivered as a message.

    Attributes:
        message: The message; acked once the vector is in the journal.
        deliveries: Number of deliveries, this one included.
    """

    message: Msg
    deliveries: int


class HasText(Protocol):
    """What is embedded."""

    @property
    def text(self) -> str:
        """Its text, at most 4,096 bytes."""
        ...


class Missing(HasText, Protocol):
    """What lacks a vector."""

    @property
    def key(self) -> int:
        """Names it among those of its reactor."""
        ...

    @property
    def source_id(self) -> str:
        """Id of the entry or write that brought it."""
        ...

    def facts(
        self, model: str, generation: int, vector: bytes, tokens: TokenBits | None, reactor: str
    ) -> Sequence[OutgoingMessage]:
        """The facts to publish, the vector last; an empty one is a tombstone: the model refuses the text.

        Args:
            model: The model.
            generation: Sequence of its last drop, a part of the facts' ids.
            vector: Little-endian float32.
            tokens: The bits of its word pieces, None if the model gives none.
            reactor: ``name@version`` of the reactor that publishes them.
        """
        ...


E = TypeVar("E", bound=HasText)


@dataclass(frozen=True, slots=True)
class Embedded(Generic[E]):
    """Texts that have vectors now, and the bits of their tokens if the model gives them, in the same order."""

    candidates: Sequence[E]
    vectors: Sequence[bytes]
    tokens: Sequence[TokenBits | None]


@dataclass(frozen=True, slots=True)
class Split:
    """A call that failed while the model works, and is made again in halves."""

    error: EmbedderError


@dataclass(frozen=True, slots=True)
class Failed(Generic[E]):
    """One text that failed while the model works; says whether the model refuses it or breaks on it."""

    candidate: E
    error: EmbedderError


@dataclass(frozen=True, slots=True)
class SpeechRule:
    """What decides in a workspace whether speech is embedded: its version of the policy, and its choice if it made one."""

    version: int
    choice: bool | None = None

    def embeds(self, entry_type: str) -> bool:
        """Whether speech of a type is embedded."""
        speech = POLICIES[self.version].is_speech(entry_type)
        return speech and is_embedded(entry_type, "", {}, {}, self.version, choice=self.choice)


def speech_workspace(message: Msg) -> str | None:
    """The workspace whose choice decides whether an entry is embedded; None if the entry is not speech."""
    subject = parse_subject(message.subject)
    return subject.workspace if subject.family in _ENTRIES and is_speech(subject.kind) else None


def candidate_of(message: Msg, *, speech: SpeechRule | None = None) -> DeliveredEntry | None:
    """The entry of a message, or None if it is not embedded.

    Args:
        message: The message.
        speech: What its workspace says about speech; needed only if the entry is speech.

    Raises:
        FoldError: If the message is not a valid entry; the projections park it.
    """
    if not _may_be_embedded(message, speech):
        return None
    seq, _, published_ms, _ = position_of(message.reply)  # to the millisecond as the feed has it; nats-py's is a float
    event = decode(seq, message.subject, message.headers, message.data, published_ms)
    if not isinstance(event, EntryRecorded):
        raise FoldError(f"the message at {seq} is not an entry")
    entry = event.entry
    if not is_embedded(entry.entry_type, entry.severity.value, entry.payload, entry.refs, choice=True):
        return None  # of speech, ``_may_be_embedded`` said that the workspace embeds it
    return DeliveredEntry(seq, entry, event.ts_ms, text_of(entry), message, deliveries(message))


def text_of(entry: JournalEntry) -> str:
    """The text of an entry that is embedded: contract §3."""
    return cap_bytes(embedded_text(entry.summary, entry.payload, entry.entry_type), EMBED_INPUT_BYTES)


def _may_be_embedded(message: Msg, speech: SpeechRule | None) -> bool:
    """Whether the entry may be embedded, by its subject and raw record alone; others are skipped without validation."""
    subject = parse_subject(message.subject)
    entry_type = subject.kind
    if subject.family in _ENTRIES and is_speech(entry_type):
        return speech is not None and speech.embeds(entry_type)
    if subject.family not in _ENTRIES or entry_type not in EMBEDDABLE:
        return False
    if entry_type in ALWAYS:
        return True
    try:
        record = from_json(message.data)
    except ValueError:
        return True  # whatever it is, ``decode`` says it properly
    if not isinstance(record, dict):
        return True
    version, payload, refs = record.get("schema_version", 1), record.get("payload", {}), record.get("refs", {})
    if not (isinstance(version, int) and isinstance(payload, dict) and isinstance(refs, dict)):
        return True
    if (entry_type, version) in UPCASTERS:
        return True
    return is_embedded(entry_type, str(record.get("severity")), payload, refs)


async def embed_in_pieces(
    embedder: Embedder, candidates: Sequence[E], dim: int | None
) -> AsyncIterator[Embedded[E] | Split | Failed[E]]:
    """Embed in one call; where it fails although the model works, halve until the failing texts are alone.

    Args:
        embedder: The model.
        candidates: In order of age; pieces come in the same order.
        dim: Dimensions that the journal knows of this model, None if none.

    Yields:
        Pieces as soon as they are done, so that what follows cannot undo them.

    Raises:
        EmbedderError: The model itself is out of order; what was not yielded is untouched.
    """
    waiting = [candidates]
    probed = False
    while waiting:
        part = waiting.pop()
        try:
            vectors, tokens = await _vectors(embedder, part)
        except EmbedderError as error:
            if len(part) == 1 or not probed:  # once for a batch, and before any single text is blamed
                await embedder.probe()
                probed = True
            if len(part) == 1:
                yield Failed(part[0], error)
            else:
                yield Split(error)
                middle = len(part) // 2
                waiting += [part[middle:], part[:middle]]
            continue
        _know_again(embedder.model_id, vectors, dim)
        yield Embedded(part, vectors, tokens)


async def _vectors(embedder: Embedder, part: Sequence[HasText]) -> tuple[Sequence[bytes], Sequence[TokenBits | None]]:
    texts = [candidate.text for candidate in part]
    tokens: Sequence[TokenBits | None] = [None] * len(texts)
    try:
        if isinstance(embedder, TokenEmbedder):
            pairs = await embedder.embed_documents_tokens(texts)
            vectors, tokens = [vector for vector, _ in pairs], [bits for _, bits in pairs]
        else:
            vectors = await embedder.embed_documents(texts)
    except EmbedderError:
        raise
    except Exception as error:  # a fault of the adapter: bounded to its texts like any bad answer
        raise EmbedderBadAnswer(f"{embedder.model_id} failed with {type(error).__name__}") from error
    if len(vectors) != len(part):
        raise EmbedderBadAnswer(f"{embedder.model_id} gave {len(vectors)} vectors for {len(part)} texts")
    if any(not vector or len(vector) % FLOAT_BYTES for vector in vectors):
        raise EmbedderBadAnswer(f"{embedder.model_id} gave a vector that is empty or cut")
    return vectors, tokens


def _know_again(model: str, vectors: Sequence[bytes], dim: int | None) -> None:
    got = {len(vector) // FLOAT_BYTES for vector in vectors}
    if dim is not None and got != {dim}:
        raise EmbedderBadAnswer(
            f"{model} answers with {'/'.join(map(str, sorted(got)))} dimensions, the journal has {dim} of it",
            hint="the model changed under its name: restore it, or activate the new one under a name of its own",
        )
