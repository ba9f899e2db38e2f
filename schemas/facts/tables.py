"""Tables of the knowledge graph, with history: entities and facts. An alias is an entity that names another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from ..core.ids import hash64
from ..core.ports import ViewReader
from ..core.table import PRESENT, Default, Ms, Seq, Table
from ..entries.tables import ENTRIES
from .names import GENERAL_TYPE

FACTS_PROJECTION: Final = "facts"


class EntityRow(NamedTuple):
    """An entity, with history."""

    key: Seq  # hash of workspace and entity
    workspace_id: str
    entity_id: str
    name: str  # as first written, or as it was named
    type: str
    alias_of: str | None  # the entity that this name means
    since_seq: Seq
    until_seq: Seq | None = None


class FactRow(NamedTuple):
    """A fact, with history: a row as asserted, one for each verification or request for one, one as ended."""

    key: Seq  # hash of workspace and fact
    workspace_id: str
    fact_id: str
    subject_id: str
    predicate: str
    object_id: str
    valid_from: str | None  # a date or a UTC time
    valid_to: str | None
    from_ms: Ms | None  # the first second of ``valid_from``
    to_ms: Ms | None  # the last second of ``valid_to``
    confidence: float
    source_drawer_id: str | None
    source_entry_id: str | None
    asserted_seq: Seq
    asserted_ms: Ms
    asserted_by_type: str
    asserted_by: str | None
    ended_by_type: str | None
    ended_by: str | None
    end_reason: str
    entry_id: Annotated[str, Default("''")]  # of its ``fact.asserted``, by which uses refer to it
    namespace: Annotated[str, Default("''")]
    text: str | None  # NULL for subject, predicate and object
    text_hash: Annotated[Seq, Default("0")]  # ``ids.hash64`` of its words, by which its vector is found
    fact_type: Annotated[str, Default("'default'")]
    half_life_hours: float | None  # NULL for that of its type
    single_valued: Annotated[bool, Default("false")]
    verified_ms: Ms | None  # when it was last found to hold
    verify_asked_ms: Ms | None  # since when a verification is wanted
    since_seq: Seq
    until_seq: Seq | None = None


KG_ENTITIES: Final = Table("kg_entities", EntityRow, FACTS_PROJECTION, key=("key", "since_seq"))
FACTS: Final = Table("kg_facts", FactRow, FACTS_PROJECTION, key=("key", "since_seq"))


# The text of an entity that is embedded: its name, type, aliases, and the first fact about it that has no end.


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
