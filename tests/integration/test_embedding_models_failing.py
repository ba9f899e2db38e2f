"""A second model that is not there, fails or changes: it is said, and the first one goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.ollama_server import OllamaServer
from support.two_models import BLUE, RED, running

from crew_journal.schemas.core.errors import CrewJournalError, EmbedderError, InvalidQuery, NotFound, Unavailable


async def test_a_model_that_is_not_there_or_does_not_work_is_refused_and_nothing_is_recorded(
    tmp_path: Path, two_models: OllamaServer
) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 3)
        await journal.until_vectors(RED, 3)
        before = (await journal.client.status())["stream"]["head"]
        with pytest.raises(NotFound, match="no embedding model absent") as missing:
            await journal.client.add_model("absent")
        assert "ollama pull absent" in missing.value.hint
        with pytest.raises(InvalidQuery, match="not the name"):
            await journal.client.add_model("two words")
        with pytest.raises(NotFound, match="no such model"):
            await journal.client.drop_model("absent")
        two_models.fail("server-error")
        with pytest.raises((EmbedderError, Unavailable), match="500"):
            await journal.client.add_model(BLUE)
        two_models.fail("ok")
        two_models.stop()
        with pytest.raises((EmbedderError, Unavailable), match="cannot be reached"):
            await journal.client.add_model(BLUE)
        two_models.start()
        assert (await journal.client.status())["stream"]["head"] == before
        assert (await journal.top())[0] == RED


async def test_a_model_that_fails_while_it_is_filled_leaves_the_first_one_alone(
    tmp_path: Path, two_models: OllamaServer
) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 3)
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 3)
        two_models.models = (RED,)  # somebody removed it
        await journal.escalate(3, 3)
        await journal.until_vectors(RED, 6)
        await journal.until_model(
            BLUE,
            lambda one: (
                (one["outcome"] or {}).get("error") == "EmbedderModelMissing" and one["filling"]["state"] == "waiting"
            ),
            "what is wrong with it",
        )
        assert await journal.top() == (RED, None)
        status = await journal.client.status()
        assert status["embedder"]["mode"] == "vector"
        assert status["embedder"]["beside"][0]["mode"] == "vector-degraded"
        two_models.models = (RED, BLUE)
        await journal.until_vectors(BLUE, 6)


async def test_a_model_that_changed_its_width_is_not_added_again(tmp_path: Path, two_models: OllamaServer) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 3)
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 3)
    two_models.dim = 48
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(3, 1)
        wrong = "48 dimensions, the journal has 32"
        await journal.until_model(
            BLUE, lambda one: wrong in ((one["filling"] or {}).get("last_error") or ""), "what is wrong with it"
        )
        await journal.client.drop_model(BLUE)
        added = await journal.client.add_model(BLUE)
        assert added.dim == 48
        await journal.until_vectors(BLUE, 4)


async def test_a_node_that_is_not_to_embed_says_so(tmp_path: Path, two_models: OllamaServer) -> None:
    async with running(tmp_path, two_models, "none") as journal:
        with pytest.raises(CrewJournalError, match="has no embedder"):
            await journal.client.add_model(BLUE)
        assert (await journal.client.embedding_models()).models == ()
