"""kill -9 of the service, at times with its broker, while it erases: the next start completes the erasure.

The instants are spread over the steps: the request's answer, the announcement, the deletions, the folding, the receipt.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.processes import Stack, wait_for

CANARY = "zylqvarp"
NEIGHBOUR = "Ben likes green tea"
LATEST_S = 1.2
"""Seconds after the request by which an erasure of a small journal is completed on an idle machine."""
DEADLINE_S = 120.0


def client_of(stack: Stack) -> httpx.Client:
    ready = stack.runtime()
    assert ready is not None
    token = (stack.data_dir / "admin.token").read_text().strip()
    return httpx.Client(base_url=ready.http, headers={"authorization": f"Bearer {token}"}, timeout=DEADLINE_S)


def answered(answer: httpx.Response) -> dict[str, Any]:
    assert answer.is_success, answer.text
    return dict(answer.json())


def appended(client: httpx.Client, **fields: Any) -> str:
    entry = {"workspace_id": "default", "entry_type": "note.taken", "agent_id": "a1", "crew_id": "c1", **fields}
    return str(answered(client.post("/v1/journal", json=entry))["entries"][0]["id"])


def receipt(stack: Stack, erasure_id: str) -> dict[str, Any]:
    """The receipt, once there is one."""

    def completed() -> dict[str, Any] | None:
        with client_of(stack) as client:
            answer = client.get(f"/v1/admin/erasures/{erasure_id}")
        return dict(answer.json()) if answer.is_success and answer.json()["state"] == "completed" else None

    found: dict[str, Any] = wait_for(completed, f"the receipt of {erasure_id}", DEADLINE_S)
    return found


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.nightly)])
def test_erasure_after_kill_9_at_any_step_is_completed_by_the_next_start(tmp_path: Path, kills: int) -> None:
    chance = random.Random(31)
    with Stack(tmp_path / "data", ("--embedder", "none", "--durability", "interval")) as stack:
        stack.up()
        with client_of(stack) as client:
            appended(client, summary=NEIGHBOUR)
        for number in range(kills):
            with client_of(stack) as client:
                note = appended(client, summary=f"the word is {CANARY}")
                appended(client, summary=f"about {CANARY}", refs={"derived_from": [note]})
                begun = answered(client.post("/v1/admin/forget", json={"ids": [note], "reason": "asked"}))
            time.sleep(LATEST_S * (number + chance.random()) / kills)
            stack.kill()
            if number % 2:
                stack.signal_nats(signal.SIGKILL)
            stack.up()
            done = receipt(stack, begun["erasure_id"])
            assert done["messages"] == begun["messages"]
            assert done["not_proven"]
            with client_of(stack) as client:
                found = answered(client.post("/v1/admin/prove", json={"canary": CANARY}))
                assert (found["files"], found["views"]) == ({}, {}), number
        with client_of(stack) as client:
            listed = answered(client.get("/v1/journal", params={"entry_type": "note.taken"}))
            assert [entry["summary"] for entry in listed["entries"]] == [NEIGHBOUR]
            assert len(answered(client.get("/v1/admin/erasures"))["erasures"]) == kills
        assert stack.run("verify", "--json").document["equal"]
        assert stack.terminate() == 0
