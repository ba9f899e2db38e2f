"""Which command is where: eight everyday commands, groups of all others, and the former and guessed names of each.

Invariant: every command is in one group and keeps all names that it ever had. Names that are not listed in a help text
work without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EVERYDAY: Final = ("up", "remember", "recall", "list", "import", "connect", "status", "forget")
"""What a person does every day, in the order of the help."""

GROUPS: Final[dict[str, tuple[str, Mapping[str, str]]]] = {
    "entry": (
        "Single entries: publish, watch, correct, retract, relate.",
        {
            "publish": "publish",
            "get": "get",
            "tail": "tail",
            "correct": "correct",
            "corrections": "corrections",
            "retract": "retract",
            "restore": "restore",
            "priority": "priority",
            "relate": "relate",
            "unrelate": "unrelate",
            "graph": "graph",
            "conversation": "conversation",
            "schema": "schema",
        },
    ),
    "explain": (
        "Why an answer was given, and who was given a memory.",
        {
            "why": "why",
            "receipt": "receipt",
            "used": "used",
            "lineage": "lineage",
            "who-saw": "who-saw",
            "notices": "notices",
            "diff": "diff",
            "bisect": "bisect",
            "replay": "replay",
            "prove": "prove",
        },
    ),
    "memory": ("Memory documents: AGENT.md, daily logs, topics, pins.", {"": "memory", "mirror": "mirror"}),
    "fact": ("Facts about entities, and when they hold.", {"": "fact"}),
    "palace": ("Texts filed verbatim under wing and room.", {"": "palace"}),
    "layered": ("Layered memory: facts, procedures and episodes.", {"": "layered"}),
    "prompt": (
        "What reaches an agent's prompt: contexts, hints.",
        {"assemble": "assemble", "block": "memory block", "nudges": "nudges"},
    ),
    "learn": (
        "What is learned: rules, proposals, lessons.",
        {
            "run": "consolidate run",
            "rules": "consolidate rules",
            "proposal": "proposal",
            "lesson": "lesson",
            "exam": "learn exam",
        },
    ),
    "operator": ("What people said about themselves, and their consent.", {"": "operator"}),
    "agent": ("Agents and their settings.", {"": "agent"}),
    "crew": ("Crews and their settings.", {"": "crew"}),
    "token": ("Tokens: credentials of agents and people.", {"": "token"}),
    "account": (
        "People who sign in to the pages by name, their sessions.",
        {"": "account", "invite": "invite"},
    ),
    "workspace": ("Workspaces and their settings.", {"": "workspace"}),
    "model": ("Embedding models: install, add, compare, switch.", {"": "model", "reindex": "reindex"}),
    "journal": (
        "Journals by name, and which one is used here.",
        {"": "journal", "show": "config show", "trust": "trust", "untrust": "untrust"},
    ),
    "data": (
        "Copies and files: back up, restore, export.",
        {
            "backup": "backup",
            "restore": "restore",
            "salvage": "salvage",
            "export": "export",
            "export-documents": "bundle export",
            "import-documents": "bundle import",
            "erasures": "erasures",
        },
    ),
    "serve": (
        "The memory for programs: tools, sidecar, workers.",
        {"mcp": "mcp", "sidecar": "sidecar", "work": "work"},
    ),
    "node": (
        "The running node: check, rebuild, verify, stop.",
        {
            "down": "down",
            "doctor": "doctor",
            "health": "health",
            "rebuild": "rebuild",
            "verify": "verify",
            "dlq": "dlq",
            "sweep": "sweep",
            "cluster": "cluster",
            "broker": "broker",
            "clean": "clean",
        },
    ),
    "measure": (
        "Measure and test what recall returns.",
        {
            "test": "test",
            "eval": "eval",
            "calibrate": "calibrate",
            "provider-parity": "provider-parity",
            "demo": "demo",
        },
    ),
}
"""Group → its help and its commands: name in the group → name in ``main``; an empty name stands for all of a group."""

FORMER_GROUPS: Final[dict[str, Mapping[str, str]]] = {
    "kg": {"": "fact"},
    "embedder": {"": "model"},
    "embeddings": {"": "model"},
    "context": {"": "journal"},
}
"""Former names of groups whose commands are the same today."""

GUESSES: Final[dict[str, str]] = {
    **dict.fromkeys(("add", "note", "save", "store", "put", "write"), "remember"),
    **dict.fromkeys(("search", "find", "query", "ask", "grep"), "recall"),
    **dict.fromkeys(("ls", "entries", "history"), "list"),
    **dict.fromkeys(("rm", "remove", "delete", "erase"), "forget"),
    **dict.fromkeys(("start", "serve-all", "init", "server"), "up"),
    **dict.fromkeys(("stop", "shutdown", "quit"), "down"),
    **dict.fromkeys(("info", "ps"), "status"),
    **dict.fromkeys(("show", "cat"), "get"),
    **dict.fromkeys(("watch", "follow", "log", "logs"), "tail"),
    **dict.fromkeys(("install", "setup"), "connect"),
    **dict.fromkeys(("person", "people", "user"), "operator"),
    **dict.fromkeys(("facts", "graph-facts"), "fact"),
    **dict.fromkeys(("models",), "model"),
    **dict.fromkeys(("tokens",), "token"),
    **dict.fromkeys(("accounts", "login", "signin", "password"), "account"),
    **dict.fromkeys(("agents",), "agent"),
    **dict.fromkeys(("crews",), "crew"),
    **dict.fromkeys(("workspaces",), "workspace"),
    **dict.fromkeys(("contexts", "journals"), "journal"),
}
"""Names that people try at the top → the command."""

GUESSES_IN_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "ls": ("list",),
    "show": ("get", "read", "status", "list"),
    "add": ("create", "write"),
    "new": ("create", "add"),
    "make": ("create",),
    "rm": ("remove", "delete", "revoke", "drop", "retract", "invalidate"),
    "remove": ("delete", "revoke", "drop", "retract", "invalidate"),
    "delete": ("remove", "revoke", "drop", "retract", "invalidate"),
    "switch": ("use", "activate"),
    "use": ("activate",),
    "set": ("update", "settings", "configure", "write"),
    "edit": ("update", "write"),
    "find": ("search", "query"),
    "query": ("search",),
    "search": ("query",),
}
"""Names that people try in a group → the first of these that the group has."""
