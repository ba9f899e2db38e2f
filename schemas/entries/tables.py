"""Tables of entries: the listed fields, their words, and the features of turns of conversation."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from ..core.table import CODED, Default, Hot, Int32, Ms, Seq, Table

ADMISSION_PROJECTION: Final = "admission"
ENTRIES_PROJECTION: Final = "entries"
FULLTEXT_PROJECTION: Final = "fulltext"
TURNS_PROJECTION: Final = "turns"


class AdmittedRow(NamedTuple):
    """The first sequence of a (workspace, id)."""

    seq: Seq
    k0: Seq  # two halves of the hash of both
    k1: Seq
    content: bytes  # hash of what was submitted


class BarredRow(NamedTuple):
    """An id of a workspace that was erased: later messages with this id are not folded."""

    seq: Seq  # of the event that erased it first
    k0: Seq  # as in ``AdmittedRow``
    k1: Seq


class EntryRow(NamedTuple):
    """An admitted entry; the rows are in order of ``seq``."""

    seq: Seq
    id: str
    workspace_id: str
    crew_id: Annotated[str, CODED] | None
    agent_id: Annotated[str, CODED] | None
    mission_id: Annotated[str, CODED] | None
    trace_id: Annotated[str, CODED] | None
    span_id: str | None
    ts_ms: Annotated[Ms, Hot("int64")]
    entry_type: str
    severity: str
    priority: str  # when emitted
    actor_type: Annotated[str, CODED]
    actor_id: Annotated[str, CODED] | None
    summary: str
    payload: str  # JSON text
    refs: str  # JSON text
    data_subject_id: Annotated[str, CODED] | None
    supersedes: Annotated[str, Default("'[]'")]  # JSON list of ids
    valid_ms: Ms | None
    schema_version: Int32
    run_id: str | None  # ``payload.run_id`` if a string
    control: bool
    embeddable: (
        bool  # whether it gets a vector, by the current ``schemas/models/rules`` and the workspace's setting for speech
    )
    words: Annotated[Int32, Hot("uint16")]  # of summary and payload strings, stop words included
    published_ms: Ms
    size: Int32
    publisher: Annotated[str | None, Default("NULL")] = None  # the publisher, as in ``schemas/core/principal``


class ArchivedRow(NamedTuple):
    """An entry that compaction has moved out of ``journal_entries``, with the beginning of its text."""

    seq: Seq
    id: str
    workspace_id: str
    crew_id: str | None
    agent_id: str | None
    mission_id: str | None
    trace_id: str | None
    span_id: str | None
    ts_ms: Ms
    entry_type: str
    severity: str
    priority: str  # when emitted
    actor_type: str
    actor_id: str | None
    summary: str  # at most ``schemas/entries/rules.SUMMARY_CHARS``
    payload: str  # JSON text, cut to ``PAYLOAD_CHARS``
    refs: str  # JSON text
    data_subject_id: str | None
    supersedes: str  # JSON list of ids
    valid_ms: Ms | None
    schema_version: Int32
    run_id: str | None
    published_ms: Ms
    size: Int32  # of the message
    bucket_id: str  # id of the ``memory.compacted`` that archived it
    archived_ms: Ms  # the broker's time of that event


class EmbedPolicyRow(NamedTuple):
    """The embed policy of a workspace whose reindex or settings changed it; other workspaces use the first policy."""

    workspace_id: str
    policy: Int32  # version of the embed policy
    seq: Seq
    chat_choice: Annotated[bool | None, Default("NULL")] = (
        None  # whether speech is embedded; None means that the policy decides
    )


class PostingRow(NamedTuple):
    """The frequency of a term in an entry."""

    ws: Seq  # ``ids.hash64(workspace_id)``
    term: Seq  # the analyser's key
    doc: Seq  # sequence of the entry
    tf: Annotated[int, "USMALLINT"]
    dl: Annotated[int, "USMALLINT"]  # indexed tokens of the entry


class RunRow(NamedTuple):
    """A sealed run of postings, sorted by (ws, term, doc)."""

    first_doc: Seq
    last_doc: Seq
    size: Seq


class TurnRow(NamedTuple):
    """The features of an entry of a conversation type (``consumers/entries/turns_fold``)."""

    ws: Seq
    doc: Seq
    flags: Annotated[int, "UTINYINT", Hot("uint8")]  # ``schemas/recall/turns``
    pieces: bytes  # uint16 ids of its word pieces
    first_passage: Annotated[int, "USMALLINT", Hot("uint16")]  # how many pieces belong to the first passage
    days: bytes  # pairs of int32: first and last day of each interval named


ADMITTED: Final = Table("admitted", AdmittedRow, ADMISSION_PROJECTION)
ENTRIES: Final = Table("journal_entries", EntryRow, ENTRIES_PROJECTION, document="seq")
ARCHIVED: Final = Table("journal_entries_archived", ArchivedRow, ENTRIES_PROJECTION, document="seq")
BARRED: Final = Table("barred", BarredRow, ADMISSION_PROJECTION)
EMBED_POLICIES: Final = Table("embed_policies", EmbedPolicyRow, ENTRIES_PROJECTION, key=("workspace_id",))
POSTINGS_TAIL: Final = Table("postings_tail", PostingRow, FULLTEXT_PROJECTION, document="doc", digested=False)
POSTINGS: Final = Table("postings", PostingRow, FULLTEXT_PROJECTION, document="doc", rest=POSTINGS_TAIL)
RUNS: Final = Table("postings_runs", RunRow, FULLTEXT_PROJECTION, digested=False)
TURNS: Final = Table("conversation_turns", TurnRow, TURNS_PROJECTION, document="doc")


# The part of the read contract between projections and queries that concerns entries.


DECODE_STAGE: Final = "decode"
BEFORE_VIEWS: Final = (DECODE_STAGE, ADMISSION_PROJECTION)
"""Names of the two checks that run before all views; a message that fails one of them is parked and reaches no view."""

ENTRY_COLUMNS: Final = EntryRow._fields[: EntryRow._fields.index("schema_version") + 1]
"""The columns of an entry that readers get; ``payload``, ``refs`` and ``supersedes`` are JSON text."""
