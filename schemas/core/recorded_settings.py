"""Settings that are recorded in the journal: of a workspace, of its memory documents, of agents and crews.

Each is declared once, as a field: events, requests, ``reset``, answers, options, the client's methods and
``docs/operations.md`` follow from it.

Invariant: a value that was recorded stays readable, so bounds are only ever widened.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Field, StrictBool, StrictInt, StringConstraints, ValidationError, create_model

from .entry import Id, Name

ScrubberMode = Literal["block", "redact", "warn", "off"]
VerifierMode = Literal["off", "cheap"]
REMEMBERED_TOKENS_MAX: Final = 100_000
"""Maximum number of tokens of remembered notes in the prompt of an agent."""
MEMORY_BUDGET_MAX: Final = 1_000_000
"""Maximum number of characters of memory in the prompt of an agent."""
RETENTION_DAYS_MAX: Final = 3_650
RETENTION_RULES_MAX: Final = 100
RETENTION_PATTERN: Final = r"^(\*|[a-z0-9_]+(\.[a-z0-9_]+){0,3}|[a-z0-9_]+(\.[a-z0-9_]+){0,2}\.\*|tier:(\*|[A-Za-z]+))$"
"""A rule of a retention: an entry type, ``prefix.*``, ``*``, ``tier:NAME`` or ``tier:*``."""


class AgentRole(StrEnum):
    """The role of an agent in its crew.

    A closed set. It does not decide what a token may write; the token's role decides that.
    """

    AGENT = "agent"
    LEAD = "lead"


class WorkspaceSettings(BaseModel, defer_build=True):
    """The settings of a workspace; ``None`` stands for the default or for the node's value.

    The default of every switch (``bool | None``) is off, except of ``embed_chat``.
    """

    cost_nudge_usd: float | None = Field(
        default=None,
        ge=0.0,
        allow_inf_nan=False,
        description="Cost in US dollars within 24 hours above which an agent is nudged.",
        examples=[2.5],
    )
    embed_chat: StrictBool | None = Field(
        default=None,
        description=(
            "Whether chat.* and message.posted entries, including older ones, get vectors, so that recall "
            "finds them by meaning; on by default."
        ),
    )
    palace_ingest: StrictBool | None = Field(
        default=None, description="Whether exchanges of chat.* entries are filed as drawers of the palace."
    )
    evidence_floor: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description="Confidence below which recall in mode inject leaves out a hit.",
        examples=[0.1],
    )
    review_rules: StrictBool | None = Field(
        default=None, description="Whether rules that a consolidation finds wait for a person (`proposal list`)."
    )
    learn_from_chats: StrictBool | None = Field(
        default=None,
        description="Whether consolidations learn rules from chat.* and message.posted entries, too: from turns that name "
        "a cause, a condition or an instruction and are not about their author.",
    )
    context_budget_tokens: Annotated[StrictInt, Field(ge=100, le=2_000_000)] | None = Field(
        default=None, description="Tokens of a whole assembled context."
    )
    context_system_tokens: Annotated[StrictInt, Field(ge=0, le=2_000_000)] | None = Field(
        default=None, description="Tokens of a context that are reserved for the system's text."
    )
    remembered_tokens: Annotated[StrictInt, Field(ge=0, le=REMEMBERED_TOKENS_MAX)] | None = Field(
        default=None, description="Tokens of remembered notes in a memory block; 0 leaves them out, 1,000 by default."
    )
    salience_weights: dict[str, float] | None = Field(
        default=None,
        description="Salience weights that override the node's: relevance, recency, confidence, usage, freshness, and "
        "half_life_hours of recency.",
    )
    expectations: dict[str, Any] | None = Field(
        default=None,
        description="What recalls must and must not return (`crew-journal test FILE --save`), a JSON object: name → "
        "expectation. An embedding model that does not meet them is not activated without force and a reason.",
    )
    episodic_ttl_hours: float | None = Field(
        default=None,
        gt=0.0,
        le=1_000_000.0,
        allow_inf_nan=False,
        description="Hours for which queries return an episode.",
    )

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> Self:
        """Parse recorded settings; unknown settings and invalid values count as absent."""
        try:
            return cls.model_validate(recorded)
        except ValidationError as error:
            wrong = {fault["loc"][0] for fault in error.errors(include_url=False, include_input=False)}
            return cls.model_validate({name: value for name, value in recorded.items() if name not in wrong})


RetentionRule = Annotated[str, StringConstraints(pattern=RETENTION_PATTERN, max_length=64)]


class MemorySettings(BaseModel, defer_build=True):
    """The settings of a workspace's memory documents, and how long the workspace keeps what it holds."""

    retention: dict[RetentionRule, Annotated[StrictInt, Field(ge=1, le=RETENTION_DAYS_MAX)]] | None = Field(
        default=None,
        max_length=RETENTION_RULES_MAX,
        description="Days after which messages are erased, with a receipt, every day at 04:15 UTC. By entry type "
        "(`chat.user_message`, `chat.*`, `*` for all) or by tier, counted from a document's last write (`tier:daily`, "
        "`tier:*`). The most specific rule counts. By default, everything is kept.",
        examples=[{"chat.*": 30, "memory.searched": 14, "tier:daily": 90}],
    )
    retention_days: Annotated[StrictInt, Field(ge=1, le=RETENTION_DAYS_MAX)] | None = Field(
        default=None,
        description="Age in days from which the texts of old versions are swept and erased, every day at 04:15 UTC. "
        "By default, all versions are kept.",
    )
    scrubber: ScrubberMode = Field(
        default="block",
        description=(
            "What happens when a text to be stored (document, entry, drawer or fact) contains credentials: "
            "block refuses the text, redact replaces the credentials, warn stores the text and returns a "
            "warning, off stores the text. By default CREW_JOURNAL_SECRETS decides."
        ),
    )
    verifier: VerifierMode = Field(
        default="off", description="off, or cheap: refuse lines that contradict a line of pins.md."
    )


NULLABLE_MEMORY_SETTINGS: Final = tuple(
    name for name, field in MemorySettings.model_fields.items() if field.default is None
)
"""Settings of which ``null`` is a value."""


def retention_of_type(policy: Mapping[str, int], entry_type: str) -> str | None:
    """The rule that counts for an entry type: the type itself, else the longest ``prefix.*``, else ``*``."""
    parts = entry_type.split(".")
    prefixes = (".".join((*parts[:length], "*")) for length in range(len(parts) - 1, -1, -1))
    return next((rule for rule in (entry_type, *prefixes) if rule in policy), None)


def retention_of_tier(policy: Mapping[str, int], tier: str) -> str | None:
    """The rule that counts for the documents of a tier."""
    return next((rule for rule in (f"tier:{tier}", "tier:*") if rule in policy), None)


class AgentSettings(BaseModel, defer_build=True):
    """The settings of an agent."""

    agent_id: Id = Field(description="Id of the agent.")
    name: Name | None = Field(default=None, description="Name for people.")
    role: AgentRole = Field(default=AgentRole.AGENT, description="Its role in the crew: agent or lead.")
    crew_id: Id | None = Field(default=None, description="Its crew.")
    memory_enabled: StrictBool = Field(
        default=False, description="Whether its memory documents are written, searched and put into its prompt."
    )
    memory_budget_chars: Annotated[StrictInt, Field(ge=0, le=MEMORY_BUDGET_MAX)] | None = Field(
        default=None, description="Characters of memory in its prompt; 15,000 if absent."
    )
    memory_walk_depth: Annotated[StrictInt, Field(ge=0, le=1)] = Field(
        default=0, description="Default of ``walk_depth`` for its recalls: 0 or 1 hop along similar relations."
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="Further settings, a JSON object.")


class CrewSettings(BaseModel, defer_build=True):
    """The settings of a crew."""

    crew_id: Id = Field(description="Id of the crew.")
    name: Name | None = Field(default=None, description="Name for people.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Further settings, a JSON object.")


def changes_of(settings: type[BaseModel], base: type[BaseModel]) -> type[BaseModel]:
    """A subclass of ``base`` with the fields of ``settings``; optional fields are absent by default."""
    fields: dict[str, Any] = {}
    for name, field in settings.model_fields.items():
        kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        optional = (kind | None, Field(default=None, description=field.description))
        fields[name] = (kind, field) if field.is_required() else optional
    made: type[BaseModel] = create_model(f"{settings.__name__}Changes", __base__=base, **fields)
    return made
