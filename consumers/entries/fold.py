"""``journal_entries``: every admitted entry, for lists, counts and single lookups; ``journal_entries_archived``.

Invariant: each entry has one row in one of the two tables, appended in order of ``seq``; a document write is listed
once as an entry of type ``memory.updated``. A compaction moves rows to the archive. Otherwise only ``embeddable``
changes: a reindex activates a version of the embed policy in its workspace, and the workspace's settings decide whether
speech is embedded. Both recompute the column for earlier entries and apply to later entries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final

from ...schemas.access.events import WorkspaceConfigured
from ...schemas.core.entry import JournalEntry
from ...schemas.core.envelope import DocumentWritten, EntryRecorded
from ...schemas.core.errors import FoldError
from ...schemas.core.ids import name_key
from ...schemas.core.table import Tables
from ...schemas.core.timestamps import to_ms
from ...schemas.documents.rules import updated_entry
from ...schemas.documents.tables import SHOWN_WRITES, ShownWriteRow
from ...schemas.entries.events import MemoryCompacted
from ...schemas.entries.rules import PAYLOAD_CHARS, SUMMARY_CHARS
from ...schemas.entries.tables import ARCHIVED, EMBED_POLICIES, ENTRIES, ENTRIES_PROJECTION, EmbedPolicyRow, EntryRow
from ...schemas.models.events import ReindexRequested
from ...schemas.models.rules import FIRST, POLICIES, embeds_speech, is_embedded
from ...schemas.text import analyzer as text
from ...schemas.text.analyzer import strings_in, words_of
from ..folds.payloads import Compaction, compactions, json_text, payload_of, shown_payload
from ..folds.words import DATE_TOKENS, batch_tokens
from ..projection import Batch, FoldTransaction, in_order

_LIKE_FIELDS: Final = tuple(
    name
    for name in EntryRow._fields
    if name in JournalEntry.model_fields and name not in {"payload", "refs", "supersedes"}
)
"""Columns that are copied from the entry's field of the same name."""
_OF_EVENT: Final = ("seq", "ts_ms", "control", "published_ms", "size", "publisher")
"""Columns that are copied from the event."""
_JUDGE: Final = f"UPDATE {ENTRIES} SET embeddable = NOT embeddable WHERE seq IN (SELECT unnest(?::UBIGINT[]))"
_TYPES: Final = f"SELECT DISTINCT entry_type FROM {ENTRIES} WHERE workspace_id = ? ORDER BY 1"
_JUDGE_SPEECH: Final = f"""UPDATE {ENTRIES} SET embeddable = $2
    WHERE workspace_id = $1 AND embeddable != $2 AND entry_type IN (SELECT unnest($3::VARCHAR[]))"""
_CUT: Final = {
    "seq": "entry.seq",
    "entry_type": "entry.entry_type",
    "summary": f"left(summary, {SUMMARY_CHARS})",
    "payload": f"left(payload, {PAYLOAD_CHARS})",
}
_NAMED: Final = """(SELECT unnest($seqs::UBIGINT[]) AS seq, unnest($types::VARCHAR[]) AS entry_type,
    unnest($buckets::VARCHAR[]) AS bucket_id, unnest($archived::BIGINT[]) AS archived_ms) AS named"""
_OF_NAMED: Final = """workspace_id = $workspace AND entry.seq BETWEEN $first AND $last
    AND entry.seq = named.seq AND entry.entry_type = named.entry_type"""
"""The bounds let DuckDB skip blocks: rows are in order of ``seq``."""
_ARCHIVE: Final = f"""INSERT INTO {ARCHIVED} ({ARCHIVED.names})
    SELECT {", ".join(_CUT.get(column.name, column.name) for column in ARCHIVED.columns)}
    FROM {ENTRIES} AS entry, {_NAMED} WHERE {_OF_NAMED}"""
_REMOVE: Final = f"DELETE FROM {ENTRIES} AS entry USING {_NAMED} WHERE {_OF_NAMED}"
_FIELDS: Final = attrgetter(*_LIKE_FIELDS)
_EVENT_FIELDS: Final = attrgetter(*_OF_EVENT)
"""All of them in one pass."""
_DEFAULT: Final = EmbedPolicyRow("", FIRST, 0)


class EntriesProjection:
    """Folds entries and writes of documents into ``journal_entries``."""

    name: ClassVar = ENTRIES_PROJECTION
    version: ClassVar = 500 + text.VERSION
    tables: ClassVar[Tables] = (ENTRIES, ARCHIVED, EMBED_POLICIES, SHOWN_WRITES)
    folds: ClassVar = (EntryRecorded, DocumentWritten, ReindexRequested, WorkspaceConfigured, MemoryCompacted)

    def prepare(self, batch: Batch) -> None:
        """Tokenise the batch's texts before the transaction."""
        if batch.entries:
            batch_tokens(batch)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Append the batch's entries by the active policy; recompute ``embeddable`` after a reindex or a new setting."""
        writes = self._shown(batch.documents, tx) if batch.documents else []
        events = in_order(writes, batch.entries) if writes else batch.entries
        if not events:
            return
        in_force = self._in_force(batch.control(ReindexRequested, WorkspaceConfigured), tx)
        entries = [event.entry for event in events]
        columns: dict[str, Any] = {
            **dict(zip(_LIKE_FIELDS, zip(*map(_FIELDS, entries), strict=True), strict=True)),
            **dict(zip(_OF_EVENT, zip(*map(_EVENT_FIELDS, events), strict=True), strict=True)),
        }
        columns["payload"] = [json_text(shown_payload(entry)) for entry in entries]
        columns["refs"] = [json_text(entry.refs) for entry in entries]
        columns["supersedes"] = [json.dumps(entry.supersedes) if entry.supersedes else "[]" for entry in entries]
        columns["valid_ms"] = [None if entry.valid_at is None else to_ms(entry.valid_at) for entry in entries]
        run_ids = [entry.payload.get("run_id") for entry in entries]
        columns["run_id"] = [run_id if isinstance(run_id, str) else None for run_id in run_ids]
        rules = [in_force.get(entry.workspace_id, _DEFAULT) for entry in entries]
        columns["embeddable"] = [
            is_embedded(
                entry.entry_type, entry.severity, entry.payload, entry.refs, rule.policy, choice=rule.chat_choice
            )
            for entry, rule in zip(entries, rules, strict=True)
        ]
        words = (batch_tokens(batch).counts - DATE_TOKENS).tolist() if batch.entries else []
        if writes:
            of_entry = dict(zip((event.seq for event in batch.entries), words, strict=True))
            words = [of_entry[event.seq] if event.seq in of_entry else _words(event.entry) for event in events]
        columns["words"] = words
        tx.insert(ENTRIES, columns)
        if compacted := compactions(batch):
            _archive(compacted, tx)

    def _shown(self, writes: Sequence[DocumentWritten], tx: FoldTransaction) -> list[EntryRecorded]:
        """The entries that list document writes; repeats are left out."""
        named = [(name_key((write.workspace_id, write.write_id)), write) for write in writes]
        seen = {row.key for row in tx.find(SHOWN_WRITES, [key for key, _ in named])}
        first = {key: write for key, write in reversed(named) if key not in seen}
        tx.add(SHOWN_WRITES, [ShownWriteRow(key, write.seq) for key, write in first.items()])
        return [updated_entry(write) for write in first.values()]

    def _in_force(self, decisions: Sequence[EntryRecorded], tx: FoldTransaction) -> dict[str, EmbedPolicyRow]:
        """Apply the decisions of the batch; returns workspace → settings at the batch's end.

        A decision applies to all earlier entries, so the last decision of a batch applies to the whole batch.
        """
        before: dict[str, EmbedPolicyRow] = {row.workspace_id: row for row in tx.whole(EMBED_POLICIES)}
        after = dict(before)
        for event in decisions:
            workspace = event.workspace_id
            rule = after.get(workspace, _DEFAULT)
            policy, choice = rule.policy, rule.chat_choice
            if reindexed := event.entry.entry_type == ReindexRequested.ENTRY_TYPE:
                policy = payload_of(event, ReindexRequested).policy
            else:
                choice = payload_of(event, WorkspaceConfigured).chosen.embed_chat
            if policy not in POLICIES:
                raise FoldError(
                    f"the reindex at {event.seq} asks for embed policy {policy}, which this version does not know",
                    hint="upgrade this node, then rebuild the view",
                )
            if reindexed or choice != rule.chat_choice:
                after[workspace] = EmbedPolicyRow(workspace, policy, event.seq, choice)
        for workspace, rule in after.items():
            old = before.get(workspace, _DEFAULT)
            if rule != old:
                tx.replace(EMBED_POLICIES, [rule])
            if rule.policy != old.policy:
                self._judge_again(workspace, old.policy, rule.policy, tx)
            if (rule.policy, rule.chat_choice) != (old.policy, old.chat_choice):
                _judge_speech(workspace, old, rule, tx)
        return after

    def _judge_again(self, workspace: str, old: int, new: int, tx: FoldTransaction) -> None:
        types = sorted(POLICIES[old].types | POLICIES[new].types)
        known = tx.rows(
            f"SELECT seq, entry_type, severity, payload, refs, embeddable FROM {ENTRIES} "
            "WHERE workspace_id = ? AND entry_type IN (SELECT unnest(?::VARCHAR[]))",
            [workspace, types],
        )
        changed = [
            seq
            for seq, entry_type, severity, payload, refs, embeddable in known
            if is_embedded(entry_type, severity, json.loads(payload), json.loads(refs), new) != embeddable
        ]
        if changed:
            tx.rewrite(ENTRIES, workspace, _JUDGE, [changed])


def _judge_speech(workspace: str, old: EmbedPolicyRow, new: EmbedPolicyRow, tx: FoldTransaction) -> None:
    """Update ``embeddable`` of types that count as speech before or after a decision."""
    before, after = (
        POLICIES[rule.policy].is_speech if embeds_speech(rule.policy, rule.chat_choice) else _nothing
        for rule in (old, new)
    )
    changed: dict[bool, list[str]] = {}
    for (entry_type,) in tx.rows(_TYPES, [workspace]):
        if before(entry_type) != after(entry_type):
            changed.setdefault(after(entry_type), []).append(entry_type)
    for embeddable, types in changed.items():
        tx.rewrite(ENTRIES, workspace, _JUDGE_SPEECH, [workspace, embeddable, types])


def _nothing(_entry_type: str) -> bool:
    return False


def _archive(compacted: Sequence[Compaction], tx: FoldTransaction) -> None:
    """Move the entries that compactions name to the archive, each once; in-memory indexes do not contain these types."""
    by_workspace: dict[str, dict[int, Compaction]] = {}
    for one in compacted:
        named = by_workspace.setdefault(one.event.workspace_id, {})
        for seq in one.sequences:
            named.setdefault(seq, one)
    for workspace, named in by_workspace.items():
        of = {"workspace": workspace, "first": min(named), "last": max(named), "seqs": list(named)}
        of["types"] = [one.payload.entry_type for one in named.values()]
        of["buckets"] = [one.event.entry.id for one in named.values()]
        of["archived"] = [one.event.published_ms for one in named.values()]
        tx.execute(_ARCHIVE, of)
        tx.execute(_REMOVE, of)


def _words(entry: JournalEntry) -> int:
    return len(words_of(" ".join((entry.summary, *strings_in(shown_payload(entry))))))


PROJECTION = EntriesProjection
