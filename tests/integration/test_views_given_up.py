"""A node whose view file DuckDB has given up and cannot be opened again at once: every answer is a 503 with the reason."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.faults import no_file_grows
from support.running import running_node
from support.stack import DEADLINE_S, HTTP_TIMEOUT_S

from crew_journal.consumers.host.store import ViewStore, ViewsUnusable

ENTRY = {"entry_type": "run.completed", "summary": "the build of the parser failed"}
READS: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/v1/status", None),
    ("GET", "/metrics", None),
    ("GET", "/v1/journal", None),
    ("GET", "/v1/journal/count", None),
    ("GET", "/v1/memory/health", None),
    ("POST", "/v1/recall", {"query": "parser build"}),
    ("POST", "/v1/recall/render", {"query": "parser build"}),
)


async def test_every_answer_is_a_503_with_the_reason_until_the_file_is_open_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[ViewStore] = []
    connect = ViewStore._connect

    def remember(store: ViewStore) -> None:
        connect(store)
        opened.append(store)

    monkeypatch.setattr(ViewStore, "_connect", remember)
    async with running_node(tmp_path / "node") as node:
        headers = {"Authorization": f"Bearer {node.owner_token}"}
        async with httpx.AsyncClient(base_url=node.http_url, headers=headers, timeout=HTTP_TIMEOUT_S) as http:

            async def ask(method: str, path: str, body: Any) -> httpx.Response:
                return await http.request(method, path, json=body)

            [sent] = (await http.post("/v1/journal", json=ENTRY)).json()["entries"]
            assert (await http.get("/v1/journal", params={"min_seq": sent["seq"]})).status_code == 200
            with monkeypatch.context() as stuck:

                def fail(_store: ViewStore) -> None:
                    raise MemoryError

                stuck.setattr(ViewStore, "_connect", fail)
                with no_file_grows(), pytest.raises(ViewsUnusable):
                    await opened[0].checkpoint()
                for read in READS:
                    answer = await ask(*read)
                    assert answer.status_code == 503, read
                    assert answer.headers["content-type"] == "application/problem+json"
                    problem = answer.json()
                    assert problem["title"] == "The views cannot be used"
                    assert "Failed to create checkpoint" in problem["detail"]
                    assert "free disk space" in problem["hint"]
                    assert str(tmp_path) not in json.dumps(problem)
                ready = await http.get("/readyz")
                assert ready.status_code == 503
                assert "reopened automatically" in str(ready.json()["reasons"])
                assert (await http.post("/v1/journal", json=ENTRY)).status_code == 201, "the journal needs no views"
            assert (await ask(*READS[0])).status_code in (200, 503)  # whoever asks has it opened again
            opened[0].write_blocking(lambda _: None)  # after that
            for read in READS:
                assert (await ask(*read)).status_code == 200, read
            async with asyncio.timeout(DEADLINE_S):
                while (await http.get("/readyz")).status_code != 200:  # noqa: ASYNC110  # folding goes on with its next attempt
                    await asyncio.sleep(0.05)
