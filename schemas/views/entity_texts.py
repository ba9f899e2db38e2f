"""The text of an entity that is embedded: its name, type, aliases, and the first fact about it that has no end.

Invariant: the reactor that embeds and the search that compares read the same text, so they find the same vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..facts import GENERAL_TYPE
from ..ids import hash64
from ..ports import ViewReader
from .facts import FACTS, KG_ENTITIES
from .journal import ENTRIES
from .table import PRESENT

_DESCRIBED: Final = f"""WITH known AS (FROM {KG_ENTITIES} WHERE workspace_id = $workspace AND {PRESENT}),
    named AS (SELECT e.entity_id, coalesce(r.entity_id, e.entity_id) AS root, coalesce(r.name, e.name) AS name
        FROM known e LEFT JOIN known r ON r.entity_id = e.alias_of),
    said AS (SELECT s.root AS subject, o.root AS object, s.name || ' ' || predicate || ' ' || o.name AS words, asserted_seq
        FROM {FACTS} f JOIN named s ON s.entity_id = f.subject_id JOIN named o ON o.entity_id = f.object_id
        WHERE f.workspace_id = $workspace AND {PRESENT} AND valid_to IS NULL),
    about AS (SELECT subject AS root, words, asserted_seq FROM said UNION ALL SELECT object, words, asserted_seq FROM said),
    first AS (SELECT root, arg_min(words, asserted_seq) AS words FROM about GROUP BY root),
    also AS (SELECT alias_of, list_sort(list(name)) AS names FROM known WHERE alias_of IS NOT NULL GROUP BY alias_of)
    SELECT e.entity_id, e.name, e.type, coalesce(also.names, []), coalesce(first.words, ''), j.id
    FROM known e LEFT JOIN {ENTRIES} j ON j.seq = e.since_seq
    LEFT JOIN first ON first.root = e.entity_id LEFT JOIN also ON also.alias_of = e.entity_id
    WHERE e.alias_of IS NULL ORDER BY e.entity_id"""


@dataclass(frozen=True, slots=True)
class EntityText:
    """An entity in words.

    Attributes:
        text: ``postgres-primary (server), main database. postgres-primary hosts orders``.
        entry_id: Id of the event that named it, None if it is not in the journal's view.
    """

    entity_id: str
    text: str
    entry_id: str | None

    @property
    def text_hash(self) -> int:
        """The key of its vector in ``memory_chunk_vectors``."""
        return hash64(self.text)


def entity_texts(views: ViewReader, workspace_id: str) -> list[EntityText]:
    """The entities of a workspace, without aliases, by id. Blocking."""
    return [
        EntityText(entity_id, _text(name, kind, aliases, fact), entry_id)
        for entity_id, name, kind, aliases, fact, entry_id in views.rows(_DESCRIBED, {"workspace": workspace_id})
    ]


def _text(name: str, kind: str, aliases: list[str], fact: str) -> str:
    typed = name if kind == GENERAL_TYPE else f"{name} ({kind})"
    return ". ".join(part for part in (", ".join((typed, *aliases)), fact) if part)
