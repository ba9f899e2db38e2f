"""The blocking client. Generated from ``aio.py`` by ``make generate``; do not edit."""

# ruff: noqa: I001, UP028

from __future__ import annotations

import time
import os
from collections.abc import Iterator, Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel

from ...schemas.api import AppendAnswer, CountAnswer, EntriesAnswer, EntryAnswer, EntryRecord, Receipt, TailGap
from ...schemas.core.errors import Unavailable
from ...schemas.core.limits import ATOMIC_BATCH, LIST_LIMIT_MAX
from ...schemas.core.operation import Operation
from .core import (
    TAIL_SILENCE_S,
    TIMEOUT_S,
    Entry,
    HttpRequest,
    Lines,
    Tail,
    body_of,
    checked,
    checked_size,
    encoded,
    encoded_batch,
    entry_path,
    in_batches,
    object_of,
    params_of,
    pause_after,
    places_from,
    present,
    record_of,
    request_of,
)
from .find import find
from .generated import Operations

_A = TypeVar("_A", bound=BaseModel)


class CrewJournal(Operations):
    """A Crew Journal over HTTP; blocking. Not to be shared between threads.

    Args:
        url: URL of the service; ``CREW_JOURNAL_URL``, or a running ``up``, if absent.
        token: The token; ``CREW_JOURNAL_TOKEN``, or the owner's token of that ``up``, if absent.
        data_dir: Data directory of that ``up``; found as ``find.places`` says if absent.
        timeout_s: Seconds for one answer.

    Raises:
        NotFound: If no URL is given and no service runs.
        NotAuthenticated: If there is no token.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._http = httpx.Client(**find(url, token, data_dir).arguments(), timeout=timeout_s)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # the journal

    def append(self, entry: Entry) -> Receipt:
        """Append one entry; returns after the broker's ack. Safe to repeat, because the client generates a missing id.

        Raises:
            InvalidEntry: Names every invalid field.
        """
        answer = self._ask(HttpRequest("POST", "/v1/journal", content=encoded(entry)), AppendAnswer)
        return answer.entries[0]

    def append_batch(self, entries: Iterable[Entry]) -> tuple[Receipt, ...]:
        """Append up to 1,000 entries and 32 MiB, all or nothing; ``append_many`` takes more, in parts.

        Raises:
            InvalidEntry: Names every invalid field of every entry (``entries[3].summary``).
            EntryTooLarge: If the batch is larger.
        """
        return self._append_encoded(encoded_batch(entries))

    def append_many(self, entries: Iterable[Entry], *, batch: int = ATOMIC_BATCH) -> Iterator[Receipt]:
        """Append any number of entries, batch by batch, yielding receipts in order.

        Entries are sent only while iterating: each batch is sent after the receipts of the previous batch were
        consumed. ``for receipt in journal.append_many(entries)``, to the end, appends them all.

        Args:
            entries: The entries; read from the iterable as they are sent.
            batch: Maximum number of entries in a request; a request with about 2 MiB is sent with fewer.

        Raises:
            InvalidQuery: If ``batch`` is not 1 to 1,000.
            InvalidEntry: While iterating, if an entry is not valid; names its index among all entries. Its batch is not
                appended, earlier batches are.
        """
        return self._append_all(in_batches(entries, checked_size(batch)))

    def list(
        self,
        /,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        after_seq: int | None = None,
        min_seq: int | None = None,
        as_of: str | int | None = None,
        workspace_id: str | None = None,
        include_archive: bool | None = None,
        **filters: object,
    ) -> EntriesAnswer:
        """One page, newest first, without archived entries unless ``include_archive``.

        With ``after_seq``: the entries after this sequence, in the order of the journal. With ``as_of``: as of this sequence
        or RFC 3339 time.

        ``filters`` are the query parameters of GET /v1/journal.
        """
        given = {
            **filters,
            "limit": limit,
            "cursor": cursor,
            "after_seq": after_seq,
            "min_seq": min_seq,
            "as_of": as_of,
            "workspace_id": workspace_id,
            "include_archive": include_archive,
        }
        return self._ask(HttpRequest("GET", "/v1/journal", params_of(given)), EntriesAnswer)

    def count(
        self,
        /,
        *,
        min_seq: int | None = None,
        as_of: str | int | None = None,
        workspace_id: str | None = None,
        include_archive: bool | None = None,
        **filters: object,
    ) -> CountAnswer:
        """The number of entries that pass the filters; archived entries only with ``include_archive``."""
        own = {"min_seq": min_seq, "as_of": as_of, "workspace_id": workspace_id, "include_archive": include_archive}
        given = {**filters, **own}
        return self._ask(HttpRequest("GET", "/v1/journal/count", params_of(given)), CountAnswer)

    def get(
        self,
        entry_id: str,
        *,
        min_seq: int | None = None,
        as_of: str | int | None = None,
        workspace_id: str | None = None,
        include_archive: bool | None = None,
    ) -> EntryRecord:
        """One entry; archived entries, too, unless ``include_archive`` is false.

        Raises:
            NotFound: If there is no such entry, or the token may not see it.
        """
        own = {"min_seq": min_seq, "as_of": as_of, "workspace_id": workspace_id, "include_archive": include_archive}
        return self._ask(HttpRequest("GET", f"{entry_path(entry_id)}/entry", params_of(own)), EntryAnswer)

    def entries(
        self,
        *,
        after_seq: int | None = None,
        min_seq: int | None = None,
        as_of: str | int | None = None,
        workspace_id: str | None = None,
        include_archive: bool | None = None,
        **filters: object,
    ) -> Iterator[EntryRecord]:
        """Every entry that passes the filters, newest first, page by page.

        With ``after_seq``: those after this sequence, in the order of the journal.
        """
        cursor: str | None = None
        while True:
            page = self.list(
                limit=LIST_LIMIT_MAX,
                cursor=cursor,
                after_seq=after_seq,
                min_seq=min_seq,
                as_of=as_of,
                workspace_id=workspace_id,
                include_archive=include_archive,
                **filters,
            )
            for entry in page.entries:
                yield entry
            if after_seq is not None and len(page.entries) == LIST_LIMIT_MAX:
                after_seq = page.entries[-1].seq
            elif (cursor := page.next_cursor) is None:
                return

    def tail(
        self,
        *,
        after: int | None = None,
        workspace_id: str | None = None,
        on_gap: Callable[[TailGap], None] | None = None,
        **filters: object,
    ) -> Iterator[EntryRecord]:
        """New entries as they arrive, without end; resumes by itself after a lost connection.

        Args:
            after: Start after this sequence; with the newest 50 entries if absent.
            workspace_id: For a token of all workspaces.
            on_gap: Called when the client missed more entries than the service replays.
            filters: The query parameters of GET /v1/journal.
        """
        tail = Tail({**filters, "workspace_id": workspace_id}, after, on_gap)
        while True:
            try:
                with self._stream(tail.request(), TAIL_SILENCE_S) as pieces:
                    for piece in pieces:
                        for entry in tail.feed(piece):
                            yield entry
                pause = tail.pause("the service ended it")
            except (httpx.TransportError, Unavailable) as error:
                pause = tail.pause_after(error)
            time.sleep(pause)

    # the node

    def status(self, *, workspace_id: str | None = None) -> dict[str, Any]:
        """The state of the node and of the workspace."""
        return object_of(self._send(HttpRequest("GET", "/v1/status", params_of({"workspace_id": workspace_id}))))

    def embedder_status(self) -> dict[str, Any]:
        """The embedder and its last outcome."""
        return object_of(self._send(HttpRequest("GET", "/v1/admin/embedder")))

    def compare_models(self, one: str, other: str, **given: object) -> Iterator[dict[str, Any]]:
        """Compare two models on logged queries (queries, k, recipe, workspace_id): progress records, then ``result``."""
        return self._records("embeddings/compare", {"one": one, "other": other, **given})

    def rebuild(
        self, projections: Sequence[str] | None = None, *, accept_loss: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Rebuild views: progress records, the last one with key ``result``.

        Raises:
            JournalDamaged: If the journal has lost something, unless ``accept_loss`` accepts that.
        """
        names = list(projections) if projections else None
        return self._records("rebuild", {"projections": names, "accept_loss": accept_loss or None})

    def salvage(self) -> Iterator[dict[str, Any]]:
        """Read lost entries back from the views: records with ``entry`` or ``decision``; the last one has ``result``."""
        return self._records("salvage")

    def backup(self) -> Iterator[dict[str, Any]]:
        """Copy the streams: records ``stream`` and ``chunk`` (base64); the last one has ``result``."""
        return self._records("backup")

    def verify(self) -> Iterator[dict[str, Any]]:
        """Compare the views with a fresh rebuild: progress records, the last one with key ``result``."""
        return self._records("verify")

    # requests

    def _operate(self, operation: Operation[Any, _A], given: dict[str, Any]) -> _A:
        return self._ask(request_of(operation, given), operation.answer)

    def _ask(self, request: HttpRequest, model: type[_A]) -> _A:
        return request.answer_of(self._send(request), model)

    def _send(self, request: HttpRequest) -> bytes:
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = self._http.request(**request.arguments())
                return checked(answer.status_code, answer.content)
            except (httpx.TransportError, Unavailable) as error:
                pause = pause_after(error, attempt, request)
            time.sleep(pause)

    def _append_encoded(self, records: Sequence[bytes]) -> tuple[Receipt, ...]:
        if not records:
            return ()
        return (self._ask(HttpRequest("POST", "/v1/journal", content=body_of(records)), AppendAnswer)).entries

    def _append_all(self, batches: Iterable[Sequence[bytes]]) -> Iterator[Receipt]:
        sent = 0
        for records in batches:
            with places_from(sent):
                receipts = self._append_encoded(records)
            sent += len(records)
            for receipt in receipts:
                yield receipt

    def _records(self, name: str, given: Mapping[str, object] | None = None) -> Iterator[dict[str, Any]]:
        body = None if given is None else present(given)
        lines = Lines()
        with self._stream(HttpRequest("POST", f"/v1/admin/{name}", json=body), None) as pieces:
            for piece in pieces:
                for line in lines.feed(piece):
                    yield record_of(line)

    @contextmanager
    def _stream(self, request: HttpRequest, silence_s: float | None) -> Iterator[Iterator[bytes]]:
        timeout = httpx.Timeout(TIMEOUT_S, read=silence_s)
        with self._http.stream(**request.arguments(), timeout=timeout) as answer:
            if answer.is_error:
                checked(answer.status_code, answer.read())
            yield answer.iter_bytes()
