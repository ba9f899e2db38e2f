"""What a recall asks and answers, as every shell sees it.

Invariant: frozen models; a request says nothing of itself about what may be seen, its token does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from crew_journal.schemas.body_problems import body_problems
from crew_journal.schemas.entry import Id, WorkspaceId
from crew_journal.schemas.errors import InvalidQuery
from crew_journal.schemas.rules.dates import DAY_MS
from crew_journal.schemas.settings import RECALL_K_DEFAULT, RECALL_K_MAX, RECALL_QUERY_MAX_CHARS
from crew_journal.schemas.timestamps import parse_ts, to_ms

LEXICAL_ONLY: Final = "lexical-only"
NO_VECTORS: Final = "no-vectors"
ASKED_UNKNOWN: Final = "unknown"
"""``asked_at`` of a query whose time nobody knows: today's date would be a wrong one."""
Degraded = Literal["lexical-only", "no-vectors"]


def nullable(schema: dict[str, Any]) -> None:
    """Say in a request's JSON Schema that null stands for leaving an optional field out."""
    for field in schema["properties"].values():
        if "default" in field and isinstance(field.get("type"), str):
            field["type"] = [field["type"], "null"]


class RecallRequest(BaseModel):
    """A recall.

    ``k`` outside 1 to 50 counts as 5 (contract §4). ``scope`` left out follows from the role. ``min_seq`` waits until
    entries and full text have been folded so far. ``walk_depth`` 1 appends neighbours of the hits, at most ``k``, reached
    along ``similar`` edges; left out, the agent's registered default counts (off).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=nullable)

    query: str = Field(min_length=1, max_length=RECALL_QUERY_MAX_CHARS, description="What to recall.")
    k: StrictInt = Field(default=RECALL_K_DEFAULT, description="Number of hits, 1 to 50; anything else counts as 5.")
    scope: Literal["own", "crew_shared", "workspace"] | None = Field(default=None, description="By role if absent.")
    agent_id: Id | None = Field(default=None, description="Whose entries, for OWNER and ADMIN.")
    crew_id: Id | None = Field(default=None, description="Whose crew, for OWNER and ADMIN.")
    recipe: str | None = Field(
        default=None,
        description="conversational (default where turns of conversation are in scope), "
        "conversational-static, robust (default elsewhere), rrf, dense or lexical.",
    )
    walk_depth: Annotated[StrictInt, Field(ge=0, le=1)] | None = Field(
        default=None, description="Hops along similar edges, 0 or 1; the agent's default if absent."
    )
    min_seq: StrictInt | None = Field(default=None, ge=0, description="Wait until this sequence is folded.")
    explain: StrictBool = Field(default=False, description="Show each arm's rank and score and each rule's share.")
    asked_at: str | None = Field(
        default=None,
        description='The time from which "yesterday" or "last week" in the query count, RFC 3339, by its day in UTC; now '
        'if absent. "unknown": they name no day.',
    )
    workspace_id: WorkspaceId | None = Field(default=None, description="For tokens of all workspaces.")

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        fields = cls.model_fields
        return {k: v for k, v in given.items() if v is not None or k not in fields or fields[k].is_required()}

    @field_validator("query")
    @classmethod
    def _has_text(cls, query: str) -> str:
        if not query.strip():
            raise ValueError("must not be blank")
        return query

    @field_validator("asked_at")
    @classmethod
    def _is_a_time(cls, asked_at: str | None) -> str | None:
        if asked_at is not None and asked_at != ASKED_UNKNOWN:
            parse_ts(asked_at)
        return asked_at

    @field_validator("scope", "agent_id", "crew_id", "recipe", mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any) -> Any:
        return None if value == "" else value

    @property
    def hits_wanted(self) -> int:
        """``k``, or 5 if it is outside 1 to 50."""
        return self.k if 1 <= self.k <= RECALL_K_MAX else RECALL_K_DEFAULT

    def asked_day(self, now: datetime) -> int | None:
        """The day it is asked on, days since 1970-01-01 (UTC); None if that is not known."""
        if self.asked_at == ASKED_UNKNOWN:
            return None
        return to_ms(now if self.asked_at is None else parse_ts(self.asked_at)) // DAY_MS


_R = TypeVar("_R", bound=BaseModel)
_FIXES: Final = {
    "query": f"say what to recall in 1 to {RECALL_QUERY_MAX_CHARS} characters that are not all blank",
    "k": f"send a whole number, 1 to {RECALL_K_MAX}",
    "walk_depth": "send 0 or 1",
    "min_seq": "send the seq that an append returned, a whole number from 0",
    "max_chars": "send a whole number of characters",
    "asked_at": f'send a time like 2026-11-21T09:30:00Z, or "{ASKED_UNKNOWN}"',
}
"""What to send, where that says more than the field's type."""


def parse_recall(body: Mapping[str, Any]) -> RecallRequest:
    """A request from a JSON object.

    Raises:
        InvalidQuery: Naming the first offending field and what is wrong with it, not quoting its value.
    """
    return parse_request(RecallRequest, body)


def parse_request(model: type[_R], body: Mapping[str, Any]) -> _R:
    """``parse_recall`` for a request that asks for more."""
    try:
        return model.model_validate(dict(body))
    except ValidationError as error:
        first = body_problems(error, model, _FIXES)[0]
        hint = f"{first.field}: {first.fix}" if first.fix else ""
        raise InvalidQuery(f"{first.field}: {first.problem}", hint=hint, field=first.field) from None


class ArmShare(BaseModel):
    """What one arm says of a hit: its rank in the arm's list (null if it is not in it) and its score there."""

    model_config = ConfigDict(frozen=True)

    rank: int | None
    score: float | None


class HitExplanation(BaseModel):
    """Why a hit stands where it stands; the shares add up to what the recipe ranks by."""

    model_config = ConfigDict(frozen=True)

    lexical: ArmShare
    dense: ArmShare
    importance: float | None
    shares: dict[str, float]


class Via(BaseModel):
    """How a neighbour was reached: from this hit, along an edge of this relation and weight."""

    model_config = ConfigDict(frozen=True)

    entry_id: str
    relation: str
    weight: float


class Hit(BaseModel):
    """What every answer shows of an entry that was found.

    ``score`` is comparable within one answer only: cosine for ``dense``, BM25 squashed into (0, 1) for ``lexical``, the
    fused score otherwise, which says how a hit stands among the candidates (0 for a single one); of a neighbour (``via``
    is not null) the edge's weight. ``priority`` is the one it was emitted with, for entries never change.
    """

    model_config = ConfigDict(frozen=True)

    entry_id: str
    score: float
    ts: str
    age_seconds: float
    entry_type: str
    summary: str
    agent_id: str | None
    crew_id: str | None
    actor_type: str
    actor_id: str | None
    severity: str
    priority: str
    trace_id: str | None
    mission_id: str | None
    seq: int
    explain: HitExplanation | None = None
    via: Via | None = None


class RecallHit(Hit):
    """One entry that was recalled; ``live_priority`` is the one that operators gave it since, the same if none."""

    live_priority: str
    payload: dict[str, Any]
    refs: dict[str, Any]
    supersedes: tuple[str, ...]
    valid_at: str | None


class RecallResponse(BaseModel):
    """The answer.

    ``model`` is the model of the query's vector, null if it has none that could be compared. ``degraded`` is
    ``lexical-only`` if the dense arm of a hybrid recipe is missing, ``no-vectors`` if the recipe is nothing but the dense
    arm. ``view_seq`` is the sequence the answer is the truth of.
    """

    model_config = ConfigDict(frozen=True)

    receipt: str
    hits: list[RecallHit]
    recipe: str
    scope: str
    model: str | None
    degraded: Degraded | None
    view_seq: int
