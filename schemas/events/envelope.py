"""The events that messages of JOURNAL decode to: one slotted class per family.

Invariant: each event carries all that its folds need. Entries and vectors are immutable by convention only: freezing
these classes costs 2 to 5 µs for each event.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..entry import JournalEntry


@dataclass(slots=True)
class EntryRecorded:
    """An entry of ``journal.`` or ``control.``.

    Attributes:
        seq: Stream sequence in JOURNAL; the document number of every index.
        entry: The entry, upcast and validated.
        ts_ms: ``entry.ts`` in milliseconds since the epoch, computed once.
        control: Whether it came on a control subject, so that the service has published it.
        identity: 16 bytes, ``ids.identity_key(workspace, id)``.
        content: 16 bytes: hash of the submitted content.
        published_ms: The broker's time of the message, milliseconds since the epoch.
        size: Bytes of the message body.
    """

    seq: int
    entry: JournalEntry
    ts_ms: int
    control: bool
    identity: bytes
    content: bytes
    published_ms: int
    size: int

    @property
    def workspace_id(self) -> str:
        """The workspace the entry belongs to."""
        return self.entry.workspace_id


@dataclass(slots=True)
class VectorDerived:
    """The vector of an entry under one model.

    Attributes:
        seq: Stream sequence of this fact.
        workspace_id: Workspace of the entry.
        entry_id: The embedded entry; ``derived_from``.
        entry_seq: Its stream sequence.
        model: Model id, e.g. ``all-MiniLM-L6-v2``.
        dim: Number of dimensions; 0 marks a tombstone: the model refuses this text.
        vector: ``4 * dim`` bytes, little-endian float32, L2-normalised.
        text_hash: Hex hash of the embedded text.
        entry_type: The entry's type.
        severity: The entry's severity.
        priority: The entry's priority when emitted.
        crew_id: The entry's crew.
        agent_id: The entry's agent.
        ts_ms: The entry's time.
        published_ms: The broker's time of this fact: ``indexed_at`` if it is the entry's first.
        reactor: ``name@version`` of the reactor that derived it.
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
        seq: Stream sequence of this fact.
        workspace_id: Workspace of the entry.
        entry_id: The entry; ``derived_from``.
        entry_seq: Its stream sequence.
        model: Model id; bits of different models are never compared.
        quantiser: Version of the rule that selected the word pieces and computed their bits.
        dim: Bits per word piece, a multiple of 64.
        bits: ``dim / 8`` bytes per word piece, in the order of the text.
        first_passage: How many of them belong to the first passage; the others belong to the second.
        published_ms: The broker's time of this fact.
        reactor: ``name@version`` of the reactor that derived it.
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


@dataclass(frozen=True, slots=True)
class LinkDerived:
    """A relation between two entries, found by a reactor.

    Attributes:
        seq: Stream sequence of this fact.
        workspace_id: Workspace of both entries.
        src_entry_id: The newer entry, or the rule.
        src_seq: Its stream sequence.
        dst_entry_id: The older entry, or the evidence.
        dst_seq: Its stream sequence.
        relation: similar, supports or contradicts.
        weight: Cosine for similar, confidence for a proposed contradicts.
        crew_id: The crew of both entries, None if they have none.
        reason: Explanation for people: which rule found a contradiction.
        published_ms: The broker's time.
        reactor: ``name@version``.
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


@dataclass(frozen=True, slots=True)
class DocumentWritten:
    """A write of a memory document.

    Attributes:
        seq: Stream sequence; the document's version for optimistic concurrency.
        workspace_id: Workspace.
        owner: ``a-<agent>``, ``c-<crew>``, ``w`` (the workspace) or ``u-<keyed hash of a user>``.
        tier: The tier (AGENT, CREW, pins, daily …).
        key: Key within the tier, an id or a path; None where the tier has one document.
        action: replace, append, retract or restore.
        content: The whole text of replace and restore, the new lines of append, empty for retract.
        source: Where the write came from (api, mcp, mirror, import, consolidation …).
        write_id: The write's own id.
        actor_type: Who wrote: agent, user, system …
        published_ms: The broker's time.
        actor_id: Who exactly.
        data_subject_id: Whose personal data the content is.
        derived_from: Ids of the entries and document writes that the content was made of.
        reason: Why, for people.
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


Event = EntryRecorded | VectorDerived | TokenBitsDerived | LinkDerived | DocumentWritten | UnknownDerived
