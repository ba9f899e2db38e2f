"""``connect``: writes the configuration by which a coding agent uses this memory, after showing it, and removes it again.

Invariant: only entries that run our own command are added or removed; everything else in a file stays as it was. The person
who runs it is the person whose prompts the hooks submit: they get a token that speaks for this person.
"""

from __future__ import annotations

import difflib
import getpass
import json
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from ...schemas.errors import CrewJournalError, InvalidQuery, NotFound
from ...schemas.grants import USER
from ...schemas.persons import person_of
from ..client.find import find
from ..client.person import Person, keep_person, person_at
from .options import Json
from .output import say, show

COMMAND: Final = "crew-journal"
_NAME: Final = "crew-journal"
_HOOK: Final = " hook "
_TIMEOUT_S: Final = 5
"""Seconds after which the coding agent gives a hook up; it takes a third of one at most."""
_EVENTS: Final = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
_CODEX_EVENTS: Final = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact")
Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _File:
    """A JSON file of a coding agent: its path below the home directory, and how our entries get in and out."""

    path: str
    add: Callable[[Config, list[str]], None]
    remove: Callable[[Config], None]


def _nested(program: str, events: tuple[str, ...]) -> _File:
    """Hooks as Claude Code and Codex write them: event → groups → hooks."""

    def add(config: Config, command: list[str]) -> None:
        for event in events:
            hook = {
                "type": "command",
                "command": shlex.join([*command, "hook", event, "--program", program]),
                "timeout": _TIMEOUT_S,
            }
            config.setdefault("hooks", {}).setdefault(event, []).append({"hooks": [hook]})

    def remove(config: Config) -> None:
        for event, groups in list(config.get("hooks", {}).items()):
            for group in groups:
                group["hooks"] = [hook for hook in group.get("hooks", ()) if not _is_ours(hook)]
            config["hooks"][event] = [group for group in groups if group["hooks"]]
            if not config["hooks"][event]:
                del config["hooks"][event]
        _drop_empty(config, "hooks")

    return _File(".claude/settings.json" if program == "claude-code" else ".codex/hooks.json", add, remove)


def _flat() -> _File:
    """Hooks as Cursor writes them: event → hooks."""

    def add(config: Config, command: list[str]) -> None:
        config.setdefault("version", 1)
        hook = {"command": shlex.join([*command, "hook", "sessionStart", "--program", "cursor"])}
        config.setdefault("hooks", {}).setdefault("sessionStart", []).append(hook)

    def remove(config: Config) -> None:
        for event, hooks in list(config.get("hooks", {}).items()):
            config["hooks"][event] = [hook for hook in hooks if not _is_ours(hook)]
            if not config["hooks"][event]:
                del config["hooks"][event]
        _drop_empty(config, "hooks")

    return _File(".cursor/hooks.json", add, remove)


def _servers(path: str, program: str) -> _File:
    """The tools: ``mcpServers``."""

    def add(config: Config, command: list[str]) -> None:
        config.setdefault("mcpServers", {})[_NAME] = {
            "command": command[0],
            "args": [*command[1:], "mcp", "--project", program],
        }

    def remove(config: Config) -> None:
        config.get("mcpServers", {}).pop(_NAME, None)
        _drop_empty(config, "mcpServers")

    return _File(path, add, remove)


PROGRAMS: Final[dict[str, tuple[_File, ...]]] = {
    "claude-code": (_nested("claude-code", _EVENTS), _servers(".claude.json", "claude-code")),
    "codex": (_nested("codex", _CODEX_EVENTS),),
    "cursor": (_flat(), _servers(".cursor/mcp.json", "cursor")),
}


def connect(
    program: Annotated[str, Argument(help="claude-code, codex or cursor.")],
    remove: Annotated[bool, Option("--remove", help="Remove what connect has written.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Write without asking.")] = False,
    home: Annotated[Path | None, Option("--home", help="Home directory, by default your own.", file_okay=False)] = None,
    person: Annotated[
        str | None, Option("--as", metavar="NAME", help="Your name in the journal, by default that of your login.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Connect a coding agent: give its sessions memory, and capture their turns.

    Shows what changes in which file and asks before it writes. The crew is the repository, the agent is the program; a file
    .crew-journal.json in the repository overrides that. Your prompts are recorded as yours; nothing is learned of you
    unless you consent (crew-journal operator consent NAME granted).
    """
    if program not in PROGRAMS:
        raise InvalidQuery(f"no program {program!r}", hint=f"use {', '.join(PROGRAMS)}", field="program")
    found = shutil.which(COMMAND)
    command = [found] if found else [sys.executable, "-m", "crew_journal.services.cli"]
    changed = []
    for file in PROGRAMS[program]:
        path = (home or Path.home()) / file.path
        before = path.read_text("utf-8") if path.exists() else ""
        config = _read(path, before)
        file.remove(config)
        if not remove:
            file.add(config, command)
        after = json.dumps(config, indent=2, ensure_ascii=False) + "\n" if config else ""
        if before != after:
            changed.append((path, before, after))
    for path, before, after in changed:
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
        say("".join(difflib.unified_diff(old, new, str(path), str(path))).rstrip())
    if changed and not yes and not typer.confirm("Write this?", err=True):
        changed = []
    for path, _before, after in changed:
        _write(path, after)
    if changed or yes:
        _speak_for(None if remove else person or getpass.getuser(), program)
    if program == "codex" and not remove:
        say(f"for the tools, run: codex mcp add {_NAME} -- {shlex.join([*command, 'mcp', '--project', program])}")
    answer = {"program": program, "written": [str(path) for path, _, _ in changed]}
    show(answer, json_output, lambda shown: print("\n".join(shown["written"]) or "nothing was written"))


def _speak_for(name: str | None, program: str) -> None:
    """Keep a token for the program's hooks that speaks for a person; None revokes and removes it."""
    from ..client import CrewJournal  # here, because its libraries are slow to import

    try:
        address = find(None, None, None)
        known = person_at(address, program)
        if known is None and name is None:
            return
        with CrewJournal(address.url, address.token) as journal:
            made = None
            if name is not None:
                if known is not None and person_of(known.name) == person_of(name):
                    return
                created = journal.create_token(
                    "OWNER", all_workspaces=True, label=f"hooks of {program}", speaks_for=[f"{USER}:{name}"]
                )
                made = Person(name, created.token_id, created.token)
            keep_person(address, program, made)
            if known is not None:
                with suppress(NotFound):  # it is revoked already
                    journal.revoke_token(known.token_id)
    except (CrewJournalError, OSError) as error:
        say(
            f"prompts are recorded without a person's name: {error}; with a service running, connect again to change that"
        )
        return
    if name is not None:
        say(f"your prompts are recorded as those of {name}; nothing is learned of you before you consent:")
        say(f"crew-journal operator consent {shlex.quote(name)} granted")


def _read(path: Path, text: str) -> Config:
    try:
        config = json.loads(text or "{}")
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise InvalidQuery(f"{path} is not a JSON object", hint="mend or move the file, then connect again")
    return config


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    candidate = path.with_name(path.name + ".new")
    candidate.write_text(text, "utf-8")
    candidate.replace(path)


def _is_ours(hook: Any) -> bool:
    command = str(hook.get("command", "")) if isinstance(hook, dict) else ""
    return _HOOK in command and ("crew-journal" in command or "crew_journal" in command)


def _drop_empty(config: Config, name: str) -> None:
    if config.get(name) == {}:
        del config[name]
