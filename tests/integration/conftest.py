"""What most integration tests stand on; a file that wants another declares its own of the same name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.memory_node import MemoryNode, Themes, memory_node
from support.ollama_server import OllamaServer
from support.stack import Stack, running_stack
from support.two_models import BLUE, RED

from crew_journal.services.journal.broker.broker import ManagedBroker


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A service of its own for the tests of one file."""
    async with running_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture
def server() -> Iterator[OllamaServer]:
    """A server that speaks Ollama's API, with one model."""
    with OllamaServer() as started:
        yield started


@pytest.fixture
def two_models() -> Iterator[OllamaServer]:
    """The same with two models of 32 dimensions."""
    with OllamaServer(models=(RED, BLUE), dim=32) as started:
        yield started


@pytest.fixture
def themes() -> Themes:
    """The model of ``live``."""
    return Themes()


@pytest.fixture
async def live(broker: ManagedBroker, themes: Themes, tmp_path: Path) -> AsyncIterator[MemoryNode]:
    """A journal with views and a clock of the test's, on a broker of its own."""
    async with memory_node(broker, themes, tmp_path) as made:
        yield made
