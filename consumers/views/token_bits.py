"""``entry_token_bits``: the tokens of an entry in context, one bit a dimension, from the facts of embed reactors.

Invariant: one row per (entry, model); of several facts the last counts. A dropped model has no rows, and facts that
still arrive of it count for nothing until it is added or activated again, as with vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from ...schemas.events.embeddings import MODEL_DECISIONS
from ...schemas.events.envelope import TokenBitsDerived
from ...schemas.ids import name_key
from ...schemas.views import TOKEN_BITS, TOKEN_BITS_PROJECTION, ModelState
from ..folds.by_name import name_of, take_out
from ..folds.model_decisions import model_decision
from ..projection import Batch, FoldTransaction, in_order

_DDL: Final = f"""CREATE TABLE IF NOT EXISTS {TOKEN_BITS} (
    key UBIGINT NOT NULL, entry_seq UBIGINT NOT NULL, entry_id VARCHAR NOT NULL, workspace_id VARCHAR NOT NULL,
    model VARCHAR NOT NULL, quantiser INTEGER NOT NULL, dim INTEGER NOT NULL, bits BLOB NOT NULL,
    first_passage USMALLINT NOT NULL, seq UBIGINT NOT NULL)"""
"""``key`` is a 64-bit hash of (workspace, entry, model): an upsert finds its row by one scan of integers."""

_DROPPED: Final = "token_bits_dropped"
_DROPPED_DDL: Final = f"CREATE TABLE IF NOT EXISTS {_DROPPED} (model VARCHAR NOT NULL)"


class TokenBitsProjection:
    """Folds facts about tokens in context."""

    name: ClassVar[str] = TOKEN_BITS_PROJECTION
    version: ClassVar[int] = 1
    ddl: ClassVar[tuple[str, ...]] = (_DDL, _DROPPED_DDL)
    tables: ClassVar[tuple[str, ...]] = (TOKEN_BITS, _DROPPED)
    digest: ClassVar[Mapping[str, str]] = {}

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Upsert the batch's facts; forget those of models dropped in it."""
        decisions = batch.control(*MODEL_DECISIONS)
        if not batch.token_bits and not decisions:
            return
        dropped = {str(model) for (model,) in tx.whole(_DROPPED)}
        facts: list[TokenBitsDerived] = []
        for event in in_order(batch.token_bits, decisions):
            if isinstance(event, TokenBitsDerived):
                if event.model not in dropped:
                    facts.append(event)
                continue
            decision = model_decision(event)
            if decision is None:
                continue
            model, drops = decision.model, decision.state is ModelState.DROPPED
            if drops and model not in dropped:
                tx.execute(f"INSERT INTO {_DROPPED} VALUES (?)", [model])
                tx.execute(f"DELETE FROM {TOKEN_BITS} WHERE model = ?", [model])
                facts = [fact for fact in facts if fact.model != model]
                dropped.add(model)
            elif not drops and model in dropped:
                tx.execute(f"DELETE FROM {_DROPPED} WHERE model = ?", [model])
                dropped.remove(model)
        if facts:
            self._upsert(facts, tx)

    def _upsert(self, facts: Sequence[TokenBitsDerived], tx: FoldTransaction) -> None:
        last = {name_of(fact): fact for fact in facts}
        keys = {name: name_key(name) for name in last}
        take_out(tx, TOKEN_BITS, keys)
        kept = list(last.values())
        columns: dict[str, Any] = {
            column: [getattr(fact, column) for fact in kept] for column in ("entry_id", "workspace_id", "model", "bits")
        }
        n = len(kept)
        for column, dtype in (
            ("entry_seq", np.uint64),
            ("seq", np.uint64),
            ("quantiser", np.int32),
            ("dim", np.int32),
            ("first_passage", np.uint16),
        ):
            columns[column] = np.fromiter((getattr(fact, column) for fact in kept), dtype, n)
        columns["key"] = np.fromiter(keys.values(), np.uint64, n)
        tx.insert(TOKEN_BITS, columns)


PROJECTION = TokenBitsProjection
