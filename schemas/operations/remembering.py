"""The operation remember.

Invariant: a remembered text is an entry like any other, of a type that always gets a vector.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints, field_validator

from ..entry import MAX_SUPERSEDED, Id, Name, Timestamp
from .operation import Answer, Effect, Operation, Request, Workspace

Term = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]


class RememberRequest(Request):
    """Remember a text, so that recall finds it by its words and by its meaning.

    Recorded as an entry of type `memory.remembered`. Its summary is the text on one line, cut to 2,000 characters; a
    longer text is stored whole in `payload.text`. With a token of all workspaces, the first entry of a workspace
    creates it.
    """

    text: str = Field(min_length=1, description="The text to remember, up to the size of an entry (256 KiB).")
    kind: Term | None = Field(default=None, description="Kind of the text: preference, decision, fact …")
    about: Term | None = Field(default=None, description="The person or thing that it is about.")
    aliases: tuple[Term, ...] = Field(default=(), max_length=32, description="Other words that recall finds it by.")
    supersedes: tuple[Id, ...] = Field(
        default=(), max_length=MAX_SUPERSEDED, description="Ids of entries that no longer count because of this one."
    )
    valid_at: Timestamp | None = Field(default=None, description="Time from which it is true, if that is not now.")
    data_subject_id: Name | None = Field(default=None, description="The person whose personal data this is.")
    entry_id: Id | None = Field(
        default=None, description="Id of the entry; sending the same id and text again stores nothing."
    )
    agent_id: Id | None = Field(default=None, description="The agent whose memory it is, for OWNER and ADMIN.")
    crew_id: Id | None = Field(default=None, description="The agent's crew, for OWNER and ADMIN.")
    workspace_id: Workspace = None

    @field_validator("text")
    @classmethod
    def _has_text(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("must not be blank")
        return text


class RememberAnswer(Answer):
    """The entry; if it was stored before, ``duplicate`` is true and ``seq`` is the earlier sequence.

    ``warnings`` names entries in ``supersedes`` that still count.
    """

    entry_id: str
    seq: int
    duplicate: bool
    warnings: tuple[str, ...] = ()


REMEMBER: Final = Operation(
    name="remember",
    request=RememberRequest,
    answer=RememberAnswer,
    route="POST /v1/memory/remember",
    effect=Effect.CREATES,
    errors=(409,),
    command="remember",
    repeatable=False,
)
OPERATIONS: Final = (REMEMBER,)
