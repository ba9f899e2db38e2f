"""Recall over memory documents, drawers and facts beside the entries: asks each family, and ranks all in one list.

Each family finds its texts with its own search, within the rights of the caller. Their evidence is judged by the same
formula as that of entries (``evidence``), so a confidence means the same for every kind, and the list is ordered by it.

Invariants: a kind of which the workspace holds nothing is not asked. The order of the entries among themselves is that of
their own search.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol

from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.principal import Principal
from ...schemas.core.table import Table
from ...schemas.core.timestamps import format_ms
from ...schemas.recall.operations import HitKind, RecallKind
from ...schemas.standing.operations import Standing
from ...schemas.text.analyzer import Analyzer, spaceless_chars, tokens_of
from ...schemas.text.word_rarity import weight_of
from ..index.query_embedding import QueryVector
from ..index.scope import RecallScope
from ..index.vectors import Vectors
from .arranging import ComparedText, Shown, text_of
from .asking import Query
from .evidence import Judgement

EVERY_COSINE: Final = 0.0
"""Evidence decides which texts are near: with the floors of the families' own searches (2.5 standard deviations), a
paraphrased question finds its note among five hits in .66 instead of .73 of the cases."""
LEAST_FOUND: Final = 20
"""Texts of each kind that are judged; more than are shown, because the likeliest need not be the first of a search."""
MOST_WORKSPACES: Final = 10_000
"""Workspaces of which it is remembered what they hold; beyond it all are read again."""


@dataclass(frozen=True, slots=True)
class TextQuery:
    """What a family is asked.

    Attributes:
        principal: The caller, whose rights decide.
        workspace_id: The workspace.
        scope: The scope in which entries are searched.
        own: Only texts of the agent of the scope.
        query: The query, without a vector.
        embedded: Its vector; None if there is none.
        limit: Most texts.
        min_seq: Sequence that the views have reached.
        now_ms: The time now.
        at_ms: The time that the query is about.
        ended: Also what has ended.
        least: The cosine from which a text that shares no word is found; None for the family's own floor, where the
            model is not measured and evidence by meaning is not known.
    """

    principal: Principal
    workspace_id: str
    scope: RecallScope
    own: bool
    query: Query
    embedded: QueryVector | None
    limit: int
    min_seq: int
    now_ms: int
    at_ms: int
    ended: bool
    least: float | None

    def vector(self, model: str | None) -> Vectors | None:
        """The query's vector if it is of this model."""
        return self.embedded.vector if self.embedded is not None and self.embedded.model == model else None


@dataclass(frozen=True)  # no slots: what is shown is computed only for what is in the answer
class FoundText:
    """A text that a family found, with its evidence.

    Attributes:
        kind: Of the hit.
        id: Unique within its kind and workspace.
        text: The text.
        held: Which of the query's terms it holds.
        vector: (d,) float32, L2-normalised, of the query's model; None if there is none.
        ts_ms: When it was said.
        fields: Fields of the ``RecallHit`` that its kind has.
        cut: Called with the text: the part that is shown, and the line of it that is compared with other texts.
        standing: Why it does not count any more; None if it counts.
        last: Whether it ranks behind all that counts.
        sources: Ids of the drawer and the entry that it was taken from.
    """

    kind: HitKind
    id: str
    text: str
    held: frozenset[int]
    vector: Vectors | None
    ts_ms: int
    fields: Mapping[str, Any]
    cut: Any = field(compare=False)
    standing: Standing | None = None
    last: bool = False
    sources: frozenset[str] = frozenset()

    @cached_property
    def _parts(self) -> tuple[str, str]:
        parts: tuple[str, str] = self.cut(self.text)
        return parts

    @property
    def shown(self) -> str:
        """The part that is shown."""
        return self._parts[0]

    @property
    def summary(self) -> str:
        """The line that is compared with other texts."""
        return self._parts[1]


@dataclass(frozen=True, slots=True)
class FoundTexts:
    """What was found beside entries.

    Attributes:
        texts: The texts.
        frequencies: Texts in scope, found or not, that hold each term of the query.
        size: Texts in scope.
        seq: The sequence of the answer; None if nothing was asked.
    """

    texts: Sequence[FoundText] = ()
    frequencies: Mapping[int, int] = field(default_factory=dict)
    size: int = 0
    seq: int | None = None


NOTHING_FOUND: Final = FoundTexts()


class TextSource(Protocol):
    """A family's texts.

    Attributes:
        kind: By which a request names them.
        table: The rows of which it is remembered whether a workspace has any.
        view: The projection that must have reached ``min_seq``.
    """

    kind: RecallKind
    table: Table[Any]
    view: str

    async def find(self, query: TextQuery) -> FoundTexts:
        """The texts within the rights of the caller that share a word with the query or are near to it, best first."""
        ...


class OtherKinds:
    """The kinds of a node beside entries; used on the event loop.

    Args:
        views: Asked which kinds a workspace holds, then followed; ``close`` ends that.
        sources: One for each kind.
    """

    def __init__(self, views: ViewReader, sources: Sequence[TextSource]) -> None:
        self._views = views
        self._sources = sources
        self._held: dict[str, set[RecallKind]] = {}
        self._generation = views.generation
        self.close = views.subscribe(self._follow)

    def views_of(self, kinds: Sequence[RecallKind]) -> list[str]:
        """The projections of some kinds."""
        return [source.view for source in self._sources if source.kind in kinds]

    async def holding(self, workspace_id: str, kinds: Sequence[RecallKind]) -> list[TextSource]:
        """The sources of some kinds of which a workspace holds anything."""
        if self._generation != self._views.generation or len(self._held) > MOST_WORKSPACES:
            self._generation = self._views.generation
            self._held = {}
        held = self._held.get(workspace_id)
        if held is None:
            held = self._held[workspace_id] = set()  # commits from here on are noted
            try:
                held |= await asyncio.to_thread(self._read, workspace_id)
            except BaseException:
                self._held.pop(workspace_id, None)
                raise
        return [source for source in self._sources if source.kind in held and source.kind in kinds] if held else []

    async def find(self, sources: Sequence[TextSource], query: TextQuery) -> FoundTexts:
        """The texts of some kinds; of equal ones within a family the search's order is kept."""
        parts = await asyncio.gather(*(source.find(query) for source in sources))
        frequencies: Counter[int] = Counter()
        for part in parts:
            frequencies.update(part.frequencies)
        return FoundTexts(
            [text for part in parts for text in part.texts],
            frequencies,
            sum(part.size for part in parts),
            min((part.seq for part in parts if part.seq is not None), default=None),
        )

    def _read(self, workspace_id: str) -> set[RecallKind]:
        has = ", ".join(f"EXISTS (SELECT 1 FROM {source.table} WHERE workspace_id = $ws)" for source in self._sources)
        [row] = self._views.rows(f"SELECT {has}", {"ws": workspace_id})
        return {source.kind for source, holds in zip(self._sources, row, strict=True) if holds}

    def _follow(self, batch: CommittedBatch) -> None:
        for source in self._sources:
            changes = batch.changes.get(source.table.name)
            if changes is None:
                continue
            written = changes.rewritten.union(*(columns["workspace_id"] for columns in changes.written))
            for workspace_id in written & self._held.keys():
                self._held[workspace_id].add(source.kind)


def query_weights(query: Query) -> dict[int, float]:
    """Term → how much it says, other forms of the query's words included; for choosing the part of a text to show."""
    weights = {term: weight_of(everyday, 0, 0) for term, everyday in zip(query.terms, query.everyday, strict=True)}
    return weights | {form: weights.get(term, 0.0) for form, term in query.wording.forms.items()}


# Ranks entries and other texts in one list.


@dataclass(frozen=True, slots=True)
class RankedText:
    """A text before it becomes part of an answer."""

    found: FoundText
    confidence: float
    reason: str
    repeats: int = 0

    def fields(self, now_ms: int) -> dict[str, Any]:
        """The fields of a ``RecallHit``."""
        found = self.found
        return {
            "severity": "info",
            "priority": "normal",
            "trace_id": None,
            "mission_id": None,
            "payload": {},
            "refs": {},
            "supersedes": (),
            "valid_at": None,
            "live_priority": "normal",
            **found.fields,
            "kind": found.kind,
            "summary": found.shown,
            "score": self.confidence,
            "confidence": self.confidence,
            "reason": self.reason,
            "ts": format_ms(found.ts_ms),
            "age_seconds": max(0, now_ms - found.ts_ms) / 1000,
            "explain": None,
            "via": None,
            "standing": found.standing,
            "repeats": self.repeats,
        }


def shown_texts(texts: Sequence[FoundText], judgement: Judgement) -> list[RankedText]:
    """The texts that have evidence, the likeliest first; what has ended is behind what counts."""
    shown = [RankedText(texts[at], round(judgement.confidence[at], 3), judgement.reasons[at]) for at in judgement.kept]
    return sorted(shown, key=lambda hit: (hit.found.last, -hit.confidence, -hit.found.ts_ms, hit.found.id))


def ranked_together(
    entries: Sequence[Shown], texts: Sequence[RankedText], analyzer: Analyzer, k: int
) -> list[Shown | RankedText]:
    """The best ``k`` of both, best first: the likelier one first, of equal ones the entry.

    An entry counts as the likeliest of those from its place on, so that entries keep their order, in which neighbours
    of a session or what replaces another entry have their place. Of a text that says the same as another hit, the better one
    stands for both.

    Args:
        entries: Best first, neighbours of hits left out.
        texts: Best first.
        analyzer: Brings words to their stems.
        k: Most hits.
    """
    likely: list[float] = []
    for hit in reversed(entries):
        likely.append(max(hit.confidence or 0.0, likely[-1] if likely else 0.0))
    likely.reverse()
    counting = [hit for hit in texts if not hit.found.last]
    ended = texts[len(counting) :]
    merged: list[Shown | RankedText] = []
    at = 0
    for hit in counting:
        while at < len(entries) and likely[at] >= hit.confidence:
            merged.append(entries[at])
            at += 1
        merged.append(hit)
    return _without_repeats([*merged, *entries[at:], *ended], analyzer, k)


def _without_repeats(hits: Sequence[Shown | RankedText], analyzer: Analyzer, k: int) -> list[Shown | RankedText]:
    kept: list[Shown | RankedText] = []
    compared: list[ComparedText] = []
    for hit in hits:
        if len(kept) == k:
            break
        is_text = isinstance(hit, RankedText)
        text = ComparedText(hit.found.summary if isinstance(hit, RankedText) else text_of(hit.record), analyzer)
        same = None
        if _standing(hit) is None:
            same = next(
                (
                    at
                    for at, other in enumerate(kept)
                    if (is_text or isinstance(other, RankedText))
                    and _standing(other) is None
                    and (_derived(hit, other) or compared[at].repeats(text))
                ),
                None,
            )
        if same is None:
            kept.append(hit)
            compared.append(text)
        else:
            kept[same] = _with_repeats(kept[same], hit.repeats + 1)
    return kept


def _with_repeats(hit: Shown | RankedText, more: int) -> Shown | RankedText:
    if isinstance(hit, RankedText):
        return RankedText(hit.found, hit.confidence, hit.reason, hit.repeats + more)
    return hit._replace(repeats=hit.repeats + more)


def _standing(hit: Shown | RankedText) -> Standing | None:
    return hit.found.standing if isinstance(hit, RankedText) else hit.standing


def _derived(hit: Shown | RankedText, other: Shown | RankedText) -> bool:
    """Whether one of two hits was taken from the other, such as a fact from a drawer."""
    return bool(_ids(hit) & _sources(other) or _ids(other) & _sources(hit))


def _ids(hit: Shown | RankedText) -> set[str]:
    return {hit.found.id} if isinstance(hit, RankedText) else {hit.record.entry_id}


def _sources(hit: Shown | RankedText) -> frozenset[str]:
    return hit.found.sources if isinstance(hit, RankedText) else frozenset()


# The part of a text that is shown.


DOTS: Final = "..."
"""Marks a cut text."""


def snippet_of(text: str, weights: Mapping[int, float], analyzer: Analyzer, chars: int) -> str:
    """The lines around the one that says most of the query; the whole text if it is short.

    Args:
        text: Text of the chunk.
        weights: Term → its weight in the query.
        analyzer: Turns lines into terms.
        chars: Most characters, dots aside.
    """
    if len(text) <= chars:
        return text
    lines = text.split("\n")
    worth = [sum(weights.get(term, 0.0) for term in set(analyzer.terms(line))) for line in lines]
    first = last = max(range(len(lines)), key=lambda at: (worth[at], -at))
    size = len(lines[first])
    if size > chars:
        return _cut(lines[first], weights, analyzer, chars) + DOTS
    while True:
        below = last + 1 < len(lines) and size + 1 + len(lines[last + 1]) <= chars
        above = first > 0 and size + 1 + len(lines[first - 1]) <= chars
        if not below and not above:
            break
        if below and (not above or worth[last + 1] >= worth[first - 1]):
            last += 1
            size += 1 + len(lines[last])
        else:
            first -= 1
            size += 1 + len(lines[first])
    return "\n".join(lines[first : last + 1]) + DOTS


def _cut(line: str, weights: Mapping[int, float], analyzer: Analyzer, chars: int) -> str:
    """The part of a long line that holds most of the query, beginning at a word."""
    words = line.split(" ")
    begins = [0]
    for word in words:
        begins.append(begins[-1] + len(word) + 1)
    places = [
        begins[at]
        for at, word in enumerate(words)
        if any(key in weights for key in analyzer.keys_of(tokens_of(word)) if key)
    ]
    if not places:
        return line[:chars]
    best = max(places, key=lambda begin: (sum(begin <= other < begin + chars for other in places), -begin))
    latest = len(line) - chars
    start = min((begin for begin in begins if min(best, latest) - chars // 4 <= begin <= best), default=best)
    return line[start : start + chars]


# Hits of a question that many texts answer together: lines within a budget, in order of time.


COLLECTED_CHARS: Final = 160
FULL_LINES: Final = 50
FURTHER_CHARS: Final = 100
"""Characters of the first lines, how many these are, and characters of the others. Of the texts that answer questions with
at least four, 100 lines of 160 characters hold .796 (LifeBench), .733 (LoCoMo) and .716 (BEAM), these .823, .811 and .823
(docs/adr/0025)."""
CHARS_A_TOKEN: Final = 4


def collected(
    hits: Sequence[Shown | RankedText], query: Query, analyzer: Analyzer, tokens: int
) -> list[Shown | RankedText]:
    """As many of the hits as fit into a budget, each as a line around what answers, the oldest first.

    Args:
        hits: Best first.
        query: The query.
        analyzer: Turns words into terms.
        tokens: The budget.
    """
    weights = query_weights(query)
    kept: list[tuple[int, Shown | RankedText]] = []
    left = tokens * CHARS_A_TOKEN
    for place, hit in enumerate(hits):
        line = line_of(hit.record.summary if isinstance(hit, Shown) else hit.found.shown, weights, analyzer, place)
        spaceless = spaceless_chars(line)
        left -= CHARS_A_TOKEN * spaceless + len(line) - spaceless
        if left < 0 and kept:
            break
        if isinstance(hit, Shown):
            kept.append((hit.ts_ms, hit._replace(record=hit.record._replace(summary=line, payload={}))))
        else:
            kept.append((hit.found.ts_ms, replace(hit, found=replace(hit.found, cut=_Line(line)))))
    return [hit for _, hit in sorted(kept, key=lambda dated: dated[0])]


@dataclass(frozen=True, slots=True)
class _Line:
    """Shows a text as a line."""

    line: str

    def __call__(self, _text: str) -> tuple[str, str]:
        return self.line, self.line


def line_chars(place: int) -> int:
    """Most characters of the line of the hit with this index."""
    return COLLECTED_CHARS if place < FULL_LINES else FURTHER_CHARS


def line_of(text: str, weights: Mapping[int, float], analyzer: Analyzer, place: int, share: float = 1.0) -> str:
    """A text as one line around what holds most of a query, for the hit with index ``place``.

    Args:
        text: The text.
        weights: Of the query's terms.
        analyzer: Turns words into terms.
        place: The hit's index, best first.
        share: How many times the usual length it may have.
    """
    return snippet_of(" ".join(text.split()), weights, analyzer, round(share * line_chars(place)))
