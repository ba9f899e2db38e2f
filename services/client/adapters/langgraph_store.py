"""``CrewJournalStore``: LangGraph's ``BaseStore`` on the journal.

Every version of an item is an entry ``memory.remembered`` with the payload ``namespace``, ``key`` and ``value``. The
newest version counts and supersedes the previous one; deleting an item retracts its versions. Invariant: nothing is
removed from the journal, and a store sees its own writes at once.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Final

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
)
from langgraph.store.memory import InMemoryStore

from ....schemas.api import EntryRecord
from ....schemas.recall.operations import ENTRIES_ALONE
from ....schemas.relations.rules import ITEM, slot
from ....schemas.standing.operations import State
from ..generated_sync import CrewJournal

_TYPE: Final = "memory.remembered"
_SUMMARY_CHARS: Final = 2_000
_RANKED: Final = 50
"""Most hits of one recall."""
_GONE: Final = (State.RETRACTED, State.STALE)


@dataclass(frozen=True, slots=True)
class _Version:
    """The newest version of an item, with metadata of its entry."""

    item: Item
    summary: str
    entry_id: str
    seq: int
    ttl: float | None
    expires_at: str | None

    @property
    def place(self) -> tuple[tuple[str, ...], str]:
        """Namespace and key."""
        return self.item.namespace, self.item.key


class CrewJournalStore(BaseStore):
    """A store of LangGraph on a Crew Journal.

    Args:
        journal: The client; the store uses it in one thread at a time.
        name: Name of the store and ``mission_id`` of its items, so that a workspace can have several stores.
        agent_id: The agent whose memory the items are, for an OWNER's or ADMIN's token.
        crew_id: The agent's crew, likewise.
        workspace_id: For a token of all workspaces.
        ttl: Default time to live, and whether reads renew it. An expired item is never returned.
    """

    supports_ttl = True

    def __init__(
        self,
        journal: CrewJournal,
        *,
        name: str = "langgraph",
        agent_id: str | None = None,
        crew_id: str | None = None,
        workspace_id: str | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self.ttl_config = ttl
        self._journal = journal
        self._name = name
        self._who: dict[str, Any] = {"agent_id": agent_id, "crew_id": crew_id}
        self._workspace_id = workspace_id
        self._seq: int | None = None
        self._lock = Lock()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer operations in order. Writes take place after all reads; the last of several writes to an item counts."""
        with self._lock:
            operations = list(ops)
            results = [self._read(op) for op in operations]
            for put in {(op.namespace, op.key): op for op in operations if isinstance(op, PutOp)}.values():
                self._write(put)
            return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer operations in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            version = self._newest(op.namespace, op.key)
            if version is not None and op.refresh_ttl:
                self._renew(version)
            return version.item if version else None
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return _mirror(self._versions()).batch([op])[0]
        return None

    # reading

    def _newest(self, namespace: tuple[str, ...], key: str) -> _Version | None:
        page = self._journal.list(limit=1, trace_id=_slot(namespace, key), **self._filters())
        return next((self._counting(entry) for entry in page.entries), None)

    def _versions(self) -> list[_Version]:
        """The newest version of every item, newest first."""
        newest = {entry.trace_id: entry for entry in reversed(list(self._journal.entries(**self._filters())))}
        versions = [version for entry in newest.values() if (version := self._counting(entry)) is not None]
        return sorted(versions, key=lambda version: -version.seq)

    def _filters(self) -> dict[str, Any]:
        where = {"workspace_id": self._workspace_id, "min_seq": self._seq, **self._who}
        return {"mission_id": self._name, "types": _TYPE, **where}

    def _counting(self, entry: EntryRecord) -> _Version | None:
        """An item, unless it was deleted or has expired; an expired item is retracted as out of date."""
        if entry.standing is not None and entry.standing.state in _GONE:
            return None
        payload = entry.payload
        if (expires_at := payload.get("expires_at")) and datetime.fromisoformat(expires_at) <= datetime.now(UTC):
            self._retract(payload["namespace"], payload["key"], "its time to live has passed", stale=True)
            return None
        item = Item(
            value=payload["value"],
            key=payload["key"],
            namespace=tuple(payload["namespace"]),
            created_at=datetime.fromisoformat(payload["created_at"]),
            updated_at=datetime.fromisoformat(payload["updated_at"]),
        )
        return _Version(item, entry.summary, entry.id, entry.seq, payload.get("ttl"), expires_at)

    def _search(self, op: SearchOp) -> list[SearchItem]:
        """Items of the namespace that pass the filter: items found by recall, best first, then the others, newest first."""
        versions = self._versions()
        everything = op._replace(query=None, offset=0, limit=len(versions))
        matching: Any = _mirror(versions).batch([everything])[0]
        places = {(item.namespace, item.key) for item in matching}
        scores = self._scores(op.query) if op.query and places else {}
        inside = [version for version in versions if version.place in places]
        inside.sort(key=lambda version: -scores.get(version.entry_id, -math.inf))
        page = inside[op.offset : op.offset + op.limit]
        for version in page if op.refresh_ttl else ():
            self._renew(version)
        return [_found(version.item, scores.get(version.entry_id)) for version in page]

    def _scores(self, query: str) -> dict[str, float]:
        hits = self._journal.recall(
            query,
            kinds=ENTRIES_ALONE,
            k=_RANKED,
            min_seq=self._seq,
            workspace_id=self._workspace_id,
            **self._who,
        ).hits
        return {hit.entry_id: hit.score for hit in hits}

    # writing

    def _write(self, op: PutOp) -> None:
        before = self._newest(op.namespace, op.key)
        if op.value is not None:
            now = datetime.now(UTC)
            item = Item(
                value=dict(op.value),
                key=op.key,
                namespace=op.namespace,
                created_at=before.item.created_at if before else now,
                updated_at=now,
            )
            self._append(item, op.ttl, before, _summary(op))
        elif before is not None:
            self._retract(op.namespace, op.key, "deleted from the store")

    def _renew(self, version: _Version) -> None:
        if version.ttl is not None:
            self._append(version.item, version.ttl, version, version.summary)

    def _append(self, item: Item, ttl: float | None, before: _Version | None, summary: str) -> None:
        payload = item.dict()
        if ttl is not None:
            payload |= {"ttl": ttl, "expires_at": (datetime.now(UTC) + timedelta(minutes=ttl)).isoformat()}
        entry = {
            "entry_type": _TYPE,
            "summary": summary,
            "payload": payload,
            "mission_id": self._name,
            "trace_id": _slot(item.namespace, item.key),
            "supersedes": [before.entry_id] if before else [],
            **{name: value for name, value in self._who.items() if value is not None},
        }
        if self._workspace_id is not None:
            entry["workspace_id"] = self._workspace_id
        self._seq = self._journal.append(entry).seq

    def _retract(self, namespace: Iterable[str], key: str, reason: str, *, stale: bool = False) -> None:
        """Retract every version, newest first: if only the newest were retracted, the previous version would count again."""
        for entry in list(self._journal.entries(trace_id=_slot(namespace, key), **self._filters())):
            if entry.standing is None or entry.standing.state not in _GONE:
                done = self._journal.retract(entry.id, reason, stale=stale, workspace_id=self._workspace_id)
                self._seq = done.seq or self._seq


def _slot(namespace: Iterable[str], key: str) -> str:
    """The id that all versions of an item share as their ``trace_id``."""
    return slot(ITEM, json.dumps([*namespace, key]))


def _mirror(versions: Iterable[_Version]) -> InMemoryStore:
    """The items in the framework's own in-memory store, which defines the behaviour of filters and namespaces."""
    mirror = InMemoryStore()
    mirror.batch([PutOp(*version.place, version.item.value) for version in versions])
    return mirror


def _found(item: Item, score: float | None) -> SearchItem:
    return SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)


def _summary(op: PutOp) -> str:
    """The text for recall: the values at the paths of ``index``, else all values; the key if there is no text."""
    if isinstance(op.index, list):
        texts = [text for path in op.index for text in get_text_at_path(op.value, path)]
    else:
        texts = [] if op.index is False else list(_texts(op.value))
    return "; ".join(text for text in texts if text.strip())[:_SUMMARY_CHARS] or op.key


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif value is not None:
        yield str(value)
