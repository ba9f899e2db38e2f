"""Reads the documents of the journal: current text, versions, differences, lists.

Invariant: reading a document that was never written gives an empty text, not an error; AGENT and LEAD may read
documents of their own agent, their own crew and the workspace, and never a text that the scanners block.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable
from datetime import datetime
from typing import Final

from ...schemas.core.errors import NotAllowed, NotFound, VersionGone, ViewsDamaged
from ...schemas.core.ids import name_key
from ...schemas.core.ports import ViewReader
from ...schemas.core.table import PRESENT
from ...schemas.documents.events import MAX_CAUSES, DocumentAction
from ...schemas.documents.operations import (
    DOCUMENT_DIFF,
    DOCUMENT_VERSIONS,
    DiffDocumentRequest,
    DocumentAnswer,
    DocumentDiffAnswer,
    DocumentsAnswer,
    DocumentsRequest,
    DocumentVersionsAnswer,
    DocumentVersionsRequest,
)
from ...schemas.documents.operations import DOCUMENTS as LIST_DOCUMENTS
from ...schemas.documents.rules import (
    MAX_PINS,
    PINS_TOPIC,
    TIERS,
    PinnedEntry,
    Scope,
    joint,
    owner_of,
    pins_text,
    scope_of,
    sha256_of,
)
from ...schemas.documents.tables import DOCUMENTS, DOCUMENTS_PROJECTION, VERSIONS, DocumentRow, VersionRow
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION
from ...schemas.learning.lessons import as_yaml
from ...schemas.learning.tables import LEARNING_PROJECTION
from ...schemas.operators.tables import OPERATORS_PROJECTION
from ...schemas.standing.tables import LIVE_PRIORITIES, RETRACTIONS, STANDINGS_PROJECTION
from ...schemas.text.injection import finding_in
from ..desk import Caller
from .addressing import DocumentAddress, address_of, check_own, rule_of
from .answers import document_answer, listed, shown, version_shown
from .drafts import Enabled, check_enabled
from .learned import Learned, Profiles

# Reads the entries of a crew that operators pinned; blocking.


_PINNED: Final = ("pin", "permanent")


def pinned_entries(views: ViewReader, workspace_id: str, crew_id: str) -> list[PinnedEntry]:
    """The newest ``MAX_PINS`` pinned entries of a crew, the oldest first."""
    sql = f"""SELECT e.id, e.ts_ms, e.summary FROM {ENTRIES} e LEFT JOIN
            (SELECT * FROM {LIVE_PRIORITIES} WHERE {PRESENT}) p ON p.workspace_id = e.workspace_id AND p.entry_id = e.id
        WHERE e.workspace_id = $workspace AND e.crew_id = $crew
        AND coalesce(p.priority, e.priority) IN {_PINNED}
        AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} r WHERE r.workspace_id = e.workspace_id AND r.kind = 'entry'
            AND r.target_id = e.id AND {PRESENT})
        ORDER BY e.ts_ms DESC, e.seq DESC LIMIT {MAX_PINS}"""
    rows = views.rows(sql, {"workspace": workspace_id, "crew": crew_id})
    return [PinnedEntry(*row) for row in rows[::-1]]


# The current document and its versions; every write creates a version.


SELECT_PRESENT: Final = f"""SELECT {DOCUMENTS.names} FROM {DOCUMENTS} WHERE key = ? AND workspace_id = ? AND owner = ?
    AND tier = ? AND doc_key IS NOT DISTINCT FROM ?"""
_OF_DOCUMENT: Final = "workspace_id = ? AND owner = ? AND tier = ? AND doc_key IS NOT DISTINCT FROM ?"
_SELECT: Final = f"SELECT {VERSIONS.names} FROM {VERSIONS} WHERE {_OF_DOCUMENT}"
_NEWEST: Final = f"{_SELECT} ORDER BY seq DESC LIMIT ?"
_AT: Final = f"{_SELECT} AND seq = ?"
_WITH_TEXT: Final = f"{_SELECT} AND bytes > 0 ORDER BY seq DESC LIMIT 1"
_PIECES: Final = f"SELECT action, piece FROM {VERSIONS} WHERE {_OF_DOCUMENT} AND seq BETWEEN ? AND ? ORDER BY seq"
_CAUSES: Final = f"""SELECT write_id, data_subject_id FROM {VERSIONS} WHERE {_OF_DOCUMENT} AND seq BETWEEN ? AND ?
    ORDER BY seq DESC LIMIT {MAX_CAUSES}"""
_LINES: Final = f"""SELECT write_id, piece FROM {VERSIONS}
    WHERE {_OF_DOCUMENT} AND seq >= ? AND piece IS NOT NULL ORDER BY seq DESC"""
_BY_WRITE: Final = f"SELECT {VERSIONS.names} FROM {VERSIONS} WHERE key IN (SELECT unnest(?::UBIGINT[]))"


def _lines(text: str) -> set[str]:
    """The lines of a text that hold a letter or digit, without the blanks around them."""
    return {line.strip() for line in text.splitlines() if any(map(str.isalnum, line))}


class History:
    """Reads versions.

    Args:
        views: The view of versions.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    def present(self, address: DocumentAddress) -> DocumentRow | None:
        """The current document; None if it was never written."""
        rows = self._views.rows(SELECT_PRESENT, address.values)
        return DocumentRow(*rows[0]) if rows else None

    def newest(self, address: DocumentAddress, limit: int) -> list[VersionRow]:
        """The last versions, newest first."""
        return self._rows(_NEWEST, address, limit)

    def at(self, address: DocumentAddress, seq: int) -> VersionRow:
        """The version created by the write at ``seq``.

        Raises:
            NotFound: If there is no such write of this document.
        """
        if versions := self._rows(_AT, address, seq):
            return versions[0]
        raise NotFound(
            f"{address.label} has no version {seq}", hint="`crew-journal memory versions` lists them", field="version"
        )

    def last_with_text(self, address: DocumentAddress) -> VersionRow:
        """The last version that is not empty.

        Raises:
            NotFound: If there is none.
        """
        if versions := self._rows(_WITH_TEXT, address):
            return versions[0]
        raise NotFound(f"{address.label} was never written", hint="write it", field="tier")

    def written(self, writes: list[tuple[str, str]]) -> list[VersionRow | None]:
        """The version of each (workspace, write id); None for a new id."""
        rows = [VersionRow(*row) for row in self._views.rows(_BY_WRITE, [[name_key(write) for write in writes]])]
        known = {(row.workspace_id, row.write_id): row for row in rows}
        return [known.get(write) for write in writes]

    def carried(
        self, address: DocumentAddress, content: str, causes: tuple[str, ...], since_seq: int
    ) -> tuple[str, ...]:
        """The causes of a write of a whole text: those given, and earlier writes of the document with a line of it.

        So an erasure of a line reaches every later text that repeats it. Blocking.

        Args:
            address: The document.
            content: The text.
            causes: The causes that the writer named.
            since_seq: The first write that may have brought a line: that of the present text's beginning, 0 for all.
        """
        lines = _lines(content)
        rows = self._views.rows(_LINES, [*address.values[1:], since_seq])
        former = (write_id for write_id, piece in rows if not lines.isdisjoint(_lines(piece)))
        return tuple(dict.fromkeys((*causes, *former)))[:MAX_CAUSES]

    def causes(self, address: DocumentAddress, base_seq: int, seq: int) -> tuple[tuple[str, ...], str | None]:
        """Ids of the last 1,000 writes that produced the text, newest first, and the data subject."""
        rows = self._views.rows(_CAUSES, [*address.values[1:], base_seq, seq])
        return tuple(write_id for write_id, _ in rows), next((person for _, person in rows if person), None)

    def text(self, address: DocumentAddress, version: VersionRow) -> str:
        """The whole text of a version.

        Raises:
            VersionGone: If a piece of it was swept.
            ViewsDamaged: If it does not agree with its hash.
        """
        made: list[str] = []
        last = ""
        for action, piece in self._views.rows(_PIECES, [*address.values[1:], version.base_seq, version.seq]):
            if piece is None:
                raise VersionGone(
                    f"the text of version {version.seq} of {address.label} was swept",
                    hint="`crew-journal memory versions` shows which versions still have a text",
                    field="version",
                )
            if action == DocumentAction.APPEND:
                piece = joint(last, piece)
            made.append(piece)
            last = piece[-1:]
        text = "".join(made)
        if sha256_of(text) != version.sha256:
            raise ViewsDamaged(
                f"version {version.seq} of {address.label} differs from its hash", hint=ViewsDamaged.HINT
            )
        return text

    def _rows(self, sql: str, address: DocumentAddress, *more: int) -> list[VersionRow]:
        return [VersionRow(*row) for row in self._views.rows(sql, [*address.values[1:], *more])]


_LIST: Final = f"""SELECT {DOCUMENTS.names} FROM {DOCUMENTS} WHERE workspace_id = $1 AND ($2 IS NULL OR tier = $2)
    AND ($3 IS NULL OR owner IN (SELECT unnest($3::VARCHAR[]))) ORDER BY owner, tier, doc_key"""
_READING_WITH_TEXT: Final = f"SELECT tier, doc_key FROM {DOCUMENTS} WHERE workspace_id = ? AND owner = ? AND bytes > 0"


class DocumentReading:
    """Reads documents of the journal.

    Args:
        views: The views of documents.
        enabled: Which agents have a memory.
        clock: The time now, UTC.
    """

    def __init__(self, views: ViewReader, enabled: Enabled, *, clock: Callable[[], datetime]) -> None:
        self.history = History(views)
        self._views = views
        self._enabled = enabled
        self._clock = clock
        self._learned = Learned(views)
        self._profiles = Profiles(views)

    async def read(self, caller: Caller, address: DocumentAddress, version: int | None) -> DocumentAnswer:
        """The current text, or the text of a version; raises as ``JournalStore.read``."""
        read = self._read if address.rule.writable else self._rendered
        return await asyncio.to_thread(read, caller, address, version)

    def labels(self, workspace_id: str, owner: str) -> tuple[str, ...]:
        """The labels of an owner's documents that have a text, sorted; blocking."""
        rows = self._views.rows(_READING_WITH_TEXT, [workspace_id, owner])
        return tuple(sorted(TIERS[tier].label_of(key) for tier, key in rows))

    async def versions(self, caller: Caller, request: DocumentVersionsRequest) -> DocumentVersionsAnswer:
        """The last versions, newest first; raises as ``read``."""
        address = self._address(caller, request)
        await check_enabled(self._enabled, caller)
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        rows = await asyncio.to_thread(self.history.newest, address, request.limit)
        return DocumentVersionsAnswer(
            id=address.label,
            owner=address.owner,
            versions=tuple(map(version_shown, rows)),
            history="recorded" if rows else "unrecorded",
            view_seq=view_seq,
        )

    async def diff(self, caller: Caller, request: DiffDocumentRequest) -> DocumentDiffAnswer:
        """What changed between two versions; raises as ``read``."""
        address = self._address(caller, request)
        await check_enabled(self._enabled, caller)
        return await asyncio.to_thread(self._diff, caller, address, request)

    async def list(self, caller: Caller, request: DocumentsRequest) -> DocumentsAnswer:
        """The documents that the caller may read, with their sizes; raises as ``read``."""
        if request.tier is not None:
            rule_of(request.tier)
        check_own(caller, request)
        await check_enabled(self._enabled, caller)
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        named = [caller.workspace_id, request.tier, _owners(caller, request)]
        rows = [DocumentRow(*row) for row in await asyncio.to_thread(self._views.rows, _LIST, named)]
        documents = tuple(
            listed(row) for row in rows if request.scope is None or _is_of(row.owner, Scope(request.scope))
        )
        return DocumentsAnswer(
            documents=documents, bytes=sum(document.bytes for document in documents), view_seq=view_seq
        )

    def _address(self, caller: Caller, request: DocumentVersionsRequest | DiffDocumentRequest) -> DocumentAddress:
        return address_of(caller, request, request.tier, request.key, self._clock().date())

    def _read(self, caller: Caller, address: DocumentAddress, number: int | None) -> DocumentAnswer:
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        if number is None:
            row = self.history.present(address)
            is_empty = row is None or not row.content
            if address.tier == "peers" and is_empty:
                return self._card(address, view_seq)
            if is_empty and _is_pins(address):
                return self._pins(caller, address)
            if row is None:
                return document_answer(address, view_seq)
            return document_answer(
                address,
                view_seq,
                shown(caller, address.label, row.content, row.finding),
                row.finding,
                size=row.bytes,
                sha256=row.sha256,
                seq=row.seq,
                updated_ms=row.updated_ms,
                retracted=row.retracted,
            )
        version = self.history.at(address, number)
        text = self.history.text(address, version)
        finding = finding_in(text)
        return document_answer(
            address,
            view_seq,
            shown(caller, address.label, text, finding),
            finding,
            size=version.bytes,
            sha256=version.sha256,
            seq=version.seq,
            updated_ms=version.published_ms,
            retracted=version.action == DocumentAction.RETRACT,
        )

    def _rendered(self, caller: Caller, address: DocumentAddress, number: int | None) -> DocumentAnswer:
        """Lessons or an operator model, which have no versions."""
        if number is not None:
            raise NotFound(f"{address.label} is rendered from entries and has no versions", hint="use as_of instead")
        view_seq = self._views.view_seq(LEARNING_PROJECTION, OPERATORS_PROJECTION)
        if address.tier == "lessons":
            lessons = self._learned.lessons(address.workspace_id, address.owner)
            return _of_text(address, as_yaml(lessons, whole=caller.administers), view_seq)
        if not caller.administers:
            raise NotAllowed(
                "an operator model is read by OWNER and ADMIN",
                hint="`memory block --opener` has it in a session that the person opened; `operator show` shows it to them",
                field="tier",
            )
        text = self._profiles.model_text(address.workspace_id, scope_of(address.owner)[1] or "", address.key or "")
        return _of_text(address, text, view_seq)

    def _pins(self, caller: Caller, address: DocumentAddress) -> DocumentAnswer:
        """The entries that operators pinned, if nothing was written under the key."""
        view_seq = self._views.view_seq(ENTRIES_PROJECTION, STANDINGS_PROJECTION)
        pins = pinned_entries(self._views, address.workspace_id, scope_of(address.owner)[1] or "")
        return _of_text(address, pins_text(pins, whole=caller.administers), view_seq)

    def _card(self, address: DocumentAddress, view_seq: int) -> DocumentAnswer:
        """An agent's card of a person, if the agent wrote no notes under the slug."""
        agent_id = scope_of(address.owner)[1] or ""
        return _of_text(address, self._profiles.card_text(address.workspace_id, agent_id, address.key or ""), view_seq)

    def _diff(self, caller: Caller, address: DocumentAddress, request: DiffDocumentRequest) -> DocumentDiffAnswer:
        newest = self.history.newest(address, 1)
        to = request.to_version if request.to_version is not None else (newest[0].seq if newest else 0)
        before, after = (self._text(caller, address, seq) for seq in (request.from_version, to))
        lines = difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            f"{address.label}@{request.from_version}",
            f"{address.label}@{to}",
        )
        diff = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        return DocumentDiffAnswer(
            id=address.label, owner=address.owner, from_version=request.from_version, to_version=to, diff=diff
        )

    def _text(self, caller: Caller, address: DocumentAddress, seq: int) -> str:
        if not seq:
            return ""
        text = self.history.text(address, self.history.at(address, seq))
        return shown(caller, address.label, text, None if caller.administers else finding_in(text))


def _is_pins(address: DocumentAddress) -> bool:
    return (address.tier, address.key) == ("topics", PINS_TOPIC)


def _owners(caller: Caller, request: DocumentsRequest) -> list[str] | None:
    """The owners whose documents are listed; None for all of the workspace."""
    if caller.administers:
        named = ((Scope.AGENT, request.agent_id), (Scope.CREW, request.crew_id))
        return [owner_of(scope, name) for scope, name in named if name is not None] or None
    own = ((Scope.AGENT, caller.principal.agent_id), (Scope.CREW, caller.principal.crew_id))
    return [owner_of(scope, name) for scope, name in own if name is not None] + [owner_of(Scope.WORKSPACE, None)]


def _of_text(address: DocumentAddress, content: str, view_seq: int) -> DocumentAnswer:
    """A rendered document as an answer."""
    changes = {"content": content, "bytes": len(content.encode()), "sha256": sha256_of(content)}
    return document_answer(address, view_seq).model_copy(update=changes)


def _is_of(owner: str, scope: Scope) -> bool:
    return owner.startswith(scope.value[0])


ANSWERS: Final = (
    (LIST_DOCUMENTS, DocumentReading.list),
    (DOCUMENT_VERSIONS, DocumentReading.versions),
    (DOCUMENT_DIFF, DocumentReading.diff),
)
