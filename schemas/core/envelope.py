"""The events that messages of JOURNAL decode to: one slotted class per family.

Common fields: ``seq`` is the stream sequence of the message, ``published_ms`` the broker's time in milliseconds since
the epoch, ``reactor`` the ``name@version`` that derived a fact, ``entry_id`` and ``entry_seq`` the entry from which it
was derived. Fields of a vector that are not described are those of that entry.

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
        control: Whether it came on a control subject, so that the service has published it.
        identity: 16 bytes, ``ids.identity_key(workspace, id)``.
        content: 16 bytes: hash of the submitted content.
        published_ms: The broker's time of the message, milliseconds since the epoch.
        publisher: Whose token published it (``core/principal``); None for entries of the service and of older versions.
        vouched: Whether the entry is the own words of its actor, a person: the token spoke for that person.
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
    """The vector of an entry under one model.

    Attributes:
        dim: Number of dimensions; 0 marks a tombstone: the model refuses this text.
        vector: ``4 * dim`` bytes, little-endian float32, L2-normalised.
        published_ms: The broker's time of this fact: ``indexed_at`` if it is the entry's first.
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
    """The word pieces of an entry in context, one bit per dimension, for late interaction.

    Attributes:
        quantiser: Version of the rule that selected the word pieces and computed their bits.
        dim: Bits per word piece, a multiple of 64.
        bits: ``dim / 8`` bytes per word piece, in the order of the text.
        first_passage: How many of them belong to the first passage; the others belong to the second.
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
    """The vector of a text of memory documents, under one model.

    Attributes:
        text_hash: ``ids.hash64`` of the text, by which its chunks are found.
        dim: Number of dimensions; 0 marks a tombstone: the model refuses this text.
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
        weight: Cosine for similar, confidence for a proposed contradicts or supersedes.
        crew_id: The crew of both entries, None if they have none.
        reason: Explanation for people: which rule found a contradiction or an update.
        since_ms: For supersedes: the time from which the newer entry holds, if its text names one; milliseconds since
            1970-01-01.
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
        key: Key within the tier, an id or a path; None where the tier has one document.
        content: The whole text of replace and restore, the new lines of append, empty for retract.
        derived_from: Ids of the entries and document writes that the content was made of.
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


Event = (
    EntryRecorded
    | VectorDerived
    | TokenBitsDerived
    | ChunkVectorDerived
    | LinkDerived
    | DocumentWritten
    | UnknownDerived
)
