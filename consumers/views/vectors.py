"""``journal_embeddings``: one row per (entry, model), from the facts that embed reactors publish.

Invariant: of several facts about one (workspace, entry, model) the last gives the vector and the first ``indexed_at``;
a fact counts whether or not its entry is known here, for it carries all the fold needs. ``dim`` 0 is a tombstone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.schemas.events.envelope import VectorDerived
from crew_journal.schemas.rules.importance import base_importance
from crew_journal.schemas.views import EMBEDDINGS, VECTORS_PROJECTION

_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {EMBEDDINGS} (
    key UBIGINT NOT NULL, entry_seq UBIGINT NOT NULL, entry_id VARCHAR NOT NULL, workspace_id VARCHAR NOT NULL,
    model VARCHAR NOT NULL, dim INTEGER NOT NULL, vector BLOB NOT NULL, text_hash VARCHAR NOT NULL,
    importance_score DOUBLE NOT NULL, reference_count BIGINT NOT NULL, last_referenced_at BIGINT,
    indexed_at BIGINT NOT NULL, seq UBIGINT NOT NULL)"""
"""``key`` is a 64-bit hash of (workspace, entry, model): an upsert finds its row by one scan of integers."""

Name = tuple[str, str, str]


def _name(fact: VectorDerived) -> Name:
    return fact.workspace_id, fact.entry_id, fact.model


def _key(name: Name) -> int:
    return int.from_bytes(hashlib.blake2b("\x00".join(name).encode(), digest_size=8).digest(), "little")


class VectorsProjection:
    """Folds vector facts."""

    name: ClassVar[str] = VECTORS_PROJECTION
    version: ClassVar[int] = 1
    ddl: ClassVar[tuple[str, ...]] = (_DDL,)
    tables: ClassVar[tuple[str, ...]] = (EMBEDDINGS,)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Upsert the batch's vectors."""
        facts = batch.vectors
        if not facts:
            return
        last = {_name(fact): fact for fact in facts}
        indexed_at = {_name(fact): fact.published_ms for fact in reversed(facts)}
        keys = {name: _key(name) for name in last}
        known = tx.rows(
            f"SELECT workspace_id, entry_id, model, indexed_at FROM {EMBEDDINGS} WHERE key IN (SELECT unnest(?))",
            [list(keys.values())],
        )
        for workspace, entry, model, first in known:
            name = (workspace, entry, model)
            if name in last:
                indexed_at[name] = first
                tx.execute(
                    f"DELETE FROM {EMBEDDINGS} WHERE key = ? AND workspace_id = ? AND entry_id = ? AND model = ?",
                    [keys[name], *name],
                )
        self._insert(list(last.values()), indexed_at, keys, tx)

    def _insert(
        self,
        facts: Sequence[VectorDerived],
        indexed_at: Mapping[Name, int],
        keys: Mapping[Name, int],
        tx: FoldTransaction,
    ) -> None:
        n = len(facts)
        columns: dict[str, Any] = {
            name: [getattr(fact, name) for fact in facts]
            for name in ("entry_id", "workspace_id", "model", "vector", "text_hash")
        }
        columns["key"] = np.fromiter((keys[_name(fact)] for fact in facts), np.uint64, n)
        columns["entry_seq"] = np.fromiter((fact.entry_seq for fact in facts), np.uint64, n)
        columns["seq"] = np.fromiter((fact.seq for fact in facts), np.uint64, n)
        columns["dim"] = np.fromiter((fact.dim for fact in facts), np.int32, n)
        columns["importance_score"] = [base_importance(f.entry_type, f.severity, f.priority) for f in facts]
        columns["reference_count"] = np.zeros(n, np.int64)
        columns["indexed_at"] = np.fromiter((indexed_at[_name(fact)] for fact in facts), np.int64, n)
        tx.insert(EMBEDDINGS, columns)


PROJECTION = VectorsProjection
