"""The declaration of an operation, from which routes, OpenAPI, commands and client methods are made.

Invariant: an operation holds no code; ``services.desk`` binds it to its handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, ValidationError, model_validator
from pydantic.config import JsonDict

from .entry import WorkspaceId, problems_of
from .errors import FieldProblem
from .grants import SPEAKER_PATTERN, TYPE_PATTERN

MAX_SEQ = 2**63 - 1
"""The largest stream sequence that is accepted; DuckDB stores them as BIGINT."""


class Answer(BaseModel):
    """Base class of every answer. Answers may gain fields; readers ignore fields that they do not know."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore")

    @property
    def http_status(self) -> int | None:
        """The HTTP status of this answer if it differs from that of its operation."""
        return None


class Access(StrEnum):
    """Which tokens may call the operation."""

    EVERY_TOKEN = "every token"
    LEADER = "OWNER, ADMIN or LEAD"
    ADMINISTRATOR = "OWNER or ADMIN"
    NODE_OWNER = "OWNER of all workspaces"


class Effect(StrEnum):
    """What the operation does to the journal.

    ``reads``: fields are sent in the query string unless the route is a POST. ``creates``: the status is 201.
    ``starts``: the work goes on after the answer, the status is 202.
    """

    READS = "reads"
    CHANGES = "changes"
    CREATES = "creates"
    STARTS = "starts"
    DESTROYS = "destroys"


def _null_is_absent(schema: dict[str, Any]) -> None:
    for field in schema.get("properties", {}).values():
        if "default" in field and isinstance(field.get("type"), str):
            field["type"] = [field["type"], "null"]


class Unchanged(Enum):
    """The default of an argument of the client for which ``None`` is a value."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED


class Request(BaseModel):
    """Base class of every request. ``null`` in an optional field means that the field is absent.

    Attributes:
        NULLABLE: Fields of which ``null`` is a value.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", json_schema_extra=_null_is_absent)
    NULLABLE: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _drop_null(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        fields = cls.model_fields
        return {k: v for k, v in data.items() if v is not None or k not in fields or fields[k].is_required()}


Workspace = Annotated[
    WorkspaceId | None,
    Field(description="The workspace; only a token for all workspaces needs it. `default` if absent."),
]
"""Field ``workspace_id`` of a request."""
MinSeq = Annotated[
    Annotated[StrictInt, Field(ge=0, le=MAX_SEQ)] | None,
    Field(
        description="Wait until the views have reached this sequence, so that the answer includes your own writes.",
        json_schema_extra={"x-fix": "send the seq that an append returned, an integer from 0"},
    ),
]
"""Field ``min_seq`` of a request."""


def _digits(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_AS_OF: Final = (
    "Answer as of this sequence or this time: from the journal up to there, without what was erased since. Rights are those "
    "of now."
)
MOMENT_HINT: Final[JsonDict] = {"x-fix": 'send a sequence as text, such as "1234", or a time like 2026-11-21T09:30:00Z'}
Moment = Annotated[
    str,
    BeforeValidator(_digits),
    Field(
        min_length=1,
        max_length=40,
        json_schema_extra=MOMENT_HINT,
    ),
]
"""A sequence as text, or an RFC 3339 time."""
AsOf = Annotated[
    Annotated[str, BeforeValidator(_digits), Field(min_length=1, max_length=40)] | None,
    Field(
        description=_AS_OF,
        json_schema_extra=MOMENT_HINT,
    ),
]
"""Field ``as_of`` of a request; ``as_of_seq`` where ``as_of`` is the date on which a fact held."""

Visible = Annotated[
    bool,
    Field(
        description=(
            "False if the change is stored but the views do not show it yet; then read with `seq` as `min_seq`."
        )
    ),
]
"""Field ``visible`` of the answer to a decision."""

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[Q, A]):
    """A request that the service answers.

    Attributes:
        name: Unique name; also the name of the client's method.
        request: Model of the request. Its docstring is the operation's help text; the first line is the summary.
        route: Method and path, ``POST /v1/journal/{entry_id}/priority``; names in braces are fields.
        views: Projections that must have reached ``min_seq`` before the handler runs; empty if the handler waits
            itself.
        errors: HTTP status codes in addition to those of every operation.
        command: Name of the command, ``dlq list``; None if absent or written by hand.
        repeatable: Whether a client may repeat the request if the answer was lost.
        decided: Where several nodes share a journal: ``workspace``, by the owner of the caller's workspace; ``node``, by
            the owner of the system's decisions, because it concerns all workspaces or runs one at a time; ``anywhere``,
            because it decides nothing. What reads is answered anywhere, except ``index``: it reads texts in memory
            (``services/index``), and the owner of the workspace answers, so that one node keeps them.
        needs_journal: What the operation does, in words for the error message that refuses it in a workspace whose
            documents are not stored in the journal; empty if every document store can answer.
    """

    name: str
    request: type[Q]
    answer: type[A]
    route: str
    effect: Effect
    access: Access = Access.EVERY_TOKEN
    views: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    command: str | None = None
    repeatable: bool = True
    needs_journal: str = ""
    decided: Literal["workspace", "node", "anywhere", "index"] = "workspace"

    @property
    def past(self) -> str | None:
        """Name of the field that holds the past moment whose views answer, an ``AsOf``; None if there is none."""
        fields = self.request.model_fields.items()
        return next((name for name, field in fields if field.description == _AS_OF), None)

    @property
    def method(self) -> str:
        """GET, POST, PUT or DELETE."""
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path, with fields in braces."""
        return self.route.partition(" ")[2]

    @property
    def path_fields(self) -> tuple[str, ...]:
        """The fields in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))

    @property
    def has_body(self) -> bool:
        """Whether fields outside the path are sent as a JSON body."""
        return self.method in ("POST", "PUT")

    @property
    def summary(self) -> str:
        """The first line of the help text, without its full stop."""
        return (self.request.__doc__ or "").strip().partition("\n")[0].rstrip(".")


def plain_types(annotation: Any) -> list[Any]:
    """The member types of a union, without ``Annotated``."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return plain_types(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in plain_types(part)]
    return [annotation]


def is_switch(annotation: Any) -> bool:
    """Whether a field is on, off or absent."""
    return set(plain_types(annotation)) == {bool, NoneType}


# Turns validation errors of a request (not of an entry) into a list of problems.
#
# Invariant: each problem names its field and a fix, and never quotes a submitted value.


_FIXES: Final = (
    ("string_type", "send a string"),
    ("string_too_short", "send at least one character"),
    ("string_too_long", "send fewer characters"),
    ("string_pattern", "use 1 to 64 of A-Z a-z 0-9 _ - (not just _)"),
    ("int_", "send an integer"),
    ("float_", "send a number"),
    ("finite_", "send a finite number"),
    ("bool_", "send true or false"),
    ("dict_", "send a JSON object"),
    ("tuple_", "send a JSON array"),
    ("list_", "send a JSON array"),
)
"""Prefix of pydantic's error type → fix, for fields that declare no fix themselves."""
_PATTERNS: Final = {
    TYPE_PATTERN: "name entry types such as keeper.decision, or a prefix with .* such as keeper.* for all types below it",
    SPEAKER_PATTERN: "name actor types (agent, user, system, keeper, sidecar, orchestrator) or one actor, like user:maria",
}
"""Pattern → fix, for all patterns except the pattern of an id."""
_BOUNDS: Final = ("greater_than", "less_than")


def body_problems(error: ValidationError, model: type[BaseModel]) -> tuple[FieldProblem, ...]:
    """All problems that pydantic found in a request.

    Args:
        error: The error that pydantic raised.
        model: The request model. A field's ``x-fix`` overrides the default fix of its error type.
    """
    known = ", ".join(model.model_fields)
    fixes = {
        name: str(field.json_schema_extra["x-fix"])
        for name, field in model.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and "x-fix" in field.json_schema_extra
    }
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    problems = []
    for item, problem in zip(error.errors(include_input=False, include_url=False), problems_of(error), strict=True):
        kind = item["type"]
        if not item["loc"] and kind in ("model_type", "model_attributes_type"):
            problems.append(FieldProblem("body", "must be a JSON object", f"send an object with {known}"))
        elif kind == "extra_forbidden":
            instead = (
                f"known fields: {known}" if known else "the body has no fields; use parameters of the query string"
            )
            problems.append(FieldProblem(problem.field, "no such field", f"leave it out; {instead}"))
        elif kind == "missing":
            problems.append(FieldProblem(problem.field, problem.problem, problem.fix or f"add {problem.field}"))
        elif kind == "string_too_short" and item["ctx"]["min_length"] == 1 and problem.field in required:
            fix = fixes.get(problem.field) or "send at least one character"
            problems.append(FieldProblem(problem.field, "is required and must not be blank", fix))
        else:
            fix = fixes.get(problem.field) or problem.fix or _by_kind(kind, item.get("ctx", {}), problem.problem)
            problems.append(FieldProblem(problem.field, problem.problem, fix))
    return tuple(problems)


def _by_kind(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind in ("literal_error", "enum"):
        return f"use {context['expected']}"
    if kind.startswith(_BOUNDS):
        return f"send a number {message.removeprefix('Input should be ')}"
    if (fix := _PATTERNS.get(context.get("pattern", ""))) is not None:
        return fix
    return next((fix for begin, fix in _FIXES if kind.startswith(begin)), "")
