"""The one tree of errors, so that every shell (HTTP, CLI, client) maps the same fault to the same answer.

Invariant: each error says what is wrong (naming the id or field) and, in ``hint``, what to do about it.
``status`` is the HTTP status and ``exit_code`` the command line's; both are the contract of DESIGN §10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One offending field of a submission: its dotted path, what is wrong, how to mend it."""

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
    """A parked event that only one view could not fold: published again, all others would have it twice."""

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
    """No such thing, or not for this token: the two are indistinguishable."""

    title = "Not found"
    status = 404
    exit_code = 4


class Unavailable(CrewJournalError):
    """A part the request needs is not there at the moment; trying again later is right."""

    title = "Temporarily unavailable"
    status = 503
    exit_code = 5


class ViewsBehind(Unavailable):
    """The views did not pass ``min_seq`` within the bound."""

    title = "The views are behind"


class TooManyTails(Unavailable):
    """The token watches as many live tails as it may; one that ends makes room."""

    title = "Too many live tails"
    status = 429


class ViewsDamaged(Unavailable):
    """The file of the views is broken; the journal, from which they are folded anew, is not."""

    title = "The views are damaged"
    HINT: ClassVar[str] = "`crew-journal rebuild` folds all views anew from the journal, which is whole"


class JournalDamaged(CrewJournalError):
    """The journal has lost what nothing explains; no views are replaced by what it still holds."""

    title = "The journal is damaged"
    status = 409
    HINT: ClassVar[str] = (
        "`crew-journal salvage --out FILE` writes what the views still know of it, "
        "`crew-journal rebuild --accept-loss` then keeps the views file and goes on without it, "
        "and `crew-journal import FILE` brings it back"
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
    """A stream or consumer exists with a configuration that loses data for us."""

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
    """Wrong dimension or count, half an answer, or values that are no vector."""


class EmbedderInputRejected(EmbedderError):
    """The model refuses this one input; others are not affected."""


class DataDirBusy(CrewJournalError):
    """Another process owns the data directory."""

    title = "The data directory is in use"
    exit_code = 5
    status = 503


class FoldError(CrewJournalError):
    """A deterministic fault of one event: it is parked, the projection goes on."""

    title = "The event cannot be folded"


class VerificationFailed(CrewJournalError):
    """A live view differs from a fresh rebuild."""

    title = "Verification failed"
    exit_code = 6
