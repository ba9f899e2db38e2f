"""Adapters on the real packages, each in an environment of its own (``tests/frameworks``); nightly: they are large."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread
import pytest
from support.framework import run_with
from support.stack import Stack

from crew_journal.schemas.core.principal import Role

FRAMEWORKS = {"google-adk": "adk_memory.py", "crewai": "crewai_storage.py", "hermes": "hermes_provider.py"}


@pytest.mark.nightly
@pytest.mark.parametrize("package", FRAMEWORKS)
async def test_the_real_package_runs_on_the_adapter(stack: Stack, package: str, tmp_path: Path) -> None:
    async with stack.client() as owner:
        await owner.register_agent("ada", crew_id="red", memory_enabled=True, workspace_id=f"w-{package}")
    token = (await stack.token(Role.AGENT, f"w-{package}", agent="ada", crew="red")).plaintext
    env = {"CREW_JOURNAL_URL": stack.url, "CREW_JOURNAL_TOKEN": token}
    await anyio.to_thread.run_sync(lambda: run_with(package, FRAMEWORKS[package], tmp_path, **env))
