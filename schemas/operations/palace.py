"""Operations that read the palace: drawers, diary, and the layers for prompts.

Invariant: all agents of a workspace share its drawers; no operation reads another workspace.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StrictFloat, StrictInt, StringConstraints
from pydantic.config import JsonDict

from ..entry import Id
from ..events.drawers import CONTENT_CHARS, PLACE_CHARS
from ..rules.palace.layers import RECALL_DRAWERS
from ..views.drawers import DRAWERS_PROJECTION
from .operation import Effect, MinSeq, Operation, Request, Workspace
from .palace_answers import (
    CheckDuplicateAnswer,
    DiaryReadAnswer,
    DrawerAnswer,
    DrawersAnswer,
    PalaceRoomsAnswer,
    PalaceSearchAnswer,
    PalaceStatusAnswer,
    PalaceTaxonomyAnswer,
    PalaceTextAnswer,
    PalaceWingsAnswer,
)

SEARCH_LIMIT: Final = 5
MOST_HITS: Final = 50
DUPLICATE_THRESHOLD: Final = 0.9
DIARY_ENTRIES: Final = 10
MOST_DIARY_ENTRIES: Final = 100
PAGE: Final = 50
MOST_PAGE: Final = 200
MOST_OFFSET: Final = 1_000_000

_VIEWS: Final = (DRAWERS_PROJECTION,)

_TEXT_FIX: Final[JsonDict] = {"x-fix": f"send 1 to {CONTENT_CHARS:,} characters that are not all blanks"}


def at_most(most: int, default: int) -> AfterValidator:
    """Lowers a number to ``most``, and takes ``default`` for one below 1.

    The palace's tools answer a request for too much with the most that they return, not with an error (contract of the
    palace, §11).
    """
    return AfterValidator(lambda value: min(value, most) if value >= 1 else default)


def within(least: int, most: int) -> AfterValidator:
    """Moves a number to the nearest of ``least`` to ``most``."""
    return AfterValidator(lambda value: max(least, min(value, most)))


def bounds(least: int, most: int) -> JsonDict:
    """The range as the JSON Schema states it; numbers outside are accepted."""
    return {"minimum": least, "maximum": most}


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is required and must not be blank")
    return text


Place = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=PLACE_CHARS)]
Text = Annotated[
    str,
    StringConstraints(min_length=1, max_length=CONTENT_CHARS),
    AfterValidator(_not_blank),
    Field(json_schema_extra=_TEXT_FIX),
]
DrawerId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=320)]
Source = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=512)]
_Wing = Annotated[Place | None, Field(description="Only this wing.")]
_Room = Annotated[Place | None, Field(description="Only this room.")]


class PalaceReadRequest(Request):
    """Base class of the requests that read."""

    min_seq: MinSeq = None
    workspace_id: Workspace = None


class PalaceStatusRequest(PalaceReadRequest):
    """Count the drawers of the workspace, in all and by wing and room."""


class PalaceWingsRequest(PalaceReadRequest):
    """List the wings with their numbers of drawers."""


class PalaceRoomsRequest(PalaceReadRequest):
    """List the rooms with their numbers of drawers."""

    wing: _Wing = None


class PalaceTaxonomyRequest(PalaceReadRequest):
    """Show the wings, their rooms and the numbers of drawers in them."""


class PalaceRecipe(StrEnum):
    """How a search of drawers ranks: docs/palace.md, Search."""

    DEFAULT = "default"
    PALACE_SEED = "palace-seed"


class PalaceSearchRequest(PalaceReadRequest):
    """Search the drawers by words, by meaning if an embedding model runs, and by entities that the query names.

    ``similarity`` is the cosine with the query; without vectors, the BM25 score as a fraction of the best that a text
    could reach. The best hit comes first.
    """

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4_000)] = Field(
        description="The question, or any text."
    )
    limit: Annotated[StrictInt, at_most(MOST_HITS, SEARCH_LIMIT)] = Field(
        default=SEARCH_LIMIT,
        description=f"Most hits, at most {MOST_HITS}.",
        json_schema_extra=bounds(1, MOST_HITS),
    )
    wing: _Wing = None
    room: _Room = None
    recipe: PalaceRecipe = Field(default=PalaceRecipe.DEFAULT, description="How the hits are ranked.")


class CheckDuplicateRequest(PalaceReadRequest):
    """Show drawers with almost the same text.

    Similarity is the cosine of the two texts' vectors; if one of them has no vector, the cosine of their word counts.
    """

    content: Text = Field(description="The text to compare.")
    threshold: StrictFloat | StrictInt = Field(
        default=DUPLICATE_THRESHOLD, le=1.0, description="Minimum similarity; 0.9 if it is 0 or less."
    )


class DrawerRequest(PalaceReadRequest):
    """Show a drawer."""

    drawer_id: DrawerId = Field(description="Id of the drawer.")


class DrawersRequest(PalaceReadRequest):
    """List drawers, newest first."""

    wing: _Wing = None
    room: _Room = None
    agent_id: Id | None = Field(default=None, description="Only drawers that this agent filed.")
    imported_from: Source | None = Field(
        default=None, description="Only drawers that were imported from this store or folder."
    )
    limit: Annotated[StrictInt, at_most(MOST_PAGE, PAGE)] = Field(
        default=PAGE, description=f"Most drawers, at most {MOST_PAGE}.", json_schema_extra=bounds(1, MOST_PAGE)
    )
    offset: Annotated[StrictInt, within(0, MOST_OFFSET)] = Field(
        default=0, description="Number of drawers to skip.", json_schema_extra=bounds(0, MOST_OFFSET)
    )


class DiaryReadRequest(PalaceReadRequest):
    """Read an agent's diary, newest entries first."""

    agent_name: Place = Field(description="Whose diary.")
    last_n: Annotated[StrictInt, at_most(MOST_DIARY_ENTRIES, DIARY_ENTRIES)] = Field(
        default=DIARY_ENTRIES,
        description=f"Number of entries, at most {MOST_DIARY_ENTRIES}.",
        json_schema_extra=bounds(1, MOST_DIARY_ENTRIES),
    )


class WakeUpRequest(PalaceReadRequest):
    """Show identity and essential story, for the start of a conversation."""

    wing: _Wing = None


class PalaceRecallRequest(PalaceReadRequest):
    """Show the newest drawers of a wing or room as a text of at most 1,200 characters."""

    wing: _Wing = None
    room: _Room = None
    limit: Annotated[StrictInt, at_most(MOST_HITS, RECALL_DRAWERS)] = Field(
        default=RECALL_DRAWERS,
        description=f"Most drawers, at most {MOST_HITS}.",
        json_schema_extra=bounds(1, MOST_HITS),
    )


PALACE_STATUS: Final = Operation(
    name="palace_status",
    request=PalaceStatusRequest,
    answer=PalaceStatusAnswer,
    route="GET /v1/palace",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace status",
)
PALACE_WINGS: Final = Operation(
    name="palace_wings",
    request=PalaceWingsRequest,
    answer=PalaceWingsAnswer,
    route="GET /v1/palace/wings",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace wings",
)
PALACE_ROOMS: Final = Operation(
    name="palace_rooms",
    request=PalaceRoomsRequest,
    answer=PalaceRoomsAnswer,
    route="GET /v1/palace/rooms",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace rooms",
)
PALACE_TAXONOMY: Final = Operation(
    name="palace_taxonomy",
    request=PalaceTaxonomyRequest,
    answer=PalaceTaxonomyAnswer,
    route="GET /v1/palace/taxonomy",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace taxonomy",
)
PALACE_SEARCH: Final = Operation(
    name="palace_search",
    request=PalaceSearchRequest,
    answer=PalaceSearchAnswer,
    route="POST /v1/palace/search",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace search",
)
CHECK_DUPLICATE: Final = Operation(
    name="check_duplicate",
    request=CheckDuplicateRequest,
    answer=CheckDuplicateAnswer,
    route="POST /v1/palace/duplicates",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace duplicates",
)
DRAWERS: Final = Operation(
    name="drawers",
    request=DrawersRequest,
    answer=DrawersAnswer,
    route="GET /v1/palace/drawers",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace list",
)
DRAWER: Final = Operation(
    name="drawer",
    request=DrawerRequest,
    answer=DrawerAnswer,
    route="GET /v1/palace/drawers/{drawer_id}",
    effect=Effect.READS,
    views=_VIEWS,
    errors=(404,),
    command="palace get",
)
DIARY_READ: Final = Operation(
    name="diary_read",
    request=DiaryReadRequest,
    answer=DiaryReadAnswer,
    route="GET /v1/palace/diary",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace diary",
)
WAKE_UP: Final = Operation(
    name="wake_up",
    request=WakeUpRequest,
    answer=PalaceTextAnswer,
    route="GET /v1/palace/wake-up",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace wake-up",
)
PALACE_RECALL: Final = Operation(
    name="palace_recall",
    request=PalaceRecallRequest,
    answer=PalaceTextAnswer,
    route="GET /v1/palace/recall",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace recall",
)
OPERATIONS: Final = (
    PALACE_STATUS,
    PALACE_WINGS,
    PALACE_ROOMS,
    PALACE_TAXONOMY,
    PALACE_SEARCH,
    CHECK_DUPLICATE,
    DRAWERS,
    DRAWER,
    DIARY_READ,
    WAKE_UP,
    PALACE_RECALL,
)
