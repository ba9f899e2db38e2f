"""The one tree of errors, so that every shell (HTTP, CLI, client) maps the same fault to the same answer.

Invariant: each error says what is wrong (naming the id or field) and, in ``hint``, what to do about it.
``status`` is the HTTP status and ``exit_code`` the command line's; both are the contract of DESIGN §10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One offending field of a submission: its dotted path, what is wrong, how to correct it."""

    field: str
    problem: str
    fix: str = ""

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
    """The submission breaks the rules of an entry; ``problems`` names every offending field."""

    title = "The entry is not valid"
    status = 422
    exit_code = 2

    def __init__(self, problems: tuple[FieldProblem, ...]) -> None:
        shown = "; ".join(f"{p.field}: {p.problem}" for p in problems[:20])
        fixes = "; ".join(dict.fromkeys(p.fix for p in problems[:20] if p.fix))
        super().__init__(shown, hint=fixes, field=problems[0].field if problems else None)
        self.problems = problems


class InvalidRequest(InvalidEntry):
    """A request that changes something breaks its rules; ``problems`` names every offending field."""

    title = "The request body is not valid"


class InvalidQuery(CrewJournalError):
    """A filter, cursor or parameter is out of its range."""

    title = "The request is not valid"
    status = 400
    exit_code = 2


class EntryTooLarge(CrewJournalError):
    """The entry or the request is larger than allowed."""

    title = "Too large"
    status = 413
    exit_code = 2


class EntryConflict(CrewJournalError):
    """An entry with this id and other content is already in the journal."""

    title = "The id is taken"
    status = 409


class ModelInUse(CrewJournalError):
    """An embedding model cannot be dropped while recall uses it somewhere."""

    title = "The model is in use"
    status = 409


class BrokerNotOurs(CrewJournalError):
    """Only the node that runs the broker can change who may use it; ``hint`` says what to do elsewhere."""

    title = "The broker is not this node's own"
    status = 409


class ModelNotFilled(CrewJournalError):
    """An embedding model lacks vectors of entries; recall would not find those by meaning."""

    title = "The model is not filled"
    status = 409


class RefusedByOneView(CrewJournalError):
    """Only one view failed to fold the parked event: publishing it again would apply it twice to all others."""

    title = "All other views have the event"
    status = 409


class NotAuthenticated(CrewJournalError):
    """No token, or one that is unknown or revoked."""

    title = "Not authenticated"
    status = 401
    exit_code = 3


class NotAllowed(CrewJournalError):
    """The token's role, workspace, crew or agent does not allow this."""

    title = "Not allowed"
    status = 403
    exit_code = 3


class NotFound(CrewJournalError):
    """It does not exist, or this token may not see it: the answer is the same."""

    title = "Not found"
    status = 404
    exit_code = 4


class Unavailable(CrewJournalError):
    """A part that the request needs is not available at the moment; try again later."""

    title = "Temporarily unavailable"
    status = 503
    exit_code = 5


class ViewsBehind(Unavailable):
    """The views did not pass ``min_seq`` within the bound."""

    title = "The views are behind"


class TooManyTails(Unavailable):
    """The token has as many live tails open as it may; close one to make room."""

    title = "Too many live tails"
    status = 429


class TooManyBodies(Unavailable):
    """The bodies of the token's unanswered requests take as many bytes as they may; an answer makes room."""

    title = "Too many request bodies"
    status = 429


class BodiesFull(Unavailable):
    """The bodies of all unanswered requests take as many bytes as the node has room for."""

    title = "No room for the request body"


class Overloaded(Unavailable):
    """More requests are waiting than the service holds."""

    title = "Too many requests at once"


class ViewsDamaged(Unavailable):
    """The file of the views is damaged; they can be rebuilt from the journal, which is not."""

    title = "The views are damaged"
    HINT: ClassVar[str] = "`crew-journal rebuild` builds all views again from the journal, which is complete"


class JournalDamaged(CrewJournalError):
    """Sequences are missing from the journal, and nothing explains it; no view is rebuilt from the rest."""

    title = "The journal is damaged"
    status = 409
    HINT: ClassVar[str] = (
        "`crew-journal salvage --out FILE` writes the lost entries that the views still have, "
        "`crew-journal rebuild --accept-loss` then keeps the old views file and continues without them, "
        "and `crew-journal import FILE` appends them again"
    )


class BrokerError(CrewJournalError):
    """The broker refuses or is set up wrongly."""

    title = "The broker failed"
    exit_code = 5


class BrokerUnavailable(BrokerError, Unavailable):
    """The broker cannot be reached or did not ack in time."""

    title = "The broker is unavailable"
    status = 503
    exit_code = 5


class StorageFull(BrokerUnavailable):
    """The broker refuses writes, or does not answer them, because its disk or its quota is used up."""

    title = "The broker's storage is full"


class StreamMismatch(BrokerError):
    """A stream or consumer exists with a configuration that would lose data."""

    title = "The stream is configured differently"


class EmbedderError(CrewJournalError):
    """The embedder failed."""

    title = "The embedder failed"
    status = 503
    exit_code = 5


class EmbedderUnavailable(EmbedderError):
    """Refused, timed out or 5xx: the environment's fault; retry later."""


class EmbedderModelMissing(EmbedderError):
    """The server does not have the model."""


class EmbedderBadAnswer(EmbedderError):
    """Wrong dimension or count, an incomplete answer, or values that are not a vector."""


class EmbedderInputRejected(EmbedderError):
    """The model refuses this one input; others are not affected."""


class DataDirBusy(CrewJournalError):
    """Another process owns the data directory."""

    title = "The data directory is in use"
    exit_code = 5
    status = 503


class FoldError(CrewJournalError):
    """An event cannot be folded, however often it is tried: it is parked, and the projection continues."""

    title = "The event cannot be folded"


class VerificationFailed(CrewJournalError):
    """A live view differs from a fresh rebuild."""

    title = "Verification failed"
    exit_code = 6
