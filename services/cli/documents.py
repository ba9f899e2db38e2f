"""How people see memory documents: texts and tables on stdout, state and warnings on stderr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .output import counted, print_table, print_text, safe, say


def print_document(answer: Mapping[str, Any]) -> None:
    """The text; its state, size and warning on stderr."""
    print_text(answer["content"])
    held = answer["usage"] or f"{answer['bytes']} bytes"
    unwritten = "rendered from entries" if answer["content"] else "never written"
    state = "retracted" if answer["retracted"] else f"version {answer['seq']}" if answer["seq"] else unwritten
    say(safe(f"{answer['id']} of {answer['owner']}: {state}, {held}"))
    if (finding := answer["quarantined"]) is not None:
        say(safe(f"warning: blocked for agents, {finding['category']}/{finding['pattern']}"))


def print_written(answer: Mapping[str, Any]) -> None:
    """What was written of a document."""
    again = ", written before" if answer["duplicate"] else ""
    print(safe(f"{answer['id']}  version {answer['seq']}  {answer['bytes']} of {answer['cap_bytes']} bytes{again}"))
    if answer["warning"]:
        say(f"warning: {safe(answer['warning'])}")


def print_memory_block(answer: Mapping[str, Any]) -> None:
    """The text of a memory block."""
    if not answer["memory_enabled"]:
        say("the agent's memory is off: turn it on with `crew-journal agent update AGENT --memory`")
        return
    print_text(answer["text"])
    usage = answer["usage"]
    say(f"{usage['total']} of {usage['budget']} characters")


def print_file(answer: Mapping[str, Any]) -> None:
    """The text of a file."""
    print_text(answer["text"])
    if answer["warning"] is not None:
        say(safe(f"warning: {answer['warning']}"))


def print_documents(answer: Mapping[str, Any]) -> None:
    """A table of documents, then their sums."""
    columns = ("owner", "document", "bytes", "of", "writes", "version", "written", "state")
    rows = []
    for document in answer["documents"]:
        state = "blocked" if document["quarantined"] else "retracted" if document["retracted"] else ""
        numbers = (document["bytes"], document["cap_bytes"], document["writes"], document["seq"])
        rows.append((document["owner"], document["id"], *numbers, document["updated_at"][:16] + "Z", state))
    if rows:
        print_table(columns, rows, right=columns[2:6])
    say(f"{counted(len(rows), 'document')}, {counted(answer['bytes'], 'byte')}")


def print_stats(answer: Mapping[str, Any]) -> None:
    """A table of tiers, then their sums."""
    columns = ("owner", "tier", "documents", "retracted", "blocked", "bytes", "versions", "swept", "version_bytes")
    if answer["tiers"]:
        print_table(columns, [[tier[name] for name in columns] for tier in answer["tiers"]], right=columns[2:])
    say(
        f"{counted(answer['documents'], 'document')}, {answer['bytes']} bytes; {counted(answer['versions'], 'version')}"
    )


def print_versions(answer: Mapping[str, Any]) -> None:
    """A table of the versions of a document."""
    columns = ("version", "written", "action", "bytes", "by", "source", "text", "reason")
    rows = [
        (
            version["seq"],
            version["at"][:19] + "Z",
            version["action"],
            version["bytes"],
            version["actor_id"] or version["actor_type"],
            version["source"],
            "swept" if version["gone"] else "kept",
            version["reason"],
        )
        for version in answer["versions"]
    ]
    print_table(columns, rows, right=("version", "bytes"), empty=f"{safe(answer['id'])} was never written")


def print_diff(answer: Mapping[str, Any]) -> None:
    """The unified diff."""
    print_text(answer["diff"])
    if not answer["diff"]:
        say("nothing changed")
