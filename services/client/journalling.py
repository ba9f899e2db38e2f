"""What both flavours of the client can ask of the journal and its memory.

Invariant: no logic here: the steps are in ``core``, the flavour carries them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from crew_journal.schemas.api import (
    CountAnswer,
    EntriesAnswer,
    EntryRecord,
    HealthAnswer,
    Nudge,
    PriorityAnswer,
    RecallAnswer,
    Receipt,
    ReindexAnswer,
    RenderAnswer,
    SweepAnswer,
    UsedAnswer,
    WorkspaceSettingsAnswer,
)
from crew_journal.services.client import core
from crew_journal.services.client.flavours import Call
from crew_journal.services.client.wire import Steps


class JournalCalls:
    """The journal, recall, and what keeps a memory healthy."""

    @Call
    def append(self, entry: core.Entry) -> Steps[Receipt]:
        """Append one entry; returns after the broker's ack. Safe to repeat: the id is minted here if absent."""
        return core.append(entry)

    @Call
    def append_batch(self, entries: Iterable[core.Entry]) -> Steps[tuple[Receipt, ...]]:
        """Append up to 1,000 entries, all or nothing."""
        return core.append_batch(entries)

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
        return core.list_page(given)

    @Call
    def count(
        self, /, *, min_seq: int | None = None, workspace_id: str | None = None, **filters: object
    ) -> Steps[CountAnswer]:
        """How many entries pass the filters."""
        return core.count({**filters, "min_seq": min_seq, "workspace_id": workspace_id})

    @Call
    def get(self, entry_id: str, *, min_seq: int | None = None, workspace_id: str | None = None) -> Steps[EntryRecord]:
        """One entry.

        Raises:
            NotFound: If there is none that the token may see.
        """
        return core.get(entry_id, {"min_seq": min_seq, "workspace_id": workspace_id})

    @Call
    def recall(self, /, query: str, **given: object) -> Steps[RecallAnswer]:
        """What is remembered of ``query``; ``given`` are the fields of POST /v1/recall (k, scope, recipe …)."""
        return core.recall(query, given)

    @Call
    def render(self, /, query: str, **given: object) -> Steps[RenderAnswer]:
        """What is remembered as a block of text for a prompt; ``given`` as for ``recall``, and ``max_chars``."""
        return core.render(query, given)

    @Call
    def set_priority(
        self, entry_id: str, priority: str, reason: str, *, workspace_id: str | None = None
    ) -> Steps[PriorityAnswer]:
        """Give an entry another live priority (OWNER, ADMIN); it counts in its importance from the next decay on."""
        body = {"priority": priority, "reason": reason}
        return core.set_priority(entry_id, body, {"workspace_id": workspace_id})

    @Call
    def sweep(self, sweep: str, *, workspace_id: str | None = None) -> Steps[SweepAnswer]:
        """Run a sweep now (OWNER, ADMIN): decay, health or index; returns when its tick is folded."""
        return core.sweep({"sweep": sweep, "workspace_id": workspace_id})

    @Call
    def nudges(self, /, session_id: str, **given: object) -> Steps[tuple[Nudge, ...]]:
        """Nudges for the user turn of a session, each kind once; ``given`` are the fields of POST /v1/nudges."""
        return core.nudges(session_id, given)

    @Call
    def workspace_settings(
        self, *, workspace_id: str | None = None, min_seq: int | None = None
    ) -> Steps[WorkspaceSettingsAnswer]:
        """The settings of a workspace."""
        return core.workspace_settings({"workspace_id": workspace_id, "min_seq": min_seq})

    @Call
    def configure_workspace(
        self, *, cost_nudge_usd: float, workspace_id: str | None = None
    ) -> Steps[WorkspaceSettingsAnswer]:
        """Change them; ``view_seq`` of the answer is the sequence of the change."""
        return core.configure_workspace({"cost_nudge_usd": cost_nudge_usd, "workspace_id": workspace_id})

    @Call
    def used(self, receipt: str, entry_ids: Sequence[str] | None = None) -> Steps[UsedAnswer]:
        """Say that a recall's hits, or those named, reached a prompt: what is used stays important longer."""
        return core.used(receipt, entry_ids)

    @Call
    def health(
        self,
        *,
        crew_id: str | None = None,
        profile: str | None = None,
        history: int | None = None,
        workspace_id: str | None = None,
    ) -> Steps[HealthAnswer]:
        """The latest health snapshot of the workspace or a crew, ``history`` days of them beside it."""
        given = {"crew_id": crew_id, "profile": profile, "history": history, "workspace_id": workspace_id}
        return core.health(given)

    @Call
    def measure_health(
        self,
        *,
        crew_id: str | None = None,
        profile: str | None = None,
        history: int | None = None,
        workspace_id: str | None = None,
    ) -> Steps[HealthAnswer]:
        """Have health measured now, and its snapshot (OWNER, ADMIN)."""
        given = {"crew_id": crew_id, "profile": profile, "history": history, "workspace_id": workspace_id}
        return core.measure_health(given)

    @Call
    def sweep_embeddings(self, *, workspace_id: str | None = None) -> Steps[SweepAnswer]:
        """Embed what was missed, and how many that were (OWNER, ADMIN)."""
        return core.sweep_embeddings({"workspace_id": workspace_id})

    @Call
    def reindex(
        self, *, model: str | None = None, reason: str | None = None, workspace_id: str | None = None
    ) -> Steps[ReindexAnswer]:
        """Judge entries by the current embed policy and try refused texts again (OWNER, ADMIN)."""
        return core.reindex({"model": model, "reason": reason, "workspace_id": workspace_id})

    @Call
    def status(self, *, workspace_id: str | None = None) -> Steps[dict[str, Any]]:
        """How the node and the workspace are doing."""
        return core.status({"workspace_id": workspace_id})
