"""Memory documents as files below ``/memories``: the commands of Anthropic's memory tool.

Invariant: a command reads and writes documents by the rules of ``use_cases``; it records a replacement or a retraction
with its author, so that every deletion can be undone. A folder exists while it contains a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ...schemas.access.tables import AgentRow
from ...schemas.core.errors import (
    CapExceeded,
    DocumentConflict,
    FieldProblem,
    FileRefused,
    InvalidRequest,
    NotFound,
    PathTaken,
    Quarantined,
    VersionGone,
)
from ...schemas.core.ids import is_id
from ...schemas.core.ports import ViewReader
from ...schemas.documents.events import DocumentAction
from ...schemas.documents.operations import MEMORY_FILE, DocumentWrittenAnswer, MemoryFileAnswer, MemoryFileRequest
from ...schemas.documents.rules import (
    FILES,
    ROOT,
    SHARED_FOLDERS,
    TIERS,
    DocumentPlace,
    Scope,
    inner_path,
    inserted,
    key_problem,
    listing,
    numbered,
    owner_of,
    path_of,
    path_problem,
    place_of,
    replaced,
)
from ...schemas.documents.tables import DOCUMENTS, VERSIONS, DocumentRow, VersionRow
from ...schemas.text.injection import finding_in
from ..desk import Caller
from ..registry import Registry
from .addressing import DocumentAddress, address_of, check_may_write
from .answers import CONSOLIDATE, shown
from .drafts import Draft, check_enabled
from .journal_store import JournalStore, move

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
        if row is not None and not row.retracted:  # made since its name was looked up
            raise exists
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


# The files of agents as stores, memories and versions, in the terms of Anthropic's API.
#
# Invariant: a store is an agent's tier ``files`` and its id names the agent; a memory is a file, a version a write.
# Ids and conditions are checked here, texts by the rules of ``use_cases``.


STORE: Final = "memstore_"
MEMORY: Final = "mem_"
VERSION: Final = "memver_"
_OF_STORE: Final = f"workspace_id = $1 AND owner = $2 AND tier = '{FILES}'"
_KEYS: Final = f"SELECT doc_key FROM {DOCUMENTS} WHERE {_OF_STORE} AND NOT retracted ORDER BY doc_key"
_ROWS: Final = f"SELECT {DOCUMENTS.names} FROM {DOCUMENTS} WHERE {_OF_STORE}"
_VERSIONS: Final = f"""SELECT * FROM (SELECT {VERSIONS.names}, CASE WHEN action = 'retract' THEN 'deleted'
        WHEN coalesce(lag(action) OVER (PARTITION BY doc_key ORDER BY seq), 'retract') = 'retract' THEN 'created'
        ELSE 'modified' END AS operation FROM {VERSIONS} WHERE {_OF_STORE})
    WHERE ($3 IS NULL OR doc_key = $3) AND ($4 IS NULL OR operation = $4) AND ($5 IS NULL OR actor_type = $5)
    AND ($6 IS NULL OR actor_id = $6) AND published_ms BETWEEN $7 AND $8 AND seq < $9 ORDER BY seq DESC LIMIT $10"""


class Stored(NamedTuple):
    """A memory and the text that the caller may read."""

    row: DocumentRow
    content: str


class StoreVersion(NamedTuple):
    """A version, its operation, and its text if requested and not swept."""

    row: VersionRow
    operation: str
    memory_id: str
    content: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFilter:
    """Which versions are listed; None for all.

    Attributes:
        operation: created, modified or deleted.
        actor_type: user (a token) or agent.
        before_seq: Only older ones than this sequence.
    """

    memory_id: str | None = None
    operation: str | None = None
    actor_type: str | None = None
    actor_id: str | None = None
    from_ms: int = 0
    to_ms: int = 2**62
    before_seq: int = 2**62


def memory_id_of(key: int) -> str:
    """The id of a memory, from the column ``key`` of its row, which is derived from the agent and the path."""
    return f"{MEMORY}{key:016x}"


class MemoryStores:
    """The use-cases.

    Args:
        views: The views of documents.
        store: The store of the files: the journal, for every workspace.
        registry: The registered agents.
    """

    def __init__(self, views: ViewReader, store: JournalStore, registry: Registry) -> None:
        self._views = views
        self._store = store
        self._registry = registry

    async def stores(self, caller: Caller) -> list[AgentRow]:
        """The registered agents whose files the token may read, by id."""
        rows = await self._registry.agents(caller.workspace_id)
        return [row for row in rows if caller.administers or row.agent_id == caller.principal.agent_id]

    async def store(self, caller: Caller, store_id: str) -> AgentRow:
        """The agent of a store.

        Raises:
            NotFound: If it is not registered, or the token may not read its files.
        """
        agent_id = _agent(caller, store_id)
        row = await self._registry.agent(caller.workspace_id, agent_id)
        if row is None:
            raise _no("memory store", store_id)
        return row

    async def paths(self, caller: Caller, store_id: str, prefix: str, depth: int) -> list[str]:
        """Sorted paths below a prefix; paths deeper than ``depth`` (0 for any depth) are given as their folder, ``/a/``."""
        await check_enabled(self._store.enabled, caller)
        paths = dict.fromkeys(
            _cut(f"/{key}", prefix, depth)
            for key in await self._keys(caller, _agent(caller, store_id))
            if f"/{key}".startswith(prefix)
        )
        return sorted(paths)

    async def at_paths(self, caller: Caller, store_id: str, paths: Sequence[str]) -> dict[str, Stored]:
        """The memories at some paths."""
        owner = self._owner(caller, store_id)
        keys = [path[1:] for path in paths]
        sql = f"{_ROWS} AND NOT retracted AND doc_key IN (SELECT unnest($3::VARCHAR[]))"
        rows = await asyncio.to_thread(self._views.rows, sql, [*owner, keys])
        return {f"/{row.doc_key}": _stored(caller, row) for row in (DocumentRow(*values) for values in rows)}

    async def memory(self, caller: Caller, store_id: str, memory_id: str) -> Stored:
        """A memory.

        Raises:
            NotFound: If there is no object with this id.
        """
        await check_enabled(self._store.enabled, caller)
        return _stored(caller, await self._row(caller, store_id, memory_id))

    async def create(self, caller: Caller, store_id: str, path: str, content: str) -> Stored:
        """Create a memory.

        Raises:
            PathTaken: If the path is a memory or a folder, or a part of it is a file.
            InvalidRequest: If the path is not valid.
            CrewJournalError: As ``JournalStore.write``.
        """
        target = await self._free(caller, store_id, path)
        there = await self._store.present(target)
        try:
            await self._store.write(
                caller, Draft(address=target, content=content, expected_seq=there.seq if there else 0)
            )
        except DocumentConflict:
            raise PathTaken(f"{path} was created meanwhile", field="path") from None
        return await self._now(caller, target)

    async def update(
        self, caller: Caller, store_id: str, memory_id: str, content: str | None, path: str | None, sha256: str | None
    ) -> Stored:
        """Change text or path, or both; a memory at a new path has a new id.

        Raises:
            DocumentConflict: If ``sha256`` is given and is not the hash of the current text.
            PathTaken, InvalidRequest: As ``create``.
        """
        row = await self._row(caller, store_id, memory_id, sha256)
        source = _address(caller, row.owner, row.doc_key)
        target = source if path in (None, f"/{row.doc_key}") else await self._free(caller, store_id, path or "", row)
        if content is not None:
            expected = None if sha256 is None else row.seq
            await self._store.write(caller, Draft(address=source, content=content, expected_seq=expected))
        if target != source:
            await move(self._store, caller, source, target)
        return await self._now(caller, target)

    async def delete(self, caller: Caller, store_id: str, memory_id: str, sha256: str | None) -> None:
        """Retract a memory.

        Raises:
            DocumentConflict: If ``sha256`` is given and is not the hash of the current text.
        """
        row = await self._row(caller, store_id, memory_id, sha256)
        expected = None if sha256 is None else row.seq
        address = _address(caller, row.owner, row.doc_key)
        await self._store.retract(caller, Draft(address=address, action=DocumentAction.RETRACT, expected_seq=expected))

    async def versions(
        self, caller: Caller, store_id: str, wanted: VersionFilter, limit: int, *, full: bool
    ) -> list[StoreVersion]:
        """Versions, newest first, with their texts if ``full``."""
        await check_enabled(self._store.enabled, caller)
        workspace_id, owner = self._owner(caller, store_id)
        key = None
        if wanted.memory_id is not None:
            rows = await self._by_id(caller, store_id, wanted.memory_id)
            if not rows:
                return []
            key = rows[0].doc_key
        actor = [wanted.actor_type, wanted.actor_id]
        bounds = [wanted.from_ms, wanted.to_ms, wanted.before_seq, limit]
        values: list[Any] = [workspace_id, owner, key, wanted.operation, *actor, *bounds]
        version_rows = await asyncio.to_thread(self._views.rows, _VERSIONS, values)
        return await asyncio.to_thread(lambda: list(self._versions(caller, version_rows, full=full)))

    async def version(self, caller: Caller, store_id: str, version_id: str, *, full: bool) -> StoreVersion:
        """A version.

        Raises:
            NotFound: If there is no object with this id.
        """
        number = version_id.removeprefix(VERSION)
        if not number.isdecimal() or len(number) > len(str(2**62)):
            raise _no("memory version", version_id)
        wanted = VersionFilter(before_seq=int(number) + 1)
        versions = await self.versions(caller, store_id, wanted, 1, full=full)
        if not versions or versions[0].row.seq != int(number):
            raise _no("memory version", version_id)
        return versions[0]

    def _versions(self, caller: Caller, rows: Sequence[Sequence[Any]], *, full: bool) -> Iterator[StoreVersion]:
        for values in rows:
            row, operation = VersionRow(*values[:-1]), values[-1]
            address = _address(caller, row.owner, row.doc_key)
            text = None
            if full and operation != "deleted":
                try:
                    text = self._store.reading.history.text(address, row)
                    text = shown(caller, address.label, text, None if caller.administers else finding_in(text))
                except VersionGone:
                    text = None
            yield StoreVersion(row, operation, memory_id_of(address.row_key), text)

    def _owner(self, caller: Caller, store_id: str) -> tuple[str, str]:
        return caller.workspace_id, owner_of(Scope.AGENT, _agent(caller, store_id))

    async def _keys(self, caller: Caller, agent_id: str) -> list[str]:
        values = [caller.workspace_id, owner_of(Scope.AGENT, agent_id)]
        return [key for (key,) in await asyncio.to_thread(self._views.rows, _KEYS, values)]

    async def _by_id(self, caller: Caller, store_id: str, memory_id: str) -> list[DocumentRow]:
        try:
            key = int(memory_id.removeprefix(MEMORY), 16)
        except ValueError:
            return []
        if not 0 <= key < 1 << 64:
            return []
        values = [*self._owner(caller, store_id), key]
        return [DocumentRow(*row) for row in await asyncio.to_thread(self._views.rows, f"{_ROWS} AND key = $3", values)]

    async def _row(self, caller: Caller, store_id: str, memory_id: str, sha256: str | None = None) -> DocumentRow:
        rows = await self._by_id(caller, store_id, memory_id)
        if not rows or rows[0].retracted:
            raise _no("memory", memory_id)
        if sha256 not in (None, rows[0].sha256):
            raise DocumentConflict(
                f"the content of {memory_id} has another content_sha256",
                hint="retrieve it and try again with what it holds now",
                field="content_sha256",
            )
        return rows[0]

    async def _free(
        self, caller: Caller, store_id: str, path: str, moved: DocumentRow | None = None
    ) -> DocumentAddress:
        """The document to create at a path."""
        agent_id = _agent(caller, store_id)
        key = path[1:]
        problem = key_problem(TIERS[FILES], key) if path.startswith("/") else "a path starts with /"
        if problem is not None:
            raise InvalidRequest((FieldProblem("path", "is not valid", problem),))
        others = [key for key in await self._keys(caller, agent_id) if moved is None or key != moved.doc_key]
        for other in others:
            if key == other or key.startswith(f"{other}/") or other.startswith(f"{key}/"):
                raise PathTaken(f"{path} conflicts with the memory at /{other}", hint="use another path", field="path")
        return _address(caller, owner_of(Scope.AGENT, agent_id), key)

    async def _now(self, caller: Caller, address: DocumentAddress) -> Stored:
        row = await self._store.present(address)
        assert row is not None  # it was written, and a write can be read at once
        return _stored(caller, row)


def _agent(caller: Caller, store_id: str) -> str:
    """The agent of a store.

    Raises:
        NotFound: If the id is not valid for a store, or the token is for another agent.
    """
    agent_id = store_id.removeprefix(STORE)
    own = caller.administers or agent_id == caller.principal.agent_id
    if not own or not store_id.startswith(STORE) or not is_id(agent_id):
        raise _no("memory store", store_id)
    return agent_id


def _address(caller: Caller, owner: str, key: str | None) -> DocumentAddress:
    return DocumentAddress(caller.workspace_id, Scope.AGENT, owner, FILES, key)


def _stored(caller: Caller, row: DocumentRow) -> Stored:
    return Stored(row, shown(caller, f"{FILES}/{row.doc_key}", row.content, row.finding))


def _cut(path: str, prefix: str, depth: int) -> str:
    parts = path[len(prefix) :].split("/")
    return path if depth == 0 or len(parts) <= depth else f"{prefix}{'/'.join(parts[:depth])}/"


def _no(kind: str, name: str) -> NotFound:
    return NotFound(f"no {kind} {name[:96]}", hint="list them to see the ids")
