"""Operations of the palace: drawers, diary, identity, and the layers for prompts.

Invariant: all agents of a workspace share its drawers; no operation reads or writes another workspace.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StrictFloat, StrictInt, StringConstraints

from ..events.drawers import CONTENT_CHARS, IDENTITY_CHARS, MOST_IMPORTANCE, PLACE_CHARS
from ..rules.palace.layers import RECALL_DRAWERS
from ..views.drawers import DRAWERS_PROJECTION
from .operation import Access, Effect, MinSeq, Operation, Request, Workspace
from .palace_answers import (
    AddDrawerAnswer,
    CheckDuplicateAnswer,
    DeleteDrawerAnswer,
    DiaryReadAnswer,
    DiaryWriteAnswer,
    DrawerAnswer,
    DrawersAnswer,
    InfoAnswer,
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

_VIEWS: Final = (DRAWERS_PROJECTION,)
_MEMORY_TYPE: Final = "decision, preference, milestone, problem, emotional, fact, task or general."

Place = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=PLACE_CHARS)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=CONTENT_CHARS)]
_Name = Annotated[str, StringConstraints(strip_whitespace=True, max_length=128)]
_DrawerId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=320)]
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
    """Search the drawers by their words, by meaning where a model runs, and by the entities that the query names.

    ``similarity`` is the cosine with the query; without vectors, the BM25 score as a fraction of the best that a text could
    reach. The best hit comes first.
    """

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4_000)] = Field(
        description="What to look for."
    )
    limit: Annotated[StrictInt, Field(ge=1, le=MOST_HITS)] = Field(default=SEARCH_LIMIT, description="Most hits.")
    wing: _Wing = None
    room: _Room = None
    recipe: PalaceRecipe = Field(default=PalaceRecipe.DEFAULT, description="How the hits are ranked.")


class CheckDuplicateRequest(PalaceReadRequest):
    """Show drawers that say almost the same.

    Similarity is the cosine of the two texts' vectors; where one has no vector, that of their word counts.
    """

    content: Text = Field(description="The text to compare.")
    threshold: StrictFloat | StrictInt = Field(
        default=DUPLICATE_THRESHOLD, le=1.0, description="Least similarity; 0.9 if it is 0 or less."
    )


class AddDrawerRequest(Request):
    """File a text verbatim under a wing and a room; its type and importance follow from its words."""

    wing: Place = Field(description="Broad category, such as a project or `user`.")
    room: Place = Field(description="Topic within the wing.")
    content: Text = Field(description="The text, kept verbatim.")
    source_file: Annotated[str, StringConstraints(max_length=512)] | None = Field(
        default=None, description="File that the text is from."
    )
    added_by: _Name | None = Field(default=None, description="Who files it; the agent of the token if absent.")
    workspace_id: Workspace = None


class DeleteDrawerRequest(Request):
    """Delete a drawer; it can be restored, and the same text can be filed again."""

    drawer_id: _DrawerId = Field(description="Id of the drawer.")
    workspace_id: Workspace = None


class RestoreDrawerRequest(Request):
    """Restore a drawer that was deleted, pruned, merged or superseded."""

    drawer_id: _DrawerId = Field(description="Id of the drawer.")
    workspace_id: Workspace = None


class UpdateDrawerRequest(Request):
    """Move a drawer, or set its type or importance; its text and id stay."""

    drawer_id: _DrawerId = Field(description="Id of the drawer.")
    wing: Place | None = Field(default=None, description="The new wing.")
    room: Place | None = Field(default=None, description="The new room.")
    hall: Place | None = Field(default=None, description="The new hall.")
    memory_type: _Name | None = Field(default=None, description=_MEMORY_TYPE)
    importance: Annotated[StrictFloat | StrictInt, Field(ge=0, le=MOST_IMPORTANCE)] | None = Field(
        default=None, description="0 to 5."
    )
    workspace_id: Workspace = None


class DrawerRequest(PalaceReadRequest):
    """Show a drawer."""

    drawer_id: _DrawerId = Field(description="Id of the drawer.")


class DrawersRequest(PalaceReadRequest):
    """List drawers, newest first."""

    wing: _Wing = None
    room: _Room = None
    limit: Annotated[StrictInt, Field(ge=1, le=MOST_PAGE)] = Field(default=PAGE, description="Most drawers.")
    offset: Annotated[StrictInt, Field(ge=0, le=1_000_000)] = Field(default=0, description="Drawers to leave out.")


class SetIdentityRequest(Request):
    """Set the text about the workspace that stands at the start of every conversation."""

    content: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=IDENTITY_CHARS)] = Field(
        description="The text, at most 2,000 characters."
    )
    workspace_id: Workspace = None


class DiaryWriteRequest(Request):
    """Write an entry into an agent's diary."""

    agent_name: Place = Field(description="Whose diary.")
    entry: Text = Field(description="The entry, at most 10,000 characters.")
    topic: Place | None = Field(default=None, description="Topic of the entry; `diary` if absent.")
    workspace_id: Workspace = None


class DiaryReadRequest(PalaceReadRequest):
    """Read an agent's diary, newest entries first."""

    agent_name: Place = Field(description="Whose diary.")
    last_n: Annotated[StrictInt, Field(ge=1, le=MOST_DIARY_ENTRIES)] = Field(
        default=DIARY_ENTRIES, description="Number of entries."
    )


class WakeUpRequest(PalaceReadRequest):
    """Show identity and essential story, for the start of a conversation."""

    wing: _Wing = None


class PalaceRecallRequest(PalaceReadRequest):
    """Show the newest drawers of a wing or room as a text of at most 1,200 characters."""

    wing: _Wing = None
    room: _Room = None
    limit: Annotated[StrictInt, Field(ge=1, le=MOST_HITS)] = Field(default=RECALL_DRAWERS, description="Most drawers.")


class PalaceIngestRequest(Request):
    """File the exchanges of chat.* entries that are not filed yet, also those that were put off.

    Recorded as an event; the reactor `palace_ingest` follows at once. It files nothing twice.
    """

    since_seq: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None, description="Only turns from this sequence on; all if absent."
    )
    workspace_id: Workspace = None


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
ADD_DRAWER: Final = Operation(
    name="add_drawer",
    request=AddDrawerRequest,
    answer=AddDrawerAnswer,
    route="POST /v1/palace/drawers",
    effect=Effect.CREATES,
    errors=(409,),
    command="palace add",
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
UPDATE_DRAWER: Final = Operation(
    name="update_drawer",
    request=UpdateDrawerRequest,
    answer=DrawerAnswer,
    route="POST /v1/palace/drawers/{drawer_id}",
    effect=Effect.CHANGES,
    errors=(404,),
    command="palace update",
)
DELETE_DRAWER: Final = Operation(
    name="delete_drawer",
    request=DeleteDrawerRequest,
    answer=DeleteDrawerAnswer,
    route="DELETE /v1/palace/drawers/{drawer_id}",
    effect=Effect.DESTROYS,
    errors=(422,),
    command="palace delete",
)
RESTORE_DRAWER: Final = Operation(
    name="restore_drawer",
    request=RestoreDrawerRequest,
    answer=DrawerAnswer,
    route="POST /v1/palace/drawers/{drawer_id}/restore",
    effect=Effect.CHANGES,
    errors=(404,),
    command="palace restore",
)
SET_IDENTITY: Final = Operation(
    name="set_identity",
    request=SetIdentityRequest,
    answer=InfoAnswer,
    route="PUT /v1/palace/identity",
    effect=Effect.CHANGES,
    command="palace identity",
)
DIARY_WRITE: Final = Operation(
    name="diary_write",
    request=DiaryWriteRequest,
    answer=DiaryWriteAnswer,
    route="POST /v1/palace/diary",
    effect=Effect.CREATES,
    errors=(409,),
    command="palace diary-write",
    repeatable=False,
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
PALACE_INGEST: Final = Operation(
    name="palace_ingest",
    request=PalaceIngestRequest,
    answer=InfoAnswer,
    route="POST /v1/palace/ingest",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    command="palace ingest",
    repeatable=False,
)
OPERATIONS: Final = (
    PALACE_STATUS,
    PALACE_WINGS,
    PALACE_ROOMS,
    PALACE_TAXONOMY,
    PALACE_SEARCH,
    CHECK_DUPLICATE,
    ADD_DRAWER,
    DRAWERS,
    DRAWER,
    UPDATE_DRAWER,
    DELETE_DRAWER,
    RESTORE_DRAWER,
    SET_IDENTITY,
    DIARY_WRITE,
    DIARY_READ,
    WAKE_UP,
    PALACE_RECALL,
    PALACE_INGEST,
)
