"""``journal_embeddings``, a row per (entry, model) from the facts of embed reactors, and ``embedding_models``.

Invariant: of several facts about one (workspace, entry, model) the last gives the vector and the first ``indexed_at``;
a fact counts whether or not its entry is known here, for it carries all the fold needs. ``dim`` 0 is a tombstone. A
dropped model has no rows, and facts that still arrive of it count for nothing until it is added or activated again. A
reindex forgets the tombstones of its workspace: what was refused before it may be tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from ...schemas.events.embeddings import MODEL_DECISIONS, ReindexRequested
from ...schemas.events.envelope import EntryRecorded, VectorDerived
from ...schemas.ids import name_key
from ...schemas.views import EMBEDDING_MODELS, EMBEDDINGS, VECTORS_PROJECTION, ModelState
from ..folds.by_name import Name, name_of, take_out
from ..folds.model_decisions import model_decision
from ..folds.payloads import payload_of
from ..projection import Batch, FoldTransaction, in_order

_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {EMBEDDINGS} (
    key UBIGINT NOT NULL, entry_seq UBIGINT NOT NULL, entry_id VARCHAR NOT NULL, workspace_id VARCHAR NOT NULL,
    model VARCHAR NOT NULL, dim INTEGER NOT NULL, vector BLOB NOT NULL, text_hash VARCHAR NOT NULL,
    indexed_at BIGINT NOT NULL, seq UBIGINT NOT NULL)"""
"""``key`` is a 64-bit hash of (workspace, entry, model): an upsert finds its row by one scan of integers."""

_MODELS_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {EMBEDDING_MODELS} (
    model VARCHAR NOT NULL, embedder VARCHAR NOT NULL, state VARCHAR NOT NULL, dropped_seq UBIGINT NOT NULL,
    seq UBIGINT NOT NULL)"""

_FORGET_TOMBSTONES: Final = f"""DELETE FROM {EMBEDDINGS}
    WHERE dim = 0 AND workspace_id = ? AND (CAST(? AS VARCHAR) IS NULL OR model = ?)"""


class VectorsProjection:
    """Folds vector facts."""

    name: ClassVar[str] = VECTORS_PROJECTION
    version: ClassVar[int] = 4
    ddl: ClassVar[tuple[str, ...]] = (_DDL, _MODELS_DDL)
    tables: ClassVar[tuple[str, ...]] = (EMBEDDINGS, EMBEDDING_MODELS)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Upsert the batch's vectors; forget those of models dropped in it."""
        decisions = batch.control(*_DECISIONS)
        if not batch.vectors and not decisions:
            return
        models = _Models(tx)
        facts: list[VectorDerived] = []
        for event in in_order(batch.vectors, decisions) if decisions else batch.vectors:
            if isinstance(event, VectorDerived):
                if not models.is_dropped(event.model):
                    facts.append(event)
            elif event.entry.entry_type == ReindexRequested.ENTRY_TYPE:
                asked = payload_of(event, ReindexRequested)
                self._upsert(facts, tx)  # a tombstone of this batch has replaced its vector by now
                facts = []
                tx.execute(_FORGET_TOMBSTONES, [event.workspace_id, asked.model, asked.model])
            elif (dropped := models.decide(event)) is not None:
                tx.execute(f"DELETE FROM {EMBEDDINGS} WHERE model = ?", [dropped])
                facts = [fact for fact in facts if fact.model != dropped]
        self._upsert(facts, tx)

    def _upsert(self, facts: Sequence[VectorDerived], tx: FoldTransaction) -> None:
        if not facts:
            return
        last = {name_of(fact): fact for fact in facts}
        indexed_at = {name_of(fact): fact.published_ms for fact in reversed(facts)}
        keys = {name: name_key(name) for name in last}
        for name, (first,) in take_out(tx, EMBEDDINGS, keys, "indexed_at").items():
            indexed_at[name] = first
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
        columns["key"] = np.fromiter((keys[name_of(fact)] for fact in facts), np.uint64, n)
        columns["entry_seq"] = np.fromiter((fact.entry_seq for fact in facts), np.uint64, n)
        columns["seq"] = np.fromiter((fact.seq for fact in facts), np.uint64, n)
        columns["dim"] = np.fromiter((fact.dim for fact in facts), np.int32, n)
        columns["indexed_at"] = np.fromiter((indexed_at[name_of(fact)] for fact in facts), np.int64, n)
        tx.insert(EMBEDDINGS, columns)


_DECISIONS: Final = (*MODEL_DECISIONS, ReindexRequested.ENTRY_TYPE)


class _Models:
    """What is decided about each model, as of the event folded last."""

    def __init__(self, tx: FoldTransaction) -> None:
        self._tx = tx
        self._rows: dict[str, tuple[str, str, int]] = {
            model: (embedder, state, dropped_seq)
            for model, embedder, state, dropped_seq, _ in tx.whole(EMBEDDING_MODELS)
        }

    def is_dropped(self, model: str) -> bool:
        """Whether facts of this model count for nothing."""
        known = self._rows.get(model)
        return known is not None and known[1] == ModelState.DROPPED

    def decide(self, event: EntryRecorded) -> str | None:
        """Take in one decision; returns the model whose vectors it takes away, if it does."""
        decision = model_decision(event)
        if decision is None:
            return None
        model, state = decision.model, decision.state
        embedder, former, dropped_seq = self._rows.get(model, ("none", ModelState.DROPPED, 0))
        if state is ModelState.DROPPED:
            self._put(model, embedder, state, event.seq, event.seq)
            return model
        if decision.embedder is not None and (state is ModelState.ADDED or former == ModelState.DROPPED):
            self._put(model, decision.embedder, state, dropped_seq, event.seq)
        return None

    def _put(self, model: str, embedder: str, state: ModelState, dropped_seq: int, seq: int) -> None:
        self._rows[model] = (embedder, state.value, dropped_seq)
        self._tx.execute(f"DELETE FROM {EMBEDDING_MODELS} WHERE model = ?", [model])
        self._tx.execute(
            f"INSERT INTO {EMBEDDING_MODELS} (model, embedder, state, dropped_seq, seq) VALUES (?, ?, ?, ?, ?)",
            [model, embedder, state.value, dropped_seq, seq],
        )


PROJECTION = VectorsProjection
