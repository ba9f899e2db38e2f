"""The pages in a real headless Chromium: keyboard, forms, live refresh, and a hostile journal that runs nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.minilm import minilm_cache
from support.running import running_node

from crew_journal.services.client import AsyncCrewJournal

DRIVE = Path(__file__).parents[1] / "support" / "browse.py"
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"> \u202edlrow olleh"


OTHERS = (
    "The payment sandbox answers slowly",
    "Two reviewers disagree about naming",
    "A licence file is missing",
    "Nobody owns the mail templates",
    "Search needs a bigger disk",
    "The mobile release waits for translations",
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with Selenium, in an environment of its own."""
    for needed in ("chromium", "chromedriver"):
        assert shutil.which(needed), f"{needed} is missing: install the packages chromium and chromium-driver"
    venv = tmp_path_factory.mktemp("selenium")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin/pip", "install", "--quiet", "selenium==4.51.0"], check=True)
    return venv / "bin/python"


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """axe-core, as npm packs it."""
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run(["npm", "pack", "axe-core@4.14.1", "--silent"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        packed.extract("package/axe.min.js", folder, filter="data")
    return folder / "package/axe.min.js"


@pytest.mark.nightly
async def test_a_person_signs_in_recalls_corrects_and_watches(driver: Path, axe: Path, tmp_path: Path) -> None:
    async with running_node(tmp_path / "data", embedder="minilm", cache_dir=minilm_cache().parent) as node:
        async with AsyncCrewJournal(node.http_url, node.owner_token) as journal:
            base = {"entry_type": "run.completed", "agent_id": "ada"}
            await journal.append({**base, "id": "hostile", "summary": HOSTILE})
            await journal.append({**base, "id": "long", "summary": f"{'w' * 900} is the longest word"})
            done = await journal.append({**base, "id": "denied", "summary": "The checkout deploy was denied on Friday"})
            said = {**base, "entry_type": "memory.remembered"}
            for owner in ("Chen", "Dora"):
                summary = f"The owner of the nightly order backup is {owner}"
                done = await journal.append({**said, "agent_id": owner.lower(), "summary": summary})
            tom = {**said, "summary": "Tom has the blue badge", "data_subject_id": "tom@example"}
            done = await journal.append(tom)
            await journal.count(min_seq=done.seq)
            escalated = {"entry_type": "peer.escalation", "agent_id": "ada", "crew_id": "desk"}
            for ago in range(4):
                day = (datetime.now(UTC) - timedelta(days=ago)).isoformat()
                refused = f"Load test {ago} refused because the staging cluster quota is exhausted"
                payload = {"fix": "Ask for quota the day before"}
                await journal.append({**escalated, "ts": day, "summary": refused, "payload": payload})
            for text in OTHERS:
                done = await journal.append({**escalated, "summary": text})
            await journal.count(min_seq=done.seq)
            await journal.consolidate(crew_id="desk", since="7d")
        shutil.copy(axe, tmp_path / "axe.min.js")
        command = [str(driver), str(DRIVE), node.http_url, node.owner_token, str(tmp_path)]
        ran = await asyncio.to_thread(lambda: subprocess.run(command, capture_output=True, text=True, timeout=300))
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["titles"]
    assert not any("taken" in title for title in seen["titles"])
    assert seen["recalled"][0] == "The checkout deploy was denied on Friday"
    assert seen["focused_by_slash"] == "query"
    assert seen["by_key"].endswith("/journal")
    assert "only a drill" in seen["retracted"]
    assert seen["came_by_itself"]
    assert seen["sent_from_docs"].startswith("201")
    assert "seq" in seen["sent_from_docs"]
    assert seen["wider"] <= 0, "a long word makes no page wider than the window"
    assert (seen["settled"], seen["approved"]) == (True, True)
    assert "green badge" in seen["why"]
    assert "Nothing has been changed" in seen["plan"]
    assert "equal a fresh rebuild" in seen["verified"]
    assert seen["wider_on_a_phone"] == []
    assert seen["barriers"] == []
    assert (seen["joined_as"], seen["signed_in_as"]) == ("maria", "maria")
    assert "has expired or was used" in seen["link_again"]
    assert seen["forms_wider_on_a_phone"] == []
    assert seen["barriers_of_forms"] == []
    assert seen["violations"] == [], "the content policy had to stop something"
