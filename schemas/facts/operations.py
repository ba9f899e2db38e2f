"""Operations on the knowledge graph: facts about entities, when they hold, and since when they are known."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator
from pydantic.config import JsonDict

from ..core.entry import Id
from ..core.operation import Access, Answer, AsOf, Effect, MinSeq, Operation, Request, Visible, Workspace
from .events import MAX_ALIASES, MAX_NAME, MAX_REASON, MAX_REFERENCE
from .names import DATE_FIX, normal_date
from .tables import FACTS_PROJECTION

FACTS_SHOWN: Final = 500
"""Maximum number of facts of one answer of ``kg_query``."""
TIMELINE_SHOWN: Final = 100
"""Maximum number of facts of one timeline."""


def _stripped_name(name: str) -> str:
    if not name.strip():
        raise ValueError("must not be blank")
    return name.strip()


def _direction(value: object) -> object:
    return value if value in ("outgoing", "incoming") or not isinstance(value, str) else "both"


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_stripped_name)]
DATE_HINT: Final[JsonDict] = {"x-fix": DATE_FIX}
Day = Annotated[str, AfterValidator(normal_date)] | None


class KgAddRequest(Request):
    """Add a fact to the knowledge graph: subject, predicate, object.

    A fact that exists and has no end is not added again, even with other dates. Entities are created as needed. If the
    predicate has one object at a time, such as price or lives in, the fact with the former object ends.
    """

    subject: Name = Field(description="Name of the entity that the fact is about.")
    predicate: Name = Field(description="The relation between the two, such as uses or owns. Compared exactly.")
    object: Name = Field(description="Name of the other entity.")
    valid_from: Day = Field(default=None, description="Date from which it holds.", json_schema_extra=DATE_HINT)
    valid_to: Day = Field(
        default=None, description="Last date on which it holds; open if absent.", json_schema_extra=DATE_HINT
    )
    confidence: float = Field(
        default=1.0, ge=0.0, le=1.0, allow_inf_nan=False, description="How certain it is, 0 to 1."
    )
    subject_type: str | None = Field(
        default=None, min_length=1, max_length=64, description="Type of the subject: person, tool."
    )
    object_type: str | None = Field(default=None, min_length=1, max_length=64, description="Type of the object.")
    source_closet: str | None = Field(
        default=None, max_length=MAX_REFERENCE, description="Id of the drawer that it was taken from."
    )
    source_entry_id: Id | None = Field(default=None, description="Id of the entry that it was taken from.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class KgQueryRequest(Request):
    """Show the facts about an entity, the latest known first.

    With ``as_of``, only facts that held on that date or at that time; without it, also ended facts.
    """

    entity: Name = Field(description="Name of the entity, an alias, or, with an embedding model, a description.")
    as_of: Day = Field(
        default=None, description="Only facts that held then; both ends included.", json_schema_extra=DATE_HINT
    )
    direction: Annotated[Literal["outgoing", "incoming", "both"], BeforeValidator(_direction)] = Field(
        default="both",
        description="Facts in which the entity is subject, object, or either; any other word means both.",
    )
    as_of_seq: AsOf = None
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class KgInvalidateRequest(Request):
    """End a fact that has no end; it stays in the graph.

    Facts that an OWNER or ADMIN asserted can be ended only by OWNER and ADMIN. Every token may end facts that agents
    asserted.
    """

    subject: Name = Field(description="Name of the entity that the fact is about.")
    predicate: Name = Field(description="The relation between the two.")
    object: Name = Field(description="Name of the other entity.")
    ended: Day = Field(
        default=None, description="The last date on which it held; today if absent.", json_schema_extra=DATE_HINT
    )
    reason: str = Field(default="", max_length=MAX_REASON, description="The reason; it is recorded.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class KgTimelineRequest(Request):
    """Show facts in the order of the date from which they hold, facts without this date last."""

    entity: str | None = Field(
        default=None, min_length=1, max_length=MAX_NAME, description="Name of an entity; all if absent."
    )
    as_of_seq: AsOf = None
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class KgStatsRequest(Request):
    """Count the entities and facts of the knowledge graph."""

    as_of_seq: AsOf = None
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class KgEntityRequest(Request):
    """Set the name, the type and the aliases of an entity.

    A fact about an alias is a fact about the entity. Absent fields do not change.
    """

    entity: Name = Field(description="Name of the entity; a new spelling differs in case or blanks only.")
    type: str | None = Field(default=None, min_length=1, max_length=64, description="person, tool, project …")
    aliases: tuple[str, ...] = Field(
        default=(), max_length=MAX_ALIASES, description="Further names that mean this entity."
    )
    dropped_aliases: tuple[str, ...] = Field(
        default=(), max_length=MAX_ALIASES, description="Names that no longer mean this entity."
    )
    min_seq: MinSeq = None
    workspace_id: Workspace = None

    @field_validator("aliases", "dropped_aliases")
    @classmethod
    def _check_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if any(len(name) > MAX_NAME for name in names):
            raise ValueError(f"a name has at most {MAX_NAME} characters")
        return tuple(_stripped_name(name) for name in names)


class Fact(Answer):
    """A fact; ``current`` if it has no end. ``direction`` is relative to the requested entity."""

    id: str
    subject: str
    predicate: str
    object: str
    valid_from: str | None
    valid_to: str | None
    current: bool
    confidence: float
    source_closet: str | None
    source_entry_id: str | None
    asserted_by: str | None
    asserted_at: str
    asserted_seq: int
    ended_by: str | None
    end_reason: str


class EntityFact(Fact):
    """A fact about the requested entity."""

    direction: Literal["outgoing", "incoming"]


FoundBy = Literal["name", "alias", "meaning"]


class KgAddAnswer(Answer):
    """The fact's id; ``added`` is false if it was known and has no end. ``seq`` is the sequence of its assertion.

    ``ended_ids`` are the facts that the new fact ended.
    """

    triple_id: str
    added: bool
    info: str
    seq: int
    ended_ids: tuple[str, ...] = ()


class KgQueryAnswer(Answer):
    """The facts about an entity; none if it is unknown. ``truncated`` if there are more than are returned.

    ``found_by`` says how the entity was found: by its name, by an alias, or by meaning, then with the cosine in
    ``similarity``; null if it is unknown.
    """

    entity: str
    found_by: FoundBy | None = None
    similarity: float | None = None
    results: tuple[EntityFact, ...]
    count: int
    truncated: bool
    view_seq: int


class KgInvalidateAnswer(Answer):
    """Ids of the facts that were ended; ``seq`` is null if there were none."""

    ended_ids: tuple[str, ...]
    ended: str
    info: str
    seq: int | None


class KgTimelineAnswer(Answer):
    """Facts in order of time; ``truncated`` if there are more than are returned."""

    events: tuple[Fact, ...]
    count: int
    truncated: bool
    view_seq: int


class KgStatsAnswer(Answer):
    """Counts; facts without an end are current, the others are expired."""

    entities: int
    triples: int
    current_facts: int
    expired_facts: int
    relationship_types: tuple[str, ...]
    view_seq: int


class KgEntityAnswer(Answer):
    """The name, type and aliases of an entity."""

    entity_id: str
    name: str
    type: str
    aliases: tuple[str, ...]
    seq: int
    visible: Visible = True


_VIEWS: Final = (FACTS_PROJECTION,)
KG_ADD: Final = Operation(
    name="kg_add",
    request=KgAddRequest,
    answer=KgAddAnswer,
    route="POST /v1/kg/facts",
    effect=Effect.CREATES,
    views=_VIEWS,
    command="fact add",
)
KG_QUERY: Final = Operation(
    name="kg_query",
    request=KgQueryRequest,
    answer=KgQueryAnswer,
    route="GET /v1/kg/facts",
    effect=Effect.READS,
    views=_VIEWS,
    command="fact query",
)
KG_INVALIDATE: Final = Operation(
    name="kg_invalidate",
    request=KgInvalidateRequest,
    answer=KgInvalidateAnswer,
    route="POST /v1/kg/facts/end",
    effect=Effect.CHANGES,
    views=_VIEWS,
    command="fact invalidate",
)
KG_TIMELINE: Final = Operation(
    name="kg_timeline",
    request=KgTimelineRequest,
    answer=KgTimelineAnswer,
    route="GET /v1/kg/timeline",
    effect=Effect.READS,
    views=_VIEWS,
    command="fact timeline",
)
KG_STATS: Final = Operation(
    name="kg_stats",
    request=KgStatsRequest,
    answer=KgStatsAnswer,
    route="GET /v1/kg/stats",
    effect=Effect.READS,
    views=_VIEWS,
    command="fact stats",
)
KG_ENTITY: Final = Operation(
    name="kg_entity",
    request=KgEntityRequest,
    answer=KgEntityAnswer,
    route="POST /v1/kg/entities",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    views=_VIEWS,
    command="fact entity",
)
OPERATIONS: Final = (KG_ADD, KG_QUERY, KG_INVALIDATE, KG_TIMELINE, KG_STATS, KG_ENTITY)
