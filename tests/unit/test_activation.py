"""Which models recall may be switched to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.events import at, entry, vector
from support.views import node

from crew_journal.consumers.entries.fold import PROJECTION as ENTRIES
from crew_journal.consumers.host.store import ViewStore
from crew_journal.consumers.models.vectors_fold import PROJECTION as VECTORS
from crew_journal.schemas.core.errors import NotFound
from crew_journal.services.models.use_cases import check_model


@pytest.fixture
async def views(tmp_path: Path) -> AsyncIterator[ViewStore]:
    facts = [entry("e1"), vector("e1", model="mini"), vector("e1", model="given up", dim=0)]
    async with node(tmp_path / "views.duckdb", [ENTRIES(), VECTORS()]) as made:
        await made.host.fold([at(seq, fact) for seq, fact in enumerate(facts, 1)])
        yield made.store


@pytest.mark.parametrize("model", ["mini", "nomic"])
async def test_a_model_with_vectors_or_an_embedder_may_be_activated(views: ViewStore, model: str) -> None:
    assert await check_model(views, model, {"nomic"}) is None


@pytest.mark.parametrize("model", ["minni", "given up", "nomic\n"])
async def test_a_model_that_cannot_recall_is_refused_and_the_usable_ones_are_named(
    views: ViewStore, model: str
) -> None:
    with pytest.raises(NotFound) as caught:
        await check_model(views, model, {"nomic"})
    assert caught.value.hint == "use one of mini, nomic"
    assert caught.value.field == "model"
