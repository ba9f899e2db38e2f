"""What both flavours of the client can ask of the journal and its memory.

Invariant: a request is declared once, here or in the other ``*Calls``; ``core`` says when it is sent again, the flavour
carries it out. What may not be done twice says so (``repeatable=False``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...schemas.api import (
    AppendAnswer,
    CountAnswer,
    EntriesAnswer,
    EntryAnswer,
    EntryRecord,
    Receipt,
)
from .core import ask, ask_json, entry_path, params_of
from .flavours import Call
from .submitting import Entry, body_of, encoded, encoded_batch
from .wire import Request, Steps


class JournalCalls:
    """The journal, recall, and what keeps a memory healthy."""

    @Call
    def append(self, entry: Entry) -> Steps[Receipt]:
        """Append one entry; returns after the broker's ack. Safe to repeat: the id is minted here if absent.

        Raises:
            InvalidEntry: Naming every field that is wrong.
        """
        answer = yield from ask(Request("POST", "/v1/journal", content=encoded(entry)), AppendAnswer)
        return answer.entries[0]

    @Call
    def append_batch(self, entries: Iterable[Entry]) -> Steps[tuple[Receipt, ...]]:
        """Append up to 1,000 entries and 32 MiB, all or nothing; ``append_many`` takes more, in parts.

        Raises:
            InvalidEntry: Naming every field that is wrong of every entry (``entries[3].summary``).
            EntryTooLarge: If they are more.
        """
        return _append(encoded_batch(entries))

    @Call
    def _append_encoded(self, records: Sequence[bytes]) -> Steps[tuple[Receipt, ...]]:
        """``append_batch`` of what is JSON already."""
        return _append(records)

    @Call
    def list(
        self,
        /,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        min_seq: int | None = None,
        workspace_id: str | None = None,
        **filters: object,
    ) -> Steps[EntriesAnswer]:
        """One page, newest first; ``filters`` are the query parameters of GET /v1/journal."""
        given = {**filters, "limit": limit, "cursor": cursor, "min_seq": min_seq, "workspace_id": workspace_id}
        return ask(Request("GET", "/v1/journal", params_of(given)), EntriesAnswer)

    @Call
    def count(
        self, /, *, min_seq: int | None = None, workspace_id: str | None = None, **filters: object
    ) -> Steps[CountAnswer]:
        """How many entries pass the filters."""
        given = {**filters, "min_seq": min_seq, "workspace_id": workspace_id}
        return ask(Request("GET", "/v1/journal/count", params_of(given)), CountAnswer)

    @Call
    def get(self, entry_id: str, *, min_seq: int | None = None, workspace_id: str | None = None) -> Steps[EntryRecord]:
        """One entry.

        Raises:
            NotFound: If there is none that the token may see.
        """
        given = {"min_seq": min_seq, "workspace_id": workspace_id}
        return (yield from ask(Request("GET", f"{entry_path(entry_id)}/entry", params_of(given)), EntryAnswer))

    @Call
    def status(self, *, workspace_id: str | None = None) -> Steps[dict[str, Any]]:
        """How the node and the workspace are doing."""
        return ask_json(Request("GET", "/v1/status", params_of({"workspace_id": workspace_id})))


def _append(records: Sequence[bytes]) -> Steps[tuple[Receipt, ...]]:
    if not records:
        return ()
    answer = yield from ask(Request("POST", "/v1/journal", content=body_of(records)), AppendAnswer)
    return answer.entries
