"""`workspace settings --no-embed-chat`, `workspace list` and `remember` from end to end, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.ollama_server import OllamaServer
from support.processes import Stack, wait_for

MODEL = "red-embed"


def test_chat_is_embedded_unless_it_is_switched_off_and_what_is_remembered_always(tmp_path: Path) -> None:
    with OllamaServer(models=(MODEL,), dim=32) as server:
        options = ("--embedder", "ollama", "--durability", "interval")
        environment = {"OLLAMA_HOST": server.url, "CREW_JOURNAL_OLLAMA_MODEL": MODEL}
        with Stack(tmp_path / "data", options, environment) as stack:
            stack.up()

            def run(*arguments: str) -> Any:
                ran = stack.run(*arguments, "--json")
                assert ran.code == 0, ran.err
                return json.loads(ran.out)

            def lacking(count: int) -> Any:
                def counted() -> Any:
                    found = run("recall", "the pump", "--min-seq", str(made["seq"]))
                    return found if (found["without_vectors"], found["degraded"]) == (count, None) else None

                return wait_for(counted, f"{count} entries without a vector")

            assert run("workspace", "settings")["embed_chat"] is True
            assert run("workspace", "settings", "--no-embed-chat")["embed_chat"] is False
            run("publish", "--type", "chat.user_message", "--agent", "ada", "the pump is loud")
            made = run(
                "remember", "the pump\nwas built in 1999", "--agent", "ada", "--crew", "red", "--aliases", "engine"
            )
            found = lacking(1)
            assert found["awaiting_vectors"] == 0, "chat is to get none"
            assert made["entry_id"] in {hit["entry_id"] for hit in found["hits"]}

            assert run("workspace", "settings")["embed_chat"] is False
            assert run("workspace", "settings", "--embed-chat")["embed_chat"] is True
            assert lacking(0)["model"] == MODEL
            [workspace] = run("workspace", "list")["workspaces"]
            assert (workspace["workspace_id"], workspace["agents"], workspace["crews"]) == ("default", 1, 1)
            assert workspace["entries"] >= 3

            missing = stack.run("recall", "the pump", "--agent", "bob")
            assert (missing.code, "ada" in missing.err) == (4, True)
            shown = stack.run("workspace", "list")
            assert shown.out.split()[:2] == ["workspace", "entries"]
