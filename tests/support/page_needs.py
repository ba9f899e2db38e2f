"""What a page of the docs takes for granted: files, agents and entries that are there before its commands are pasted.

Each function is given commands on the running journal and the home directory, and returns what stands for the placeholders
of its page.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.cli import Cli, eventually
from support.mempalace import write_store
from support.nats import PROJECT

from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.connection import connect

SAMPLES = PROJECT / "tests" / "data" / "imports"
Words = Mapping[str, str]


def _write(path: Path, *lines: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _remembered(name: str) -> dict[str, str]:
    return {"id": name, "entry_type": "memory.remembered", "agent_id": "ada", "summary": f"Text of {name}"}


def the_command_line(cli: Cli, home: Path) -> Words:
    cli("mirror", str(home), "--agent", "ada", "--crew", "platform", "--once")
    return {"/path/to/crew-root": str(home / "crew")}


def learned_rules(cli: Cli, home: Path) -> Words:
    cli("workspace", "settings", "--review-rules")
    noise = [
        f"Text {n} about {word}" for n, word in enumerate(("harbours", "violins", "glaciers", "cinnamon", "chess"))
    ]
    entries = [
        {
            "entry_type": "peer.escalation",
            "crew_id": "platform",
            "agent_id": "ada",
            "ts": (datetime.now(UTC) - timedelta(days=ago)).isoformat(),
            "payload": {"fix": fix},
            "summary": text.format(ago),
        }
        for ago in range(4)
        for text, fix in (
            ("Load test {} refused because the staging cluster quota is exhausted", "Ask for quota the day before"),
            ("Invoice run {} stopped because the ledger certificate had expired", "Renew the certificate in spring"),
        )
    ]
    told = [
        {"entry_type": "peer.escalation", "crew_id": "platform", "agent_id": "ada", "summary": text} for text in noise
    ]
    _write(home / "entries.jsonl", *entries, *told)
    last = cli("import", str(home / "entries.jsonl"), "--json").json["last_seq"]
    cli("list", "--count", "--min-seq", str(last))
    cli("consolidate", "run", "--crew", "platform")
    listed = ("proposal", "list", "--state", "pending", "--json")
    found = eventually(lambda: len(some := cli(*listed).json["proposals"]) > 1 and some, "two proposals")
    write = ("memory", "write", "AGENT", "--agent", "ada", "--mode", "append", "--json")
    first_version = cli(*write, "Reads logs first").json["seq"]
    cli(*write, "Drinks tea")
    pinned = cli("remember", "--crew", "platform", "Backups are kept for nine days", "--json").json["entry_id"]
    first, second = (one["proposal_id"] for one in found[:2])
    return {
        "reject PROPOSAL_ID": f"reject {second}",
        "PROPOSAL_ID": first,
        "ENTRY_ID": pinned,
        "SEQ": str(first_version),
    }


def conversations_to_measure(cli: Cli, home: Path) -> Words:
    texts = [f"On day {n} the {word} was repaired" for n, word in enumerate(("boiler", "fence", "piano", "roof"))]
    entry = {"entry_type": "chat.user_message", "agent_id": "ada", "trace_id": "talk", "refs": {"episodic": True}}
    _write(home / "own" / "journal.jsonl", *({**entry, "id": f"t{n}", "summary": text} for n, text in enumerate(texts)))
    question = {"qid": "q1", "agent_id": "ada", "category": "when", "query": "When was the piano repaired?"}
    _write(home / "own" / "queries.jsonl", {**question, "relevant_ids": ["t2"]})
    return {"DIR": "own"}


def chats_of_other_programs(cli: Cli, home: Path) -> Words:
    shutil.copytree(SAMPLES / "claude-code", home / ".claude" / "projects")
    with zipfile.ZipFile(home / "export.zip", "w") as archive:
        archive.write(SAMPLES / "chatgpt.json", "conversations.json")
    return {}


def a_token_of_ada(cli: Cli, home: Path) -> Words:
    made = cli("token", "create", "--agent", "ada", "--crew", "platform", "--label", "page", "--json").json
    (home / "ada.token").write_text(made["token"])
    return {"TOKEN_ID": made["token_id"]}


def dead_letters_and_tokens(cli: Cli, home: Path) -> Words:
    async def park() -> None:
        async with AsyncCrewJournal(_url(cli), (cli.data_dir / "admin.token").read_text().strip()) as journal:
            broker = await journal.broker()
        client = await connect(broker.url, broker.user, broker.password, "test")
        taken = {"id": "taken", "summary": "Another text under the same id", "ts": "2026-11-21T09:30:00.000Z"}
        for body in (b"no json", json.dumps(taken).encode()):
            await client.jetstream().publish("journal.default._.scout.note", body)
        await client.close()

    cli("publish", "--type", "note", "--agent", "scout", "--id", "taken", "A text")
    asyncio.run(park())
    listed = ("dlq", "list", "--json")
    found = eventually(lambda: len(some := cli(*listed).json["dead_letters"]) > 1 and some, "two dead letters")
    broken, taken = sorted(letter["seq"] for letter in found)
    for n in range(8):
        cli("publish", f"The disk of node seven fills up, message {n}")
    return {**a_token_of_ada(cli, home), "retry SEQ": f"retry {taken}", "discard SEQ": f"discard {broken}"}


def _url(cli: Cli) -> str:
    return str(json.loads((cli.data_dir / "runtime.json").read_text())["http"])


def ten_messages_of_maria(cli: Cli, home: Path) -> Words:
    turn = {"entry_type": "chat.user_message", "actor_type": "user", "actor_id": "maria", "agent_id": "ada"}
    said = ["My timezone is UTC+1.", "I prefer short answers.", *["Go on."] * 8]
    _write(home / "turns.jsonl", *({**turn, "trace_id": "monday", "summary": text} for text in said))
    cli("operator", "consent", "maria", "granted")
    hers = cli("token", "create", "--agent", "ada", "--speaks-for", "maria", "--json").json["token"]
    last = cli("import", str(home / "turns.jsonl"), "--token", hers, "--json").json["last_seq"]
    cli("list", "--count", "--min-seq", str(last))
    cli("sweep", "operators")
    return {}


def a_palace_and_notes(cli: Cli, home: Path) -> Words:
    write_store(home)
    cli("palace", "add", "user", "diet", "Ada eats no nuts.")
    (home / "notes").mkdir()
    (home / "notes" / "tea.md").write_text("# Tea\n\nAda drinks green tea in the morning.\n")
    return {}


def a_memory_provider(cli: Cli, home: Path) -> Words:
    page = (PROJECT / "docs" / "providers.md").read_text("utf-8")
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (home / "dictionary.py").write_text(code)
    return {}


def two_measurements(cli: Cli, home: Path) -> Words:
    for name in ("j_old", "j_new"):
        cli("publish", "--id", name, f"The queue held {len(name)} messages, says {name}")
    return {}


def lines_to_import(cli: Cli, home: Path) -> Words:
    for name in ("episodes", "passages", "drawers", "memories"):
        _write(home / f"{name}.jsonl", _remembered(f"{name}-1"), _remembered(f"{name}-2"))
    shutil.copy(SAMPLES / "mem0.json", home / "memories.json")
    return {}


NEEDS: dict[str, Callable[[Cli, Path], Words]] = {
    "docs/cli.md": the_command_line,
    "docs/consolidation.md": learned_rules,
    "docs/conversational.md": conversations_to_measure,
    "docs/document-search.md": a_token_of_ada,
    "docs/importing.md": chats_of_other_programs,
    "docs/operating.md": dead_letters_and_tokens,
    "docs/operator-models.md": ten_messages_of_maria,
    "docs/palace.md": a_palace_and_notes,
    "docs/providers.md": a_memory_provider,
    "docs/relations.md": two_measurements,
    "docs/why/graphiti.md": lines_to_import,
    "docs/why/letta.md": lines_to_import,
    "docs/why/mem0.md": lines_to_import,
    "docs/why/mempalace.md": lines_to_import,
    "docs/why/pgvector.md": lines_to_import,
}
