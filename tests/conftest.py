"""Fixtures for every test: asyncio as the one event loop, and a real nats-server."""

from __future__ import annotations

import functools
import gc
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import structlog
from httpx._transports import default
from hypothesis import settings
from support.forked import Forked
from support.in_process import log_of_its_own
from support.nats import nats_binary, running_broker
from support.ownership import own_tables_only
from support.patience import patient
from support.processes import Stack

from crew_journal.services.access import accounts
from crew_journal.services.data_dir import read_running
from crew_journal.services.journal.broker.broker import ManagedBroker, NatsBinary

pytest_plugins = ["support.workers"]
settings.register_profile("bounded", deadline=None, max_examples=12)  # two shared cores: a slow example is no failure
settings.register_profile("nightly", deadline=None, max_examples=2_000)
settings.load_profile("bounded")
Stack.popen = Forked
# Made again for each client (20 ms), and never changed.
default.create_ssl_context = functools.cache(httpx.create_ssl_context)  # type: ignore[attr-defined]

structlog.configure(  # as structlog does by itself, but tracebacks without every local: those cost seconds each
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

gc.disable()  # importing and collecting tests makes no garbage; looking for it took a third of that time


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # duckdb reports what is left when the process ends


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """No test fails because a machine is slow: see ``support.patience``."""
    with patient():
        yield


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """A sign-in in this process takes 0.2 ms of CPU time instead of 0.2 s."""
    assert accounts.ARGON2 == (3, 4, 64 * 1024), "weaker than RFC 9106 recommends"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "ARGON2", (1, 1, 8))
        yield


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a run that was killed leaves lies with pytest's own files, which later runs remove."""
    former, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.getbasetemp())
    yield
    tempfile.tempdir = former


@pytest.fixture(scope="session", autouse=True)
def ownership() -> Iterator[None]:
    """No fold or tidying of any test touches a table that is not the projection's own."""
    with own_tables_only():
        yield


@pytest.fixture(scope="session", autouse=True)
def consents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor change the configuration and the journal of the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        state = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(state))
        yield
    if (node := read_running(state / "crew-journal" / "journal")) is not None:
        os.kill(node.pid, signal.SIGTERM)
        pytest.fail("a test started a node on the journal that stands for the user's own, and did not stop it")


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """How a command configures the log is over with its test."""
    with log_of_its_own():
        yield


@pytest.fixture(scope="session")
def nats_server_binary() -> NatsBinary:
    """Found or installed; a test that needs it fails with the instruction if it cannot be had."""
    return nats_binary()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ManagedBroker]:
    """A started broker of its own for one test, with the ``interval`` profile."""
    async with running_broker(tmp_path) as started:
        yield started
