"""``entry_token_bits``: the tokens of an entry in context, one bit a dimension, from the facts of embed reactors.

Invariant: one row per (entry, model); of several facts the last counts. A dropped model has no rows, and facts that
still arrive of it count for nothing until it is added or activated again, as with vectors.
"""

from __future__ import annotations

from operator import attrgetter
from typing import ClassVar, Final

from ...schemas.core.envelope import TokenBitsDerived
from ...schemas.core.ids import name_key
from ...schemas.core.table import Tables
from ...schemas.models.events import MODEL_DECISIONS
from ...schemas.models.tables import (
    TOKEN_BITS,
    TOKEN_BITS_DROPPED,
    TOKEN_BITS_PROJECTION,
    DroppedRow,
    ModelState,
    TokenBitsRow,
)
from ..folds.payloads import model_decision
from ..projection import Batch, FoldTransaction, in_order

_NAME: Final = attrgetter(*TOKEN_BITS.key)
_OF_FACT: Final = attrgetter(*(name for name in TokenBitsRow._fields if name != "key"))


class TokenBitsProjection:
    """Folds facts about tokens in context."""

    name: ClassVar = TOKEN_BITS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (TOKEN_BITS, TOKEN_BITS_DROPPED)
    folds: ClassVar = (TokenBitsDerived, *MODEL_DECISIONS)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Upsert the batch's facts; forget those of models dropped in it."""
        decisions = batch.control(*MODEL_DECISIONS)
        if not batch.token_bits and not decisions:
            return
        dropped = {row.model for row in tx.whole(TOKEN_BITS_DROPPED)}
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
                tx.add(TOKEN_BITS_DROPPED, [DroppedRow(model)])
                tx.delete(TOKEN_BITS, model=model)
                facts = [fact for fact in facts if fact.model != model]
                dropped.add(model)
            elif not drops and model in dropped:
                tx.delete(TOKEN_BITS_DROPPED, model=model)
                dropped.remove(model)
        last = {_NAME(row): row for row in map(_row, facts)}
        if last:
            former = tx.find(TOKEN_BITS, list({row.key for row in last.values()}))
            tx.replace(TOKEN_BITS, list(last.values()), former)


def _row(fact: TokenBitsDerived) -> TokenBitsRow:
    return TokenBitsRow(name_key((fact.workspace_id, fact.entry_id, fact.model)), *_OF_FACT(fact))


PROJECTION = TokenBitsProjection
