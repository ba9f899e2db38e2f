"""The node's embedding model: chosen, observed, probed, and recorded as the active one.

Invariant: what recall asks and what the reactors fill is the same observed embedder, so health reports its last outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Final

from crew_journal.consumers.adapters.choose import EmbedderChoice, choose_embedder
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID
from crew_journal.consumers.adapters.outcome import SPARSE_ONLY, ObservedEmbedder
from crew_journal.schemas.errors import CrewJournalError
from crew_journal.schemas.ids import SYSTEM_WORKSPACE
from crew_journal.schemas.ports import Embedder, ViewReader
from crew_journal.schemas.settings import Settings
from crew_journal.services.journal.activation import activate_embeddings, check_model
from crew_journal.services.journal.append import Journal
from crew_journal.services.node_status import as_json

_RECORDED_DIM: Final = "SELECT dim FROM journal_embeddings WHERE model = ? AND dim > 0 LIMIT 1"
"""What the journal knows of a model: one that changed under the same name must not mix its vectors in."""


class Embedding:
    """The model of a node; ``observed`` is None until ``start``, and where no model is chosen.

    Args:
        settings: The node's settings.
        views: The node's views.
        journal: Records which model is active.
        clock: The time now, UTC.
    """

    def __init__(
        self, settings: Settings, views: ViewReader, journal: Journal, *, clock: Callable[[], datetime]
    ) -> None:
        self._settings = settings
        self._views = views
        self._journal = journal
        self._clock = clock
        self.choice = EmbedderChoice(None, "none", "not chosen yet")
        self.observed: ObservedEmbedder | None = None
        self.known_dim: int | None = None

    async def start(self, stack: AsyncExitStack) -> None:
        """Choose, probe in the background, record the activation; closed by ``stack``."""
        settings = self._settings
        pinned = self._views.rows("SELECT model FROM embeddings_active WHERE workspace_id = ?", [SYSTEM_WORKSPACE])
        self.choice = await choose_embedder(
            settings.embedder,
            ollama_host=settings.ollama_host,
            ollama_model=settings.ollama_model,
            cache_dir=settings.models_dir,
            pinned_model=pinned[0][0] if pinned else None,
        )
        if self.choice.embedder is None:
            return
        self.observed = observed = ObservedEmbedder(self.choice.embedder, self._clock)
        stack.push_async_callback(observed.close)
        probing = asyncio.create_task(_probe(observed), name="embedder-probe")
        stack.push_async_callback(cancel, probing)
        await activate_embeddings(
            self._journal, self._views, model=observed.model_id, embedder=self.choice.kind, reason=self.choice.reason
        )
        dims = self._views.rows(_RECORDED_DIM, [observed.model_id])
        self.known_dim = dims[0][0] if dims else None

    def running(self, model: str) -> Embedder | None:
        """What runs a model here, None if nothing does."""
        return self.observed if self.observed is not None and self.observed.model_id == model else None

    def trouble(self) -> str | None:
        """What ails the embedder, None if nothing does."""
        if self.observed is None:
            return f"no embedder: {self.choice.reason}"
        return self.observed.outcome.error

    async def activate(self, workspace_id: str | None, model: str, reason: str) -> Mapping[str, Any]:
        """Make ``model`` the active one of a workspace, or the default of all.

        Raises:
            NotFound: If nothing can make vectors of this model and there are none.
        """
        running = {self.observed.model_id} if self.observed is not None else set()
        await check_model(self._views, model, {MODEL_ID, self._settings.ollama_model, *running})
        return await activate_embeddings(
            self._journal,
            self._views,
            model=model,
            embedder=self.choice.kind,
            reason=reason,
            workspace_id=workspace_id,
        )

    def figures(self) -> Mapping[str, Any]:
        """What ``status`` shows."""
        outcome = SPARSE_ONLY if self.observed is None else self.observed.outcome
        return {"kind": self.choice.kind, "reason": self.choice.reason, **as_json(outcome)}


async def cancel(task: asyncio.Task[None]) -> None:
    """End a task and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _probe(embedder: Embedder) -> None:
    """One real call, so that status is true from the start; its outcome is observed, not needed here."""
    with contextlib.suppress(CrewJournalError):
        await embedder.probe()
