"""Says which entries a new one names in ``supersedes`` without superseding them.

Why: an id with a typing error, or an entry of another author, would be ignored without a warning.
Invariant: the rule is that of ``services/query/standing``; the answer does not tell an unknown id from one that the caller
may not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from ....schemas.errors import ViewsBehind
from ....schemas.ports import ViewReader
from ....schemas.rules.actors import author_of
from ....schemas.views import ENTRIES, ENTRIES_PROJECTION, STANDINGS_PROJECTION, SUPERSESSIONS, SupersessionRow
from ..standing import StandingSubject, supersedes

WAIT_S: Final = 1.0
"""Seconds that an append waits for its entry in the views; without it, there is no warning."""
IDS_NAMED: Final = 10
"""Ids in a warning, so that those of a batch fit into one answer over NATS."""
_NAMED: Final = f"""SELECT {", ".join(f"named.{column.name}" for column in SUPERSESSIONS.columns)},
        entry.seq, entry.agent_id, entry.actor_type, entry.actor_id
    FROM {SUPERSESSIONS} AS named
    LEFT JOIN {ENTRIES} AS entry ON entry.workspace_id = named.workspace_id AND entry.id = named.target_id
    WHERE named.by_seq IN (SELECT unnest(?::UBIGINT[])) ORDER BY named.by_seq, named.target_id"""


class SupersedingCheck:
    """Looks entries up in the views."""

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    async def __call__(self, seqs: Sequence[int]) -> Mapping[int, str]:
        """Sequence of a new entry → a warning, for those that name an entry that they do not supersede.

        Args:
            seqs: Entries that were just appended, all with ``supersedes``; at least one.
        """
        try:
            await self._views.wait_for(max(seqs), WAIT_S, ENTRIES_PROJECTION, STANDINGS_PROJECTION)
        except ViewsBehind:
            return {}
        rows = await asyncio.to_thread(self._views.rows, _NAMED, [list(seqs)])
        vain = [SupersessionRow(*row[:-4]) for row in rows if not _counts(SupersessionRow(*row[:-4]), *row[-4:])]
        return {
            seq: _warning([vain_one.target_id for vain_one in named])
            for seq, named in groupby(vain, key=lambda vain_one: vain_one.by_seq)
        }


def _counts(row: SupersessionRow, seq: int | None, agent_id: str | None, actor: str, actor_id: str | None) -> bool:
    return seq is not None and supersedes(
        row, StandingSubject(row.target_id, seq, agent_id, 0, author_of(actor, actor_id))
    )


def _warning(ids: Sequence[str]) -> str:
    named = ", ".join(ids[:IDS_NAMED]) + (" …" if len(ids) > IDS_NAMED else "")
    return (
        f"supersedes: {named} still count{'s' if len(ids) == 1 else ''}: no such earlier entry of this agent and actor; "
        "check the id, or ask a LEAD or an operator to retract the entry"
    )
