"""Operations on bundles: export and import the memory of an agent and its crew as plain files."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from ..entry import Id, Name
from ..rules.bundles import MAX_FILES
from ..views import DOCUMENTS_PROJECTION, LEARNING_PROJECTION
from .operation import Access, Answer, Effect, MinSeq, Operation, Request, Workspace

BundleFormat = Literal["okf", "crewship", "nanoclaw", "openclaw"]


class BundleText(BaseModel):
    """A file of a bundle: its path and its text."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")
    path: str = Field(min_length=1, max_length=1_000, description="Path within the bundle.")
    content: str = Field(description="The text.")


class ExportBundleRequest(Request):
    """Export the memory documents of an agent, of a crew, or of both as a bundle of plain files.

    Documents that the injection scanners block, operator models and peer cards are left out.
    """

    agent_id: Id | None = Field(default=None, description="The agent.")
    crew_id: Id | None = Field(default=None, description="The crew.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ImportBundleRequest(Request):
    """Plan the import of a bundle; with ``apply``, write it.

    Each document is replaced, not merged. A refused document does not prevent the others from being written.
    """

    documents: Annotated[
        tuple[BundleText, ...], Field(min_length=1, max_length=MAX_FILES, description="The files of the bundle.")
    ]
    agent_id: Id | None = Field(default=None, description="The agent that gets documents of an agent.")
    crew_id: Id | None = Field(
        default=None, description="The crew that gets documents of a crew; if absent, these are skipped."
    )
    apply: StrictBool = Field(default=False, description="Write the documents; otherwise the answer is only the plan.")
    format: BundleFormat | None = Field(
        default=None, description="okf, crewship, nanoclaw or openclaw; recognised by the files if absent."
    )
    group: Name | None = Field(default=None, description="For nanoclaw: the group to import, if there are several.")
    person: Name | None = Field(default=None, description="The person that a card (USER.md) is about.")
    workspace_id: Workspace = None


class SkippedShown(Answer):
    """A file that is not in the bundle, and the reason."""

    path: str
    detail: str


class BundleAnswer(Answer):
    """A bundle: the manifest, then the files sorted by path."""

    format: str
    documents: tuple[BundleText, ...]
    skipped: tuple[SkippedShown, ...]
    view_seq: int


class ImportedShown(Answer):
    """The result for a file.

    ``status``: ``planned``, ``unchanged`` (the document has this text already), ``written``, ``skipped`` (cannot be
    imported), ``rejected`` (refused by a check) or ``failed``. ``kind`` and ``detail`` give the reason.
    """

    path: str
    owner: str | None
    id: str | None
    status: Literal["planned", "unchanged", "written", "skipped", "rejected", "failed"]
    kind: str | None
    detail: str
    bytes: int
    replaces_bytes: int


class ImportBundleAnswer(Answer):
    """The result, or the planned result, for each file, by path; ``counts`` by status."""

    format: str
    applied: bool
    results: tuple[ImportedShown, ...]
    counts: dict[str, int]


EXPORT_BUNDLE: Final = Operation(
    name="export_bundle",
    request=ExportBundleRequest,
    answer=BundleAnswer,
    route="GET /v1/bundle",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(DOCUMENTS_PROJECTION, LEARNING_PROJECTION),
    errors=(501,),
    needs_journal="a bundle",
)
IMPORT_BUNDLE: Final = Operation(
    name="import_bundle",
    request=ImportBundleRequest,
    answer=ImportBundleAnswer,
    route="POST /v1/bundle",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(501,),
    needs_journal="a bundle",
)
OPERATIONS: Final = (EXPORT_BUNDLE, IMPORT_BUNDLE)
