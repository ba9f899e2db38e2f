"""The pages in a real headless Chromium: keyboard, forms, live refresh, and a hostile journal that runs nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.running import running_node

from crew_journal.services.client import AsyncCrewJournal

DRIVE = Path(__file__).parents[1] / "support" / "browse.py"
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"> \u202edlrow olleh"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with Selenium, in an environment of its own."""
    for needed in ("chromium", "chromedriver"):
        assert shutil.which(needed), f"{needed} is missing: install the packages chromium and chromium-driver"
    venv = tmp_path_factory.mktemp("selenium")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin/pip", "install", "--quiet", "selenium==4.51.0"], check=True)
    return venv / "bin/python"


@pytest.mark.nightly
async def test_a_person_signs_in_recalls_corrects_and_watches(driver: Path, tmp_path: Path) -> None:
    async with running_node(tmp_path / "data") as node:
        async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
            base = {"entry_type": "run.completed", "agent_id": "ada"}
            await journal.append({**base, "id": "hostile", "summary": HOSTILE})
            await journal.append({**base, "id": "long", "summary": f"{'w' * 900} is the longest word"})
            done = await journal.append({**base, "id": "denied", "summary": "The checkout deploy was denied on Friday"})
            await journal.count(min_seq=done.seq)
        command = [str(driver), str(DRIVE), node.http_url, node.owner_token, str(tmp_path)]
        ran = await asyncio.to_thread(lambda: subprocess.run(command, capture_output=True, text=True, timeout=300))
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["titles"]
    assert not any("taken" in title for title in seen["titles"])
    assert seen["recalled"] == ["The checkout deploy was denied on Friday"]
    assert seen["focused_by_slash"] == "query"
    assert seen["by_key"].endswith("/journal")
    assert "only a drill" in seen["retracted"]
    assert seen["came_by_itself"]
    assert seen["sent_from_docs"].startswith("201")
    assert "seq" in seen["sent_from_docs"]
    assert seen["wider"] <= 0, "a long word makes no page wider than the window"
    assert seen["violations"] == [], "the content policy had to stop something"
