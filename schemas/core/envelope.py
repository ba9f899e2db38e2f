"""The events that messages of JOURNAL decode to: one slotted class per family.

Common fields: ``seq`` is the stream sequence of the message, ``published_ms`` the broker's time in milliseconds since
the epoch, ``reactor`` the ``name@version`` that derived a fact, ``entry_id`` and ``entry_seq`` the entry from which it
was derived. Fields of a vector that have no description here are copied from that entry.

Invariant: each event carries all that its folds need. Entries and vectors are immutable by convention only: freezing
these classes costs 2 to 5 µs for each event.
"""

from __future__ import annotations

from dataclasses import dataclass

from .entry import JournalEntry


@dataclass(slots=True)
class EntryRecorded:
    """An entry of ``journal.`` or ``control.``.

    Attributes:
        seq: Stream sequence in JOURNAL; the document number of every index.
        ts_ms: ``entry.ts`` in milliseconds since the epoch, computed once.
        control: Whether the message came on a control subject, on which only the service publishes.
        identity: 16 bytes, ``ids.identity_key(workspace, id)``.
        content: 16 bytes: hash of the submitted content.
        published_ms: The broker's time of the message, milliseconds since the epoch.
        publisher: Owner of the token that published the entry (``core/principal``); None for entries that the service
            or an older version published.
        vouched: Whether the actor is a person and the publishing token is allowed to speak for that person.
    """

    seq: int
    entry: JournalEntry
    ts_ms: int
    control: bool
    identity: bytes
    content: bytes
    published_ms: int
    size: int
    publisher: str | None = None
    vouched: bool = False

    @property
    def workspace_id(self) -> str:
        """The workspace the entry belongs to."""
        return self.entry.workspace_id


@dataclass(slots=True)
class VectorDerived:
    """The vector of an entry, computed by one model.

    Attributes:
        dim: Number of dimensions; 0 marks a tombstone, because the model refuses this text.
        vector: ``4 * dim`` bytes, little-endian float32, L2-normalised.
        published_ms: The broker's time of this fact; the entry's ``indexed_at`` if this is its first fact.
    """

    seq: int
    workspace_id: str
    entry_id: str
    entry_seq: int
    model: str
    dim: int
    vector: bytes
    text_hash: str
    entry_type: str
    severity: str
    priority: str
    crew_id: str | None
    agent_id: str | None
    ts_ms: int
    published_ms: int
    reactor: str


@dataclass(slots=True)
class TokenBitsDerived:
    """Contextual vectors of an entry's word pieces, quantised to one bit per dimension, for late interaction.

    Attributes:
        quantiser: Version of the rule that selected the word pieces and computed their bits.
        dim: Bits per word piece, a multiple of 64.
        bits: ``dim / 8`` bytes per word piece, in the order of the text.
        first_passage: How many word pieces belong to the first passage; the others belong to the second.
    """

    seq: int
    workspace_id: str
    entry_id: str
    entry_seq: int
    model: str
    quantiser: int
    dim: int
    bits: bytes
    first_passage: int
    published_ms: int
    reactor: str


@dataclass(slots=True)
class ChunkVectorDerived:
    """The vector of a text in memory documents, computed by one model.

    Attributes:
        text_hash: ``ids.hash64`` of the text; identifies the chunks that contain it.
        dim: Number of dimensions; 0 marks a tombstone, because the model refuses this text.
        vector: ``4 * dim`` bytes, little-endian float32, L2-normalised.
        write_id: Id of a document write that contains the text.
    """

    seq: int
    workspace_id: str
    model: str
    text_hash: int
    dim: int
    vector: bytes
    write_id: str
    published_ms: int
    reactor: str


@dataclass(frozen=True, slots=True)
class LinkDerived:
    """A relation between two entries, found by a reactor.

    Attributes:
        src_entry_id: The newer entry, or the rule.
        dst_entry_id: The older entry, or the evidence.
        weight: Cosine for the relation ``similar``; confidence for a proposed ``contradicts`` or ``supersedes``.
        crew_id: The crew of both entries, None if they have none.
        reason: Which rule found the contradiction or the update, explained for people.
        since_ms: For ``supersedes``: the time from which the newer entry is true, if its text names a time;
            milliseconds since 1970-01-01.
    """

    seq: int
    workspace_id: str
    src_entry_id: str
    src_seq: int
    dst_entry_id: str
    dst_seq: int
    relation: str
    weight: float
    published_ms: int
    reactor: str
    crew_id: str | None = None
    reason: str = ""
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DocumentWritten:
    """A write of a memory document.

    Attributes:
        seq: Stream sequence; the document's version for optimistic concurrency.
        owner: ``a-<agent>``, ``c-<crew>``, ``w`` (the workspace) or ``u-<keyed hash of a user>``.
        key: Key within the tier, an id or a path; None if the tier holds a single document.
        content: The whole text for ``replace`` and ``restore``, the new lines for ``append``, empty for ``retract``.
        derived_from: Ids of the entries and document writes from which the content was made.
    """

    seq: int
    workspace_id: str
    owner: str
    tier: str
    key: str | None
    action: str
    content: str
    source: str
    write_id: str
    actor_type: str
    published_ms: int
    actor_id: str | None = None
    data_subject_id: str | None = None
    derived_from: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UnknownDerived:
    """A fact of a kind that this version does not know; no projection folds it."""

    seq: int
    workspace_id: str
    kind: str


@dataclass(frozen=True, slots=True)
class ErasedReceived:
    """A message that arrived after its id, or what it was made of, was erased: it is not folded, and is deleted.

    Attributes:
        entry_id: The erased id.
    """

    seq: int
    workspace_id: str
    entry_id: str


Event = (
    EntryRecorded
    | VectorDerived
    | TokenBitsDerived
    | ChunkVectorDerived
    | LinkDerived
    | DocumentWritten
    | UnknownDerived
    | ErasedReceived
)
