"""``connect``: shows and writes the configuration with which a coding agent uses this memory, and removes it.

Invariant: only entries that ``connect`` wrote are changed or removed; all other values of a file, its indentation, mode
and owner are kept. The hooks submit the prompts of the person who runs the command, with a token that speaks for this
person.
"""

from __future__ import annotations

import contextlib
import difflib
import getpass
import json
import os
import re
import secrets
import shlex
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import click

from ...schemas.core.errors import CrewJournalError, InvalidQuery, NotAllowed, NotFound
from ...schemas.core.grants import USER, person_of
from ..client.find import DATA_DIR_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, Place, address_of, find, located
from ..client.hook import LATE
from ..client.isolation import CLI_MODULE, isolated_python
from ..client.person import Person, keep_person, person_at
from .commands import Argument, Option
from .connection import find_running, start_node
from .contexts import context_of
from .options import Json, Where
from .output import say, show

# A settings file of another program: read once, and replaced only if it has not changed since.


_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE_FILE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700
MAX_BYTES: Final = 64_000_000
"""Largest file that is edited; Claude Code's ``.claude.json`` grows to some megabytes."""


class OtherFile:
    """The current content of a file below a base directory.

    Args:
        base: A directory that the person named, or the home directory; links in its own path are followed.
        below: The path of the file below it.

    Raises:
        NotAllowed: If a part of the path is a link.
        InvalidQuery: If it is not a regular file, or too large.
    """

    def __init__(self, base: Path, below: str) -> None:
        self.path = base / below
        self._base = base
        self._folders, self._name = below.split("/")[:-1], below.split("/")[-1]
        self.before = self._read()
        """The content; None if the file is absent."""

    def replace(self, content: bytes) -> None:
        """Replace the content.

        Raises:
            CrewJournalError: If the file has changed since it was read.
            NotAllowed: If a part of the path became a link, or the file's owner cannot be kept.
        """
        with self._folder(create=True) as folder:
            draft = f".{self._name}.crew-journal-{secrets.token_hex(8)}"
            descriptor = os.open(draft, _NEW, _PRIVATE_FILE, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    self._keep_rights(folder, descriptor)
                    os.fsync(descriptor)
                if self._read() != self.before:
                    raise CrewJournalError(
                        f"{self.path} was changed by another program in the meantime; it was left as it is",
                        hint="run the command again",
                    )
                os.rename(draft, self._name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=folder)

    def _keep_rights(self, folder: int, draft: int) -> None:
        try:
            former = os.stat(self._name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        fresh = os.fstat(draft)
        if (former.st_uid, former.st_gid) != (fresh.st_uid, fresh.st_gid):
            try:
                os.fchown(draft, former.st_uid, former.st_gid)
            except PermissionError:
                raise NotAllowed(
                    f"{self.path} belongs to another user or group", hint="run the command as its owner"
                ) from None
        os.fchmod(draft, stat.S_IMODE(former.st_mode))

    def _read(self) -> bytes | None:
        try:
            with self._folder() as folder:
                descriptor = os.open(self._name, _READ, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError:
            raise self._refused(self.path) from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InvalidQuery(f"{self.path} is not a regular file", hint="move it away, then connect again")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(content) > MAX_BYTES:
            raise InvalidQuery(f"{self.path} has more than {MAX_BYTES} bytes", hint="edit it yourself")
        return content

    @contextmanager
    def _folder(self, *, create: bool = False) -> Iterator[int]:
        """The descriptor of the file's folder."""
        if create:
            self._base.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        descriptor = os.open(self._base.resolve(), _DIRECTORY)
        try:
            for number, name in enumerate(self._folders):
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, _PRIVATE_FOLDER, dir_fd=descriptor)
                try:
                    below = os.open(name, _DIRECTORY, dir_fd=descriptor)
                except FileNotFoundError:
                    raise
                except OSError:
                    raise self._refused(self._base.joinpath(*self._folders[: number + 1])) from None
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @staticmethod
    def _refused(path: Path) -> NotAllowed:
        if path.is_symlink():
            return NotAllowed(
                f"{path} is a link to {path.readlink()}, which is not followed",
                hint="put the file itself there, or add the entries to its target yourself",
            )
        return NotAllowed(f"{path} cannot be opened", hint="make it readable and writable for you")


_COMMAND: Final = "crew-journal"
_NAME: Final = "crew-journal"
_ISOLATION: Final = frozenset({"-E", "-I", "-P"})
_TIMEOUT_S: Final = 5
"""Seconds after which the coding agent stops a hook; a hook takes at most a third of a second."""
_TRIALS: Final = 5
"""Trials of the hook as long as the service is late: the first requests of a node that was just started are slow."""
_EVENTS: Final = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
_CODEX_EVENTS: Final = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact")
_INDENT: Final = re.compile(r"^[\[{]\s*\n([ \t]+)\S")
Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _AgentFile:
    """A JSON file of a coding agent: its path below the home directory, and functions that add and remove our entries.

    ``remove`` changes nothing unless it finds one of our entries; ``add`` replaces our entries.
    """

    path: str
    add: Callable[[Config, _Started], None]
    remove: Callable[[Config], None]


def _nested(program: str, events: tuple[str, ...]) -> _AgentFile:
    """Hooks as Claude Code and Codex write them: event → groups → hooks."""

    def add(config: Config, started: _Started) -> None:
        remove(config)
        hooks = _object_in(config, "hooks")
        for event in events:
            hook = {"type": "command", "command": _hook_command(started, event, program), "timeout": _TIMEOUT_S}
            _list_in(hooks, event).append({"hooks": [hook]})

    def remove(config: Config) -> None:
        for event, groups in _lists_of(config, "hooks"):
            emptied = [
                group
                for group in groups
                if isinstance(group, dict) and _remove_our_hooks(group.get("hooks"), program) and not group["hooks"]
            ]
            groups[:] = [group for group in groups if not any(group is empty_group for empty_group in emptied)]
            if emptied and not groups:
                _drop(config, "hooks", event)

    return _AgentFile(".claude/settings.json" if program == "claude-code" else ".codex/hooks.json", add, remove)


def _flat() -> _AgentFile:
    """Hooks in Cursor's format: event → hooks."""

    def add(config: Config, started: _Started) -> None:
        remove(config)
        config.setdefault("version", 1)
        hook = {"command": _hook_command(started, "sessionStart", "cursor")}
        _list_in(_object_in(config, "hooks"), "sessionStart").append(hook)

    def remove(config: Config) -> None:
        for event, hooks in _lists_of(config, "hooks"):
            if _remove_our_hooks(hooks, "cursor") and not hooks:
                _drop(config, "hooks", event)

    return _AgentFile(".cursor/hooks.json", add, remove)


def _servers(path: str, program: str) -> _AgentFile:
    """The tools: ``mcpServers``. An entry of the same name that ``connect`` did not write stays."""

    def add(config: Config, started: _Started) -> None:
        servers = _object_in(config, "mcpServers")
        former = servers.get(_NAME)
        if former is not None and not _is_our_server(former, program):
            say(f"mcpServers.{_NAME} in {path} was not written by `connect`: it stays as it is")
            return
        command = [*started.command, "mcp", "--project", program, *started.options]
        servers[_NAME] = {**(former or {}), "command": command[0], "args": command[1:]}

    def remove(config: Config) -> None:
        servers = config.get("mcpServers")
        if isinstance(servers, dict) and _is_our_server(servers.get(_NAME), program):
            _drop(config, "mcpServers", _NAME)

    return _AgentFile(path, add, remove)


PROGRAMS: Final[dict[str, tuple[_AgentFile, ...]]] = {
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
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Connect a coding agent: give its sessions memory, and capture their turns.

    A journal of this folder alone, or a service elsewhere, is named in the configuration, so that every repository uses it.
    If no node runs on your own journal, one is started in the background. At the end, a hook is tried.

    Shows what changes in which file and asks before it writes; links are not followed. The crew is the repository, the agent
    is the program; a trusted file .crew-journal.json in the repository overrides that. Your prompts are recorded as yours;
    nothing is learned of you unless you consent (crew-journal operator consent NAME granted).
    """
    if program not in PROGRAMS:
        raise InvalidQuery(f"no program {program!r}", hint=f"use {', '.join(PROGRAMS)}", field="program")
    command = [*isolated_python(), "-m", CLI_MODULE]
    place = None if remove else located(where.url, where.data_dir)
    options = _options_of(place)
    changed: list[tuple[OtherFile, str, str]] = []
    for file in PROGRAMS[program]:
        other_file = OtherFile(home or Path.home(), file.path)
        before = _text(other_file)
        config = _config(other_file.path, before)
        unchanged = json.dumps(config)
        try:
            file.remove(config) if remove else file.add(config, _Started(command, options))
        except InvalidQuery as error:
            raise InvalidQuery(f"{other_file.path}: {error.message}", hint=error.hint) from None
        if json.dumps(config) != unchanged:
            changed.append((other_file, before, _written(config, before)))
    for other_file, before, after in changed:
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
        say("".join(difflib.unified_diff(old, new, str(other_file.path), str(other_file.path))).rstrip())
    if changed and not yes and not click.confirm("Write this?", err=True):
        changed = []
    for other_file, _before, after in changed:
        other_file.replace(after.encode())
    if changed or yes:
        if place is not None:
            _prepare(place)
        _speak_for(None if remove else person or getpass.getuser(), program, where)
        if place is not None:
            _try(_Started(command, options), program, place)
    if program == "codex" and not remove:
        tools = [*command, "mcp", "--project", program, *options]
        say(f"for the tools, run: codex mcp add {_NAME} -- {shlex.join(tools)}")
    answer = {"program": program, "written": [str(file.path) for file, _, _ in changed]}
    show(answer, json_output, lambda shown: print("\n".join(shown["written"]) or "nothing was written"))


@dataclass(frozen=True, slots=True)
class _Started:
    """How a program starts us: the command, and the options that name the journal."""

    command: list[str]
    options: list[str]


def _prepare(place: Place) -> None:
    """Keep the context of a service elsewhere; start the node of the user's own journal if it does not run."""
    if place.url is not None:
        context_of(place.url, address_of(place).token, place.workspace, save=True)
    elif place.is_own and place.data_dir is not None and find_running(place.data_dir) is None:
        try:
            node = start_node(place.data_dir)
        except (CrewJournalError, OSError) as error:
            say(f"no node runs, and none could be started: {error}")
        else:
            say(f"no node was running: started one in the background on {node.http} (`crew-journal down` stops it)")


def _options_of(place: Place | None) -> list[str]:
    """The options that name a journal from every folder; none for the user's own, which is found without.

    A service elsewhere is named by a context, so that its token is not in the program's configuration.
    """
    if place is None or place.is_own:
        return []
    if place.data_dir is not None:
        return ["--data-dir", str(place.data_dir.absolute())]
    assert place.url is not None, "a place has an address or a data directory"
    return ["--journal", context_of(place.url, address_of(place).token, place.workspace)]


def _try(started: _Started, program: str, place: Place) -> None:
    """Run the hook that was written, as the program does, in a folder that is no repository; say what it answered."""
    event = "sessionStart" if program == "cursor" else "SessionStart"
    command = shlex.split(_hook_command(started, event, program))
    named = (URL_VARIABLE, DATA_DIR_VARIABLE, TOKEN_VARIABLE)
    kept = {name: value for name, value in os.environ.items() if name not in named}
    trouble: str | None = ""
    with tempfile.TemporaryDirectory() as elsewhere:
        for _ in range(_TRIALS):
            given, began = json.dumps({"cwd": elsewhere, "session_id": "connect"}), time.monotonic()
            done = subprocess.run(
                command, input=given, cwd=elsewhere, env=kept, capture_output=True, text=True, check=False
            )
            took = time.monotonic() - began
            try:
                trouble = json.loads(done.stdout).get("systemMessage")
            except ValueError:
                trouble = done.stderr.strip() or f"exit code {done.returncode}"
            if trouble is None or LATE not in trouble:
                break
    where = place.url or place.data_dir
    if trouble:
        say(f"tried the hook {event}, and it cannot use the memory: {trouble}")
    else:
        say(f"tried the hook {event} from another folder: it answered in {took:.1f} s from {where}")


def _speak_for(name: str | None, program: str, where: Where) -> None:
    """Keep a token for the program's hooks that speaks for a person; None revokes and removes it."""
    from ..client import CrewJournal  # here, because its libraries are slow to import

    try:
        address = find(where.url, where.bearer, where.data_dir)
        known = person_at(address, program)
        if known is None and name is None:
            return
        with CrewJournal(address.url, address.token) as journal:
            person = None
            if name is not None:
                if known is not None and person_of(known.name) == person_of(name):
                    return
                created = journal.create_token(
                    "OWNER", all_workspaces=True, label=f"hooks of {program}", speaks_for=[f"{USER}:{name}"]
                )
                person = Person(name, created.token_id, created.token)
            keep_person(address, program, person)
            if known is not None:
                with suppress(NotFound):  # already revoked
                    journal.revoke_token(known.token_id)
    except (CrewJournalError, OSError) as error:
        say(
            f"prompts are recorded without a person's name: {error}; with a service running, connect again to change that"
        )
        return
    if name is not None:
        say(f"your prompts are recorded as those of {name}; nothing is learned of you before you consent:")
        say(f"crew-journal operator consent {shlex.quote(name)} granted")


def _text(other_file: OtherFile) -> str:
    try:
        return (other_file.before or b"").decode()
    except UnicodeDecodeError as error:
        raise InvalidQuery(
            f"{other_file.path} is not UTF-8 (byte {error.start})", hint="mend or move the file, then connect again"
        ) from None


def _config(path: Path, text: str) -> Config:
    def once(pairs: list[tuple[str, Any]]) -> Config:
        read = dict(pairs)
        if len(read) != len(pairs):
            raise InvalidQuery(
                f"{path} has a key twice in one object, of which one would be lost", hint="remove one of them"
            )
        return read

    try:
        config = json.loads(text.strip() or "{}", object_pairs_hook=once)
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise InvalidQuery(f"{path} is not a JSON object", hint="mend or move the file, then connect again")
    return config


def _written(config: Config, before: str) -> str:
    """The configuration as text, indented and escaped as the text before, by default with two blanks."""
    indent = _INDENT.match(before)
    compact = before.strip() not in ("", "{}") and "\n" not in before.strip()
    text = json.dumps(
        config, indent=None if compact else indent[1] if indent else 2, ensure_ascii=bool(before) and before.isascii()
    )
    return text if before and not before.endswith("\n") else text + "\n"


def _hook_command(started: _Started, event: str, program: str) -> str:
    return shlex.join([*started.command, "hook", event, "--program", program, *started.options])


def _remove_our_hooks(hooks: Any, program: str) -> bool:
    """Remove our hooks from a list; whether there were any."""
    if not isinstance(hooks, list):
        return False
    kept = [hook for hook in hooks if not _is_our_hook(hook, program)]
    removed, hooks[:] = len(kept) < len(hooks), kept
    return removed


def _is_our_hook(hook: Any, program: str) -> bool:
    try:
        words = shlex.split(hook["command"])
    except (TypeError, KeyError, ValueError, AttributeError):
        return False
    words = _without_place(words)
    return words[-4:-3] == ["hook"] and words[-2:] == ["--program", program] and _is_our_command(words[:-4])


def _is_our_server(server: Any, program: str) -> bool:
    if not isinstance(server, dict) or not isinstance(server.get("args"), list):
        return False
    words = _without_place([server.get("command"), *server["args"]])
    return (
        all(isinstance(word, str) for word in words)
        and words[-3:] == ["mcp", "--project", program]
        and _is_our_command(words[:-3])
    )


def _without_place(words: list[Any]) -> list[Any]:
    """A command without the options that name a journal."""
    return words[:-2] if len(words) > 2 and words[-2] in ("--data-dir", "--journal") else words


def _is_our_command(words: list[str]) -> bool:
    """Whether ``connect`` (of any version) wrote a command: it starts with the script, or with Python and the module."""
    if len(words) == 1:
        return Path(words[0]).name == _COMMAND
    return words[-2:] == ["-m", CLI_MODULE] and _ISOLATION.issuperset(words[1:-2])


def _object_in(config: Config, name: str) -> Config:
    value = config.setdefault(name, {})
    if not isinstance(value, dict):
        raise InvalidQuery(f"{name} is not a JSON object", hint="mend it, then connect again")
    return value


def _list_in(config: Config, name: str) -> list[Any]:
    value = config.setdefault(name, [])
    if not isinstance(value, list):
        raise InvalidQuery(f"{name} is not a JSON array", hint="mend it, then connect again")
    return value


def _lists_of(config: Config, name: str) -> list[tuple[str, list[Any]]]:
    value = config.get(name)
    return [(key, value) for key, value in value.items() if isinstance(value, list)] if isinstance(value, dict) else []


def _drop(config: Config, name: str, key: str) -> None:
    """Remove a key of an object, and the object if it was the last one."""
    del config[name][key]
    if not config[name]:
        del config[name]
