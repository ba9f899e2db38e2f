"""Operations of the palace: drawers, diary, layers for prompts, tunnels and the graph of rooms.

Invariant: all agents of a workspace share its drawers; no operation reads another workspace.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StringConstraints
from pydantic.config import JsonDict

from ..core.entry import Id
from ..core.operation import Access, Answer, AsOf, Effect, MinSeq, Operation, Request, Workspace
from ..core.timestamps import parse_ts, to_ms
from .events import CONTENT_CHARS, IDENTITY_CHARS, LABEL_CHARS, LAST_MS, MEMORY_TYPE_CHARS, MOST_IMPORTANCE, PLACE_CHARS
from .layers import RECALL_DRAWERS
from .tables import DRAWERS_PROJECTION, TUNNELS_PROJECTION

# Answers of the operations of the palace.


class WingCount(Answer):
    """A wing and its number of drawers."""

    wing: str
    count: int


class RoomCount(Answer):
    """A room of a wing and its number of drawers."""

    wing: str
    room: str
    count: int


class WingRooms(Answer):
    """The rooms of a wing with their numbers of drawers."""

    rooms: dict[str, int]


class PalaceStatusAnswer(Answer):
    """Numbers of drawers, the largest first."""

    total_drawers: int
    wings: tuple[WingCount, ...]
    rooms: tuple[RoomCount, ...]


class PalaceWingsAnswer(Answer):
    """Wings, the largest first."""

    wings: tuple[WingCount, ...]


class PalaceRoomsAnswer(Answer):
    """Rooms, the largest first."""

    rooms: tuple[RoomCount, ...]


class PalaceTaxonomyAnswer(Answer):
    """Wing → its rooms."""

    taxonomy: dict[str, WingRooms]


class DrawerHit(Answer):
    """A found drawer; ``score`` determines its rank, ``author`` is determined by the token that filed it.

    ``quarantined`` is the reason for which the scanners block its text (``category/pattern``); an AGENT or LEAD then
    gets a notice instead of the text.
    """

    id: str
    wing: str
    room: str
    content: str
    memory_type: str
    importance: float
    similarity: float
    score: float
    filed_at: str
    author: str
    quarantined: str | None = None


class PalaceSearchAnswer(Answer):
    """Hits, best first; ``receipt`` names the record of this search, None if it could not be recorded."""

    results: tuple[DrawerHit, ...]
    count: int
    receipt: str | None = None


class CheckDuplicateAnswer(Answer):
    """The five most similar drawers that reach the threshold."""

    duplicates: tuple[DrawerHit, ...]
    has_duplicate: bool


class AddDrawerAnswer(Answer):
    """The drawer; ``added`` is false if it was already filed, and ``seq`` is then None."""

    drawer_id: str
    memory_type: str
    info: str
    added: bool
    seq: int | None = None


class DeleteDrawerAnswer(Answer):
    """Whether there was such a drawer."""

    deleted: bool
    info: str
    seq: int | None = None


class DrawerAnswer(Answer):
    """A drawer; ``live`` is false if it is superseded or merged.

    ``held_until`` is the time from which the drawer in ``superseded_by`` is true; null if unknown. ``author`` is who
    filed it, by the token: ``agent ada``, or ``actor user`` and the id of the token of an OWNER or ADMIN; ``added_by``
    is a label. ``quarantined`` is as in a hit. ``entity_count`` and ``triple_count`` count what a model found in it,
    ``retry_count`` the model's unusable answers about it.
    """

    id: str
    wing: str
    room: str
    hall: str
    content: str
    memory_type: str
    importance: float
    pipeline_tier: str
    state: str
    summary: str
    superseded_by: str | None
    held_until: str | None = None
    cluster_id: str | None
    author: str
    added_by: str
    added_by_agent: str
    source_file: str
    imported_from: str
    filed_at: str
    last_accessed_at: str | None
    access_count: int
    entity_count: int
    triple_count: int
    retry_count: int
    live: bool
    seq: int
    quarantined: str | None = None


class ImportedDrawerAnswer(Answer):
    """The result, or the planned result, for a drawer.

    ``added``; ``replaced``: its text differed; ``unchanged``; ``deleted_here``: it was deleted after an earlier
    import; ``noise``: it is only a greeting or the like; ``no_room``: the workspace has as many drawers as it may
    have.
    """

    drawer_id: str
    outcome: Literal["added", "replaced", "unchanged", "deleted_here", "noise", "no_room"]


class ImportDrawersAnswer(Answer):
    """The result for each drawer, in the order of the request; ``room_left`` is the number of further drawers allowed."""

    drawers: tuple[ImportedDrawerAnswer, ...]
    room_left: int
    seq: int | None = None


class DrawersAnswer(Answer):
    """Drawers, newest first; ``total`` counts those that match the filter."""

    drawers: tuple[DrawerAnswer, ...]
    total: int


class InfoAnswer(Answer):
    """The result of a write."""

    info: str
    seq: int


class DiaryWriteAnswer(Answer):
    """The drawer that holds the entry."""

    drawer_id: str
    info: str
    seq: int


class DiaryEntry(Answer):
    """An entry of a diary; ``author`` is determined by the token that wrote it, ``quarantined`` is as in a hit."""

    id: str
    content: str
    hall: str
    filed_at: str
    author: str
    quarantined: str | None = None


class DiaryReadAnswer(Answer):
    """Entries, newest first."""

    entries: tuple[DiaryEntry, ...]
    count: int


class PalaceTextAnswer(Answer):
    """A text for a prompt; ``receipt`` names the record of what is in it, None if it could not be recorded."""

    text: str
    chars: int
    receipt: str | None = None


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
    """Lower a number to ``most``; use ``default`` for a number below 1.

    A tool of the palace does not refuse a request for too many items, but returns its maximum (contract of the palace,
    §11).
    """
    return AfterValidator(lambda value: min(value, most) if value >= 1 else default)


def within(least: int, most: int) -> AfterValidator:
    """Clamp a number to ``least`` … ``most``."""
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
    as_of: AsOf = None
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
    decided="index",
)
CHECK_DUPLICATE: Final = Operation(
    name="check_duplicate",
    request=CheckDuplicateRequest,
    answer=CheckDuplicateAnswer,
    route="POST /v1/palace/duplicates",
    effect=Effect.READS,
    views=_VIEWS,
    command="palace duplicates",
    decided="index",
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
    decided="index",
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


# Operations that write into the palace: drawers, diary, identity.


MOST_IMPORTED: Final = 200
_MEMORY_TYPE: Final = "decision, preference, milestone, problem, emotional, fact, task or general."

_Name = Annotated[str, StringConstraints(strip_whitespace=True, max_length=128)]
_MemoryType = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MEMORY_TYPE_CHARS)]


def _moment(text: str) -> str:
    if not 0 <= to_ms(parse_ts(text)) <= LAST_MS:
        raise ValueError("must be a time between 1970 and 2100")
    return text


class AddDrawerRequest(Request):
    """File a text verbatim under a wing and a room; its type and importance follow from its words."""

    wing: Place = Field(description="Broad category, such as a project or `user`.")
    room: Place = Field(description="Topic within the wing.")
    content: Text = Field(description="The text, kept verbatim.")
    source_file: Annotated[str, StringConstraints(max_length=512)] | None = Field(
        default=None, description="File that the text is from."
    )
    added_by: _Name | None = Field(
        default=None, description="Who files it; the agent of the token if absent. Only OWNER and ADMIN name another."
    )
    workspace_id: Workspace = None


class DeleteDrawerRequest(Request):
    """Delete a drawer; it can be restored, and the same text can be filed again.

    An agent deletes its own drawers, a LEAD also those of its crew, OWNER and ADMIN all.
    """

    drawer_id: DrawerId = Field(description="Id of the drawer.")
    workspace_id: Workspace = None


class RestoreDrawerRequest(Request):
    """Restore a drawer that was deleted, pruned, merged or superseded; for those who may delete it.

    Only OWNER and ADMIN can restore a drawer that an OWNER or ADMIN deleted.
    """

    drawer_id: DrawerId = Field(description="Id of the drawer.")
    workspace_id: Workspace = None


class UpdateDrawerRequest(Request):
    """Move a drawer, or set its type or importance; its text and id stay. For callers that may delete it."""

    drawer_id: DrawerId = Field(description="Id of the drawer.")
    wing: Place | None = Field(default=None, description="The new wing.")
    room: Place | None = Field(default=None, description="The new room.")
    hall: Place | None = Field(default=None, description="The new hall.")
    memory_type: _MemoryType | None = Field(default=None, description=_MEMORY_TYPE)
    importance: Annotated[StrictFloat | StrictInt, Field(ge=0, le=MOST_IMPORTANCE)] | None = Field(
        default=None, description="0 to 5."
    )
    workspace_id: Workspace = None


class PutDrawerRequest(Request):
    """File a text under an id of the caller's own, as a person's device does; repeating it changes nothing.

    Another text under the same id is refused. After a deletion the id can be used again.
    """

    drawer_id: DrawerId = Field(description="The caller's key for the text; it becomes the id of the drawer.")
    content: Text = Field(description="The text, kept verbatim, at most 10,000 characters.")
    category: (
        Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2 * PLACE_CHARS + 1)] | None
    ) = Field(default=None, description="`wing` or `wing/room`; `user/general` if absent.")
    workspace_id: Workspace = None


class ImportedDrawer(BaseModel):
    """A drawer of another store, or a section of a note.

    Attributes:
        drawer_id: Its id, there and here.
        memory_type: Follows from the words if absent, as does ``importance``.
        filed_at: When it was filed there; now if absent.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")
    drawer_id: DrawerId
    wing: Place
    room: Place
    hall: Annotated[str, StringConstraints(strip_whitespace=True, max_length=PLACE_CHARS)] = ""
    content: Text
    memory_type: _MemoryType | None = None
    importance: Annotated[StrictFloat | StrictInt, Field(ge=0, le=MOST_IMPORTANCE)] | None = None
    source_file: Annotated[str, StringConstraints(max_length=512)] = ""
    added_by: Annotated[str, StringConstraints(max_length=512)] = ""
    filed_at: Annotated[str, AfterValidator(_moment)] | None = None


class ImportDrawersRequest(Request):
    """File drawers of another store under the ids that they have there; repeating it changes nothing.

    A drawer whose text differs is replaced. A drawer that was deleted here stays deleted unless ``restore`` is true.
    """

    drawers: Annotated[tuple[ImportedDrawer, ...], Field(min_length=1, max_length=MOST_IMPORTED)] = Field(
        description="The drawers, at most 200."
    )
    imported_from: Source = Field(description="Name of the store, such as its path.")
    dry_run: bool = Field(default=False, description="Only report what would be done with each drawer.")
    restore: bool = Field(default=False, description="Also file drawers that were deleted here.")
    workspace_id: Workspace = None


class SetIdentityRequest(Request):
    """Set the text about the workspace that is given to a model at the start of every conversation.

    For OWNER, ADMIN and LEAD.
    """

    content: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=IDENTITY_CHARS)] = Field(
        description="The text, at most 2,000 characters."
    )
    workspace_id: Workspace = None


class DiaryWriteRequest(Request):
    """Write an entry into an agent's diary: an agent into its own, OWNER and ADMIN into each."""

    agent_name: Place = Field(description="Whose diary.")
    entry: Text = Field(description="The entry, at most 10,000 characters.")
    topic: Place | None = Field(default=None, description="Topic of the entry; `diary` if absent.")
    workspace_id: Workspace = None


class PalaceIngestRequest(Request):
    """File the exchanges of chat.* entries that are not filed yet, including postponed ones.

    Recorded as an event; the reactor `palace_ingest` follows at once. It files nothing twice.
    """

    since_seq: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None, description="Only turns from this sequence on; all if absent."
    )
    workspace_id: Workspace = None


ADD_DRAWER: Final = Operation(
    name="add_drawer",
    request=AddDrawerRequest,
    answer=AddDrawerAnswer,
    route="POST /v1/palace/drawers",
    effect=Effect.CREATES,
    errors=(409,),
    command="palace add",
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
PUT_DRAWER: Final = Operation(
    name="put_drawer",
    request=PutDrawerRequest,
    answer=AddDrawerAnswer,
    route="PUT /v1/palace/drawers/{drawer_id}",
    effect=Effect.CHANGES,
    errors=(409,),
    command="palace put",
)
IMPORT_DRAWERS: Final = Operation(
    name="import_drawers",
    request=ImportDrawersRequest,
    answer=ImportDrawersAnswer,
    route="POST /v1/palace/import",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
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
    access=Access.LEADER,
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


# Operations that put the palace into prompts: search results as a text, and a whole context.


MESSAGES_MAX: Final = 200
MESSAGE_MAX_CHARS: Final = 20_000


class PalaceMessage(BaseModel):
    """A message of a conversation; ``silent`` messages are left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    role: Literal["user", "agent"] = Field(description="Who says it.")
    name: Annotated[str, StringConstraints(strip_whitespace=True, max_length=PLACE_CHARS)] = Field(
        default="", description="Name of the agent."
    )
    text: Annotated[str, StringConstraints(max_length=MESSAGE_MAX_CHARS)] = Field(description="The text.")
    silent: StrictBool = Field(default=False, description="Whether to leave it out.")


class PalaceRenderRequest(PalaceSearchRequest):
    """Search the drawers and show the hits as a text of at most 14,000 characters.

    One line for each hit: rank, wing and room, score, the first 300 characters, and the file it is from. The hits count as
    read.
    """


class PalaceContextRequest(Request):
    """Show identity, essential story and the newest messages as a text of at most 14,000 characters.

    Memory has precedence; each message has at most 500 characters. Without memory and messages the text is empty.
    """

    messages: tuple[PalaceMessage, ...] = Field(
        default=(), max_length=MESSAGES_MAX, description="Messages so far, oldest first: role, name and text."
    )
    wing: Place | None = Field(default=None, description="Only this wing.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


PALACE_RENDER: Final = Operation(
    name="palace_render",
    request=PalaceRenderRequest,
    answer=PalaceTextAnswer,
    route="POST /v1/palace/search/render",
    effect=Effect.READS,
    views=(DRAWERS_PROJECTION,),
    command="palace render",
    decided="index",
)
PALACE_CONTEXT: Final = Operation(
    name="palace_context",
    request=PalaceContextRequest,
    answer=PalaceTextAnswer,
    route="POST /v1/palace/context",
    effect=Effect.READS,
    views=(DRAWERS_PROJECTION,),
    decided="index",
)

# Operations on explicit tunnels: connections between two rooms of the palace that a caller created.


_TUNNEL_VIEWS: Final = (DRAWERS_PROJECTION, TUNNELS_PROJECTION)
_TunnelId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]


class CreateTunnelRequest(Request):
    """Connect two rooms of the palace; one tunnel serves both directions.

    If the two are connected already, the label and the drawers of the tunnel are replaced, and its strength stays.
    """

    source_wing: Place = Field(description="Wing of the first room.")
    source_room: Place = Field(description="The first room; it must hold drawers.")
    target_wing: Place = Field(description="Wing of the second room.")
    target_room: Place = Field(description="The second room; it must hold drawers.")
    label: Annotated[str, StringConstraints(strip_whitespace=True, max_length=LABEL_CHARS)] = Field(
        default="", description="What connects them."
    )
    source_drawer_id: DrawerId | None = Field(
        default=None, description="The drawer of the first room that the tunnel points to."
    )
    target_drawer_id: DrawerId | None = Field(
        default=None, description="The drawer of the second room that the tunnel points to."
    )
    workspace_id: Workspace = None


class ListTunnelsRequest(Request):
    """List the explicit tunnels, the strongest first."""

    wing: Place | None = Field(default=None, description="Only tunnels with an end in this wing.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class DeleteTunnelRequest(Request):
    """Delete an explicit tunnel."""

    tunnel_id: _TunnelId = Field(description="Id of the tunnel.")
    workspace_id: Workspace = None


class FollowTunnelsRequest(Request):
    """Show the rooms and drawers at the other ends of a room's explicit tunnels, the strongest first.

    Each request is recorded and makes the tunnels stronger.
    """

    wing: Place = Field(description="The wing.")
    room: Place = Field(description="The room within the wing.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ExplicitTunnel(Answer):
    """A tunnel; ``strength`` is its current strength, 0.05 to 5."""

    id: str
    source_wing: str
    source_room: str
    target_wing: str
    target_room: str
    label: str
    source_drawer_id: str | None
    target_drawer_id: str | None
    strength: float
    follow_count: int
    created_at: str
    last_followed_at: str | None


class TunnelAnswer(Answer):
    """A tunnel; ``created`` is false if there was one between these rooms."""

    tunnel: ExplicitTunnel
    created: bool
    seq: int


class TunnelListAnswer(Answer):
    """Tunnels, the strongest first."""

    tunnels: tuple[ExplicitTunnel, ...]
    count: int


class TunnelDeletedAnswer(Answer):
    """Whether there was such a tunnel."""

    deleted: bool
    info: str
    seq: int | None = None


class Connection(Answer):
    """The other end of a tunnel: its room, and its drawer or the room's newest drawer, 300 characters of it."""

    tunnel_id: str
    label: str
    strength: float
    wing: str
    room: str
    drawers: int
    drawer_id: str | None
    preview: str


class FollowTunnelsAnswer(Answer):
    """Other ends, the strongest connection first."""

    connections: tuple[Connection, ...]
    count: int


CREATE_TUNNEL: Final = Operation(
    name="create_tunnel",
    request=CreateTunnelRequest,
    answer=TunnelAnswer,
    route="POST /v1/palace/tunnels",
    effect=Effect.CREATES,
    errors=(404, 409),
    command="palace tunnel-create",
)
LIST_TUNNELS: Final = Operation(
    name="list_tunnels",
    request=ListTunnelsRequest,
    answer=TunnelListAnswer,
    route="GET /v1/palace/tunnels",
    effect=Effect.READS,
    views=_TUNNEL_VIEWS,
    command="palace tunnel-list",
)
DELETE_TUNNEL: Final = Operation(
    name="delete_tunnel",
    request=DeleteTunnelRequest,
    answer=TunnelDeletedAnswer,
    route="DELETE /v1/palace/tunnels/{tunnel_id}",
    effect=Effect.DESTROYS,
    errors=(422,),
    command="palace tunnel-delete",
)
FOLLOW_TUNNELS: Final = Operation(
    name="follow_tunnels",
    request=FollowTunnelsRequest,
    answer=FollowTunnelsAnswer,
    route="POST /v1/palace/tunnels/follow",
    effect=Effect.CHANGES,
    views=_TUNNEL_VIEWS,
    command="palace tunnel-follow",
    repeatable=False,
)


# Operations on the graph of the palace: walking from room to room, tunnels between wings, figures.


MAX_HOPS: Final = 5
DEFAULT_HOPS: Final = 3
_PALACE_GRAPH_VIEWS: Final = ("drawers",)


class TraverseRequest(Request):
    """Show the rooms that can be reached from a room through shared wings."""

    start_room: str = Field(min_length=1, description="The room to start from.")
    max_hops: Annotated[StrictInt, within(0, MAX_HOPS)] = Field(
        default=DEFAULT_HOPS, description=f"Most hops, at most {MAX_HOPS}.", json_schema_extra=bounds(0, MAX_HOPS)
    )
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class TunnelsRequest(Request):
    """Show the rooms that are in several wings, and the tunnels that were created between two rooms."""

    wing_a: str | None = Field(default=None, description="A wing that must be among them.")
    wing_b: str | None = Field(default=None, description="Another wing that must be among them.")
    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class PalaceGraphRequest(Request):
    """Show figures of the graph of rooms and wings."""

    min_seq: MinSeq = None
    as_of: AsOf = None
    workspace_id: Workspace = None


class TunnelRoom(Answer):
    """A room over all wings, with its number of drawers."""

    room: str
    wings: tuple[str, ...]
    halls: tuple[str, ...]
    count: int


class ReachedRoom(TunnelRoom):
    """A room that was reached after ``hop`` hops, through these wings."""

    hop: int
    connected_via: tuple[str, ...]


class TraverseAnswer(Answer):
    """Rooms, the nearest first."""

    rooms: tuple[ReachedRoom, ...]
    count: int


class TunnelsAnswer(Answer):
    """Rooms in several wings, those with most drawers first; ``explicit`` are the created tunnels, the strongest first.

    ``count`` counts the rooms.
    """

    tunnels: tuple[TunnelRoom, ...]
    count: int
    explicit: tuple[ExplicitTunnel, ...] = ()


class PalaceGraphAnswer(Answer):
    """Figures of the graph; ``top_tunnels`` are the rooms in most wings."""

    total_rooms: int
    tunnel_rooms: int
    total_edges: int
    rooms_per_wing: dict[str, int]
    top_tunnels: tuple[TunnelRoom, ...]


TRAVERSE: Final = Operation(
    name="traverse",
    request=TraverseRequest,
    answer=TraverseAnswer,
    route="GET /v1/palace/graph/rooms",
    effect=Effect.READS,
    views=_PALACE_GRAPH_VIEWS,
    errors=(404,),
    command="palace traverse",
)
FIND_TUNNELS: Final = Operation(
    name="find_tunnels",
    request=TunnelsRequest,
    answer=TunnelsAnswer,
    route="GET /v1/palace/graph/tunnels",
    effect=Effect.READS,
    views=(*_PALACE_GRAPH_VIEWS, TUNNELS_PROJECTION),
    command="palace tunnels",
)
PALACE_GRAPH: Final = Operation(
    name="palace_graph",
    request=PalaceGraphRequest,
    answer=PalaceGraphAnswer,
    route="GET /v1/palace/graph",
    effect=Effect.READS,
    views=_PALACE_GRAPH_VIEWS,
    command="palace graph",
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
    ADD_DRAWER,
    UPDATE_DRAWER,
    PUT_DRAWER,
    IMPORT_DRAWERS,
    DELETE_DRAWER,
    RESTORE_DRAWER,
    SET_IDENTITY,
    DIARY_WRITE,
    PALACE_INGEST,
    PALACE_RENDER,
    PALACE_CONTEXT,
    TRAVERSE,
    FIND_TUNNELS,
    PALACE_GRAPH,
    CREATE_TUNNEL,
    LIST_TUNNELS,
    DELETE_TUNNEL,
    FOLLOW_TUNNELS,
)
