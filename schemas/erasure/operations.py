"""Operations that erase entries, documents' writes, drawers, facts, or all of a person, and show erasures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field, StrictBool, model_validator

from ..core.entry import Name
from ..core.errors import InvalidQuery
from ..core.operation import Access, Answer, Effect, MinSeq, Operation, Request, Workspace
from ..entries.events import MAX_REASON
from ..operators.operations import ProfileShown
from .tables import ERASURES_PROJECTION

FAILED: Final = (
    "Store → why it failed; the status is then 207. The next start of the node, or a repetition, tries again."
)
MAX_NAMED: Final = 1_000
"""Ids of one request, as of one part of ``erasure.scoped``."""


class ReasonedRequest(Request):
    """A request that says why; the reason is recorded before anything else happens."""

    reason: str = Field(min_length=1, max_length=MAX_REASON, description="The reason; it is recorded.")

    @model_validator(mode="before")
    @classmethod
    def _says_why(cls, data: Any) -> Any:
        """A missing or blank reason has the status 400 (contract §19), other wrong fields 422."""
        reason = data.get("reason") if isinstance(data, Mapping) else None
        if reason is None or (isinstance(reason, str) and not reason.strip()):
            raise InvalidQuery("the reason is missing", hint="say why: it is recorded", field="reason")
        return data


class ForgetMessagesRequest(ReasonedRequest):
    """Erase entries and everything that was made of them, from the journal's stream, the views and all indexes.

    What goes: the messages that exactly one of `ids`, `subject`, `author` and `source` names, and every message that was
    derived from them: vectors, links, drawers, facts, rules, lessons, proposals, models of people, and decisions about
    them alone. With `dry_run` nothing is changed, and the answer says what would go. Without it, the ids cannot be used
    again as soon as this answers; the messages are deleted and the views are folded again in the background: `erasure`
    shows the receipt.
    """

    ids: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(max_length=MAX_NAMED)] = Field(
        default=(), description="Ids of entries or document writes, `drawer:ID`, `fact:ID`.", examples=[["j_0190…"]]
    )
    subject: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="A person, by any of their names: all messages about the person (`data_subject_id`) and by the person, "
        "notes about them, their model, cards and consent. A withdrawn consent stays.",
    )
    author: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="`actor_id` of a person, or `agent_id` of an agent: all that they wrote, and their searches.",
    )
    source: str | None = Field(
        default=None,
        min_length=1,
        max_length=1_000,
        description="Where messages came from: `refs.imported_from` of entries (`slack`, `chatgpt` …), `imported_from` or "
        "`source_file` of drawers, `source` of document writes.",
    )
    dry_run: StrictBool = Field(default=False, description="Only say what would go.")
    workspace_id: Workspace = None


class ErasureExample(Answer):
    """A message in the scope of an erasure; ``what`` is its type, ``remaining_sources`` how many of its sources stay."""

    seq: int
    id: str | None
    what: str
    remaining_sources: int


class ForgetMessagesAnswer(Answer):
    """What an erasure covers: number of messages, by type and family, and the first of each type.

    ``stores`` says how many would be removed by store (a dry run only). ``recomputed`` names the types of messages that
    go although other sources of them stay, and by what they are made again from these. ``not_proven`` names what an
    erasure cannot reach. ``seq`` is the sequence of the request.
    """

    erasure_id: str | None
    dry_run: bool
    messages: int
    by_type: dict[str, int]
    by_family: dict[str, int]
    stores: dict[str, int]
    recomputed: dict[str, str]
    examples: tuple[ErasureExample, ...]
    not_proven: tuple[str, ...]
    seq: int | None
    failed: dict[str, str] = Field(default={}, description=FAILED)

    @property
    def http_status(self) -> int | None:
        """207 if something failed, 202 if the work goes on."""
        return 207 if self.failed else 202 if self.erasure_id is not None else None


class ExportPersonRequest(ReasonedRequest):
    """Export everything that bears a person's data or was derived from it, whole or not at all.

    The person is named exactly: by `data_subject_id`, as the author of turns, or by a further name. The request is recorded
    before anything is read, and its outcome after it. If anything cannot be read, the answer is an error, and nothing is
    exported.
    """

    subject: Name = Field(description="The person.")
    workspace_id: Workspace = None


class ExportedMessage(Answer):
    """A message of the journal, complete.

    ``family`` is the part of the memory it belongs to, ``what`` its type. ``bears`` says whether it bears the person's data
    itself; if not, it was derived from messages that do. ``content`` has the fields of the message; bytes are base64.
    """

    seq: int
    id: str | None
    family: str
    what: str
    at: str
    bears: bool
    content: dict[str, Any]


class GivenMemory(Answer):
    """The receipt of a recall that returned messages of this export: to whom, and which; not the query."""

    seq: int
    receipt: str
    at: str
    agent_id: str | None
    crew_id: str | None
    trace_id: str | None
    ids: tuple[str, ...]


class PersonExport(Answer):
    """A person's data up to the sequence ``until_seq``.

    ``counts`` has the number of messages by family. ``consent``, ``model`` and ``cards`` are as they are now; ``given``
    lists who received which of the messages. ``not_included`` says what this node does not have or cannot attribute.
    """

    export_id: str
    workspace_id: str
    subject: str
    exported_at: str
    until_seq: int
    counts: dict[str, int]
    consent: str | None
    model: ProfileShown | None
    cards: tuple[ProfileShown, ...]
    messages: tuple[ExportedMessage, ...]
    given: tuple[GivenMemory, ...]
    not_included: tuple[str, ...]


class ApplyRetentionRequest(Request):
    """Erase what is past the retention of the workspace, as every night; or say what would go.

    The policy is `retention` and `retention_days` of `configure_memory`. Pinned and permanent entries stay, and what they
    were made of. One run takes 10,000 messages, the oldest first, and everything that was made of them.
    """

    dry_run: StrictBool = Field(default=False, description="Only say what would go.")
    workspace_id: Workspace = None


class RetentionAnswer(Answer):
    """The policy and what is past it.

    ``past`` counts messages by rule, of which ``left`` are left to the next run; ``held`` counts entries that stay because
    something pinned or permanent was made of them, or they are that themselves. ``erasure`` is null if nothing goes.
    """

    workspace_id: str
    retention: dict[str, int]
    retention_days: int | None
    past: dict[str, int]
    held: int
    left: int
    erasure: ForgetMessagesAnswer | None

    @property
    def http_status(self) -> int | None:
        """That of the erasure."""
        return None if self.erasure is None else self.erasure.http_status


class ProveRequest(Request):
    """Look for a text in everything the node keeps: files of the stream, views, logs and other files of its folder.

    Run it before an erasure, to see where the text is, and after it. The text is searched in UTF-8, UTF-16, hex, base64,
    percent-encoded and escaped as JSON, and by its hash, the hashes of its words in the indexes, and its vector by the
    models in use. The text itself is not recorded.
    """

    canary: str = Field(min_length=4, max_length=200, description="The text; a rare word or name says most.")


class ProveAnswer(Answer):
    """Where the text was found, with how often: by file, and by column of the views. Nothing found: both are empty.

    ``models`` names the embedding models by whose vector of the text the views were searched.
    """

    files: dict[str, int]
    views: dict[str, int]
    models: tuple[str, ...]
    view_seq: int


class ErasureRequest(Request):
    """Show an erasure and, once it is completed, its receipt."""

    erasure_id: str = Field(description="The erasure.")
    min_seq: MinSeq = None
    workspace_id: Workspace = None


class ErasuresRequest(Request):
    """List the erasures of a workspace, the newest first."""

    min_seq: MinSeq = None
    workspace_id: Workspace = None


class Erasure(Answer):
    """An erasure: ``requested`` (the ids cannot be used), ``scoped`` (announced), ``completed`` (with its receipt).

    ``counts`` says how many were removed by store; ``not_proven`` names what the erasure cannot reach.
    """

    erasure_id: str
    state: str
    reason: str
    requested_at: str
    completed_at: str | None
    messages: int
    counts: dict[str, int]
    not_proven: tuple[str, ...]
    failed: dict[str, str] = Field(default={}, description=FAILED)

    @property
    def http_status(self) -> int | None:
        """207 if something failed."""
        return 207 if self.failed else None


class ErasuresAnswer(Answer):
    """The erasures of a workspace."""

    erasures: tuple[Erasure, ...]
    view_seq: int


FORGET: Final = Operation(
    name="forget",
    request=ForgetMessagesRequest,
    answer=ForgetMessagesAnswer,
    route="POST /v1/admin/forget",
    effect=Effect.DESTROYS,
    access=Access.ADMINISTRATOR,
    errors=(404, 503),
    repeatable=False,
    decided="node",
)
ERASURE: Final = Operation(
    name="erasure",
    request=ErasureRequest,
    answer=Erasure,
    route="GET /v1/admin/erasures/{erasure_id}",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(ERASURES_PROJECTION,),
    errors=(404,),
)
ERASURES: Final = Operation(
    name="erasures",
    request=ErasuresRequest,
    answer=ErasuresAnswer,
    route="GET /v1/admin/erasures",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    views=(ERASURES_PROJECTION,),
    command="erasures",
)
PROVE_ERASED: Final = Operation(
    name="prove_erased",
    request=ProveRequest,
    answer=ProveAnswer,
    route="POST /v1/admin/prove",
    effect=Effect.READS,
    access=Access.NODE_OWNER,
)
EXPORT_PERSON: Final = Operation(
    name="export_person",
    request=ExportPersonRequest,
    answer=PersonExport,
    route="POST /v1/admin/export",
    effect=Effect.CHANGES,
    access=Access.ADMINISTRATOR,
    errors=(400, 409, 503),
)
APPLY_RETENTION: Final = Operation(
    name="apply_retention",
    request=ApplyRetentionRequest,
    answer=RetentionAnswer,
    route="POST /v1/memory/retention",
    effect=Effect.DESTROYS,
    access=Access.ADMINISTRATOR,
    errors=(404, 503),
    command="memory retention",
    repeatable=False,
    decided="node",
)
OPERATIONS: Final = (FORGET, EXPORT_PERSON, APPLY_RETENTION, PROVE_ERASED, ERASURE, ERASURES)
