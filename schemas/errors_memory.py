"""The errors of memory documents and of the palace.

Invariant: as for ``errors``: each names what is wrong and says in ``hint`` what to do.
"""

from __future__ import annotations

from .errors_core import CrewJournalError, Unavailable


class DocumentError(CrewJournalError):
    """A memory document cannot be read or written as requested; base class of errors of memory providers.

    Attributes:
        finding: What was found in the text, as ``category/pattern``; recorded with the refusal and not answered.
    """

    finding: str | None = None
    title = "The memory request is not valid"
    status = 422
    exit_code = 2


class InvalidTier(DocumentError):
    """There is no such tier, or it is a rendering, which cannot be written."""

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
        facts: Tier, sizes, usage and the present text, so that the caller can shorten it.
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
    """The document was written since the version that the request expects."""

    title = "The document has changed"
    status = 409
    exit_code = 1


class FileRefused(DocumentError):
    """A command on a memory file is refused; the message is that of Anthropic's memory tool and says what to do."""

    title = "The file command is refused"


class PathTaken(DocumentConflict):
    """Another memory has the path, or a part of the path is a file instead of a folder."""

    title = "The path is taken"


class NoCounterpart(CrewJournalError):
    """This part of another system's API has no counterpart here."""

    title = "Not supported"
    status = 501
    exit_code = 1


class WriteIdTaken(DocumentError):
    """The write id belongs to another write; nothing was written."""

    title = "The write id belongs to another write"
    status = 409
    exit_code = 1


class ScopeMismatch(DocumentError):
    """The request names another workspace, agent or crew than the provider is bound to."""

    title = "Another scope"
    status = 403
    exit_code = 3


class SelectorConflict(DocumentError):
    """Forget needs exactly one of id and data subject."""

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
