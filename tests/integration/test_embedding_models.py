"""A second model beside the first on a whole node: added, filled, switched to, switched back, dropped, added again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.embedding import until
from support.ollama_server import OllamaServer
from support.two_models import BLUE, RED, running

from crew_journal.consumers.adapters.minilm_weights import MODEL_ID
from crew_journal.schemas.core.errors import ModelInUse, ModelNotFilled, NotAllowed, NotFound
from crew_journal.schemas.recall.reference_texts import MEASURED
from crew_journal.services.client import AsyncCrewJournal


async def test_a_model_is_added_filled_switched_to_and_back_dropped_and_filled_again(
    tmp_path: Path, two_models: OllamaServer
) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 12)
        await journal.until_vectors(RED, 12)
        added = await journal.client.add_model(BLUE)
        assert (added.model, added.changed, added.dim) == (BLUE, True, 32)
        assert (await journal.client.add_model(BLUE)).changed is False
        await journal.until_vectors(BLUE, 12)
        assert await journal.top() == (RED, None)

        switched = await journal.client.activate_model(BLUE, reason="it is better")
        assert (switched.changed, switched.former, switched.missing) == (True, RED, 0)
        assert await journal.top() == (BLUE, None)
        await journal.escalate(12, 3)  # both go on being filled
        await journal.until_vectors(RED, 15)
        await journal.until_vectors(BLUE, 15)

        assert (await journal.client.activate_model(RED)).former == BLUE
        assert await journal.top() == (RED, None)
        with pytest.raises(ModelInUse, match="the default"):
            await journal.client.drop_model(RED)
        assert len(await journal.durables()) == 2
        assert (await journal.client.drop_model(BLUE, reason="it is not")).changed is True
        gone = await journal.model(BLUE)
        assert (gone["state"], gone["vectors"], gone["filled"], gone["missing"]) == ("dropped", 0, False, None)

        async def one_durable_is_left() -> bool:
            return len(await journal.durables()) == 1

        await until(one_durable_is_left, "the end of the dropped model's durable")
        with pytest.raises(NotFound, match="dropped"):
            await journal.client.activate_model(BLUE)
        await journal.client.add_model(BLUE)  # well within the broker's window for repeats
        await journal.until_vectors(BLUE, 15)
        assert await journal.verified()


async def test_a_model_that_lacks_vectors_is_refused_unless_it_is_forced(
    tmp_path: Path, two_models: OllamaServer
) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.client.add_model(BLUE)
        await journal.escalate(0, 3)
        await journal.until_vectors(RED, 3)
        await journal.until_vectors(BLUE, 3)
        two_models.stop()  # nothing is filled from here on
        await journal.escalate(3, 2)
        with pytest.raises(ModelNotFilled, match=f"2 of 5 entries have no vector of {BLUE}") as refused:
            await journal.client.activate_model(BLUE)
        assert "--force" in refused.value.hint
        assert (await journal.client.activate_model(RED)).changed is False, "it is in use already"
        assert (await journal.model(RED))["active"] is True
        forced = await journal.client.activate_model(BLUE, force=True)
        assert (forced.changed, forced.former, forced.missing) == (True, RED, 2)


async def test_a_restart_in_the_middle_of_filling_goes_on_where_it_was(
    tmp_path: Path, two_models: OllamaServer
) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 150)
        await journal.until_vectors(RED, 150)
        await journal.client.add_model(BLUE)
        await journal.until_model(BLUE, lambda one: one.get("vectors", 0) >= 1, "a first vector")
    half = sum(len(seen.inputs) for seen in two_models.embed_requests if seen.body["model"] == BLUE)
    async with running(tmp_path, two_models) as journal:
        await journal.until_vectors(BLUE, 150)
        await journal.client.activate_model(BLUE)
        assert await journal.top() == (BLUE, None)
        assert await journal.verified()
    asked = sum(len(seen.inputs) for seen in two_models.embed_requests if seen.body["model"] == BLUE)
    assert half >= 1
    assert asked <= 150 + 64 + 10 + 3 * MEASURED, "what was filled before the restart was filled again"


async def test_a_switch_outlives_a_restart_whatever_kind_the_setting_names(
    tmp_path: Path, two_models: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 3)
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 3)
        await journal.client.activate_model(BLUE)
    async with running(tmp_path, two_models, "minilm") as journal:
        assert await journal.top() == (BLUE, None)
        status = await journal.client.status()
        assert (status["embedder"]["kind"], status["embedder"]["model"]) == ("ollama", BLUE)
        assert {reactor["model"] for reactor in status["reactors"] if reactor["name"].startswith("embed@")} == {
            RED,
            BLUE,
        }


async def test_the_embedded_model_is_filled_beside_one_of_ollamas(tmp_path: Path, two_models: OllamaServer) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 5)
        added = await journal.client.add_model("minilm")
        assert (added.model, added.dim) == (MODEL_ID, 384)
        await journal.until_vectors(MODEL_ID, 5)
        two_models.stop()  # what is active needs no server
        await journal.client.activate_model("minilm")
        assert await journal.top("which valve is stuck?") == (MODEL_ID, None)
        status = await journal.client.status()
        assert (status["embedder"]["kind"], status["embedder"]["mode"]) == ("minilm", "vector")
    two_models.start()
    async with running(tmp_path, two_models) as journal:
        assert await journal.top("which valve is stuck?") == (MODEL_ID, None)
        await journal.until_vectors(RED, 5)
        await journal.client.activate_model(RED)
        assert await journal.top("which valve is stuck?") == (RED, None)


async def test_one_workspace_recalls_with_a_model_of_its_own(tmp_path: Path, two_models: OllamaServer) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.escalate(0, 3)
        await journal.client.append_batch(
            [{"workspace_id": "acme", "entry_type": "peer.escalation", "summary": "the valve of acme is stuck"}]
        )
        await journal.client.add_model(BLUE)
        await journal.until_vectors(BLUE, 4)
        await journal.client.activate_model(BLUE, workspace_id="acme")
        assert (await journal.top())[0] == RED
        assert (await journal.client.recall("the valve", workspace_id="acme")).model == BLUE
        with pytest.raises(ModelInUse, match="acme"):
            await journal.client.drop_model(BLUE)
        assert (await journal.client.status(workspace_id="acme"))["embeddings"]["model"] == BLUE

        admin = await journal.client.create_token(role="ADMIN", workspace_id="acme")
        async with AsyncCrewJournal(journal.runtime.http_url, admin.token) as acme:
            shown = {model.model: model for model in (await acme.embedding_models()).models}
            assert (shown[RED].vectors, shown[BLUE].vectors) == (1, 1)
            assert shown[RED].active_in is None
            with pytest.raises(NotAllowed):
                await acme.add_model("another")
            with pytest.raises(NotAllowed):
                await acme.drop_model(RED)
            with pytest.raises(NotAllowed):
                await acme.activate_model(RED, workspace_id="default")
            with pytest.raises(NotFound):
                await acme.activate_model("nobody-fills-this")
            assert (await acme.activate_model(RED)).former == BLUE
        assert (await journal.client.recall("the valve", workspace_id="acme")).model == RED
