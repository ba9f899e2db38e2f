"""The commands of memory documents, as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path

from support.in_process import run_in_process
from support.processes import Stack


def test_a_document_is_written_read_compared_and_restored_from_the_command_line(tmp_path: Path) -> None:
    with Stack(tmp_path / "data", ("--embedder", "none", "--durability", "interval")) as stack:
        stack.up()
        ada = ("AGENT", "--agent", "ada")
        text = tmp_path / "notes.md"
        text.write_text("# Facts\n- one\n", "utf-8")
        first = stack.run("memory", "write", *ada, "--mode", "replace", "--file", str(text), "--json").document
        piped = ("memory", "write", *ada, "-", "--mode", "append")
        assert run_in_process(piped, stack.environment, "- two\n")[0] == 0
        assert stack.run("memory", "write", *ada, "--mode", "append", "--", "- 3").code == 0
        for mistyped in ("--raeson=why", "- 4"):
            assert stack.run("memory", "write", *ada, "--mode", "append", mistyped).code == 2
        read = stack.run("memory", "read", *ada)
        assert read.out == "# Facts\n- one\n- two\n- 3\n"
        assert "24 of 4000 bytes" in read.err
        diff = stack.run("memory", "diff", *ada, "--from-version", str(first["seq"]))
        assert diff.out.splitlines()[-1] == "+- 3"
        assert stack.run("memory", "restore", *ada, "--version", str(first["seq"])).code == 0
        assert stack.run("memory", "read", *ada).out == "# Facts\n- one\n"
        assert stack.run("memory", "retract", *ada, "--reason", "wrong").code == 0
        assert stack.run("memory", "read", *ada).out == ""
        assert "restore" in stack.run("memory", "versions", *ada).out
        noted = stack.run("memory", "note", "deployed", "--agent", "ada")
        assert noted.out.startswith("daily/")
        assert "AGENT.md" in stack.run("memory", "list").out
        full = stack.run("memory", "write", *ada, "x" * 5_000, "--mode", "append", "--json")
        assert full.code == 2
        assert json.loads(full.err)["error"]["projected_size"] == 5_001
        assert stack.run("memory", "write", *ada, "--mode", "append").code == 2
        lost = stack.run("memory", "write", *ada, "x", "--mode", "replace", "--expected-seq", "1")
        assert (lost.code, "is at version" in lost.err) == (1, True)
