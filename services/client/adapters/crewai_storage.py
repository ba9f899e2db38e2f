"""``CrewJournalStorage``: the ``StorageBackend`` of CrewAI's memory on the journal, and ``memory_tools`` beside it.

A version of a record is an entry ``memory.remembered`` whose ``trace_id`` is a digest of the record's id; the newest
version counts and supersedes the previous one. Deleting and resetting retract entries. Invariant: CrewAI embeds and
ranks; its vectors are stored with the records, and similarity is their cosine.
"""

from __future__ import annotations

import asyncio
import base64
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from operator import mul
from threading import Lock
from typing import Any, Final

from crewai.memory.types import MemoryRecord, ScopeInfo
from crewai.tools import BaseTool
from pydantic import BaseModel, create_model

from ....schemas.api import EntryRecord
from ....schemas.relations.rules import RECORD, slot
from ....schemas.standing.operations import State
from ....schemas.toolsets import DEFAULT_TOOLSETS
from ..generated_sync import CrewJournal
from .called_tools import CalledTools, ToolFailed

_TYPE: Final = "memory.remembered"
_SUMMARY_CHARS: Final = 2_000
_VECTOR: Final = "embedding"
Chooses = Callable[[MemoryRecord], bool]


class CrewJournalStorage:
    """A storage of CrewAI: ``Memory(storage=CrewJournalStorage(CrewJournal()))``.

    Args:
        journal: The client; used in one thread at a time.
        name: Name of the storage and ``mission_id`` of its records, so that a workspace can have several storages.
        agent_id: The agent whose memory it is, for an OWNER's or ADMIN's token.
        crew_id: The agent's crew, likewise.
        workspace_id: For a token of all workspaces.
    """

    def __init__(
        self,
        journal: CrewJournal,
        *,
        name: str = "crewai",
        agent_id: str | None = None,
        crew_id: str | None = None,
        workspace_id: str | None = None,
    ) -> None:
        self._journal = journal
        self._name = name
        self._who: dict[str, Any] = {"agent_id": agent_id, "crew_id": crew_id, "workspace_id": workspace_id}
        self._seq: int | None = None
        self._lock = Lock()

    def save(self, records: list[MemoryRecord]) -> None:
        """Store records; a record with an existing id is replaced."""
        with self._lock:
            for record in records:
                self._store(record)

    def update(self, record: MemoryRecord) -> None:
        """Replace a record; its vector stays if none is given."""
        with self._lock:
            self._store(record)

    def touch_records(self, record_ids: list[str]) -> None:
        """Do nothing: the receipts of recalls record uses, and a read must not write a new version."""

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Records by the cosine of their vectors and the query's, best first."""
        chosen = _choosing(scope_prefix, categories, metadata_filter)
        scored = [
            (record, _cosine(query_embedding, record.embedding)) for record in self._read(chosen) if record.embedding
        ]
        best = sorted((pair for pair in scored if pair[1] >= min_score), key=lambda pair: -pair[1])
        return best[:limit]

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Retract the records that meet every condition; returns their number."""
        chosen = _choosing(scope_prefix, categories, metadata_filter)

        def doomed(record: MemoryRecord) -> bool:
            named = record_ids is None or record.id in record_ids
            return named and chosen(record) and (older_than is None or _plain(record.created_at) < _plain(older_than))

        with self._lock:
            gone = self._read(doomed)
            for record in gone:
                self._retract(record.id)
        return len(gone)

    def reset(self, scope_prefix: str | None = None) -> None:
        """Retract every record of a scope."""
        self.delete(scope_prefix)

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """A record by its id."""
        entries = [entry for entry in self._entries(trace_id=_slot(record_id)) if _counts(entry)]
        return _record(max(entries, key=lambda entry: entry.seq)) if entries else None

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        """Records of a scope, newest first."""
        records = sorted(
            self._read(_choosing(scope_prefix)), key=lambda record: _plain(record.created_at), reverse=True
        )
        return records[offset : offset + limit]

    def count(self, scope_prefix: str | None = None) -> int:
        """The number of records of a scope."""
        return len(self._read(_choosing(scope_prefix)))

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Categories and how many records have them."""
        return dict(
            Counter(category for record in self._read(_choosing(scope_prefix)) for category in record.categories)
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """The scopes right below a scope."""
        below = _path(parent).rstrip("/") + "/"
        scopes = {_path(record.scope) for record in self._read(_choosing(parent))}
        return sorted(
            {
                below + scope[len(below) :].partition("/")[0]
                for scope in scopes
                if scope.startswith(below) and scope != below
            }
        )

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Information about a scope."""
        records = self._read(_choosing(scope))
        made = sorted((record.created_at for record in records), key=_plain)
        return ScopeInfo(
            path=_path(scope),
            record_count=len(records),
            categories=sorted({name for record in records for name in record.categories}),
            oldest_record=made[0] if made else None,
            newest_record=made[-1] if made else None,
            child_scopes=self.list_scopes(scope),
        )

    async def asave(self, records: list[MemoryRecord]) -> None:
        """``save`` in a thread."""
        await asyncio.to_thread(self.save, records)

    async def asearch(self, query_embedding: list[float], **given: Any) -> list[tuple[MemoryRecord, float]]:
        """``search`` in a thread."""
        return await asyncio.to_thread(self.search, query_embedding, **given)

    async def adelete(self, **given: Any) -> int:
        """``delete`` in a thread."""
        return await asyncio.to_thread(self.delete, **given)

    def _entries(self, **filters: Any) -> Iterator[EntryRecord]:
        return self._journal.entries(mission_id=self._name, types=[_TYPE], min_seq=self._seq, **filters, **self._who)

    def _read(self, chosen: Chooses) -> list[MemoryRecord]:
        newest: dict[str, EntryRecord] = {}
        for entry in self._entries():
            known = newest.get(entry.trace_id or "")
            if _counts(entry) and (known is None or known.seq < entry.seq):
                newest[entry.trace_id or ""] = entry
        return [record for record in map(_record, newest.values()) if chosen(record)]

    def _store(self, record: MemoryRecord) -> None:
        before = [entry for entry in self._entries(trace_id=_slot(record.id)) if _counts(entry)]
        payload = record.model_dump(mode="json", exclude={"embedding"})
        if record.embedding:
            payload[_VECTOR] = base64.b64encode(array("f", record.embedding).tobytes()).decode()
        elif before:
            payload |= {_VECTOR: before[0].payload[_VECTOR]} if _VECTOR in before[0].payload else {}
        entry = {
            "entry_type": _TYPE,
            "summary": " ".join(record.content.split())[:_SUMMARY_CHARS] or record.id,
            "payload": payload,
            "mission_id": self._name,
            "trace_id": _slot(record.id),
            "supersedes": [entry.id for entry in before],
            **{name: value for name, value in self._who.items() if value is not None},
        }
        self._seq = self._journal.append(entry).seq

    def _retract(self, record_id: str) -> None:
        """Retract every version, newest first: if only the newest were retracted, the previous version would count again."""
        where = {"workspace_id": self._who["workspace_id"]}
        for entry in list(self._entries(trace_id=_slot(record_id))):
            done = self._journal.retract(entry.id, "deleted from the storage", min_seq=self._seq, **where)
            self._seq = done.seq or self._seq


class _MemoryTool(BaseTool):  # type: ignore[misc]  # the package is not installed here
    """A tool of the memory as CrewAI calls it."""

    call: Callable[..., Any]

    def _run(self, **arguments: Any) -> Any:
        return self.call(**{name: value for name, value in arguments.items() if value is not None})


def memory_tools(
    journal: CrewJournal,
    toolsets: Sequence[str] = DEFAULT_TOOLSETS,
    *,
    agent_id: str | None = None,
    crew_id: str | None = None,
    workspace_id: str | None = None,
) -> list[BaseTool]:
    """The memory tools for a CrewAI agent; an error that the model can correct is returned as the tool's answer.

    Raises:
        InvalidQuery: If a toolset does not exist.
    """
    tools = CalledTools(toolsets, {"agent_id": agent_id, "crew_id": crew_id, "workspace_id": workspace_id})

    def calling(name: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            try:
                return tools.call(journal, name, arguments)
            except ToolFailed as error:
                return f"Error: {error}"

        return call

    return [
        _MemoryTool(name=name, description=tool.description, args_schema=_arguments(tools, name), call=calling(name))
        for name, tool in tools.tools.items()
    ]


def _arguments(tools: CalledTools, name: str) -> type[BaseModel]:
    """A model of the arguments, with the fields of the request that the tool offers."""
    offered = tools.schema(name)["properties"]
    known = tools.operation(name).request.model_fields
    fields: dict[str, Any] = {name_: (known[name_].annotation, known[name_]) for name_ in offered if name_ in known}
    return create_model(f"{name}_arguments", **fields)


def _choosing(
    scope: str | None = None, categories: list[str] | None = None, metadata: dict[str, Any] | None = None
) -> Chooses:
    within = _path(scope or "/").rstrip("/")

    def chosen(record: MemoryRecord) -> bool:
        place = _path(record.scope)
        return (
            (place == within or place.startswith(f"{within}/"))
            and (not categories or bool(set(categories) & set(record.categories)))
            and all(record.metadata.get(name) == value for name, value in (metadata or {}).items())
        )

    return chosen


def _record(entry: EntryRecord) -> MemoryRecord:
    payload = dict(entry.payload)
    vector = payload.pop(_VECTOR, None)
    numbers = array("f", base64.b64decode(vector)).tolist() if vector else None
    return MemoryRecord(**payload, embedding=numbers)


def _counts(entry: EntryRecord) -> bool:
    return entry.standing is None or entry.standing.state is State.DISPUTED


def _path(scope: str) -> str:
    return "/" + scope.strip("/")


def _slot(record_id: str) -> str:
    """The id that all versions of a record share as their ``trace_id``."""
    return slot(RECORD, record_id)


def _plain(moment: datetime) -> datetime:
    """CrewAI's times are naive UTC."""
    return moment.replace(tzinfo=None)


def _cosine(left: Sequence[float], right: Sequence[float] | None) -> float:
    if right is None or len(left) != len(right):
        return 0.0
    norms = math.sqrt(_dot(left, left) * _dot(right, right))
    return _dot(left, right) / norms if norms else 0.0


def _dot(left: Iterable[float], right: Iterable[float]) -> float:
    return math.fsum(map(mul, left, right))
