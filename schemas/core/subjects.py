"""The grammar of subjects (DESIGN §4): JOURNAL, DEADLETTER, CANARY, and requests to append.

Invariant: each part of a subject matches ``[A-Za-z0-9_-]+``, so an id never acts as a wildcard. Every subject is
shorter than 256 characters (facts/nats.md).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from .errors import FoldError
from .ids import NO_ID, SYSTEM_WORKSPACE, is_id, is_workspace

JOURNAL_STREAM: Final = "JOURNAL"
DEADLETTER_STREAM: Final = "DEADLETTER"
CANARY_STREAM: Final = "CANARY"
CANARY_SUBJECT: Final = "canary.write"
INGEST_SUBJECTS: Final = "ingest.>"
"""First part of the subject of requests to append; no stream stores them."""

MAX_ENTRY_TYPE: Final = 48
"""Maximum number of characters of an entry type, so that the longest subject stays below 256."""
ENTRY_TYPE_PATTERN: Final = r"^[a-z0-9_]+(\.[a-z0-9_]+){0,3}$"
_entry_type = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+){0,3}\Z")
_owner = re.compile(r"(w|[ac]-(?!_\Z)[A-Za-z0-9_-]{1,64}|u-[0-9a-f]{16,64})\Z")
_tier = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")
_key_hash = re.compile(r"h-[0-9a-f]{32}\Z")
_key_part = re.compile(r"(?!\.{1,2}\Z)[^\x00-\x1f\x7f\u0085\u2028\u2029/\\]+\Z")
MAX_DOCUMENT_KEY: Final = 512
"""Maximum length of a document's key in characters."""
_KEY_HASH_BYTES: Final = 16


class Family(StrEnum):
    """The first part of a subject in JOURNAL; only the service may publish on all but ``journal``."""

    JOURNAL = "journal"
    CONTROL = "control"
    DOCUMENT = "document"
    DERIVED = "derived"


JOURNAL_SUBJECTS: Final = tuple(f"{family}.>" for family in Family)
SERVICE_ONLY: Final = frozenset({Family.CONTROL, Family.DOCUMENT, Family.DERIVED})


class DerivedKind(StrEnum):
    """Kind of a fact."""

    VECTOR = "vector"
    LINK = "link"
    TOKEN_BITS = "token_bits"
    CHUNK_VECTOR = "chunk_vector"


@dataclass(frozen=True, slots=True)
class Subject:
    """A parsed subject of JOURNAL.

    Attributes:
        workspace: The workspace; it takes precedence over the body.
        crew: The crew, in subjects of ``journal`` only; None for ``_``. agent: The agent, likewise.
        kind: Entry type (journal, control), derived kind, or ``<tier>`` of a document.
        owner: For ``document`` only: the owner.
        key: For ``document`` only: the part for its key (``key_token``).
    """

    family: Family
    workspace: str
    kind: str
    crew: str | None = None
    agent: str | None = None
    owner: str | None = None
    key: str | None = None


def is_entry_type(text: str) -> bool:
    """Whether ``text`` is one to four lower-case words joined by dots, at most 48 characters."""
    return len(text) <= MAX_ENTRY_TYPE and bool(_entry_type.match(text))


def journal_subject(workspace: str, crew: str | None, agent: str | None, entry_type: str) -> str:
    """``journal.<workspace>.<crew or _>.<agent or _>.<entry_type>``; arguments are validated ids."""
    return f"journal.{workspace}.{crew or NO_ID}.{agent or NO_ID}.{entry_type}"


def control_subject(workspace: str, entry_type: str) -> str:
    """``control.<workspace>.<type>``."""
    return f"control.{workspace}.{entry_type}"


def ingest_subject(workspace: str, crew: str | None, agent: str) -> str:
    """``ingest.<workspace>.<crew or _>.<agent>``, for an agent's requests; arguments are validated ids."""
    return f"ingest.{workspace}.{crew or NO_ID}.{agent}"


def document_subject(workspace: str, owner: str, tier: str, key: str | None) -> str:
    """``document.<workspace>.<owner>.<tier>.<key>``: one subject per document, for optimistic concurrency."""
    return f"document.{workspace}.{owner}.{tier}.{key_token(key)}"


def is_document_key(key: str) -> bool:
    """Whether ``key`` is a path without empty parts, ``.``, ``..``, backslashes and control characters."""
    return len(key) <= MAX_DOCUMENT_KEY and all(map(_key_part.match, key.split("/")))


def key_token(key: str | None) -> str:
    """The part of a subject for a document's key: ``_`` for no key, the key itself if it is an id, else ``h-`` and its hash.

    The hash is BLAKE2b-128 of the key in UTF-8, 32 hex digits. A key that starts with ``h-`` like a hashed key is
    hashed, too.
    """
    if key is None:
        return NO_ID
    if is_id(key) and not _key_hash.match(key):
        return key
    return "h-" + hashlib.blake2b(key.encode(), digest_size=_KEY_HASH_BYTES).hexdigest()


def derived_subject(workspace: str, kind: str) -> str:
    """``derived.<workspace>.<kind>``."""
    return f"derived.{workspace}.{kind}"


def deadletter_subject(consumer: str, workspace: str) -> str:
    """``deadletter.<consumer>.<workspace>``; an invalid workspace is replaced by the system workspace."""
    known = workspace if is_workspace(workspace) else SYSTEM_WORKSPACE
    return f"deadletter.{consumer}.{known}"


@lru_cache(maxsize=65_536)  # a journal has few distinct subjects, and every message needs its subject parsed
def parse_subject(subject: str) -> Subject:
    """The parts of a subject in JOURNAL.

    Raises:
        FoldError: If the subject is not in the grammar.
    """
    tokens = subject.split(".")
    try:
        family = Family(tokens[0])
    except ValueError:
        raise FoldError(f"subject {subject!r} has no known family") from None
    if len(tokens) < 3:
        raise FoldError(f"subject {subject!r} has too few parts")
    workspace = tokens[1]
    if not (is_workspace(workspace) or (workspace == SYSTEM_WORKSPACE and family in SERVICE_ONLY)):
        raise FoldError(f"subject {subject!r} names no valid workspace")
    parsed = _PARSERS[family](workspace, tokens[2:])
    if parsed is None:
        raise FoldError(f"subject {subject!r} breaks the grammar of {family.value}")
    return parsed


def _journal(workspace: str, rest: list[str]) -> Subject | None:
    if len(rest) < 3:
        return None
    crew, agent, kind = rest[0], rest[1], ".".join(rest[2:])
    if not is_entry_type(kind) or not all(token == NO_ID or is_id(token) for token in (crew, agent)):
        return None
    return Subject(
        Family.JOURNAL,
        workspace,
        kind,
        crew=None if crew == NO_ID else crew,
        agent=None if agent == NO_ID else agent,
    )


def _control(workspace: str, rest: list[str]) -> Subject | None:
    kind = ".".join(rest)
    return Subject(Family.CONTROL, workspace, kind) if is_entry_type(kind) else None


def _document(workspace: str, rest: list[str]) -> Subject | None:
    if len(rest) != 3 or not _owner.match(rest[0]) or not _tier.match(rest[1]):
        return None
    if rest[2] != NO_ID and not is_id(rest[2]):
        return None
    return Subject(Family.DOCUMENT, workspace, rest[1], owner=rest[0], key=rest[2])


def _derived(workspace: str, rest: list[str]) -> Subject | None:
    if len(rest) != 1 or not is_id(rest[0]):  # a newer node may know further kinds
        return None
    return Subject(Family.DERIVED, workspace, rest[0])


_PARSERS = {
    Family.JOURNAL: _journal,
    Family.CONTROL: _control,
    Family.DOCUMENT: _document,
    Family.DERIVED: _derived,
}
