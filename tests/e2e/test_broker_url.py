"""A broker of one's own by a URL with user and password: both reach the broker, decoded, and are shown nowhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from support.crash_import import small_entry
from support.external import external_broker
from support.nats import nats_binary
from support.processes import Stack
from support.running import running_node

from crew_journal.services.cli.work import Broker, _named
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.broker import version_text

PASSWORD = "hunter2:pw/@%"
WRITTEN = quote(PASSWORD, safe="")
QUOTED = "hunter2"
"""What stands in the password, however it is written."""


def _use(stack: Stack) -> str:
    """Start, publish, look at everything that tells of the broker; all that was said."""
    ready = stack.up()
    assert "@" not in ready.nats
    with httpx.Client(
        base_url=stack.url, headers={"Authorization": f"Bearer {stack.token}"}, timeout=60, trust_env=False
    ) as client:
        assert client.post("/v1/journal", json=small_entry(1, "kept")).status_code == 201
        said = client.get("/v1/status").text
    said += (stack.data_dir / "runtime.json").read_text()
    for command in (("status",), ("status", "--json"), ("doctor",), ("doctor", "--json")):
        ran = stack.run(*command)
        assert "@127" not in ran.out
        said += ran.out + ran.err
    assert stack.terminate() == 0, stack.log_tail()
    said += stack.log_path.read_text()
    return said + "".join(path.read_text("latin-1") for path in stack.data_dir.rglob("*") if path.is_file())


async def test_a_password_in_the_url_is_decoded_and_shown_nowhere(tmp_path: Path) -> None:
    async with external_broker(tmp_path / "theirs", password=PASSWORD) as theirs:
        url = f"nats://{theirs.user}:{WRITTEN}@127.0.0.1:{theirs.port}"
        options = ("--embedder", "none", "--durability", "interval")
        named = {"CREW_JOURNAL_NATS": url, "CREW_JOURNAL_LOG_LEVEL": "debug"}
        with Stack(tmp_path / "data", (*options, "--nats", url), named) as stack:
            said = await asyncio.to_thread(_use, stack)
    assert f"127.0.0.1:{theirs.port}" in said
    assert QUOTED not in said
    assert "'interval' is for a managed broker" in said, "an option that does not count is said to"
    shown = f"nats-server {version_text(nats_binary().version)}, external, durability unknown, nats://127.0.0.1:{theirs.port}"
    assert shown in said.replace("\n", " "), "`status` knows the version of a broker that is not ours"


async def test_a_wrong_password_in_the_url_is_not_quoted_by_the_error(tmp_path: Path) -> None:
    async with external_broker(tmp_path / "theirs") as theirs:
        with Stack(tmp_path / "data") as stack:
            url = f"nats://{theirs.user}:{WRITTEN}@127.0.0.1:{theirs.port}"
            ran = await asyncio.to_thread(stack.run, "up", "--http", "127.0.0.1:0", "--embedder", "none", "--nats", url)
    assert ran.code == 5
    assert f"nats://127.0.0.1:{theirs.port}" in ran.err
    assert "Authorization Violation" in ran.err
    assert QUOTED not in ran.out + ran.err


async def test_an_invalid_broker_url_is_wrong_usage_and_an_empty_one_counts_as_unset(tmp_path: Path) -> None:
    with Stack(tmp_path / "data", environment={"CREW_JOURNAL_NATS": ""}) as stack:
        ran = stack.run("up", "--nats", f"http://cj:{WRITTEN}@127.0.0.1:1", "--http", "127.0.0.1:0")
        assert ran.code == 2
        assert "--nats" in ran.err
        assert QUOTED not in ran.out + ran.err
        assert not stack.data_dir.exists()
        stack.up()
        assert stack.nats_pid() is not None, "an empty variable means the managed broker"


async def test_a_token_in_the_url_is_sent_as_one(tmp_path: Path) -> None:
    async with external_broker(tmp_path / "theirs", token="a token") as theirs:
        url = f"nats://a%20token@127.0.0.1:{theirs.port}"
        async with (
            running_node(tmp_path / "ours", nats=url) as runtime,
            AsyncCrewJournal(runtime.http_url, runtime.owner_token) as owner,
        ):
            seq = (await owner.append({"entry_type": "run.completed", "summary": "with a token"})).seq
            assert [entry.summary for entry in (await owner.list(min_seq=seq)).entries] == ["with a token"]
            assert runtime.nats_url == theirs.url


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((f"nats://cj:{WRITTEN}@h:1", None, None), Broker("nats://h:1", "cj", PASSWORD)),
        (("nats://h:1", "cj", PASSWORD), Broker("nats://h:1", "cj", PASSWORD)),
        (("nats://h:1", "", ""), Broker("nats://h:1", None, None)),
    ],
)
def test_work_takes_user_and_password_from_the_url_or_the_options(
    given: tuple[str, str | None, str | None], expected: Broker
) -> None:
    assert _named(*given) == expected
    assert PASSWORD not in repr(_named(*given))
