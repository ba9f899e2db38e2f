"""What one operation is: a plain value that every shell reads.

Why: HTTP routes, OpenAPI, commands, tools and client methods all need the name, the fields and the help text of the same
request. They are declared here once, and each shell is a loop over the declarations.
Invariant: an operation holds no code. The handler is bound to it in the composition root (``services.desk``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

from ..entry import WorkspaceId

MAX_SEQ = 2**63 - 1
"""The largest stream sequence that is accepted; DuckDB stores them as BIGINT."""


class Answer(BaseModel):
    """Base of every answer: it may gain fields, and readers ignore those that they do not know."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore")


class Access(StrEnum):
    """Which tokens may ask: all, those of OWNER and ADMIN, or those of an OWNER of all workspaces."""

    EVERY_TOKEN = "every token"
    ADMINISTRATOR = "OWNER or ADMIN"
    NODE_OWNER = "OWNER of all workspaces"


class Effect(StrEnum):
    """What the operation does to the journal.

    ``reads`` sends its fields in the query string unless the route is a POST. ``creates`` answers 201.
    """

    READS = "reads"
    CHANGES = "changes"
    CREATES = "creates"
    DESTROYS = "destroys"


def _null_is_absent(schema: dict[str, Any]) -> None:
    for field in schema.get("properties", {}).values():
        if "default" in field and isinstance(field.get("type"), str):
            field["type"] = [field["type"], "null"]


class Request(BaseModel):
    """Base of every request. ``null`` in an optional field means that it is left out."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", json_schema_extra=_null_is_absent)

    @model_validator(mode="before")
    @classmethod
    def _drop_null(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        fields = cls.model_fields
        return {k: v for k, v in given.items() if v is not None or k not in fields or fields[k].is_required()}


Workspace = Annotated[
    WorkspaceId | None,
    Field(description="The workspace, for a token of all workspaces; `default` if absent."),
]
"""Field ``workspace_id`` of a request."""
MinSeq = Annotated[
    Annotated[StrictInt, Field(ge=0, le=MAX_SEQ)] | None,
    Field(
        description="Wait until the views have passed this sequence, to read your own writes.",
        json_schema_extra={"x-fix": "send the seq that an append returned, a whole number from 0"},
    ),
]
"""Field ``min_seq`` of a request."""

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[Q, A]):
    """One thing that can be asked of the service.

    Attributes:
        name: Unique; the client's method and the name in the docs.
        request: Its fields. The docstring is the help text everywhere; the first line is the summary.
        answer: What it answers.
        route: Method and path below the service, ``POST /v1/journal/{entry_id}/priority``; names in braces are fields.
        effect: What it does.
        access: Which tokens may ask.
        views: Projections that must have passed ``min_seq`` before the handler runs; empty if the handler waits itself.
        errors: HTTP status codes beside those that every operation may answer.
        command: Words of the command, ``dlq list``; None if it has none or a hand-written one.
        repeatable: Whether a client may send it again after a lost answer.
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

    @property
    def method(self) -> str:
        """GET, POST, PUT or DELETE."""
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path, its fields in braces."""
        return self.route.partition(" ")[2]

    @property
    def path_fields(self) -> tuple[str, ...]:
        """The fields that stand in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))

    @property
    def has_body(self) -> bool:
        """Whether the fields beside those of the path are sent as a JSON body."""
        return self.method in ("POST", "PUT")

    @property
    def summary(self) -> str:
        """The first line of the help text, without its full stop."""
        return (self.request.__doc__ or "").strip().partition("\n")[0].rstrip(".")


def plain_types(annotation: Any) -> list[Any]:
    """The types of a union, without what ``Annotated`` adds."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return plain_types(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in plain_types(part)]
    return [annotation]
