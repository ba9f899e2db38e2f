"""Starting and ending ``up``: once per data directory, drained by SIGTERM, the same journal after every start."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.crash_import import small_entry
from support.processes import COMMAND, END_DEADLINE_S, Stack, wait_for

DATA_DIR_BUSY = 5
"""Exit code of DESIGN §10 for what is unavailable."""


def client_of(stack: Stack) -> httpx.Client:
    headers = {"Authorization": f"Bearer {stack.token}"}
    return httpx.Client(base_url=stack.url, headers=headers, timeout=60, trust_env=False)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A running ``up`` for the tests that leave it running."""
    with Stack(tmp_path_factory.mktemp("ready") / "data") as stack:
        stack.up()
        yield stack


def test_a_second_up_on_one_data_directory_exits_5_and_leaves_the_first_alone(ready: Stack) -> None:
    first = ready.runtime()
    second = ready.run("up", "--http", "127.0.0.1:0", "--embedder", "none")
    assert second.code == DATA_DIR_BUSY, second.err
    assert "--data-dir" in second.err
    assert "Traceback" not in second.err
    assert ready.runtime() == first
    with client_of(ready) as client:
        assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(one, marks=pytest.mark.nightly) for one in (signal.SIGINT, signal.SIGHUP))],
)
def test_a_stop_signal_drains_exits_0_and_removes_runtime_json(tmp_path: Path, number: signal.Signals) -> None:
    with Stack(tmp_path / "data") as stack:
        stack.up()
        with client_of(stack) as client:
            assert client.post("/v1/journal", json=small_entry(1, "kept")).status_code == 201
        nats = stack.nats_pid()
        assert nats is not None
        assert stack.process is not None
        stack.process.send_signal(number)
        assert stack.process.wait(END_DEADLINE_S) == 0, stack.log_tail()
        assert stack.runtime() is None
        assert stack.nats_pid() is None
        assert "Traceback" not in stack.log_tail()


TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.mark.nightly
def test_a_terminal_that_is_closed_drains_up_and_leaves_no_broker_behind(tmp_path: Path) -> None:
    with Stack(tmp_path / "data") as stack:
        terminal, inside = pty.openpty()
        command = [sys.executable, "-c", TAKE_TERMINAL, str(COMMAND), "up", "--http", "127.0.0.1:0", *stack.options]
        stack.process = subprocess.Popen(
            command, env=stack.environment, stdin=inside, stdout=inside, stderr=inside, start_new_session=True
        )
        os.close(inside)
        try:
            stack.wait_ready()
        finally:
            os.close(terminal)
        assert stack.process.wait(END_DEADLINE_S) == 0
        assert stack.runtime() is None
        assert stack.nats_pid() is None


@pytest.mark.nightly
def test_a_hangup_that_nohup_ignores_does_not_end_the_service(tmp_path: Path) -> None:
    with Stack(tmp_path / "data") as stack:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited by what is started
        try:
            stack.start()
        finally:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
        stack.wait_ready()
        assert stack.process is not None
        stack.process.send_signal(signal.SIGHUP)
        with client_of(stack) as client:
            assert client.post("/v1/journal", json=small_entry(1, "kept")).status_code == 201
        assert stack.terminate() == 0, stack.log_tail()


@pytest.mark.nightly
def test_a_second_hangup_is_no_impatience(tmp_path: Path) -> None:
    with Stack(tmp_path / "data") as stack:
        stack.up()
        assert stack.process is not None
        stack.process.send_signal(signal.SIGHUP)
        stack.process.send_signal(signal.SIGHUP)
        assert stack.process.wait(END_DEADLINE_S) == 0, stack.log_tail()
        assert stack.nats_pid() is None


@pytest.mark.parametrize("at", ["while it runs", "while it starts"])
def test_a_second_signal_ends_up_at_once_and_the_broker_with_it(tmp_path: Path, at: str) -> None:
    """The broker was left behind: it has a session of its own, and the drain had not come to it."""
    with Stack(tmp_path / "data", ("--embedder", "none")) as stack:
        stack.start()
        wait_for(stack.nats_pid, "the start of the broker", 120.0)
        if at == "while it runs":
            stack.wait_ready()
        assert stack.process is not None
        stack.process.send_signal(signal.SIGSTOP)  # so that both are there when it looks
        stack.process.send_signal(signal.SIGINT)
        stack.process.send_signal(signal.SIGTERM)
        stack.process.send_signal(signal.SIGCONT)
        assert stack.process.wait(120) == 130, stack.log_tail()
        wait_for(lambda: stack.nats_pid() is None, "the end of the broker", 120.0)


def test_a_stop_signal_while_the_sample_is_loading_ends_up_at_once(tmp_path: Path) -> None:
    with Stack(tmp_path / "data", ("--embedder", "none", "--sample")) as stack:
        stack.up()
        assert stack.terminate() == 0, stack.log_tail()
        assert stack.runtime() is None


def test_a_restart_keeps_the_brokers_port_the_token_and_all_data(tmp_path: Path) -> None:
    with Stack(tmp_path / "data") as stack:
        before = stack.up()
        token = stack.token
        with client_of(stack) as client:
            posted = client.post("/v1/journal", json=[small_entry(n, "kept") for n in range(30)]).json()["entries"]
        assert stack.terminate() == 0
        after = stack.up()
        assert after.nats == before.nats
        assert stack.token == token
        with client_of(stack) as client:
            for ack in posted:
                found = client.get(f"/v1/journal/{ack['id']}", params={"min_seq": ack["seq"]})
                assert found.status_code == 200, found.text
                assert found.json()["seq"] == ack["seq"]
            again = client.post("/v1/journal", json=[small_entry(n, "kept") for n in range(30)]).json()["entries"]
            assert [(a["id"], a["seq"]) for a in again] == [(a["id"], a["seq"]) for a in posted]


def test_a_start_after_kill_9_ends_the_orphaned_broker_and_keeps_its_port(tmp_path: Path) -> None:
    with Stack(tmp_path / "data") as stack:
        before = stack.up()
        orphan = stack.nats_pid()
        stack.kill()
        assert stack.nats_pid() == orphan
        after = stack.up()
        assert after.nats == before.nats
        assert stack.nats_pid() not in (None, orphan)


def test_runtime_json_names_the_address_that_answers_and_the_process(ready: Stack) -> None:
    said = json.loads((ready.data_dir / "runtime.json").read_text())
    assert set(said) >= {"http", "nats", "pid"}
    with client_of(ready) as client:
        assert client.post("/v1/journal", json=small_entry(1, "private")).status_code == 201
    wait_for(lambda: (ready.data_dir / "views.duckdb.wal").exists(), "a log of the views")
    for secret in ("admin.token", "views.duckdb", "views.duckdb.wal"):
        assert (ready.data_dir / secret).stat().st_mode & 0o777 == 0o600
    assert httpx.get(f"{said['http']}/healthz", timeout=60, trust_env=False).status_code == 200
