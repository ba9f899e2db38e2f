"""The data directory that a released version wrote, packed: a later version has to open it as it is.

Recorded once for each release, from a checkout of it, and never changed afterwards:

    PYTHONPATH=tests python -m support.kept_data 0.1.0
"""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from support.running import running_node

from crew_journal.services.client import AsyncCrewJournal

FOLDER = Path(__file__).parents[1] / "golden" / "data"
NOT_KEPT = ("lock", "runtime.json", "admin.token", "broker.json", "nats.conf", "nats.out", "nats.log")
"""Credentials and paths of the machine; a start makes each of them again when it is missing."""
ENTRIES: list[dict[str, Any]] = [
    {"id": "denied", "entry_type": "approval.denied", "summary": "The checkout deploy was denied: the canary failed"},
    {"id": "spare", "entry_type": "note.taken", "summary": "The spare key is under the third pot", "agent_id": "ada"},
    {
        "id": "old",
        "entry_type": "memory.remembered",
        "summary": "Backups run at two",
        "payload": {"text": "Backups 🎉"},
    },
    {
        "id": "new",
        "entry_type": "memory.remembered",
        "summary": "Backups run at four",
        "supersedes": ["old"],
        "refs": {"parent_entry_id": "old"},
    },
    {"id": "elsewhere", "entry_type": "note.taken", "summary": "A note of another workspace", "workspace_id": "acme"},
]
QUESTIONS = ("why was the deploy denied", "where is the spare key", "when do backups run")


async def answers(journal: AsyncCrewJournal) -> dict[str, Any]:
    """Every entry of ``ENTRIES`` as it is read, and the ids that each question of ``QUESTIONS`` recalls, in order."""
    return {
        "entries": [
            (await journal.get(one["id"], workspace_id=one.get("workspace_id", "default"))).model_dump(
                mode="json", exclude_none=True, exclude={"view_seq"}
            )
            for one in ENTRIES
        ],
        "recalled": {query: [hit.entry_id for hit in (await journal.recall(query)).hits] for query in QUESTIONS},
    }


def unpack(release: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The data directory of a release below ``folder``, and what it answered when it was written."""
    with tarfile.open(FOLDER / f"{release}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    found: dict[str, Any] = json.loads((FOLDER / f"{release}.json").read_text("utf-8"))
    return folder / "data", found


def releases() -> list[str]:
    """Every release whose data directory is kept."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


async def record(release: str) -> None:
    """Write ``<release>.tar.xz`` and what it answers."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        async with running_node(data) as node, AsyncCrewJournal(node.http_url, node.owner_token) as journal:
            for entry in ENTRIES:
                done = await journal.append(entry)
            await journal.count(min_seq=done.seq)
            found = await answers(journal)
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{release}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        with tarfile.open(FOLDER / f"{release}.tar.xz", "w:xz", preset=9) as tar:
            tar.add(data, "data", filter=lambda one: None if Path(one.name).name in NOT_KEPT else _anonymous(one))


def _anonymous(one: tarfile.TarInfo) -> tarfile.TarInfo:
    one.uid = one.gid = 0
    one.uname = one.gname = ""
    return one


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
