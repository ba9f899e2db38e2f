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
from ...schemas.models.tables import TOKEN_BITS, TOKEN_BITS_DROPPED, TOKEN_BITS_PROJECTION, TokenBitsRow
from ..folds.payloads import fold_by_model
from ..projection import Batch, FoldTransaction

_OF_FACT: Final = attrgetter(*(name for name in TokenBitsRow._fields if name != "key"))


class TokenBitsProjection:
    """Folds facts about tokens in context."""

    name: ClassVar = TOKEN_BITS_PROJECTION
    version: ClassVar = 1
    tables: ClassVar[Tables] = (TOKEN_BITS, TOKEN_BITS_DROPPED)
    folds: ClassVar = (TokenBitsDerived, *MODEL_DECISIONS)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        """Upsert the batch's facts; forget those of models dropped in it."""
        fold_by_model(batch.token_bits, batch, tx, TOKEN_BITS, TOKEN_BITS_DROPPED, _row)


def _row(fact: TokenBitsDerived) -> TokenBitsRow:
    return TokenBitsRow(name_key((fact.workspace_id, fact.entry_id, fact.model)), *_OF_FACT(fact))


PROJECTION = TokenBitsProjection
