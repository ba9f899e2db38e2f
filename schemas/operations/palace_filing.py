"""Operations that write into the palace: drawers, diary, identity.

Invariant: each writes into one workspace; a text that is filed is kept verbatim.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StringConstraints

from ..events.drawers import IDENTITY_CHARS, LAST_MS, MEMORY_TYPE_CHARS, MOST_IMPORTANCE, PLACE_CHARS
from ..timestamps import parse_ts, to_ms
from .operation import Access, Effect, Operation, Request, Workspace
from .palace import DrawerId, Place, Source, Text
from .palace_answers import (
    AddDrawerAnswer,
    DeleteDrawerAnswer,
    DiaryWriteAnswer,
    DrawerAnswer,
    ImportDrawersAnswer,
    InfoAnswer,
)

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

    One that an OWNER or ADMIN deleted is restored by them alone.
    """

    drawer_id: DrawerId = Field(description="Id of the drawer.")
    workspace_id: Workspace = None


class UpdateDrawerRequest(Request):
    """Move a drawer, or set its type or importance; its text and id stay. For those who may delete it."""

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

    A drawer whose text differs is replaced. One that was deleted here stays deleted unless ``restore`` is true.
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
    """File the exchanges of chat.* entries that are not filed yet, also those that were put off.

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
OPERATIONS: Final = (
    ADD_DRAWER,
    UPDATE_DRAWER,
    PUT_DRAWER,
    IMPORT_DRAWERS,
    DELETE_DRAWER,
    RESTORE_DRAWER,
    SET_IDENTITY,
    DIARY_WRITE,
    PALACE_INGEST,
)
