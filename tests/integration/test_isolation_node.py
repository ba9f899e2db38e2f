"""Isolation on the real node: figures, dead letters, tokens and exposed metrics of the whole service as it is started."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import nats
import pytest
from support.nats import nats_binary
from support.stack import HTTP_TIMEOUT_S

from crew_journal.schemas.core.errors import NotAllowed, NotFound
from crew_journal.schemas.core.subjects import journal_subject
from crew_journal.schemas.settings import Settings
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime.node import Runtime

ENTRY = {"entry_type": "run.completed", "summary": "Nightly build", "agent_id": "ada", "crew_id": "core"}


@pytest.fixture(scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runtime]:
    settings = Settings(
        data_dir=tmp_path_factory.mktemp("node"),
        http="127.0.0.1:0",
        embedder="none",
        durability="interval",
        nats_server=nats_binary().path,
    )
    runtime = Runtime(settings)
    await runtime.start()
    yield runtime
    await runtime.stop()


async def _poison(owner: AsyncCrewJournal, workspace: str) -> int:
    """An entry that no fold can take, as an agent could publish it to NATS itself; its sequence."""
    reach = await owner.broker()
    async with await nats.connect(reach.url, user=reach.user, password=reach.password) as broker:
        ack = await broker.jetstream().publish(journal_subject(workspace, None, None, "run.completed"), b"no JSON")
    await owner.count(min_seq=ack.seq + 1)  # what follows it is the fact that it was parked
    return ack.seq


async def test_dead_letters_figures_and_tokens_of_another_workspace_stay_hidden(node: Runtime) -> None:
    async with AsyncCrewJournal(node.http_url, node.owner_token) as owner:
        await owner.append_batch([ENTRY | {"workspace_id": "acme"}, *[ENTRY | {"workspace_id": "globex"}] * 3])
        seq = await _poison(owner, "globex")
        letters = (await owner.dead_letters(workspace_id="globex")).dead_letters
        assert {letter.seq for letter in letters} == {seq}
        admin = await owner.create_token(role="ADMIN", workspace_id="acme")
        agent = await owner.create_token(role="AGENT", workspace_id="acme", agent_id="ada", crew_id="core")
        theirs = await owner.create_token(role="ADMIN", workspace_id="globex")
        async with AsyncCrewJournal(node.http_url, admin.token) as acme:
            assert (await acme.dead_letters()).dead_letters == ()
            for decide in (acme.retry_dead_letter, acme.discard_dead_letter):
                with pytest.raises(NotFound):
                    await decide(seq)
            with pytest.raises(NotAllowed):
                await acme.dead_letters(workspace_id="globex")
            status = await acme.status()
            assert status["workspace_id"] == "acme"
            assert status["dead_letters"]["parked"] == 0
            assert "globex" not in str(status)
            own = {"workspace_id", "view_seq", "ready", "embedder", "memory", "entries", "embeddings", "dead_letters"}
            own.add("memory_provider")
            assert status.keys() == own
            assert status["memory"].keys() == {"sweeps", "error", "operators"}
            assert status["ready"] is True
            assert theirs.token_id not in {token.token_id for token in (await acme.tokens()).tokens}
            assert (await acme.count(types=["run.completed"])).count == 1
        async with AsyncCrewJournal(node.http_url, agent.token) as ada:
            assert "broker" not in await ada.status()
        async with AsyncCrewJournal(node.http_url, theirs.token) as globex:
            assert (await globex.status())["dead_letters"]["parked"] >= 1
    async with httpx.AsyncClient(base_url=node.http_url, timeout=HTTP_TIMEOUT_S) as nobody:
        for path in ("/metrics", "/readyz", "/healthz", "/docs", "/openapi.json"):
            text = (await nobody.get(path)).text
            assert "acme" not in text
            assert "globex" not in text
