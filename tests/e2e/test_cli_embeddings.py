"""`embeddings` from end to end: added, filled, compared, switched, switched back and dropped on the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.ollama_server import OllamaServer
from support.processes import Stack, wait_for

RED, BLUE = "red-embed", "blue-embed"
WORDS = ("valve", "pump", "gauge", "pipe", "boiler")
NOT_FOUND, CONFLICT, UNAVAILABLE = 4, 1, 5


@pytest.fixture
def server() -> Iterator[OllamaServer]:
    with OllamaServer(models=(RED, BLUE), dim=32) as started:
        yield started


def entries(workspace: str | None = None) -> list[dict[str, Any]]:
    of = {"workspace_id": workspace} if workspace else {}
    return [
        {
            **of,
            "id": f"esc-{n}",
            "agent_id": "ada",
            "entry_type": "peer.escalation",
            "trace_id": f"s-{n % 3}",
            "summary": f"the {WORDS[n % len(WORDS)]} of room {n} is stuck",
        }
        for n in range(10)
    ]


class Journal:
    """A running `up`, and the command beside it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        ran = self.stack.run(*arguments, "--json")
        assert ran.code == code, f"{arguments}: {ran.code}\n{ran.out}\n{ran.err}"
        return json.loads(ran.out if code == 0 else ran.err.splitlines()[-1])

    def model(self) -> str | None:
        def with_vectors() -> dict[str, Any] | None:
            """A query whose vector took over 2 s goes on lexically."""
            found: dict[str, Any] = self("recall", "the valve is stuck", "--k", "3")
            return found if found["degraded"] is None else None

        found = wait_for(with_vectors, "a recall with vectors")
        assert found["hits"]
        model: str | None = found["model"]
        return model


def test_a_second_model_is_added_compared_switched_to_and_back_and_dropped(
    tmp_path: Path, server: OllamaServer
) -> None:
    options = ("--embedder", "ollama", "--durability", "interval")
    environment = {"OLLAMA_HOST": server.url, "CREW_JOURNAL_OLLAMA_MODEL": RED}
    with (tmp_path / "entries.jsonl").open("w") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries())
    with Stack(tmp_path / "data", options, environment) as stack:
        stack.up()
        journal = Journal(stack)
        journal("import", str(tmp_path / "entries.jsonl"))
        assert journal("embeddings", "add", "absent", code=NOT_FOUND)["error"]["hint"] == "run `ollama pull absent`"
        added = journal("embeddings", "add", BLUE, "--wait")
        assert (added["filled"]["vectors"], added["filled"]["missing"]) == (10, 0)
        journal("embeddings", "add", RED, "--wait")
        shown = {model["model"]: model for model in journal("embeddings", "list")["models"]}
        assert (shown[RED]["active_in"], shown[BLUE]["active_in"]) == (["_system"], [])
        assert journal("embeddings", "compare", RED, BLUE, "--queries", "5", code=NOT_FOUND)["error"]["message"]

        switched = journal("embeddings", "activate", BLUE, "--reason", "to try it")
        assert (switched["former"], switched["missing"]) == (RED, 0)
        assert journal.model() == BLUE
        began = time.monotonic()
        journal("embeddings", "activate", RED)
        took = time.monotonic() - began
        assert journal.model() == RED
        print(f"switching back, the start of the command included: {took:.2f} s")
        assert journal("embeddings", "drop", RED, code=CONFLICT)["error"]["type"] == "ModelInUse"
        assert journal("embeddings", "drop", BLUE, "--reason", "no better")["changed"] is True
        gone = {model["model"]: model for model in journal("embeddings", "list")["models"]}[BLUE]
        assert (gone["state"], gone["vectors"]) == ("dropped", 0)
        assert journal("verify")["equal"] is True
        stack.terminate()

        # without `up` the same commands start the journal for themselves
        assert journal("embeddings", "add", BLUE, "--wait")["filled"]["missing"] == 0
        assert "blue-embed" in stack.run("embeddings", "list").out
        server.stop()
        assert journal("embeddings", "add", "another", code=UNAVAILABLE)["error"]["hint"]


def test_two_models_are_compared_on_a_set_with_answers(tmp_path: Path, server: OllamaServer) -> None:
    with (tmp_path / "journal.jsonl").open("w") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries("exam"))
    with (tmp_path / "queries.jsonl").open("w") as file:
        for n in range(3):
            asked = {"agent_id": "ada", "query": f"the {WORDS[n]} of room {n}", "relevant_ids": [f"esc-{n}"]}
            file.write(json.dumps(asked) + "\n")
    stack = Stack(tmp_path / "unused", environment={"OLLAMA_HOST": server.url})
    try:
        ran = stack.run("embeddings", "compare", RED, BLUE, "--eval", str(tmp_path), "--k", "5", "--json")
        assert ran.code == 0, ran.err
        report = ran.document
        assert list(report["models"]) == [RED, BLUE]
        for found in report["models"].values():
            assert (found["vectors"], found["embeddable"]) == (10, 10)
            assert found["recipes"]["dense"]["overall"]["recall"] == 1.0
        assert not (tmp_path / "unused").exists()
    finally:
        stack.close()
