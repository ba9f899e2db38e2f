"""The tree of errors; each class has an HTTP status and an exit code of the command line (DESIGN §10).

Invariant: each error names what is wrong, with the id or field, and says in ``hint`` what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

_PREDICATES: Final = ("is ", "has ", "must ")
"""First words of a problem that is printed directly after the field's name, as one sentence."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One invalid field: dotted path, problem, fix."""

    field: str
    problem: str
    fix: str = ""

    def __str__(self) -> str:
        """The field and its problem: ``query is required``, ``limit: Input should be a valid integer``."""
        return f"{self.field}{' ' if self.problem.startswith(_PREDICATES) else ': '}{self.problem}"

    def as_dict(self) -> dict[str, str]:
        """The problem as JSON for a problem+json body."""
        return {"field": self.field, "problem": self.problem, "fix": self.fix}


class CrewJournalError(Exception):
    """Root of the tree.

    Args:
        message: What is wrong, naming the id or field.
        hint: What the reader can do about it.
        field: Dotted path of the offending field, if there is one.
    """

    title: ClassVar[str] = "Crew Journal failed"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidEntry(CrewJournalError):
    """A submitted entry is not valid; ``problems`` names every invalid field."""

    title = "The entry is not valid"
    status = 422
    exit_code = 2

    def __init__(self, problems: tuple[FieldProblem, ...]) -> None:
        first_problems = "; ".join(map(str, problems[:20]))
        fixes = "; ".join(dict.fromkeys(p.fix for p in problems[:20] if p.fix))
        super().__init__(first_problems, hint=fixes, field=problems[0].field if problems else None)
        self.problems = problems


class InvalidRequest(InvalidEntry):
    """The body of a request is not valid; ``problems`` names every invalid field."""

    title = "The request body is not valid"


class InvalidQuery(CrewJournalError):
    """A filter, cursor or parameter is not valid."""

    title = "The request is not valid"
    status = 400
    exit_code = 2


class InvalidFile(CrewJournalError):
    """An imported file is malformed or exceeds a limit; the message names the file and the line or member."""

    title = "The file is not valid"
    status = 422
    exit_code = 2


class EntryTooLarge(CrewJournalError):
    """The entry or the request is larger than allowed."""

    title = "Too large"
    status = 413
    exit_code = 2


ERASED_HINT: Final = "an erased id cannot be used again"
"""Hint of the ``EntryConflict`` about an erased id, by which clients recognise it."""


class EntryConflict(CrewJournalError):
    """The journal holds an entry with this id and different content; ``seq`` is the sequence of that entry, 0 if unknown.

    ``erased`` says that the id was erased instead: nothing is stored under it, and nothing can be.
    """

    title = "The id belongs to another entry"
    status = 409

    def __init__(
        self, message: str, *, hint: str = "", field: str | None = None, seq: int = 0, erased: bool = False
    ) -> None:
        super().__init__(message, hint=hint, field=field)
        self.seq = seq
        self.erased = erased


class PalaceFull(CrewJournalError):
    """The workspace has the maximum number of drawers."""

    title = "The palace is full"
    status = 409


class ModelInUse(CrewJournalError):
    """An embedding model cannot be dropped while recall uses it."""

    title = "The model is in use"
    status = 409


class RegisteredMeanwhile(CrewJournalError):
    """The crew was registered again after the caller had read it; nothing was changed."""

    title = "The registration was changed meanwhile"
    status = 409
    exit_code = 1


class ConsolidationRunning(CrewJournalError):
    """Another consolidation of the workspace is running; a workspace runs one at a time."""

    title = "A consolidation is running"
    status = 409


class ProposalNotPending(CrewJournalError):
    """The proposal is already decided, or it has no decision that could be undone."""

    title = "The proposal is in another state"
    status = 409


class EvidenceGone(CrewJournalError):
    """Fewer than two of the entries that support the proposal still exist."""

    title = "The evidence is gone"
    status = 410


class BrokerNotOurs(CrewJournalError):
    """The node does not manage the broker, so it cannot change its users; ``hint`` says where to do that."""

    title = "The broker is not managed by this node"
    status = 409


class ModelNotFilled(CrewJournalError):
    """Some entries have no vector of the embedding model; recall would not find them by meaning."""

    title = "Vectors of the model are missing"
    status = 409


class ExpectationsNotMet(CrewJournalError):
    """A recall would not return what the workspace expects."""

    title = "Expectations are not met"
    status = 409


class RefusedByOneView(CrewJournalError):
    """Only one view failed to fold the event; publishing it again would apply it twice to the others."""

    title = "The other views have folded the event"
    status = 409


class NotAuthenticated(CrewJournalError):
    """The token is missing, unknown, revoked or expired."""

    title = "Not authenticated"
    status = 401
    exit_code = 3


class NotAllowed(CrewJournalError):
    """The token does not permit this request."""

    title = "Not allowed"
    status = 403
    exit_code = 3


class NotFound(CrewJournalError):
    """The object does not exist, or the token may not read it; both cases give the same answer."""

    title = "Not found"
    status = 404
    exit_code = 4


class Unavailable(CrewJournalError):
    """A component that the request needs is not available; try again later."""

    title = "Temporarily unavailable"
    status = 503
    exit_code = 5


class NotOwner(CrewJournalError):
    """Another node decides for the workspace, or none can at present; a repeated request reaches the right one."""

    title = "Another node decides"
    status = 503
    exit_code = 5


class ViewsBehind(Unavailable):
    """The views did not reach ``min_seq`` in time."""

    title = "The views are behind"


class TooManyTails(Unavailable):
    """The token has the maximum number of live tails open."""

    title = "Too many live tails"
    status = 429


class TooManyBodies(Unavailable):
    """The token's request bodies in memory have reached the limit of bytes for one token."""

    title = "Too many request bodies"
    status = 429


class BodiesFull(Unavailable):
    """The request bodies of all tokens have reached the limit of bytes in memory."""

    title = "Too many request bodies in memory"


class OverBudget(Unavailable):
    """A token has used up one of its budgets; try again after ``retry_after_s``.

    Args:
        message: As in ``CrewJournalError``.
        hint: As in ``CrewJournalError``.
        field: As in ``CrewJournalError``.
        budget: Name of the budget.
        setting: The setting that changes the budget; empty if there is none.
        retry_after_s: Seconds until the same request may be accepted.
    """

    title = "Over budget"
    status = 429

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        field: str | None = None,
        budget: str = "",
        setting: str = "",
        retry_after_s: float = 1.0,
    ) -> None:
        super().__init__(message, hint=hint, field=field)
        self.budget = budget
        self.setting = setting
        self.retry_after_s = retry_after_s


class Overloaded(Unavailable):
    """The queue of waiting requests is full."""

    title = "Too many requests at once"


class ViewsDamaged(Unavailable):
    """The file of the views is damaged; they can be rebuilt from the journal, unless that is damaged, too."""

    title = "The views are damaged"
    HINT: ClassVar[str] = (
        "`crew-journal rebuild` builds all views again from the journal; if the journal has lost entries as well, it "
        "changes nothing: then `crew-journal salvage --out FILE` first writes those that are outside the bad blocks"
    )


class JournalDamaged(CrewJournalError):
    """Sequences are missing from the journal, and no erasure or accepted loss explains it."""

    title = "The journal is damaged"
    status = 409
    HINT: ClassVar[str] = (
        "`crew-journal salvage --out FILE` writes the lost entries that the views still have, also if these are damaged, "
        "`crew-journal rebuild --accept-loss` then keeps the old views file and continues without them, "
        "and `crew-journal import FILE` appends them again"
    )


class BrokerError(CrewJournalError):
    """The broker refused a request or is configured wrongly."""

    title = "The broker failed"
    exit_code = 5


class BrokerUnavailable(BrokerError, Unavailable):
    """The broker cannot be reached or did not ack in time."""

    title = "The broker is unavailable"
    status = 503
    exit_code = 5


class StorageFull(BrokerUnavailable):
    """The broker's disk or quota is full."""

    title = "The broker's storage is full"


class StreamMismatch(BrokerError):
    """A stream or consumer exists with a configuration that could lose data."""

    title = "The stream is configured differently"


class EmbedderError(CrewJournalError):
    """The embedder failed."""

    title = "The embedder failed"
    status = 503
    exit_code = 5


class EmbedderUnavailable(EmbedderError):
    """The embedder refused the connection, timed out or answered 5xx; try again later."""


class EmbedderModelMissing(EmbedderError):
    """The server does not have the model."""


class EmbedderBadAnswer(EmbedderError):
    """The embedder's answer is incomplete, or has a wrong count, dimension or value."""


class EmbedderInputRejected(EmbedderError):
    """The model refuses this input; other inputs are not affected."""


class DataDirBusy(CrewJournalError):
    """Another process owns the data directory."""

    title = "The data directory is in use"
    exit_code = 5
    status = 503


class FoldError(CrewJournalError):
    """An event can never be folded; it is parked and the projection continues."""

    title = "The event cannot be folded"


class VerificationFailed(CrewJournalError):
    """A live view differs from a fresh rebuild, or a message from the one that was sealed."""

    title = "Verification failed"
    status = 409
    exit_code = 6


# The errors of memory documents and of the palace.


class DocumentError(CrewJournalError):
    """A memory document cannot be read or written as requested; base class of errors of memory providers.

    Attributes:
        finding: What the scanner found in the text, as ``category/pattern``; recorded with the refusal, but not sent to
            the caller.
    """

    finding: str | None = None
    title = "The memory request is not valid"
    status = 422
    exit_code = 2


class InvalidTier(DocumentError):
    """The tier does not exist, or the service generates its content, so that it cannot be written."""

    title = "Not a tier that can be written"


class InvalidMode(DocumentError):
    """The mode is neither ``replace`` nor ``append``."""

    title = "Not a mode"


class MissingKey(DocumentError):
    """The tier needs a key, or the key is not valid for it."""

    title = "The key is missing or not valid"


class EmptyContent(DocumentError):
    """The content of a write is empty."""

    title = "The content is empty"


class CapExceeded(DocumentError):
    """The document would be larger than its tier allows; nothing was written.

    Args:
        facts: Tier, sizes, usage and the current text, so that the caller can shorten the text.
    """

    title = "The document would be too large"
    status = 413

    def __init__(
        self, message: str, *, hint: str = "", field: str | None = None, facts: dict[str, object] | None = None
    ) -> None:
        super().__init__(message, hint=hint, field=field)
        self.facts = facts or {}


class Quarantined(DocumentError):
    """The scanners block the content; nothing was written."""

    title = "The content is blocked"


class WriteRefused(DocumentError):
    """The verifier or the secret scrubber refuses the content; nothing was written."""

    title = "The write is refused"


class DocumentConflict(DocumentError):
    """The document has a newer version than the request expects."""

    title = "The document has changed"
    status = 409
    exit_code = 1


class FileRefused(DocumentError):
    """The command on a memory file is refused; the message is worded like Anthropic's memory tool and says what to do."""

    title = "The file command is refused"


class PathTaken(DocumentConflict):
    """Another memory has the path, or a part of the path is a file instead of a folder."""

    title = "The path is taken"


class NoCounterpart(CrewJournalError):
    """Crew Journal has no counterpart to this part of another system's API."""

    title = "Not supported"
    status = 501
    exit_code = 1


class WriteIdTaken(DocumentError):
    """The write id belongs to another write; nothing was written."""

    title = "The write id belongs to another write"
    status = 409
    exit_code = 1


class ScopeMismatch(DocumentError):
    """The request names a workspace, agent or crew to which the provider is not bound."""

    title = "Another scope"
    status = 403
    exit_code = 3


class SelectorConflict(DocumentError):
    """A request to forget must name either an id or a data subject, not both."""

    title = "Exactly one selector is needed"


class CascadeUnsupported(DocumentError):
    """This provider cannot forget a person; ``hint`` says what it can do."""

    title = "Forgetting a person is not supported here"
    status = 501
    exit_code = 1


class NotByProvider(DocumentError):
    """The memory provider of the workspace cannot answer this request; the provider ``journal`` can."""

    title = "The memory provider does not offer this"
    status = 501
    exit_code = 1


class UpstreamTimeout(Unavailable):
    """The backend of a memory provider did not answer in time."""

    title = "The memory backend did not answer in time"
    status = 504


class BackendFailed(Unavailable):
    """The backend of a memory provider cannot be reached, or failed."""

    title = "The memory backend failed"


class VersionGone(CrewJournalError):
    """The text of the version was swept."""

    title = "The version was swept"
    status = 410
    exit_code = 4


class NoSuchMemory(Unavailable):
    """There is no memory to search: the agent has no crew, or its memory is off."""

    title = "There is no such memory"
