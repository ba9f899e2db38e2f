"""Which journal a command finds, and the runtime it starts if it finds none."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from crew_journal.schemas.core.errors import DataDirBusy, NotAuthenticated, NotFound
from crew_journal.schemas.settings import Settings
from crew_journal.services.cli import connection
from crew_journal.services.cli.connection import find_running, local_runtime, resolve, target
from crew_journal.services.cli.options import Where
from crew_journal.services.client.find import find
from crew_journal.services.data_dir import lock


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def healthy() -> Iterator[str]:
    """The address of something that answers."""
    server = HTTPServer(("127.0.0.1", 0), _Healthy)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def announce(data_dir: Path, http: str, pid: int) -> None:
    (data_dir / "runtime.json").write_text(json.dumps({"http": http, "nats": "nats://x", "pid": pid}))
    (data_dir / "admin.token").write_text("cj_owner\n")


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Path]:
    """A data directory that a process owns, as a running `up` does."""
    release = lock(tmp_path)
    yield tmp_path
    release()


def test_a_running_up_is_found_with_its_owner_token(owned: Path, healthy: str) -> None:
    announce(owned, healthy, os.getpid())
    found = resolve(Where(owned))
    assert found is not None
    assert (found.url, found.token, found.local) == (healthy, "cj_owner", False)


def test_a_given_token_goes_before_the_owners(owned: Path, healthy: str) -> None:
    announce(owned, healthy, os.getpid())
    found = resolve(Where(owned, token="cj_agent"))
    assert found is not None
    assert found.token == "cj_agent"


def test_a_process_that_does_not_answer_is_no_running_up(owned: Path) -> None:
    announce(owned, "http://127.0.0.1:1", os.getpid())
    assert find_running(owned) is None


def test_the_file_of_an_up_that_was_killed_is_no_running_one_though_its_number_and_port_live_on(
    tmp_path: Path, healthy: str
) -> None:
    announce(tmp_path, healthy, os.getpid())
    assert find_running(tmp_path) is None, "nobody ever owned it"
    lock(tmp_path)()
    announce(tmp_path, healthy, os.getpid())
    assert find_running(tmp_path) is None, "nobody owns it any more"
    with pytest.raises(NotFound, match="no service runs"):
        find(None, None, tmp_path)


def test_the_client_finds_a_running_up_by_its_data_directory(owned: Path, healthy: str) -> None:
    announce(owned, healthy, os.getpid())
    address = find(None, None, owned)
    assert (address.url, address.token) == (healthy, "cj_owner")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"http": "x"}', '{"http": 1, "nats": 2, "pid": "x"}'])
def test_a_torn_runtime_file_is_no_running_up(tmp_path: Path, text: str) -> None:
    (tmp_path / "runtime.json").write_text(text)
    assert find_running(tmp_path) is None


def test_an_address_goes_before_a_data_directory(tmp_path: Path, healthy: str) -> None:
    announce(tmp_path, healthy, os.getpid())
    found = resolve(Where(tmp_path, url="http://elsewhere/", token="t"))
    assert found is not None
    assert (found.url, found.token, found.data_dir) == ("http://elsewhere", "t", None)


def test_an_owner_token_that_cannot_be_read_is_said(owned: Path, healthy: str) -> None:
    announce(owned, healthy, os.getpid())
    (owned / "admin.token").unlink()
    with pytest.raises(NotAuthenticated, match=r"missing from .*admin\.token") as gone:
        resolve(Where(owned))
    assert "start `up` again" in gone.value.hint
    (owned / "admin.token").write_bytes(b"\xff\xfe")
    with pytest.raises(NotAuthenticated, match=r"admin\.token: not a token"):
        resolve(Where(owned))


def test_reading_where_there_is_no_journal_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound), target(Where(tmp_path / "none")):
        pytest.fail("nothing to read")


@pytest.mark.parametrize("sign", ["nats/store", "views.duckdb"])
def test_a_journal_whose_owner_token_is_gone_is_still_found(
    tmp_path: Path, fake_runtime: type["FakeRuntime"], sign: str
) -> None:
    (tmp_path / sign).mkdir(parents=True)
    with target(Where(tmp_path)) as there:
        assert there.local


class FakeRuntime:
    """Stands for the real one: knows in which thread it was started and stopped."""

    made: list["FakeRuntime"]

    def __init__(self, settings: Settings, *, log: Any = None) -> None:
        self.settings = settings
        self.stopped = 0
        self.thread = threading.current_thread()
        self.http_url, self.nats_url, self.owner_token = "http://127.0.0.1:1", "nats://x", "cj_owner"
        self.closed = asyncio.Event()
        FakeRuntime.made.append(self)

    async def start(self) -> None:
        if self.settings.data_dir.name == "busy":
            raise DataDirBusy("taken")
        if self.settings.data_dir.name == "slow":
            await asyncio.Event().wait()

    async def wait_closed(self) -> None:
        await self.closed.wait()

    async def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def fake_runtime(monkeypatch: pytest.MonkeyPatch) -> type[FakeRuntime]:
    module = type(sys)("crew_journal.services.runtime.node")
    module.Runtime = FakeRuntime  # type: ignore[attr-defined]  # a stand-in for the composition root
    monkeypatch.setitem(sys.modules, "crew_journal.services.runtime.node", module)
    FakeRuntime.made = []
    return FakeRuntime


def test_a_command_starts_a_runtime_of_its_own_and_stops_it(tmp_path: Path, fake_runtime: type[FakeRuntime]) -> None:
    with target(Where(tmp_path), create=True) as there:
        assert (there.url, there.token, there.local) == ("http://127.0.0.1:1", "cj_owner", True)
        (runtime,) = fake_runtime.made
        assert runtime.thread is not threading.main_thread()
        assert runtime.settings.http.endswith(":0")
        assert runtime.settings.embedder == "none"
    assert runtime.stopped == 1


def test_a_runtime_is_stopped_when_the_command_fails(tmp_path: Path, fake_runtime: type[FakeRuntime]) -> None:
    with pytest.raises(ZeroDivisionError), target(Where(tmp_path), create=True):
        _ = 1 // 0
    assert fake_runtime.made[0].stopped == 1


def test_why_a_runtime_does_not_start_is_the_commands_failure(tmp_path: Path, fake_runtime: type[FakeRuntime]) -> None:
    with pytest.raises(DataDirBusy), target(Where(tmp_path / "busy"), create=True):
        pytest.fail("it does not start")
    assert fake_runtime.made[0].stopped == 1


def test_a_runtime_that_does_not_become_ready_is_given_up(
    tmp_path: Path, fake_runtime: type[FakeRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "START_TIMEOUT_S", 0.05)
    with pytest.raises(Exception, match="did not start"), local_runtime(Settings(data_dir=tmp_path / "slow")):
        pytest.fail("it does not start")
    assert fake_runtime.made[0].stopped == 1
