"""The store on disk: memory documents as Markdown files.

``<root>/<workspace>/agents/<agent>/.memory/AGENT.md``, ``<root>/<workspace>/crews/<crew>/.memory/daily/2026-05-21.md``,
``<root>/<workspace>/.memory/WORKSPACE.md``.

Invariant: what ``write`` reports is on disk; a write id counts once among the last 400 writes or so of its document.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from ....schemas.errors import BackendFailed, CapExceeded, DocumentConflict
from ....schemas.operations.document_search import DocumentHit, DocumentSearchAnswer, DocumentSearchRequest
from ....schemas.operations.documents import DocumentAnswer, DocumentWrittenAnswer
from ....schemas.provider import RECALL_LIMIT_MAX, SNIPPET_CHARS
from ....schemas.rules.chunks import Chunk, chunks_of
from ....schemas.rules.documents import finding_in, joint, sha256_of
from ....schemas.rules.injection import scan
from ....schemas.rules.text import STOP_WORDS, tokens_of
from ....schemas.rules.tiers import AGENT_TOTAL_BYTES, Scope, scope_of, tier_of_label
from ...desk import Caller
from ...query.chunks.scope import file_scope
from ..documents.addressing import DocumentAddress
from ..documents.answers import too_large, written_answer
from ..documents.checks import blocked
from ..documents.drafts import Draft
from . import files
from .outside import text_answer

_P = ParamSpec("_P")
_R = TypeVar("_R")
_FOLDERS: Final = {Scope.AGENT: "agents", Scope.CREW: "crews"}
_MEMORY, _LOGS = ".memory", ".writes"
_SET_ROOT: Final = "set CREW_JOURNAL_MEMORY_PROVIDER_ROOT to a directory"
_NO_ID: Final = "."
"""Stands in a write log for a write without an id; no id is spelt so."""
_BEFORE_MATCH: Final = 100
"""Characters of a snippet before the first word that matches."""


class DiskStore:
    """Memory documents as files, safe for several processes of one machine; ``ports.DocumentStore``.

    Every method raises BackendFailed if the disk refuses.

    Args:
        root: The directory below which all documents are; it must exist. None is reported by ``trouble``.
    """

    def __init__(self, root: Path | str | None) -> None:
        self._root = Path(root) if root else None

    async def read(
        self, _caller: Caller, address: DocumentAddress, _version: int | None = None, _as_of: int | None = None
    ) -> DocumentAnswer:
        """The present text; files have no versions."""
        return await _in_thread(self._read, address)

    async def write(self, caller: Caller, draft: Draft) -> DocumentWrittenAnswer:
        """Write a document; returns once it is on disk.

        Raises:
            DocumentError: What is wrong with the text that the document would have.
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
        """Search by words: pieces of documents, those with the most words of the query first; every score is -1."""
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
            total = files.total_bytes(document.memory) - len(before.encode()) + size
            if total > AGENT_TOTAL_BYTES:
                raise CapExceeded(
                    f"all documents of {address.owner} would have {total} bytes, {AGENT_TOTAL_BYTES} are allowed",
                    hint="forget documents that are not needed any more",
                    field="content",
                )
            document.log.add(draft.write_id, present, sha256_of(after))
            files.write(document.name, document.folder, after)
            return written_answer(draft, 0, size, readable=False)

    def _remove(self, address: DocumentAddress, cancelled: threading.Event) -> bool:
        if self._text(address) is None:  # a lock would leave a file for a document that never existed
            return False
        with self._document(address) as document:
            text = None if document is None else document.text()
            if document is None or text is None or cancelled.is_set():
                return False
            document.log.add(_NO_ID, sha256_of(text), sha256_of(""))
            files.remove(document.name, document.folder)
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
        with files.folder(self._base(), _path(workspace_id, owner)) as memory:
            for label in [] if memory is None else files.labels(memory):
                known = tier_of_label(label)
                if known is None or (tier is not None and known[0] != tier):
                    continue
                address = DocumentAddress(workspace_id, scope, owner, *known)
                text = self._text(address)
                if text is not None:
                    yield address, text

    def _text(self, address: DocumentAddress) -> str | None:
        *parents, name = address.label.split("/")
        with files.folder(self._base(), (*_path(address.workspace_id, address.owner), *parents)) as folder:
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

    @contextmanager
    def _document(self, address: DocumentAddress, *, create: bool = False) -> Iterator[_Locked | None]:
        """The document under its lock; None if there is no folder for it, and none is to be made."""
        *parents, name = address.label.split("/")
        path = _path(address.workspace_id, address.owner)
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


def _path(workspace_id: str, owner: str) -> tuple[str, ...]:
    """The folders below the root in which an owner's documents are."""
    scope, name = scope_of(owner)
    return (workspace_id, *(() if name is None else (_FOLDERS[scope], name)), _MEMORY)


def check_expected(address: DocumentAddress, expected_sha256: str | None, before: str) -> None:
    """Check that a replace knows what it replaces; its author has not read a text that is blocked.

    Raises:
        DocumentConflict: If the text is another than the expected one, or is blocked and none is expected.
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
