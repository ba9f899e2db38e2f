"""The reference provider: memory documents as Markdown files.

``<root>/<workspace>/agents/<agent>/.memory/AGENT.md``, ``<root>/<workspace>/crews/<crew>/.memory/daily/2026-05-21.md``,
``<root>/<workspace>/.memory/WORKSPACE.md``.

Invariant: what ``retain`` reports is on disk; a write id counts once among the last 400 writes or so of its document.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from ....schemas.errors import BackendFailed, CapExceeded, ScopeMismatch
from ....schemas.ids import is_id, is_workspace
from ....schemas.provider import (
    RECALL_LIMIT_MAX,
    SNIPPET_CHARS,
    ForgetRequest,
    ForgetResult,
    HealthStatus,
    LabelsRequest,
    LabelsResult,
    ProviderScope,
    ReadRequest,
    ReadResult,
    RecallRequest,
    RecallResult,
    RecallSnippet,
    RetainRequest,
    RetainResult,
)
from ....schemas.rules.chunks import Chunk, chunks_of
from ....schemas.rules.documents import finding_in, joint, sha256_of
from ....schemas.rules.injection import scan
from ....schemas.rules.text import STOP_WORDS, tokens_of
from ....schemas.rules.tiers import AGENT_TOTAL_BYTES, TIERS, Scope, tier_of_label
from . import files
from .checks import (
    Place,
    check_expected,
    check_result,
    health_of,
    owner_to_list,
    owners_to_search,
    place_to_forget,
    place_to_read,
    place_to_write,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")
CASCADE: Final = "the files carry no person, so forget each document by its id"
_FOLDERS: Final = {Scope.AGENT: "agents", Scope.CREW: "crews"}
_MEMORY, _LOGS = ".memory", ".writes"
_SET_ROOT: Final = "set CREW_JOURNAL_MEMORY_PROVIDER_ROOT to a directory"
_NO_ID: Final = "."
"""Stands in a write log for a write without an id; no id is spelt so."""
_BEFORE_MATCH: Final = 100
"""Characters of a snippet before the first word that matches."""


class DiskProvider:
    """Memory documents as files; safe for several processes of one machine.

    Args:
        root: The directory below which all documents are; it must exist. None is reported by ``health``.
        scope: Whose documents.
        clock: The time, UTC.

    Raises:
        ScopeMismatch: If workspace, agent or crew are not ids.
    """

    def __init__(
        self,
        root: Path | str | None,
        scope: ProviderScope,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if not is_workspace(scope.workspace_id):
            raise ScopeMismatch("workspace_id is not a workspace", hint="use its id", field="workspace_id")
        for name in ("agent_id", "crew_id"):
            if (given := getattr(scope, name)) is not None and not is_id(given):
                raise ScopeMismatch(f"{name} is not an id", hint="use 1 to 64 of A-Z a-z 0-9 _ -", field=name)
        self._root = Path(root) if root else None
        self._scope = scope
        self._clock = clock

    async def retain(self, asked: RetainRequest) -> RetainResult:
        """Write a document; returns once it is on disk.

        Raises:
            DocumentError: What is wrong with the request, or with the text that the document would have.
            BackendFailed: If the disk refuses.
        """
        place = place_to_write(self._scope, asked)
        return await _in_thread(self._retain, place, asked)

    async def recall(self, asked: RecallRequest) -> RecallResult:
        """Search by words: pieces of documents, those with the most words of the query first; every score is 1.

        Raises:
            DocumentError: What is wrong with the request.
            BackendFailed: If the disk refuses.
        """
        owners = owners_to_search(self._scope, asked)
        return await _in_thread(self._recall, owners, asked)

    async def forget(self, asked: ForgetRequest) -> ForgetResult:
        """Delete a document; the file is gone when it returns. A call that is cancelled before that deletes nothing.

        Raises:
            SelectorConflict: Unless exactly one of id and data subject is given.
            CascadeUnsupported: If it is the data subject.
            BackendFailed: If the disk refuses.
        """
        place = place_to_forget(self._scope, asked, cascade=CASCADE)
        await asyncio.sleep(0)  # a cancellation is heard before anything begins
        cancelled = threading.Event()
        try:
            return await _in_thread(self._forget, place, cancelled)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def read(self, asked: ReadRequest) -> ReadResult:
        """Read a document; one that was never written is empty, of one that the scanners block the content is left out.

        Raises:
            DocumentError: What is wrong with the request.
            BackendFailed: If the disk refuses.
        """
        place = place_to_read(self._scope, asked)
        return await _in_thread(self._read, place)

    async def labels(self, asked: LabelsRequest) -> LabelsResult:
        """Name the documents of a scope.

        Raises:
            DocumentError: What is wrong with the request.
            BackendFailed: If the disk refuses.
        """
        scope, name = owner_to_list(self._scope, asked)
        return await _in_thread(self._labels, scope, name)

    async def health(self) -> HealthStatus:
        """Whether a file can be written below the root."""
        return await health_of(lambda: asyncio.to_thread(self._probe), self._clock)

    # in a thread

    def _retain(self, place: Place, asked: RetainRequest) -> RetainResult:
        with self._document(place, create=True) as document:
            assert document is not None
            before = document.text() or ""
            if asked.write_id is not None and document.log.has(asked.write_id, sha256_of(before)):
                return RetainResult(id=place.label, bytes=len(before.encode()))
            check_expected(place, asked, before)
            after = asked.content if asked.mode == "replace" else before + joint(before, asked.content)
            check_result(place, before, after)
            size = len(after.encode())
            total = files.total_bytes(document.memory) - len(before.encode()) + size
            if total > AGENT_TOTAL_BYTES:
                raise CapExceeded(
                    f"all documents of {place.owner} would have {total} bytes, {AGENT_TOTAL_BYTES} are allowed",
                    hint="forget documents that are not needed any more",
                    field="content",
                )
            document.log.add(asked.write_id or _NO_ID, sha256_of(before), sha256_of(after))
            files.write(document.name, document.folder, after)
            return RetainResult(id=place.label, bytes=size)

    def _forget(self, place: Place, cancelled: threading.Event) -> ForgetResult:
        if self._text(place) is None:  # a lock would leave a file for a document that never existed
            return ForgetResult(removed=0)
        with self._document(place) as document:
            text = None if document is None else document.text()
            if document is None or text is None or cancelled.is_set():
                return ForgetResult(removed=0)
            document.log.add(_NO_ID, sha256_of(text), sha256_of(""))
            files.remove(document.name, document.folder)
            return ForgetResult(removed=1)

    def _read(self, place: Place) -> ReadResult:
        text = self._text(place) or ""
        finding = finding_in(text)
        return ReadResult(
            id=place.label,
            content="" if finding is not None else text,
            finding=finding,
            sha256=sha256_of(text),
            bytes=len(text.encode()),
        )

    def _labels(self, scope: Scope, name: str | None) -> LabelsResult:
        return LabelsResult(ids=tuple(label for label, text in self._texts(scope, name, None) if text))

    def _recall(self, owners: list[tuple[Scope, str | None]], asked: RecallRequest) -> RecallResult:
        said = tokens_of(asked.query)
        words = {word for word in said if word not in STOP_WORDS} or set(said)
        found: list[tuple[int, RecallSnippet]] = []
        quarantined: list[str] = []
        for scope, name in owners:
            for label, text in self._texts(scope, name, asked.tier):
                if scan(text) is not None:
                    quarantined.append(label)
                    continue
                for chunk in chunks_of(text):
                    matched = words & set(tokens_of(f"{chunk.breadcrumb} {chunk.text}"))
                    if matched:
                        found.append((len(matched), _snippet(label, scope, chunk, matched)))
        found.sort(key=lambda one: -one[0])
        limit = max(0, min(asked.limit, RECALL_LIMIT_MAX))
        return RecallResult(hits=tuple(hit for _, hit in found[:limit]), quarantined=tuple(dict.fromkeys(quarantined)))

    def _texts(self, scope: Scope, name: str | None, tier: str | None) -> Iterator[tuple[str, str]]:
        with files.folder(self._base(), self._path(scope, name)) as memory:
            for label in [] if memory is None else files.labels(memory):
                known = tier_of_label(label)
                if known is None or (tier is not None and known[0] != tier):
                    continue
                text = self._text(Place(scope, name, *known, TIERS[known[0]]))
                if text is not None:
                    yield label, text

    def _text(self, place: Place) -> str | None:
        *parents, name = place.label.split("/")
        with files.folder(self._base(), (*self._path(place.scope, place.name), *parents)) as folder:
            return None if folder is None else files.read(name, folder)

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

    def _path(self, scope: Scope, name: str | None) -> tuple[str, ...]:
        owner = () if name is None else (_FOLDERS[scope], name)
        return (self._scope.workspace_id, *owner, _MEMORY)

    @contextmanager
    def _document(self, place: Place, *, create: bool = False) -> Iterator[_Locked | None]:
        """The document under its lock; None if there is no folder for it, and none is to be made."""
        *parents, name = place.label.split("/")
        path = self._path(place.scope, place.name)
        with (
            files.folder(self._base(), path, create=create) as memory,
            files.folder(self._base(), (*path, *parents), create=create) as folder,
        ):
            if memory is None or folder is None:
                yield None
                return
            with (
                files.folder(self._base(), (*path, _LOGS, *parents), create=True) as logs,
                files.WriteLog.locked(name, logs or 0) as log,
            ):
                yield _Locked(name, memory, folder, log)


@dataclass(frozen=True, slots=True)
class _Locked:
    """A document whose lock is held; folders as descriptors."""

    name: str
    memory: int
    folder: int
    log: files.WriteLog

    def text(self) -> str | None:
        return files.read(self.name, self.folder)


async def _in_thread(work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except OSError as error:
        raise BackendFailed(
            f"the memory directory fails: {error.strerror}",
            hint="is it there, may this process write in it, and is the disk neither full nor read-only?",
        ) from None


def _snippet(label: str, scope: Scope, chunk: Chunk, matched: set[str]) -> RecallSnippet:
    folded = chunk.text.casefold()
    first = min((at for word in matched if (at := folded.find(word)) >= 0), default=0)
    start = 0 if len(chunk.text) <= SNIPPET_CHARS else max(0, first - _BEFORE_MATCH)
    line = chunk.first_line + chunk.text.count("\n", 0, start)
    text = chunk.text[start : start + SNIPPET_CHARS]
    return RecallSnippet(source=label, snippet=text, line=line, score=1.0, scope=scope.value)
