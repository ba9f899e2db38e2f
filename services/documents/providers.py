"""Stores outside the journal: memory documents as Markdown files on disk, and at an HTTP service (at the end).

``<root>/<workspace>/agents/<agent>/.memory/AGENT.md``, ``<root>/<workspace>/crews/<crew>/.memory/daily/2026-05-21.md``,
``<root>/<workspace>/.memory/WORKSPACE.md``.

Invariant: a write that ``write`` reports is on disk; a write id takes effect once among about the last 400 writes of
its document.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Self, TypeVar

from pydantic import BaseModel, ValidationError

from ...schemas.core.errors import (
    BackendFailed,
    CapExceeded,
    CrewJournalError,
    DocumentConflict,
    DocumentError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Unavailable,
    UpstreamTimeout,
    WriteRefused,
)
from ...schemas.core.faults import error_of
from ...schemas.documents.operations import (
    DocumentAnswer,
    DocumentHit,
    DocumentsAnswer,
    DocumentSearchAnswer,
    DocumentSearchRequest,
    DocumentWrittenAnswer,
)
from ...schemas.documents.provider import RECALL_LIMIT_MAX, SNIPPET_CHARS
from ...schemas.documents.rules import (
    AGENT_TOTAL_BYTES,
    Chunk,
    Scope,
    chunks_of,
    joint,
    scope_of,
    sha256_of,
    tier_of_label,
)
from ...schemas.text.analyzer import STOP_WORDS, tokens_of
from ...schemas.text.injection import finding_in, scan
from ..desk import Caller
from .adapters import text_answer
from .addressing import DocumentAddress, file_scope
from .answers import too_large, written_answer
from .checks import blocked
from .drafts import Draft

if TYPE_CHECKING:
    import httpx

# Documents as files: reading, durable writing and locking below one folder, without following a symbolic link.


_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REFUSED: Final = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.EISDIR)
"""Error numbers of ``open`` with O_NOFOLLOW for a symbolic link, and for a folder that is opened as a file."""
_LOG_BYTES: Final = 65_536
"""Maximum bytes read from a write log: about the last 400 writes."""


@contextmanager
def folder_of_files(root: Path, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int | None]:
    """The descriptor of the folder ``parts`` below ``root``; None if it does not exist and ``create`` is false.

    Raises:
        WriteRefused: If a part of the path is a symbolic link or a file.
        OSError: If the root is missing, or the disk refuses.
    """
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with _named(part):
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=descriptor)
                try:
                    below = os.open(part, _FOLDER, dir_fd=descriptor)
                except FileNotFoundError:
                    yield None
                    return
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def read(name: str, folder: int) -> str | None:
    """The text of a file; None if there is none.

    Raises:
        WriteRefused: If the name is a symbolic link or a folder.
    """
    with _named(name):
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()


def write(name: str, folder: int, text: str) -> None:
    """Replace a file: a temporary sibling, fsync, rename, fsync of the folder."""
    candidate = f".{name}.{secrets.token_hex(8)}.tmp"
    with _named(name):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(candidate, flags, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(candidate, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(candidate, dir_fd=folder)
            raise
        os.fsync(folder)


def remove(name: str, folder: int) -> None:
    """Remove a file, durably."""
    with _named(name):
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def labels(memory: int, folder: str = "") -> list[str]:
    """Files below a ``.memory`` folder, by label; hidden ones and symbolic links are left out.

    Args:
        memory: Descriptor of the folder.
        folder: Path of that folder below ``.memory``, empty or ending in ``/``.
    """
    names = []
    for entry in _regular(memory):
        if entry.is_file(follow_symlinks=False):
            names.append(folder + entry.name)
        elif entry.is_dir(follow_symlinks=False):
            below = os.open(entry.name, _FOLDER, dir_fd=memory)
            try:
                names += labels(below, f"{folder}{entry.name}/")
            finally:
                os.close(below)
    return sorted(names)


def total_bytes(memory: int) -> int:
    """Bytes of all documents of a ``.memory`` folder."""
    return sum(os.stat(label, dir_fd=memory, follow_symlinks=False).st_size for label in labels(memory))


class WriteLog:
    """The log of a document's writes, with a line ``write id, sha256 before, sha256 after`` per write; also its lock.

    A line is written before the file is replaced. If the process ends in between, the next write starts from the same
    text as the failed write, which shows that the logged write failed.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        end = os.lseek(descriptor, 0, os.SEEK_END)
        start = max(0, end - _LOG_BYTES)
        kept, _, torn = os.pread(descriptor, _LOG_BYTES, start).rpartition(b"\n")
        if torn:
            os.ftruncate(descriptor, end - len(torn))
        lines = kept.decode("ascii").split("\n")[1 if start else 0 :]
        self._lines = [tuple(line.split(" ")) for line in lines if line]

    @classmethod
    @contextmanager
    def locked(cls, name: str, folder: int) -> Iterator[Self]:
        """The log ``name``, locked exclusively among all processes of the machine."""
        with _named(name):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o600, dir_fd=folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield cls(descriptor)
            finally:
                os.close(descriptor)

    def has(self, write_id: str, present: str) -> bool:
        """Whether the write happened; ``present`` is the SHA-256 of the current document."""
        for place, (known, before, after) in enumerate(self._lines):
            if known == write_id:
                following = self._lines[place + 1][1] if place + 1 < len(self._lines) else present
                if following != before or before == after:
                    return True
        return False

    def add(self, write_id: str, before: str, after: str) -> None:
        """Record a write that is about to happen, durably."""
        os.write(self._descriptor, f"{write_id} {before} {after}\n".encode("ascii"))
        os.fsync(self._descriptor)


def _regular(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if not entry.name.startswith(".")]


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Convert the error for a link, or for a folder in place of a file, to a refusal."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        raise WriteRefused(
            f"{name} is a symbolic link, or a folder in place of a file",
            hint="memory is never read or written through links: move it away",
        ) from None


_P = ParamSpec("_P")
_R = TypeVar("_R")
_FOLDERS: Final = {Scope.AGENT: "agents", Scope.CREW: "crews"}
_MEMORY, _LOGS = ".memory", ".writes"
_SET_ROOT: Final = "set CREW_JOURNAL_MEMORY_PROVIDER_ROOT to a directory"
_NO_ID: Final = "."
"""Stands in a write log for a write without an id; not a valid id."""
_BEFORE_MATCH: Final = 100
"""Characters of a snippet before the first matching word."""


class DiskStore:
    """Memory documents as files, safe for several processes of one machine; ``drafts.DocumentStore``.

    Every method raises BackendFailed if the disk refuses.

    Args:
        root: The directory below which all documents are; it must exist. None is reported by ``trouble``.
    """

    def __init__(self, root: Path | str | None) -> None:
        self._root = Path(root) if root else None

    async def read(self, _caller: Caller, address: DocumentAddress, _version: int | None = None) -> DocumentAnswer:
        """The current text; files have no versions."""
        return await _in_thread(self._read, address)

    async def write(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Write a document; returns once it is on disk.

        Raises:
            DocumentError: If the resulting text is not valid.
        """
        return await _in_thread(self._write, caller, draft)

    async def retract(self, _caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Delete a document; the file is gone when it returns. A call that is cancelled before that deletes nothing."""
        cancelled = threading.Event()
        try:
            removed = await _in_thread(self._remove, draft.address, cancelled)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return written_answer(draft, 0, 0, duplicate=not removed, readable=False)

    async def search(self, caller: Caller, request: DocumentSearchRequest) -> DocumentSearchAnswer:
        """Search by words; pieces with the most words of the query come first, and every score is -1."""
        owners = file_scope(caller.principal, request.scope, request.agent_id, request.crew_id).owners or ()
        return await _in_thread(self._search, caller.workspace_id, owners, request)

    async def labels(self, caller: Caller, owner: str) -> tuple[str, ...]:
        """The labels of an owner's documents that have a text."""
        return await _in_thread(self._labels, caller.workspace_id, owner)

    async def trouble(self, _caller: Caller) -> str | None:
        """Why a file cannot be written below the root."""
        return await asyncio.to_thread(self._probe)

    # in a thread

    def _write(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        address = draft.address
        with self._document(address, create=True) as document:
            assert document is not None
            before = document.text() or ""
            present = sha256_of(before)
            if draft.given_id and document.log.has(draft.write_id, present):
                return written_answer(draft, 0, len(before.encode()), readable=False)
            if not draft.appends:
                check_expected(address, draft.expected_sha256, before)
            after = before + joint(before, draft.content) if draft.appends else draft.content
            check_result(caller, address, before, after)
            size = len(after.encode())
            total = total_bytes(document.memory) - len(before.encode()) + size
            if total > AGENT_TOTAL_BYTES:
                raise CapExceeded(
                    f"all documents of {address.owner} would have {total} bytes, {AGENT_TOTAL_BYTES} are allowed",
                    hint="forget documents that are not needed any more",
                    field="content",
                )
            document.log.add(draft.write_id, present, sha256_of(after))
            write(document.name, document.folder, after)
            return written_answer(draft, 0, size, readable=False)

    def _remove(self, address: DocumentAddress, cancelled: threading.Event) -> bool:
        if self._text(address) is None:  # a lock would create a file for a document that never existed
            return False
        with self._document(address) as document:
            text = None if document is None else document.text()
            if document is None or text is None or cancelled.is_set():
                return False
            document.log.add(_NO_ID, sha256_of(text), sha256_of(""))
            remove(document.name, document.folder)
            return True

    def _read(self, address: DocumentAddress) -> DocumentAnswer:
        text = self._text(address) or ""
        finding = finding_in(text)
        content = text if finding is None else ""
        return text_answer(address, content, finding, sha256_of(text), len(text.encode()))

    def _labels(self, workspace_id: str, owner: str) -> tuple[str, ...]:
        return tuple(address.label for address, text in self._texts(workspace_id, owner, None) if text)

    def _search(self, workspace_id: str, owners: Sequence[str], request: DocumentSearchRequest) -> DocumentSearchAnswer:
        asked_words = tokens_of(request.query)
        words = {word for word in asked_words if word not in STOP_WORDS} or set(asked_words)
        found: list[tuple[int, DocumentHit]] = []
        quarantined: list[str] = []
        for owner in owners:
            for address, text in self._texts(workspace_id, owner, request.tier):
                if scan(text) is not None:
                    quarantined.append(address.label)
                    continue
                for chunk in chunks_of(text):
                    matched = words & set(tokens_of(f"{chunk.breadcrumb} {chunk.text}"))
                    if matched:
                        found.append((len(matched), _hit(address, chunk, matched)))
        found.sort(key=lambda match: -match[0])
        hits = tuple(hit for _, hit in found[: min(request.hits_wanted, RECALL_LIMIT_MAX)])
        blocked_labels = tuple(dict.fromkeys(quarantined))
        return DocumentSearchAnswer(results=hits, count=len(hits), quarantined=blocked_labels, view_seq=0)

    def _texts(self, workspace_id: str, owner: str, tier: str | None) -> Iterator[tuple[DocumentAddress, str]]:
        scope = scope_of(owner)[0]
        with folder_of_files(self._base(), _path(workspace_id, owner)) as memory:
            for label in [] if memory is None else labels(memory):
                known = tier_of_label(label)
                if known is None or (tier is not None and known[0] != tier):
                    continue
                address = DocumentAddress(workspace_id, scope, owner, *known)
                text = self._text(address)
                if text is not None:
                    yield address, text

    def _text(self, address: DocumentAddress) -> str | None:
        *parents, name = address.label.split("/")
        with folder_of_files(self._base(), (*_path(address.workspace_id, address.owner), *parents)) as folder:
            return None if folder is None else read(name, folder)

    def _probe(self) -> str | None:
        if self._root is None:
            return f"no root is set: {_SET_ROOT}"
        if not self._root.is_dir():
            return "the root is not a directory" if self._root.exists() else "the root does not exist"
        probe = self._root / f".probe.{secrets.token_hex(8)}"
        try:
            with probe.open("xb") as file:
                file.write(b"ok")
                os.fsync(file.fileno())
        except OSError as error:
            return f"the root cannot be written: {error.strerror}"
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        return None

    # where documents are

    def _base(self) -> Path:
        if self._root is None:
            raise BackendFailed("the disk provider has no root", hint=_SET_ROOT)
        return self._root

    @contextmanager
    def _document(self, address: DocumentAddress, *, create: bool = False) -> Iterator[_Locked | None]:
        """The locked document; None if its folder does not exist and ``create`` is false."""
        *parents, name = address.label.split("/")
        path = _path(address.workspace_id, address.owner)
        with (
            folder_of_files(self._base(), path, create=create) as memory,
            folder_of_files(self._base(), (*path, *parents), create=create) as folder,
        ):
            if memory is None or folder is None:
                yield None
                return
            with (
                folder_of_files(self._base(), (*path, _LOGS, *parents), create=True) as logs,
                WriteLog.locked(name, logs or 0) as log,
            ):
                yield _Locked(name, memory, folder, log)


@dataclass(frozen=True, slots=True)
class _Locked:
    """A document whose lock is held; folders as descriptors."""

    name: str
    memory: int
    folder: int
    log: WriteLog

    def text(self) -> str | None:
        return read(self.name, self.folder)


async def _in_thread(work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except OSError as error:
        raise BackendFailed(
            f"the memory directory fails: {error.strerror}",
            hint="is it there, may this process write in it, and is the disk neither full nor read-only?",
        ) from None


def _path(workspace_id: str, owner: str) -> tuple[str, ...]:
    """The folders below the root in which an owner's documents are."""
    scope, name = scope_of(owner)
    return (workspace_id, *(() if name is None else (_FOLDERS[scope], name)), _MEMORY)


def check_expected(address: DocumentAddress, expected_sha256: str | None, before: str) -> None:
    """Check that a replacement expects the current text; the author cannot have read a blocked text.

    Raises:
        DocumentConflict: If the text is not the expected one, or the text is blocked and the request expects none.
    """
    present = sha256_of(before)
    if expected_sha256 is None:
        if finding_in(before) is None:
            return
        problem = "is blocked by the injection scanners, and would be lost"
        hint = f"ask an operator to look at it; to replace it all the same, send expected_sha256={present}"
    elif expected_sha256 != present:
        problem, hint = "is not the text that is expected", "read it, then write with the sha256 of the answer"
    else:
        return
    raise DocumentConflict(f"{address.label} {problem}", hint=hint, field="expected_sha256")


def check_result(caller: Caller, address: DocumentAddress, before: str, after: str) -> None:
    """Check the text that a document would have.

    Raises:
        Quarantined: If the scanners block it.
        CapExceeded: If it is larger than the tier allows.
    """
    if (finding := finding_in(after)) is not None:
        raise blocked(address.label, finding)
    cap, size, present = address.rule.cap_bytes, len(after.encode()), len(before.encode())
    if cap is not None and size > cap:
        raise too_large(caller, address, cap, size, present, before)


def _hit(address: DocumentAddress, chunk: Chunk, matched: set[str]) -> DocumentHit:
    folded = chunk.text.casefold()
    first = min((at for word in matched if (at := folded.find(word)) >= 0), default=0)
    start = 0 if len(chunk.text) <= SNIPPET_CHARS else max(0, first - _BEFORE_MATCH)
    return DocumentHit(
        file=address.label,
        snippet=chunk.text[start : start + SNIPPET_CHARS],
        score=-1.0,
        source=address.scope.value,
        line=chunk.first_line + chunk.text.count("\n", 0, start),
        heading="",
    )


# The store over HTTP: another service that answers the routes of memory documents, such as another Crew Journal.
#
# Routes: ``POST /memory/write``, ``POST /memory/search``, ``GET`` and ``POST /v1/memory/document[/retract]``, ``GET
# /v1/memory/documents``, ``GET /readyz``. Invariant: callers get only errors of our own, never texts of the HTTP library;
# every write has an id, so that repeating it is safe.


TIMEOUT_S: Final = 10.0
"""Seconds for one answer of a provider; an ordinary write takes about 5 ms."""
_A = TypeVar("_A", bound=BaseModel)


def http_client(url: str, token: str, *, timeout_s: float = TIMEOUT_S) -> httpx.AsyncClient:
    """The connections of providers to one service; close them with ``aclose``."""
    import httpx

    return httpx.AsyncClient(
        base_url=url.rstrip("/"), headers={"Authorization": f"Bearer {token}"}, timeout=timeout_s, trust_env=False
    )


class _Hit(BaseModel):
    file: str
    snippet: str
    score: float = 0.0
    source: Literal["agent", "crew", "workspace"] = "agent"
    line: int | None = None


class _Found(BaseModel):
    results: tuple[_Hit, ...]
    quarantined: tuple[str, ...] = ()


class HttpStore:
    """Memory documents behind another service; ``drafts.DocumentStore``.

    Every method raises the service's refusals, UpstreamTimeout if the service does not answer in time, and
    BackendFailed if it cannot be reached or fails. A write that timed out may have happened; repeating it with the same
    id is safe.

    Args:
        http: The HTTP client, with a token that may read and write the documents of every caller.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def read(self, caller: Caller, address: DocumentAddress, _version: int | None = None) -> DocumentAnswer:
        """The present text."""
        found = await self._ask("GET", "/v1/memory/document", DocumentAnswer, _document(caller, address))
        bad = found.quarantined
        finding = None if bad is None else f"{bad.category}/{bad.pattern}"
        return text_answer(address, "" if finding else found.content, finding, found.sha256, found.bytes)

    async def write(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Write a document; returns once the service confirms that it is durable."""
        body = {
            **_document(caller, draft.address),
            "mode": "append" if draft.appends else "replace",
            "content": draft.content,
            "expected_sha256": draft.expected_sha256,
            "write_id": draft.write_id,
        }
        wrote = await self._ask("POST", "/memory/write", DocumentWrittenAnswer, body)
        return written_answer(draft, 0, wrote.bytes, readable=False)

    async def retract(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Retract a document; the service can restore it."""
        body = {**_document(caller, draft.address), "reason": "forgotten through a memory provider"}
        try:
            gone = await self._ask("POST", "/v1/memory/document/retract", DocumentWrittenAnswer, body)
        except NotFound:
            return written_answer(draft, 0, 0, duplicate=True, readable=False)
        return written_answer(draft, 0, 0, duplicate=gone.duplicate, readable=False)

    async def search(self, caller: Caller, request: DocumentSearchRequest) -> DocumentSearchAnswer:
        """Search."""
        searched = file_scope(caller.principal, request.scope, request.agent_id, request.crew_id)
        limit = min(request.hits_wanted, RECALL_LIMIT_MAX)
        owner = _owner(caller, searched.agent_id, searched.crew_id)
        body = {**owner, "query": request.query, "limit": limit, "scope": request.scope, "tier": request.tier}
        found = await self._ask("POST", "/memory/search", _Found, body)
        best = max((abs(hit.score) for hit in found.results), default=0.0)
        hits = tuple(
            DocumentHit(
                file=hit.file,
                snippet=hit.snippet[:SNIPPET_CHARS],
                score=-abs(hit.score) / best if best else -1.0,
                source=hit.source,
                line=hit.line or 1,
                heading="",
            )
            for hit in found.results[:limit]
        )
        return DocumentSearchAnswer(results=hits, count=len(hits), quarantined=found.quarantined, view_seq=0)

    async def labels(self, caller: Caller, owner: str) -> tuple[str, ...]:
        """The labels of an owner's documents that have a text, sorted."""
        scope, name = scope_of(owner)
        named = _owner(caller, name if scope is Scope.AGENT else None, name if scope is Scope.CREW else None)
        found = await self._ask("GET", "/v1/memory/documents", DocumentsAnswer, {**named, "scope": scope.value})
        return tuple(sorted(listed.id for listed in found.documents if listed.owner == owner and listed.bytes))

    async def trouble(self, caller: Caller) -> str | None:
        """Why the service does not follow the protocol: the token, its rights, the store behind it, or the URL."""
        import httpx

        principal = caller.principal
        owner = _owner(caller, principal.agent_id, principal.crew_id)
        try:
            named = {name: value for name, value in owner.items() if value is not None}
            answer = await self._http.get("/v1/memory/documents", params={**named, "tier": "AGENT"})
            if answer.is_success:
                DocumentsAnswer.model_validate_json(answer.content)
                return None
        except httpx.HTTPError as error:
            return f"cannot be reached: {type(error).__name__}"
        except ValidationError:
            return "the answer is not that of a memory service: check the URL"
        if answer.status_code == HTTPStatus.NOT_IMPLEMENTED:  # a service with files has no list; the token is accepted
            return None
        return f"{answer.status_code} from the service: {answer.text[:200]}"

    async def _ask(self, method: str, path: str, answer: type[_A], fields: dict[str, Any]) -> _A:
        import httpx  # a start does not need it: 40 ms

        given = {name: value for name, value in fields.items() if value is not None}
        sent: dict[str, Any] = {"params": given} if method == "GET" else {"json": given}
        try:
            response = await self._http.request(method, path, **sent)
            if response.is_error:
                raise _named_error(response)
            return answer.model_validate_json(response.content)
        except httpx.TimeoutException:
            raise UpstreamTimeout(
                f"the memory service did not answer {path} in time", hint="try again with the same write_id"
            ) from None
        except httpx.HTTPError as error:
            raise BackendFailed(
                f"the memory service cannot be reached: {type(error).__name__}",
                hint="does it run, and is CREW_JOURNAL_MEMORY_PROVIDER_URL right?",
            ) from None
        except ValidationError:
            raise BackendFailed(
                f"the memory service answered {path} with something other than {answer.__name__}",
                hint="it must answer as docs/providers.md says",
            ) from None


def _owner(caller: Caller, agent_id: str | None, crew_id: str | None) -> dict[str, Any]:
    return {"workspace_id": caller.workspace_id, "agent_id": agent_id, "crew_id": crew_id}


def _document(caller: Caller, address: DocumentAddress) -> dict[str, Any]:
    """The fields that name a document: its owner and, for the rest, the caller's agent and crew."""
    principal = caller.principal
    agent_id = address.name if address.scope is Scope.AGENT else principal.agent_id
    crew_id = address.name if address.scope is Scope.CREW else principal.crew_id
    owner = _owner(caller, agent_id, crew_id)
    return {**owner, "tier": address.tier, "key": address.key, "scope": address.scope.value}


def _named_error(response: httpx.Response) -> CrewJournalError:
    """The named error for an answer."""
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    error = error_of(response.status_code, problem if isinstance(problem, dict) else {})
    given: dict[str, Any] = {"hint": error.hint, "field": error.field}
    if isinstance(error, DocumentError | NotAllowed | NotFound | UpstreamTimeout | BackendFailed):
        return error
    if isinstance(error, NotAuthenticated):
        return NotAllowed(f"the memory service refuses the token: {error.message}", **given)
    if isinstance(error, Unavailable) or response.is_server_error:
        return BackendFailed(f"the memory service fails: {error.message}", **given)
    return DocumentError(error.message, **given)
