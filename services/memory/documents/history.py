"""A document as it is, and its versions: what each write made of it.

Invariant: the text of a version is made of its pieces and has its hash; a version whose pieces are gone has no text.
Blocking.
"""

from __future__ import annotations

from typing import Final

from ....schemas.errors import NotFound, VersionGone, ViewsDamaged
from ....schemas.events.documents import MAX_CAUSES, DocumentAction
from ....schemas.ids import name_key
from ....schemas.ports import ViewReader
from ....schemas.rules.documents import joint, sha256_of
from ....schemas.views import DOCUMENTS, VERSIONS
from ....schemas.views.documents import DocumentRow, VersionRow
from .addressing import DocumentAddress

SELECT_PRESENT: Final = f"""SELECT {DOCUMENTS.names} FROM {DOCUMENTS} WHERE key = ? AND workspace_id = ? AND owner = ?
    AND tier = ? AND doc_key IS NOT DISTINCT FROM ?"""
_OF_DOCUMENT: Final = "workspace_id = ? AND owner = ? AND tier = ? AND doc_key IS NOT DISTINCT FROM ?"
_SELECT: Final = f"SELECT {VERSIONS.names} FROM {VERSIONS} WHERE {_OF_DOCUMENT}"
_NEWEST: Final = f"{_SELECT} ORDER BY seq DESC LIMIT ?"
_AT: Final = f"{_SELECT} AND seq = ?"
_UP_TO: Final = f"{_SELECT} AND seq <= ? ORDER BY seq DESC LIMIT 1"
_WITH_TEXT: Final = f"{_SELECT} AND bytes > 0 ORDER BY seq DESC LIMIT 1"
_PIECES: Final = f"SELECT action, piece FROM {VERSIONS} WHERE {_OF_DOCUMENT} AND seq BETWEEN ? AND ? ORDER BY seq"
_CAUSES: Final = f"""SELECT write_id, data_subject_id FROM {VERSIONS} WHERE {_OF_DOCUMENT} AND seq BETWEEN ? AND ?
    ORDER BY seq DESC LIMIT {MAX_CAUSES}"""
_BY_WRITE: Final = f"SELECT {VERSIONS.names} FROM {VERSIONS} WHERE key IN (SELECT unnest(?::UBIGINT[]))"


class History:
    """Reads versions.

    Args:
        views: The view of versions.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    def present(self, address: DocumentAddress) -> DocumentRow | None:
        """The document as it is now; None if it was never written."""
        rows = self._views.rows(SELECT_PRESENT, address.values)
        return DocumentRow(*rows[0]) if rows else None

    def newest(self, address: DocumentAddress, limit: int) -> list[VersionRow]:
        """The last versions, newest first."""
        return self._rows(_NEWEST, address, limit)

    def at(self, address: DocumentAddress, seq: int) -> VersionRow:
        """The version that the write at ``seq`` made.

        Raises:
            NotFound: If there is no such write of this document.
        """
        if versions := self._rows(_AT, address, seq):
            return versions[0]
        raise NotFound(
            f"{address.label} has no version {seq}", hint="`crew-journal memory versions` lists them", field="version"
        )

    def as_of(self, address: DocumentAddress, seq: int) -> VersionRow | None:
        """The version right after ``seq``; None if nothing was written before."""
        return next(iter(self._rows(_UP_TO, address, seq)), None)

    def last_with_text(self, address: DocumentAddress) -> VersionRow:
        """The last version that is not empty.

        Raises:
            NotFound: If there is none.
        """
        if versions := self._rows(_WITH_TEXT, address):
            return versions[0]
        raise NotFound(f"{address.label} was never written", hint="write it", field="tier")

    def written(self, writes: list[tuple[str, str]]) -> list[VersionRow | None]:
        """The version of each (workspace, write id); None where it is new."""
        rows = [VersionRow(*row) for row in self._views.rows(_BY_WRITE, [[name_key(write) for write in writes]])]
        known = {(row.workspace_id, row.write_id): row for row in rows}
        return [known.get(write) for write in writes]

    def causes(self, address: DocumentAddress, base_seq: int, seq: int) -> tuple[tuple[str, ...], str | None]:
        """Ids of the writes that gave the text, the last 1,000, newest first, and whose personal data it is."""
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
