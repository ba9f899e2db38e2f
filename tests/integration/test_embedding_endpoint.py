"""A whole node that embeds at an OpenAI-compatible endpoint, beside Ollama and in another dimension."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.embedding import until
from support.ollama_server import OllamaServer, reference_vector
from support.two_models import BLUE, RED, Journal, running

from crew_journal.schemas.core.errors import EmbedderUnavailable, NotFound

THERE = f"openai/{BLUE}"
DIMS = {RED: 32, BLUE: 48}
TEXT = "the boiler of room nine leaks oil"
QUERY = "boiler leaks"


@pytest.fixture
def two_models(two_models: OllamaServer) -> OllamaServer:
    two_models.dims = DIMS
    return two_models


def cosine(dim: int) -> float:
    """What a model of so many dimensions makes of query and text."""
    one, other = np.array(reference_vector(QUERY, dim)), np.array(reference_vector(TEXT, dim))
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


async def until_found_by(journal: Journal, model: str) -> None:
    """Wait until drawers and documents are found by the vectors of a model."""
    expected = cosine(DIMS[model.removeprefix("openai/")])

    async def found() -> bool:
        drawers = (await journal.client.palace_search(QUERY)).results
        documents = await journal.client.document_search(QUERY, agent_id="ada")
        by_vector = abs(drawers[0].similarity - expected) < 1e-3
        return by_vector and documents.model == model and TEXT in documents.results[0].snippet

    await until(found, f"drawers and documents by {model}")


async def test_entries_drawers_and_documents_are_found_by_models_of_two_servers_and_dimensions(
    tmp_path: Path, two_models: OllamaServer
) -> None:
    settings = {"embed_base_url": two_models.url, "embed_api_key": "sk", "embed_model": BLUE}
    async with running(tmp_path, two_models, "auto", **settings) as journal:
        await journal.escalate(0, 4)
        await journal.until_vectors(THERE, 4)
        assert await journal.top() == (THERE, None)
        shown = await journal.model(THERE)
        assert (shown["embedder"], shown["dim"], shown["active"]) == ("openai", 48, True)
        await journal.client.add_drawer("plant", "heating", TEXT)
        await journal.client.document_write("AGENT", "append", TEXT, agent_id="ada")
        await until_found_by(journal, THERE)

        assert (await journal.client.add_model(RED)).dim == 32
        await journal.until_vectors(RED, 4)
        await journal.client.activate_model(RED, workspace_id="default")
        assert await journal.top() == (RED, None)
        await until_found_by(journal, RED)
        await journal.client.activate_model(THERE, workspace_id="default")
        await until_found_by(journal, THERE)
        assert await journal.verified()
    async with running(tmp_path, two_models, "auto") as journal:  # without the URL
        with pytest.raises(EmbedderUnavailable) as refused:
            await journal.client.add_model("openai/other")
        assert "CREW_JOURNAL_EMBED_BASE_URL" in refused.value.hint
        assert (await journal.model(THERE))["active"] is True


async def test_a_model_that_the_endpoint_does_not_have_is_not_added(tmp_path: Path, two_models: OllamaServer) -> None:
    async with running(tmp_path, two_models, embed_base_url=two_models.url) as journal:
        with pytest.raises(NotFound, match="404"):
            await journal.client.add_model("openai/green-embed")
        assert not await journal.model("openai/green-embed")
