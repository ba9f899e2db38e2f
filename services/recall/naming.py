"""Names in a query that the memory has in another form: aliases, misspelt and shortened ones.

A query about "Kate" finds nothing where everybody writes "Emi". So before a search, each name of the query that is not the
name of a speaker in scope is looked up: in texts in scope that state names ("Emi is what everybody calls Kate", "My name is
Bella"), among the aliases of the knowledge graph, and among the speakers, of whom one may be meant with a letter wrong
("Muhammed") or by the begin of the name ("Mel"). The name that the memory has more often takes the place of the other one,
which is still looked up as a word; an alias of the graph stands in brackets behind it. Vectors, words and rules about
speakers follow from the text.

Invariant: only names that somebody in scope wrote, or that the graph of the workspace holds, come into a query. A query
without such a name is unchanged, and costs a look at its words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.facts.tables import KG_ENTITIES
from ...schemas.text.analyzer import Analyzer, fold, tokens_of
from ...schemas.text.names import misspelt, name_words, shortened, stated_names, stating_words
from ..index.arrays import Docs
from ..index.entry_index import HotIndex
from ..index.records import HitRecord
from ..index.scoped import ScopedDocuments
from ..kept import KeptValues, in_thread

MOST_NAMES: Final = 4
"""Names of a query that are looked up."""
MOST_STATING: Final = 8
"""Texts that are read for each name, the newest ones."""
MOST_COMPARED: Final = 1_024
"""Texts that hold a name, of which it is known whether they may state one, the newest ones."""
MOST_OTHERS: Final = 2
"""Other names of one that come into the query."""
MOST_ALIASES: Final = 10_000
"""Aliases of a workspace that are held."""
MOST_WORDS: Final = 3
"""Words of the longest alias that is recognised in a query."""
Aliases = Mapping[str, Sequence[str]]
"""Folded name → other names of the same entity."""


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A name of a query that is no speaker's.

    Attributes:
        word: As written.
        count: Texts in scope that hold it.
        stating: Documents that hold it and may say whose name it is.
    """

    word: str
    count: int
    stating: Sequence[int]


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query with the names that the memory has.

    Attributes:
        text: The text.
        also: Folded word → the folded name in the text for which it stands, and is looked up as well.
    """

    text: str
    also: Mapping[str, str]


def unknown_names(index: HotIndex, scoped: ScopedDocuments, text: str, analyzer: Analyzer) -> list[UnknownName]:
    """The names of a query that are not those of a speaker in scope."""
    written = dict.fromkeys(name_words(text))
    words = [word for word in written if not index.names.name_words([fold(word)], scoped.speakers)][:MOST_NAMES]
    if not words or not scoped.size:
        return []
    keys = analyzer.keys_of([fold(word) for word in words])
    terms = index.postings.held([key for key in dict.fromkeys(analyzer.keys_of(list(stating_words()))) if key])
    stating = [docs for postings in index.postings.of(terms) for docs in (postings.once, postings.often) if len(docs)]
    names = []
    for word, key in zip(words, keys, strict=True):
        docs = _docs(index, scoped, key)
        newest = docs[-MOST_COMPARED:]
        states = np.zeros(len(newest), bool)
        for others in stating:
            states |= others.take(others.searchsorted(newest), mode="clip") == newest
        names.append(UnknownName(word, len(docs), newest[states][-MOST_STATING:].tolist()))
    return names


def _docs(index: HotIndex, scoped: ScopedDocuments, term: int) -> Docs:
    """The documents in scope that hold a term, ascending."""
    [postings] = index.postings.of([term])
    docs = np.concatenate((postings.once, postings.often)) if len(postings.often) else postings.once
    docs = docs if scoped.mask is None else docs[scoped.mask[docs]]
    return np.sort(docs).astype(np.intp)


def with_known_names(
    index: HotIndex,
    scoped: ScopedDocuments,
    text: str,
    names: Sequence[UnknownName],
    stating: Mapping[int, HitRecord | None],
    aliases: Aliases,
    analyzer: Analyzer,
) -> NamedQuery:
    """The query with the names that the memory has.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        text: The query.
        names: Its unknown names.
        stating: The texts that may say whose they are.
        aliases: Of the knowledge graph.
        analyzer: Turns names into terms.
    """
    known = set(tokens_of(text))
    also: dict[str, str] = {}
    for name in names:
        others, statements = _stated(name, stating)
        speakers = [spoken for other in others if (spoken := _speaker(index, scoped, other)) is not None]
        if not speakers and (alike := _alike(index, scoped, name)) is not None:
            speakers = [alike]
        chosen = next((other for other in speakers or others if fold(other) not in known), None)
        if chosen is None:
            continue
        [key] = analyzer.keys_of([fold(chosen)])
        elsewhere = name.count - statements
        if speakers or len(_docs(index, scoped, key)) - statements >= elsewhere:
            text = _put(text, name.word, chosen)
            if elsewhere:
                also[fold(name.word)] = fold(chosen)
        else:
            also[fold(chosen)] = fold(name.word)
    for alias in _aliases_in(text, aliases) if aliases else ():
        others = [other for other in aliases[fold(alias)] if not known.issuperset(tokens_of(other))][:MOST_OTHERS]
        if others:
            text = _put(text, alias, f"{alias} ({', '.join(others)})")
    return NamedQuery(text, also)


def _put(text: str, word: str, other: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", lambda _: other, text, count=1)


def _stated(name: UnknownName, stating: Mapping[int, HitRecord | None]) -> tuple[list[str], int]:
    """The other names that texts give one, those of the newest text first; and how many texts give one."""
    others: list[str] = []
    folded, statements = fold(name.word), 0
    for doc in reversed(name.stating):
        record = stating.get(doc)
        if record is None:
            continue
        speaker = None if record.actor_id is None else _first_word(record.actor_id)
        pairs = [pair for pair in stated_names(record.summary, speaker) if folded in map(fold, pair)]
        others += [other if folded == fold(one) else one for one, other in pairs]
        statements += bool(pairs)
    return list(dict.fromkeys(others)), statements


def _speaker(index: HotIndex, scoped: ScopedDocuments, name: str) -> str | None:
    """The name of the speaker in scope that a name means; None if it means none."""
    code = index.names.speaker_named(tokens_of(name), scoped.speakers)
    return None if code is None else _first_word(index.documents.actors.names()[code])


def _alike(index: HotIndex, scoped: ScopedDocuments, name: UnknownName) -> str | None:
    """The one speaker in scope whose name is likely meant: a misspelt name occurs nowhere, a short one may."""
    word = fold(name.word)
    found = {
        first
        for first in index.names.first_words(scoped.speakers)
        if (not name.count and misspelt(word, first))
        or ((len(word) < len(first) or not name.count) and shortened(word, first))
    }
    return _written(found.pop()) if len(found) == 1 else None


def _first_word(actor: str) -> str:
    words = tokens_of(actor)
    return _written(words[0]) if words else actor


def _written(word: str) -> str:
    return word[:1].upper() + word[1:]


def _aliases_in(text: str, aliases: Aliases) -> list[str]:
    """The aliases that a text has, as written, the longest at a place."""
    spans = [match.span() for match in re.finditer(r"[\w’'-]+", text)]
    found, at = [], 0
    while at < len(spans):
        for count in range(min(MOST_WORDS, len(spans) - at), 0, -1):
            part = text[spans[at][0] : spans[at + count - 1][1]]
            if fold(part) in aliases:
                found.append(part)
                at += count - 1
                break
        at += 1
    return found


def kept_aliases(views: ViewReader) -> KeptValues[str, Aliases]:
    """The aliases of the knowledge graph, by workspace."""

    def read(workspace_id: str) -> Aliases:
        others: dict[str, list[str]] = {}
        rows = views.rows(
            f"""SELECT a.name, e.name FROM {KG_ENTITIES} a JOIN {KG_ENTITIES} e
            ON e.workspace_id = a.workspace_id AND e.entity_id = a.alias_of
            WHERE a.workspace_id = ? AND a.until_seq IS NULL AND e.until_seq IS NULL ORDER BY a.name LIMIT {MOST_ALIASES}""",
            [workspace_id],
        )
        for alias, name in rows:
            others.setdefault(fold(alias), []).append(name)
            others.setdefault(fold(name), []).append(alias)
        return others

    return KeptValues(views, _changes_aliases, in_thread(read))


def _changes_aliases(batch: CommittedBatch) -> bool:
    """Whether a commit may have changed an alias; most commits of entities have none."""
    changes = batch.changes.get(KG_ENTITIES.name)
    if changes is None:
        return False
    return bool(changes.rewritten or changes.removed) or any(
        alias is not None for columns in changes.written for alias in columns["alias_of"]
    )
