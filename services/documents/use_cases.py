"""The use-cases of memory documents: read, write, append, restore, retract, search (contract §14).

Invariant: a request is checked in the order tier, key, role, mode, content, for every store; the result is an address
or a draft for the workspace's store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Final

import orjson

from ...schemas.core.errors import EmptyContent, FieldProblem, InvalidRequest
from ...schemas.core.operation import MAX_SEQ
from ...schemas.core.recorded_settings import MemorySettings
from ...schemas.core.timestamps import DAY_MS, format_ms, to_ms
from ...schemas.documents.events import DocumentAction, MemoryConfigUpdated, MemoryVersionsSwept
from ...schemas.documents.operations import (
    APPEND_DAILY,
    CONFIGURE_MEMORY,
    DOCUMENT_READ,
    DOCUMENT_RESTORE,
    DOCUMENT_RETRACT,
    DOCUMENT_SEARCH,
    DOCUMENT_WRITE,
    MEMORY_STATS,
    SWEEP_VERSIONS,
    AppendDailyRequest,
    ConfigureMemoryRequest,
    DocumentAnswer,
    DocumentSearchAnswer,
    DocumentSearchRequest,
    DocumentWrittenAnswer,
    MemoryConfigAnswer,
    MemoryConfigRequest,
    MemoryStatsAnswer,
    MemoryStatsRequest,
    ReadDocumentRequest,
    RestoreDocumentRequest,
    RetractDocumentRequest,
    SweepVersionsRequest,
    TierFigures,
    VersionsSweptAnswer,
    WriteDocumentRequest,
)
from ...schemas.documents.operations import MEMORY_CONFIG as MEMORY_CONFIG_OPERATION
from ...schemas.documents.rules import RETAINED_TIERS
from ...schemas.documents.tables import DOCUMENTS, DOCUMENTS_PROJECTION, MEMORY_CONFIG, SWEPT_VERSIONS, VERSIONS
from ...schemas.entries.tables import ENTRIES
from ...schemas.sweeps.rules import VERSIONS_DUE, due_times
from ..desk import Caller
from ..index.unknown_names import refuse_unknown_workspace
from ..journal.intake.secrets import MODE_OF_SETTING
from ..node import Answers, Node
from ..sweeps.scheduler import DueTick, record_tick
from .addressing import Addressed, DocumentAddress, address_of, writable_address_of
from .drafts import DocumentStore, Draft, check_enabled, drafted, text_of
from .journal_store import JournalStore

_API: Final = "api"


class Documents:
    """The use-cases.

    Args:
        store_of: The store of a workspace.
        journal: The store in the journal, which has the versions to restore.
        clock: The time now, UTC.
    """

    def __init__(
        self,
        store_of: Callable[[str], DocumentStore],
        journal: JournalStore,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self.reading = journal.reading
        self._store_of = store_of
        self._enabled = journal.enabled
        self._clock = clock

    async def read(self, caller: Caller, request: ReadDocumentRequest) -> DocumentAnswer:
        """The current text, or the text of a version.

        Raises:
            NotAllowed: If the document belongs to another agent or crew, or the agent's memory is off.
            NotFound: If there is no such version.
            VersionGone: If its text was swept.
            NotByProvider: If the store does not support the request.
        """
        address = address_of(caller, request, request.tier, request.key, self._today())
        await check_enabled(self._enabled, caller)
        return await self._store_of(caller.workspace_id).read(caller, address, request.version)

    async def write(self, caller: Caller, request: WriteDocumentRequest, source: str = _API) -> DocumentWrittenAnswer:
        """Replace a document's text, or append to it.

        Args:
            caller: Who writes.
            request: What to write.
            source: Where it comes from (``schemas/documents/events``), unless the request says so.

        Raises:
            InvalidTier, MissingKey, InvalidMode, EmptyContent: If the request is not valid.
            NotAllowed: If the role may not write there, or the agent's memory is off.
            WriteRefused, Quarantined, CapExceeded: If the content is refused.
            DocumentConflict: If the document is not at ``expected_seq``.
            WriteIdTaken: If the write id belongs to another write.
            BrokerUnavailable: If no ack came within the bound.
            NotByProvider: If the request names what only the journal records.
        """
        draft = drafted(
            self._writable(caller, request, request.tier, request.key),
            request.mode,
            request.content,
            request.source or source,
            request.write_id,
            expected_seq=request.expected_seq,
            expected_sha256=request.expected_sha256,
            data_subject_id=request.data_subject_id,
            derived_from=request.derived_from,
            reason=request.reason,
        )
        return await self._store_of(caller.workspace_id).write(caller, draft)

    async def append_daily(self, caller: Caller, request: AppendDailyRequest) -> DocumentWrittenAnswer:
        """Append ``- <time> — <entry>`` to today's daily log; raises as ``write``."""
        address = self._writable(caller, request, "daily", None)
        entry = " ".join(text_of(request.entry, "entry").split())
        stamp = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = f"- {stamp} — {entry}\n"
        draft = drafted(address, "append", line, _API, request.write_id, compared_end=f" — {entry}\n")
        return await self._store_of(caller.workspace_id).write(caller, draft)

    async def restore(self, caller: Caller, request: RestoreDocumentRequest) -> DocumentWrittenAnswer:
        """Write the text of a version as a new version.

        Raises:
            NotFound: If there is no such version.
            VersionGone: If its text was swept.
            EmptyContent: If the version is empty.
            CrewJournalError: As ``write``.
        """
        address = self._writable(caller, request, request.tier, request.key)
        text = await asyncio.to_thread(self._version_text, address, request.version)
        if not text:
            raise EmptyContent(
                f"version {request.version} of {address.label} is empty", hint="name one with a text", field="version"
            )
        draft = Draft(
            address=address, action=DocumentAction.RESTORE, content=text, source="restore", reason=request.reason
        )
        return await self._store_of(caller.workspace_id).write(caller, draft)

    async def retract(self, caller: Caller, request: RetractDocumentRequest) -> DocumentWrittenAnswer:
        """Retract a document, which then reads as empty; a second retraction has no effect.

        A store other than the journal deletes the document permanently.

        Raises:
            NotFound: If it was never written.
            CrewJournalError: As ``write``.
        """
        address = self._writable(caller, request, request.tier, request.key)
        gone = Draft(address=address, action=DocumentAction.RETRACT, reason=request.reason)
        return await self._store_of(caller.workspace_id).retract(caller, gone)

    async def search(self, caller: Caller, request: DocumentSearchRequest) -> DocumentSearchAnswer:
        """Search documents; another store than the journal returns at most 20 hits. Raises as ``DocumentStore.search``."""
        return await self._store_of(caller.workspace_id).search(caller, request)

    def _today(self) -> date:
        return self._clock().astimezone(UTC).date()

    def _writable(self, caller: Caller, address: Addressed, tier: str, key: str | None) -> DocumentAddress:
        return writable_address_of(caller, address, tier, key, self._today())

    def _version_text(self, address: DocumentAddress, seq: int | None) -> str:
        history = self.reading.history
        version = history.last_with_text(address) if seq is None else history.at(address, seq)
        return history.text(address, version)


class JournalDocuments(Documents):
    """The same use-cases over the journal for every workspace: for procedures, bundles, and notes about people.

    Args:
        journal: The store in the journal.
        clock: The time now, UTC.
    """

    def __init__(self, journal: JournalStore, *, clock: Callable[[], datetime]) -> None:
        super().__init__(lambda _: journal, journal, clock=clock)


# Use-cases of OWNER and ADMIN on a workspace's memory documents: settings, figures, the sweep of old versions.
#
# Invariant: settings and sweeps are events; a workspace without a retention setting keeps every version.


_CONFIG: Final = f"SELECT {', '.join(MemorySettings.model_fields)} FROM {MEMORY_CONFIG} WHERE workspace_id = ?"
_RETAINING: Final = f"""SELECT workspace_id FROM {MEMORY_CONFIG}
    WHERE retention_days IS NOT NULL OR retention IS NOT NULL ORDER BY workspace_id"""
_COUNT: Final = f"SELECT count(*) FROM {VERSIONS} WHERE {SWEPT_VERSIONS}"
_SWEEPS: Final = f"""SELECT payload FROM {ENTRIES} WHERE control AND workspace_id = ? AND entry_type = ?
    AND published_ms >= ?"""
_STATS: Final = f"""SELECT owner, tier, documents, retracted, blocked, bytes, versions, swept, version_bytes, updated_ms
    FROM (SELECT owner, tier, count(*) FILTER (NOT retracted) AS documents, count(*) FILTER (retracted) AS retracted,
          count(finding) AS blocked, sum(bytes)::BIGINT AS bytes, max(updated_ms) AS updated_ms
          FROM {DOCUMENTS} WHERE workspace_id = $1 GROUP BY ALL)
    JOIN (SELECT owner, tier, count(*) AS versions, count(*) FILTER (piece IS NULL) AS swept,
          coalesce(sum(strlen(piece)), 0)::BIGINT AS version_bytes
          FROM {VERSIONS} WHERE workspace_id = $1 GROUP BY ALL) USING (owner, tier) ORDER BY owner, tier"""


class Administration:
    """The use-cases.

    In a workspace without settings, credentials are treated as the node's settings say.
    """

    def __init__(self, node: Node) -> None:
        self._default = MemoryConfigUpdated(scrubber=MODE_OF_SETTING[node.settings.secrets])
        self._node = node
        self._views = node.views
        self._changing = asyncio.Lock()
        self._last_change = 0
        self._swept: dict[str, int] = {}

    async def config(self, caller: Caller, _asked: MemoryConfigRequest) -> MemoryConfigAnswer:
        """The settings; the defaults if there are none.

        Raises:
            NotFound: If there is no such workspace.
        """
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        config_row = await asyncio.to_thread(self._config, caller.workspace_id)
        if config_row is None:
            await refuse_unknown_workspace(self._views, caller.principal, caller.workspace_id)
        return _answer(caller.workspace_id, config_row or self._default, view_seq)

    async def configure(self, caller: Caller, request: ConfigureMemoryRequest) -> MemoryConfigAnswer:
        """Record settings; returns once they apply to writes.

        Raises:
            ViewsBehind: If the views do not show the previous change in time.
            BrokerUnavailable: If no ack came in time.
        """
        async with self._changing:
            await self._views.wait_for(self._last_change, self._node.wait_s, DOCUMENTS_PROJECTION)
            before = await asyncio.to_thread(self._config, caller.workspace_id) or self._default
            given = request.model_dump(exclude={"workspace_id", "reset"}, exclude_none=True)
            reset = {name: getattr(self._default, name) for name in request.reset}
            wanted = MemoryConfigUpdated.model_validate(before.model_dump() | reset | given)
            _refuse_unknown_tiers(wanted.retention or {})
            days = (
                "versions are kept" if wanted.retention_days is None else f"versions for {wanted.retention_days} days"
            )
            if wanted.retention:
                days += ", " + ", ".join(
                    f"{rule} for {most} days" for rule, most in sorted(wanted.retention.items())[:10]
                )
            decided = await self._node.decide(
                caller,
                wanted,
                f"Memory of {caller.workspace_id}: {days}, scrubber {wanted.scrubber}, verifier {wanted.verifier}",
            )
            self._last_change = decided.seq
        await self._node.shows(decided.seq, DOCUMENTS_PROJECTION)
        return _answer(caller.workspace_id, wanted, decided.seq)

    async def stats(self, caller: Caller, _asked: MemoryStatsRequest) -> MemoryStatsAnswer:
        """Figures by owner and tier.

        Raises:
            NotFound: If there is no such workspace.
        """
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        rows = await asyncio.to_thread(self._views.rows, _STATS, [caller.workspace_id])
        if not rows:
            await refuse_unknown_workspace(self._views, caller.principal, caller.workspace_id)
        names = tuple(TierFigures.model_fields)
        tiers = tuple(
            TierFigures(**dict(zip(names, (*figures, format_ms(updated)), strict=True))) for *figures, updated in rows
        )
        return MemoryStatsAnswer(
            workspace_id=caller.workspace_id,
            tiers=tiers,
            documents=sum(tier.documents for tier in tiers),
            bytes=sum(tier.bytes for tier in tiers),
            versions=sum(tier.versions for tier in tiers),
            version_bytes=sum(tier.version_bytes for tier in tiers),
            view_seq=view_seq,
        )

    async def sweep(self, caller: Caller, request: SweepVersionsRequest) -> VersionsSweptAnswer:
        """Sweep now; returns once the event is folded.

        Raises:
            InvalidRequest: If the request gives no age and the workspace has no retention setting.
            BrokerUnavailable: If no ack came in time.
        """
        days = request.older_than_days
        if days is None:
            config = await asyncio.to_thread(self._config, caller.workspace_id)
            days = config.retention_days if config is not None else None
        if days is None:
            problem = FieldProblem("older_than_days", "is missing: the workspace sets no retention_days", "give it")
            raise InvalidRequest((problem,))
        cutoff_ms = max(0, to_ms(self._node.clock()) - days * DAY_MS)
        swept = await self._sweep_of(caller.workspace_id, cutoff_ms, request.keep_latest)
        decided = await self._node.decide(caller, swept, _summary(swept), DOCUMENTS_PROJECTION)
        return VersionsSweptAnswer(
            workspace_id=caller.workspace_id,
            before=format_ms(cutoff_ms),
            keep_latest=request.keep_latest,
            swept=swept.count,
            seq=decided.seq,
        )

    async def sweep_due(self) -> None:
        """Record today's sweep of every workspace with a retention setting; several nodes record it only once.

        A sweep that was missed during a downtime is not repeated, because the next sweep removes the same versions.

        Raises:
            BrokerUnavailable: If a sweep could not be recorded; the next call retries.
        """
        now_ms = to_ms(self._node.clock())
        [due_ms] = due_times(VERSIONS_DUE, now_ms - DAY_MS, now_ms)
        for workspace_id, settings in await asyncio.to_thread(self.retaining):
            if (days := settings.retention_days) is None:
                continue
            cutoff_ms = max(0, due_ms - days * DAY_MS)
            if self._swept.get(workspace_id) == cutoff_ms:
                continue
            if not await asyncio.to_thread(self._has_swept, workspace_id, cutoff_ms, due_ms):
                swept = await self._sweep_of(workspace_id, cutoff_ms, 0)
                tick = DueTick(due_ms, workspace_id, f"versions/{days}")
                await record_tick(self._node.journal, tick, swept, "versions_swept", _summary(swept))
            self._swept[workspace_id] = cutoff_ms

    async def _sweep_of(self, workspace_id: str, cutoff_ms: int, keep_latest: int) -> MemoryVersionsSwept:
        named = [workspace_id, MAX_SEQ, cutoff_ms, keep_latest]
        [(count,)] = await asyncio.to_thread(self._views.rows, _COUNT, named)
        return MemoryVersionsSwept(cutoff_ms=cutoff_ms, keep_latest=keep_latest, count=count)

    def _has_swept(self, workspace_id: str, cutoff_ms: int, since_ms: int) -> bool:
        rows = self._views.rows(_SWEEPS, [workspace_id, MemoryVersionsSwept.ENTRY_TYPE, since_ms])
        return any(orjson.loads(payload)["cutoff_ms"] == cutoff_ms for (payload,) in rows)

    def settings_of(self, workspace_id: str) -> MemorySettings:
        """The settings of a workspace; blocking."""
        return self._config(workspace_id) or self._default

    def retaining(self) -> list[tuple[str, MemorySettings]]:
        """The workspaces that do not keep everything, with their settings; blocking."""
        names = self._views.rows(_RETAINING, [])
        return [(workspace_id, self.settings_of(workspace_id)) for (workspace_id,) in names]

    def _config(self, workspace_id: str) -> MemoryConfigUpdated | None:
        for values in self._views.rows(_CONFIG, [workspace_id]):
            settings = dict(zip(MemorySettings.model_fields, values, strict=True))
            if settings["retention"] is not None:
                settings["retention"] = orjson.loads(settings["retention"])
            return MemoryConfigUpdated(**settings)
        return None


def _summary(swept: MemoryVersionsSwept) -> str:
    return f"Texts of {swept.count} versions of documents from before {format_ms(swept.cutoff_ms)} are swept"


def _refuse_unknown_tiers(retention: Mapping[str, int]) -> None:
    """Refuse a rule for a tier that does not exist, or that no retention erases.

    Raises:
        InvalidRequest: If there is one.
    """
    known = {f"tier:{tier}" for tier in (*RETAINED_TIERS, "*")}
    for rule in retention:
        if rule.startswith("tier:") and rule not in known:
            problem = f"has the unknown tier {rule.removeprefix('tier:')}"
            raise InvalidRequest((FieldProblem("retention", problem, f"use one of {', '.join(sorted(known))}"),))


def _answer(workspace_id: str, config: MemoryConfigUpdated, view_seq: int) -> MemoryConfigAnswer:
    return MemoryConfigAnswer(workspace_id=workspace_id, **config.model_dump(), view_seq=view_seq)


ANSWERS: Final[Answers] = (
    (DOCUMENT_READ, Documents.read),
    (DOCUMENT_WRITE, Documents.write),
    (APPEND_DAILY, Documents.append_daily),
    (DOCUMENT_RESTORE, Documents.restore),
    (DOCUMENT_RETRACT, Documents.retract),
    (DOCUMENT_SEARCH, Documents.search),
    (MEMORY_CONFIG_OPERATION, Administration.config),
    (CONFIGURE_MEMORY, Administration.configure),
    (MEMORY_STATS, Administration.stats),
    (SWEEP_VERSIONS, Administration.sweep),
)
