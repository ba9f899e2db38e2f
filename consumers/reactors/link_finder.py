"""Finds the links of a newly embedded entry: its nearest earlier entries, and those of them that it contradicts.

Invariant: a function of the fact and of what came before it; every link leads from the newer entry to the older. A
correction (``refs.parent_entry_id``) supersedes what it corrects and does not contradict it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from ...schemas.events.envelope import LinkDerived, VectorDerived
from ...schemas.ports import SimilarEntry, SimilarReader, ViewReader
from ...schemas.rules.contradiction import Contradiction, contradiction
from ...schemas.rules.embed_text import embedded_text
from ...schemas.rules.relations import CONTRADICTS, SIMILAR
from ...schemas.settings import CONTRADICTION_CANDIDATES, SIMILAR_EDGES
from ...schemas.views import ENTRIES
from ..reacting.judge import Judge

PARENT_REF: Final = "parent_entry_id"
_TEXTS: Final = f"""SELECT seq, id, summary, payload, refs FROM (SELECT unnest(?::UBIGINT[]) AS wanted)
    JOIN {ENTRIES} ON seq = wanted WHERE workspace_id = ?"""


@dataclass(frozen=True, slots=True)
class _Text:
    """What an entry says."""

    entry_id: str
    seq: int
    text: str
    corrects: Any


@dataclass(frozen=True, slots=True)
class _Seen:
    """A contradiction that the rule finds between two entries, and their texts."""

    other: SimilarEntry
    newer: str
    older: str
    found: Contradiction


class LinkFinder:
    """Finds links.

    Args:
        views: The views, for the texts.
        similar: Finds the nearest entries.
        threshold: Least cosine of a link.
        judge: Asked about borderline contradictions; None if there is none.
    """

    def __init__(
        self, views: ViewReader, similar: SimilarReader, *, threshold: float, judge: Judge | None = None
    ) -> None:
        self._views = views
        self._similar = similar
        self._threshold = threshold
        self._judge = judge

    async def find(self, fact: VectorDerived, reactor: str) -> list[LinkDerived]:
        """The links of the entry whose vector ``fact`` is.

        Raises:
            ViewsBehind: If the views do not pass the fact in time.
        """
        near = await self._similar.similar(fact, CONTRADICTION_CANDIDATES, self._threshold)
        if not near:
            return []
        links = [_link(fact, other, SIMILAR, other.cosine, "", reactor) for other in near[:SIMILAR_EDGES]]
        for seen in await asyncio.to_thread(self._contradicted, fact, near):
            found = await self._judged(fact.workspace_id, seen)
            if found is not None:
                links.append(_link(fact, seen.other, CONTRADICTS, found.confidence, found.reason, reactor))
        return links

    async def _judged(self, workspace_id: str, seen: _Seen) -> Contradiction | None:
        found = seen.found
        if not found.is_borderline or self._judge is None:
            return found
        verdict = await self._judge.contradicts(workspace_id, seen.newer, seen.older)
        if verdict is None:
            return found
        return found.confirmed() if verdict else None

    def _contradicted(self, fact: VectorDerived, near: Sequence[SimilarEntry]) -> list[_Seen]:
        """The nearest entries that the rule finds contradicted; blocking: hostile text may take milliseconds."""
        texts = self._texts(fact, near)
        own = texts.get(fact.entry_seq)
        seen = []
        for other in near:
            theirs = texts.get(other.seq)
            if own is None or theirs is None:
                continue  # erased meanwhile
            newer, older = (own, theirs) if own.seq > theirs.seq else (theirs, own)
            if newer.corrects == older.entry_id or older.corrects == newer.entry_id:
                continue
            if (found := contradiction(newer.text, older.text)) is not None:
                seen.append(_Seen(other, newer.text, older.text, found))
        return seen

    def _texts(self, fact: VectorDerived, near: Sequence[SimilarEntry]) -> dict[int, _Text]:
        rows = self._views.rows(_TEXTS, [[fact.entry_seq, *(other.seq for other in near)], fact.workspace_id])
        return {
            int(seq): _Text(
                entry_id, int(seq), embedded_text(summary, from_json(payload)), from_json(refs).get(PARENT_REF)
            )
            for seq, entry_id, summary, payload, refs in rows
        }


def _link(
    fact: VectorDerived, other: SimilarEntry, relation: str, weight: float, reason: str, reactor: str
) -> LinkDerived:
    own, theirs = (fact.entry_id, fact.entry_seq), (other.entry_id, other.seq)
    (src, src_seq), (dst, dst_seq) = (own, theirs) if fact.entry_seq > other.seq else (theirs, own)
    return LinkDerived(
        0, fact.workspace_id, src, src_seq, dst, dst_seq, relation, weight, 0, reactor, fact.crew_id, reason
    )
