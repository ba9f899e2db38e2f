"""An agent on NATS, from the token that lets it in to the revocation that puts it out, on the whole node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from nats.errors import Error as NatsError
from support.external import external_broker
from support.ingest import AgentClient, agent_client
from support.journal import DEADLINE_S, eventually
from support.nats import nats_agent
from support.running import running_node
from support.stack import HTTP_TIMEOUT_S

from crew_journal.schemas.access.operations import NatsAccess, TokenCreatedAnswer
from crew_journal.schemas.core.errors import BrokerError, BrokerNotOurs, InvalidQuery, NotAllowed
from crew_journal.services.access.tokens import NatsUsers
from crew_journal.services.cli.operate import status_lines
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.broker import ManagedBroker
from crew_journal.services.journal.broker.config import BrokerFiles

SUMMARY = "The disk of node seven fills up in nine days"
ADA: Any = {"role": "AGENT", "agent_id": "ada", "crew_id": "platform", "workspace_id": "acme", "nats": True}


@asynccontextmanager
async def node(data_dir: Path, **given: Any) -> AsyncIterator[AsyncCrewJournal]:
    async with (
        running_node(data_dir, **given) as runtime,
        AsyncCrewJournal(runtime.http_url, runtime.owner_token) as client,
    ):
        yield client


def reach(made: TokenCreatedAnswer) -> NatsAccess:
    assert made.nats_access is not None
    return made.nats_access


def agent(access: NatsAccess) -> AbstractAsyncContextManager[AgentClient]:
    """Plain nats-py, told nothing but what the answer says."""
    return agent_client(access.address, access.user, access.password)


async def say(access: NatsAccess, summary: str, entry_type: str = "disk.checked") -> int:
    async with agent(access) as client:
        receipt = await client.ask(access.subject, {"entry_type": entry_type, "summary": summary})
        return int(receipt["entries"][0]["seq"])


async def refused_at(access: NatsAccess) -> bool:
    try:
        async with agent(access):
            return False
    except NatsError as error:
        return "authorization" in str(error).lower()


async def test_what_an_agent_appends_over_nats_is_recalled_as_its_own_and_nothing_else_is_taken(tmp_path: Path) -> None:
    async with running_node(tmp_path) as runtime, AsyncCrewJournal(runtime.http_url, runtime.owner_token) as owner:
        url = runtime.http_url
        made = await owner.create_token(**ADA)
        access = reach(made)
        assert (access.user, access.password) == (made.token_id, made.token)
        assert (access.subject, access.max_bytes) == ("ingest.acme.platform.ada", 1_048_576)
        seq = await say(access, SUMMARY)
        found = await owner.recall("node seven", workspace_id="acme", min_seq=seq)
        assert [(hit.summary, hit.agent_id, hit.crew_id, hit.entry_type) for hit in found.hits] == [
            (SUMMARY, "ada", "platform", "disk.checked")
        ]
        async with AsyncCrewJournal(url, made.token) as ada:  # the same token reads over HTTP
            assert [hit.summary for hit in (await ada.recall("node seven")).hits] == [SUMMARY]
        others = (
            "journal.acme.platform.ada.note",
            "ingest.acme.platform.bob",
            "ingest.acme.security.ada",
            "ingest.globex.platform.ada",
            "control.acme.priority.set",
            "derived.acme.vector",
            "$JS.API.STREAM.PURGE.JOURNAL",
        )
        async with agent(access) as client:
            for subject in others:
                await client.publish(subject, b'{"entry_type": "note", "summary": "forged"}')
                await client.refused(subject)
        page = await owner.list(workspace_id="acme")
        assert "forged" not in [entry.summary for entry in page.entries]


async def test_status_and_metrics_count_requests_over_nats(tmp_path: Path) -> None:
    async with running_node(tmp_path) as runtime, AsyncCrewJournal(runtime.http_url, runtime.owner_token) as owner:
        access = reach(await owner.create_token(**ADA))
        await say(access, SUMMARY)
        async with agent(access) as client:
            assert (await client.ask(access.subject, {"summary": "no type"}))["status"] == 422
            await client.publish(access.subject, b"no request")
            await client.flush()
        await say(access, "another")
        status = await owner.status()
        lines = dict(status_lines(status))
        assert lines["ingest"] == (
            "4 requests over NATS, 2 entries, 1 refused; 1 were not requests (no inbox to answer to) and are not stored"
        )
        async with httpx.AsyncClient(timeout=HTTP_TIMEOUT_S) as http:
            metrics = (await http.get(f"{runtime.http_url}/metrics")).text
        assert "crew_journal_ingest_requests 4.0" in metrics


async def test_a_revoked_token_is_put_out_at_once_and_others_stay(tmp_path: Path) -> None:
    async with node(tmp_path) as owner:
        made = await owner.create_token(**ADA)
        kept = await owner.create_token(**{**ADA, "agent_id": "bob"})
        async with agent(reach(made)) as revoked, agent(reach(kept)) as stays:
            await owner.revoke_token(made.token_id)
            await eventually(lambda: not revoked.is_connected, "the connection is cut")
            assert stays.is_connected
        assert await refused_at(reach(made))
        assert await say(reach(kept), "bob is still here") > 0
        listed = {token.token_id: (token.nats, token.revoked_ms is None) for token in (await owner.tokens()).tokens}
        assert listed == {made.token_id: (True, False), kept.token_id: (True, True)}


async def test_users_come_back_from_the_journal_whatever_became_of_the_brokers_files(tmp_path: Path) -> None:
    async with node(tmp_path) as owner:
        made = await owner.create_token(**ADA)
        gone = await owner.create_token(**{**ADA, "agent_id": "gus"})
        await owner.revoke_token(gone.token_id)
    async with node(tmp_path):
        await say(reach(made), "after a restart")
        assert await refused_at(reach(gone))
    files = BrokerFiles.below(tmp_path)
    by_hand, password = nats_agent("by-hand", workspace_id="acme", agent_id="eve")
    for content in (None, "[{]", f"[{by_hand.model_dump_json()}]"):
        files.agents.unlink()
        if content is not None:
            files.agents.write_text(content)
        async with node(tmp_path):
            await say(reach(made), f"after agents.json was {content}")
            forged = NatsAccess(address=reach(made).address, user="by-hand", password=password, subject="", max_bytes=0)
            assert await refused_at(forged), "whom the journal does not know is not let in"


def files_with(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


async def test_the_secret_is_in_the_answer_alone(tmp_path: Path) -> None:
    async with node(tmp_path) as owner:
        made = await owner.create_token(**ADA)
        await say(reach(made), SUMMARY)
        assert made.token not in repr([token.model_dump() for token in (await owner.tokens()).tokens])
        page = await owner.list(workspace_id="acme")
        assert "token.nats_allowed" in {entry.entry_type for entry in page.entries}
    assert files_with(made.token, tmp_path) == []
    assert files_with(made.token_id, tmp_path) != []  # the search finds what is there


async def test_a_hundred_agents_at_once_are_all_let_in(tmp_path: Path) -> None:
    async with node(tmp_path) as owner:
        wanted = [{**ADA, "agent_id": f"a{n}"} for n in range(100)]
        made = await asyncio.gather(*(owner.create_token(**one) for one in wanted))
        for one in (made[0], made[50], made[99]):
            await say(reach(one), "here")


@pytest.mark.parametrize("role", ["OWNER", "ADMIN"])
async def test_on_nats_counts_one_agent_only(tmp_path: Path, role: str) -> None:
    async with running_node(tmp_path) as runtime, AsyncCrewJournal(runtime.http_url, runtime.owner_token) as owner:
        url = runtime.http_url
        with pytest.raises(InvalidQuery, match="the token of one agent"):
            await owner.create_token(role=role, workspace_id="acme", nats=True)  # type: ignore[arg-type]  # as parametrised
        admin = await owner.create_token(role="ADMIN", workspace_id="acme")
        async with AsyncCrewJournal(url, admin.token) as other:
            with pytest.raises(NotAllowed):
                await other.create_token(**{**ADA, "workspace_id": "globex"})
            assert reach(await other.create_token(**ADA)).subject == "ingest.acme.platform.ada"


async def test_a_token_that_could_not_be_given_to_the_broker_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[NatsUsers] = []

    def impatient(broker: ManagedBroker) -> NatsUsers:
        made.append(NatsUsers(broker, retry_s=0.01, settle_s=0.2))
        return made[-1]

    monkeypatch.setattr("crew_journal.services.runtime.node.NatsUsers", impatient)
    failing = True
    told = ManagedBroker.set_agent_users

    async def tell(broker: ManagedBroker, users: Any) -> None:
        if failing:
            raise BrokerError("nats-server is not to be told")
        await told(broker, users)

    monkeypatch.setattr(ManagedBroker, "set_agent_users", tell)
    async with node(tmp_path) as owner:
        with pytest.raises(BrokerError, match="not to be told"):
            await owner.create_token(**ADA)
        assert [token.revoked_ms is None for token in (await owner.tokens()).tokens] == [False]
        failing = False
        made[0]._settle_s = DEADLINE_S
        assert await say(reach(await owner.create_token(**ADA)), "now it is") > 0


def by_hand(hint: str) -> str:
    """What the refusal says to put under ``accounts``, up to its end."""
    return hint[hint.index("AGENT-") : hint.index("; JOURNAL is")]


async def test_the_refusal_of_an_external_broker_says_how_to_configure_it(tmp_path: Path) -> None:
    user, password = nats_agent("ada", workspace_id="acme", agent_id="ada", crew_id="platform")
    async with external_broker(tmp_path / "theirs") as theirs:
        settings = {"nats": theirs.url, "nats_user": theirs.user, "nats_password": theirs.password}
        async with node(tmp_path / "ours", **settings) as owner:
            with pytest.raises(BrokerNotOurs, match="not this node's own") as refused:
                await owner.create_token(**ADA)
            assert [token for token in (await owner.tokens()).tokens if token.revoked_ms is None] == []
            await theirs.add_account(by_hand(refused.value.hint).replace("BCRYPT HASH", user.bcrypt))
            access = NatsAccess(address=theirs.url, user="ada", password=password, subject=user.subject, max_bytes=0)
            seq = await say(access, SUMMARY)
            found = await owner.recall("node seven", workspace_id="acme", min_seq=seq)
            assert [hit.agent_id for hit in found.hits] == ["ada"]
