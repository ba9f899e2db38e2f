"""Tables of the knowledge graph, with history: entities and facts. An alias is an entity that names another one."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from ..core.table import Default, Ms, Seq, Table
from ..core.texts import TextKind, text_table

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
    to_ms: Ms | None  # the last second of ``valid_to``; the one before it was said, if that is the day of ``valid_to``
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
    fact_type: Annotated[str, Default("'default'")]
    half_life_hours: float | None  # NULL for that of its type
    single_valued: Annotated[bool, Default("false")]
    verified_ms: Ms | None  # when it was last found to hold
    verify_asked_ms: Ms | None  # since when a verification is wanted
    since_seq: Seq
    until_seq: Seq | None = None


KG_ENTITIES: Final = Table("kg_entities", EntityRow, FACTS_PROJECTION, key=("key", "since_seq"))
FACTS: Final = Table("kg_facts", FactRow, FACTS_PROJECTION, key=("key", "since_seq"))
FACT_TEXTS: Final = text_table("fact_texts", FACTS_PROJECTION)
"""Facts in words, those that have ended included. ``place`` is the namespace; the fact holds from ``from_ms`` to ``to_ms``.

What is embedded is the fact's text, else subject, predicate and object under their own names. The terms are those of
subject, predicate, object and text, where an alias counts as the entity that it names. ``text_hash`` is that of the words
in which the fact was asserted, whatever its entities are called later.
"""
ENTITY_TEXTS: Final = text_table("entity_texts", FACTS_PROJECTION)
"""Entities, without aliases, in words: ``postgres-primary (server), main database. postgres-primary hosts orders``.

That is the name, the type, the aliases, and the first fact about it that has no end. The source named the entity.
"""
DESCRIBED: Final = 2
"""Flag of an entity's text: it ends with a fact."""
FACT_KIND: Final = TextKind("fact", FACT_TEXTS)
ENTITY_KIND: Final = TextKind("entity", ENTITY_TEXTS)
