"""Memory documents as files below ``/memories``: the commands of Anthropic's memory tool.

Invariant: a command reads and writes documents by the rules of ``use_cases``; it records a replacement or a retraction
with its author, so that every deletion can be undone. A folder exists while it contains a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ...schemas.core.errors import (
    CapExceeded,
    DocumentConflict,
    FieldProblem,
    FileRefused,
    InvalidRequest,
    Quarantined,
)
from ...schemas.core.ports import ViewReader
from ...schemas.documents.events import DocumentAction
from ...schemas.documents.files import (
    ROOT,
    DocumentPlace,
    inner_path,
    inserted,
    listing,
    numbered,
    path_of,
    path_problem,
    place_of,
    replaced,
)
from ...schemas.documents.operations import MEMORY_FILE, DocumentWrittenAnswer, MemoryFileAnswer, MemoryFileRequest
from ...schemas.documents.rules import SHARED_FOLDERS, TIERS, Scope, owner_of
from ...schemas.documents.tables import DOCUMENTS, DocumentRow
from ..desk import Caller
from .addressing import DocumentAddress, address_of, check_may_write
from .answers import CONSOLIDATE, shown
from .drafts import Draft
from .journal_store import JournalStore
from .ports import check_enabled
from .writing import move

_NEEDS: Final = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str", "new_str"),
    "insert": ("path", "insert_line", "insert_text"),
    "delete": ("path",),
    "rename": ("old_path", "new_path"),
}
_SHORTEN: Final = "merge duplicates and drop what is out of date with str_replace"
_SIZES: Final = f"""SELECT owner, tier, doc_key, bytes FROM {DOCUMENTS} WHERE workspace_id = ? AND NOT retracted
    AND owner IN (SELECT unnest(?::VARCHAR[]))"""


@dataclass(frozen=True, slots=True)
class _FileOwner:
    """The owner of a document, as an argument of ``address_of``."""

    scope: str | None
    agent_id: str | None
    crew_id: str | None


@dataclass(frozen=True, slots=True)
class _TextFile:
    """A document that has a text."""

    address: DocumentAddress
    row: DocumentRow


class Files:
    """The use-case.

    Args:
        views: The views of documents.
        store: The store of the documents: the journal, for every workspace.
        clock: The time now, UTC.
    """

    def __init__(self, views: ViewReader, store: JournalStore, *, clock: Callable[[], datetime]) -> None:
        self._views = views
        self._store = store
        self._clock = clock

    async def run(self, caller: Caller, request: MemoryFileRequest) -> MemoryFileAnswer:
        """Run one command.

        Raises:
            InvalidRequest: If a field of the command is missing.
            FileRefused: If the path or the text does not fit the command.
            NotAllowed: If the document belongs to another owner, or the role may not write it.
            WriteRefused, Quarantined, CapExceeded: If the content is refused.
            DocumentConflict: If the document changed twice while it was edited.
            BrokerUnavailable: If no ack came within the bound.
        """
        missing = [name for name in _NEEDS[request.command] if getattr(request, name) is None]
        if missing:
            raise InvalidRequest(
                tuple(FieldProblem(name, "is missing", f"{request.command} needs it") for name in missing)
            )
        await check_enabled(self._store.enabled, caller)
        commands = {
            "view": self._view,
            "create": self._create,
            "str_replace": self._str_replace,
            "insert": self._insert,
            "delete": self._delete,
            "rename": self._rename,
        }
        try:
            return await commands[request.command](caller, request)
        except CapExceeded as error:
            error.hint = error.hint.replace(CONSOLIDATE, _SHORTEN)
            raise

    async def _view(self, caller: Caller, request: MemoryFileRequest) -> MemoryFileAnswer:
        path = request.path or ""
        inner = inner_path(path)
        file = await self._file(caller, request, inner)
        if file is None:
            text = listing(path, inner, await self._sizes(caller, request))
            if text is None:
                raise _missing(path)
            return MemoryFileAnswer(text=text)
        content = shown(caller, file.address.label, file.row.content, file.row.finding)
        return MemoryFileAnswer(text=numbered(path, content, request.view_range))

    async def _create(self, caller: Caller, request: MemoryFileRequest) -> MemoryFileAnswer:
        path = request.path or ""
        inner = inner_path(path)
        exists = FileRefused(f"File {path} already exists", field="path")
        sizes = await self._sizes(caller, request)
        if _exists(inner, sizes):
            raise exists
        address = self._target(caller, request, path, inner, sizes)
        row = await self._store.present(address)
        draft = Draft(address=address, content=request.file_text or "", expected_seq=row.seq if row else 0)
        try:
            written = await self._store.write(caller, draft)
        except DocumentConflict:
            raise exists from None
        return _answer(f"File created successfully at: {path}", written)

    async def _str_replace(self, caller: Caller, request: MemoryFileRequest) -> MemoryFileAnswer:
        path, old, new = request.path or "", request.old_str or "", request.new_str or ""
        return await self._edit(caller, request, lambda text: replaced(path, text, old, new))

    async def _insert(self, caller: Caller, request: MemoryFileRequest) -> MemoryFileAnswer:
        path, line, new = request.path or "", request.insert_line or 0, request.insert_text or ""
        return await self._edit(caller, request, lambda text: inserted(path, text, line, new))

    async def _edit(
        self, caller: Caller, request: MemoryFileRequest, change: Callable[[str], tuple[str, str]]
    ) -> MemoryFileAnswer:
        """Replace a file's text by the result of ``change``; repeat once if the file was written meanwhile."""
        path = request.path or ""
        inner = inner_path(path)
        for last in (False, True):
            file = await self._file(caller, request, inner)
            if file is None:
                if _exists(inner, await self._sizes(caller, request)):
                    raise FileRefused(f"The path {path} is not a file.", field="path")
                raise _missing(path)
            check_may_write(caller, file.address)
            if file.row.finding is not None and not caller.administers:
                raise Quarantined(
                    shown(caller, file.address.label, "", file.row.finding), hint="delete it, or ask an operator"
                )
            text, message = change(file.row.content)
            draft = Draft(address=file.address, content=text, expected_seq=file.row.seq)
            try:
                return _answer(message, await self._store.write(caller, draft))
            except DocumentConflict:
                if last:
                    raise
        raise AssertionError

    async def _delete(self, caller: Caller, request: MemoryFileRequest) -> MemoryFileAnswer:
        path = request.path or ""
        inner = inner_path(path)
        if not inner:
            raise FileRefused(f"Cannot delete the {ROOT} directory itself", field="path")
        names = _at_or_below(inner, await self._sizes(caller, request))
        if not names:
            raise FileRefused(f"The path {path} does not exist", field="path")
        addresses = [self._writable(caller, request, place_of(name)) for name in names]
        written = [
            await self._store.retract(caller, Draft(address=address, action=DocumentAction.RETRACT))
            for address in addresses
        ]
        return MemoryFileAnswer(text=f"Successfully deleted {path}", seq=written[-1].seq)

    async def _rename(self, caller: Caller, request: MemoryFileRequest) -> MemoryFileAnswer:
        old_path, new_path = request.old_path or "", request.new_path or ""
        old, new = inner_path(old_path), inner_path(new_path)
        if not old:
            raise FileRefused(f"Cannot rename the {ROOT} directory itself", field="old_path")
        sizes = await self._sizes(caller, request)
        if _exists(new, sizes):
            raise FileRefused(f"The destination {new_path} already exists", field="new_path")
        names = _at_or_below(old, sizes)
        if not names:
            raise FileRefused(f"The path {old_path} does not exist", field="old_path")
        moves = [
            (
                self._writable(caller, request, place_of(name)),
                self._target(caller, request, f"{new_path}{name[len(old) :]}", f"{new}{name[len(old) :]}", sizes),
            )
            for name in names
        ]
        seqs = [await move(self._store, caller, source, target) for source, target in moves]
        return MemoryFileAnswer(text=f"Successfully renamed {old_path} to {new_path}", seq=seqs[-1])

    async def _file(self, caller: Caller, request: MemoryFileRequest, inner: str) -> _TextFile | None:
        """The file at a path; None if there is none."""
        place = place_of(inner)
        if place is None:
            return None
        address = self._address(caller, request, place)
        row = await self._store.present(address)
        return None if row is None or row.retracted else _TextFile(address, row)

    async def _sizes(self, caller: Caller, request: MemoryFileRequest) -> dict[str, int]:
        """The path and the bytes of every file that the caller may read."""
        agent = self._address(caller, request, DocumentPlace(Scope.AGENT, "AGENT", None))
        crew = request.crew_id or caller.principal.crew_id
        owners = [agent.owner, owner_of(Scope.WORKSPACE, None)]
        if crew is not None:
            owners.append(owner_of(Scope.CREW, crew))
        rows = await asyncio.to_thread(self._views.rows, _SIZES, [caller.workspace_id, owners])
        return {path_of(owner, tier, key): size for owner, tier, key, size in rows if tier in TIERS}

    def _address(self, caller: Caller, request: MemoryFileRequest, place: DocumentPlace) -> DocumentAddress:
        owner = _FileOwner(place.scope.value, request.agent_id, request.crew_id)
        return address_of(caller, owner, place.tier, place.key, self._clock().astimezone(UTC).date())

    def _writable(self, caller: Caller, request: MemoryFileRequest, place: DocumentPlace | None) -> DocumentAddress:
        assert place is not None  # the document exists
        address = self._address(caller, request, place)
        check_may_write(caller, address)
        return address

    def _target(
        self, caller: Caller, request: MemoryFileRequest, path: str, inner: str, sizes: Mapping[str, int]
    ) -> DocumentAddress:
        """The document to create at a path.

        Raises:
            FileRefused: If no document can have that path, or a part of the path is a file.
        """
        place = place_of(inner)
        if place is None:
            raise FileRefused(f"Path {path} is not possible: {path_problem(inner)}", field="path")
        parts = inner.split("/")
        for end in range(1, len(parts)):
            if (parent := "/".join(parts[:end])) in sizes:
                raise FileRefused(f"The path {ROOT}/{parent} is a file, not a directory", field="path")
        return self._writable(caller, request, place)


def _exists(inner: str, sizes: Mapping[str, int]) -> bool:
    return not inner or inner in SHARED_FOLDERS or bool(_at_or_below(inner, sizes))


def _at_or_below(inner: str, sizes: Mapping[str, int]) -> list[str]:
    return sorted(name for name in sizes if name == inner or name.startswith(f"{inner}/"))


def _missing(path: str) -> FileRefused:
    return FileRefused(f"The path {path} does not exist. Please provide a valid path.", field="path")


def _answer(text: str, written: DocumentWrittenAnswer) -> MemoryFileAnswer:
    warning = written.warning
    return MemoryFileAnswer(
        text=text, seq=written.seq, warning=None if warning is None else warning.replace(CONSOLIDATE, _SHORTEN)
    )


ANSWERS: Final = ((MEMORY_FILE, Files.run),)
