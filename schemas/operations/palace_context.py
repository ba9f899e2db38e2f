"""Operations that put the palace into prompts: what a search found as a text, and a whole context."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints

from ..events.drawers import PLACE_CHARS
from ..views.drawers import DRAWERS_PROJECTION
from .operation import Effect, MinSeq, Operation, Request, Workspace
from .palace import PalaceSearchRequest, Place
from .palace_answers import PalaceTextAnswer

MESSAGES_MAX: Final = 200
MESSAGE_MAX_CHARS: Final = 20_000


class PalaceMessage(BaseModel):
    """A message of a conversation; ``silent`` ones are left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    role: Literal["user", "agent"] = Field(description="Who says it.")
    name: Annotated[str, StringConstraints(strip_whitespace=True, max_length=PLACE_CHARS)] = Field(
        default="", description="Name of the agent."
    )
    text: Annotated[str, StringConstraints(max_length=MESSAGE_MAX_CHARS)] = Field(description="The text.")
    silent: StrictBool = Field(default=False, description="Whether to leave it out.")


class PalaceRenderRequest(PalaceSearchRequest):
    """Search the drawers and show what was found as a text of at most 14,000 characters.

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
    workspace_id: Workspace = None


PALACE_RENDER: Final = Operation(
    name="palace_render",
    request=PalaceRenderRequest,
    answer=PalaceTextAnswer,
    route="POST /v1/palace/search/render",
    effect=Effect.READS,
    views=(DRAWERS_PROJECTION,),
    command="palace render",
)
PALACE_CONTEXT: Final = Operation(
    name="palace_context",
    request=PalaceContextRequest,
    answer=PalaceTextAnswer,
    route="POST /v1/palace/context",
    effect=Effect.READS,
    views=(DRAWERS_PROJECTION,),
)
OPERATIONS: Final = (PALACE_RENDER, PALACE_CONTEXT)
