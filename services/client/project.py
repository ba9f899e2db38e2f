"""Determines the crew and agent of a project's sessions, for reading and for writing.

The crew is the repository: host and path of its remote ``origin``, else the name of its folder. The agent is the
program that works in it. A file ``.crew-journal.json`` in the repository, ``{"crew": …, "agent": …, "workspace": …}``,
overrides both once a person trusts the file; the environment (``CREW_JOURNAL_CREW``,
``CREW_JOURNAL_AGENT``, ``CREW_JOURNAL_WORKSPACE``) overrides the file.

Invariants: remotes with different hosts or paths have different crews, and the crew of a folder never equals the crew
of a remote. A worktree belongs to a repository only if the repository confirms it. Standard library only; git is not
run, because a hook has milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...schemas.core.errors import InvalidQuery, NotAllowed, NotFound
from ..data_dir import IGNORE_FILE, LOCK_FILE, TOKEN_FILE, make_private, read_owner_token, small_file, write_private

# The main folder of a repository, found without running git, because a hook has milliseconds.
#
# Invariant: a folder counts as a worktree of a repository only if that repository confirms it.


def root_of(folder: Path) -> Path:
    """The repository's main folder, else the folder itself."""
    here = folder.absolute()
    for parent in (here, *here.parents):
        git = parent / ".git"
        if git.is_dir():
            return parent
        if git.is_file():
            return _main_folder(git) or parent
    return here


def _main_folder(git: Path) -> Path | None:
    """The repository of a worktree, whose ``.git`` is ``gitdir: <repository>/.git/worktrees/<name>``.

    Git stores the path of the worktree in the file ``gitdir`` there, which a folder that only claims to be a worktree
    cannot write.
    """
    named = (small_file(git) or b"").decode("utf-8", "replace").partition("gitdir:")[2].strip()
    inside = (git.parent / named).resolve()
    back = (small_file(inside / "gitdir") or b"").decode("utf-8", "replace").strip()
    if inside.parent.name != "worktrees" or not back or (inside / back).resolve() != git.resolve():
        return None
    return inside.parents[2]


# Consents: a journal or settings file that is found in a folder is used only after ``crew-journal trust``.
#
# A cloned repository may contain both: a ``.crew-journal`` that leads to an attacker's service, and a ``.crew-
# journal.json`` that names another crew, agent or workspace. Therefore a consent for each path is stored outside the
# folder, in ``crew-journal/trusted`` of the user's configuration, and is valid for one content: the journal's owner
# token, or the text of the settings file.
#
# Invariant: files in the folder cannot create, change or move a consent. A path that a person names (``--data-dir``,
# an argument, ``CREW_JOURNAL_*``) needs no consent. Standard library only, because hooks import this module.


JOURNAL_FOLDER: Final = ".crew-journal"
"""Name of the data directory that commands look for in the current folder."""
SETTINGS_FILE: Final = ".crew-journal.json"
"""Name of the settings file in a repository's main folder."""
STORE: Final = ("crew-journal", "trusted")
_NOT_YET: Final = ""
"""Content of a journal that has no owner's token yet."""
_START_FILES: Final = frozenset({IGNORE_FILE, LOCK_FILE, "up.log"})
"""Files of a data directory without a journal."""


@dataclass(frozen=True, slots=True)
class Consent:
    """A person's decision about one path.

    Attributes:
        path: The place; its parents are real folders, its last part may be a link.
        target: The path to which ``path`` resolves.
        content: SHA-256 of what was trusted; empty for a journal without an owner's token; None if the person refused.
    """

    path: str
    target: str
    content: str | None


@dataclass(frozen=True, slots=True)
class Trusted:
    """A path that a command trusts or refuses: a ``journal`` or ``settings``."""

    kind: str
    path: Path

    @property
    def shown(self) -> str:
        """The path, with unprintable characters escaped."""
        return _shown(self.path)


def check_journal(data_dir: Path) -> None:
    """Refuse a data directory that was found in a folder and is not trusted; an empty one is allowed.

    Raises:
        NotAllowed: If it is not trusted, or changed after it was trusted.
    """
    if _holds_nothing(data_dir):
        return
    consent = _consent(data_dir)
    if consent is None or consent.content is None:
        raise _refusal(f"the journal in {_shown(data_dir)} was found in this folder and is not trusted", data_dir)
    if (consent.target, consent.content) != (os.path.realpath(data_dir), _token_hash(data_dir)):
        raise _refusal(
            f"the journal in {_shown(data_dir)} is not the one that was trusted: its owner's token or its place changed",
            data_dir,
        )


def is_there(data_dir: Path) -> str:
    """Why a data directory in a folder does not count, trusted or not; empty if it does.

    A directory without a journal counts once ``up --here`` has made it, and one that a person refused does not.
    """
    if not os.path.lexists(data_dir):
        return "it does not exist"
    consent = _consent(data_dir)
    if consent is None:
        return "it holds no journal" if _holds_nothing(data_dir) else ""
    return "" if consent.content is not None else "you refused it with `crew-journal untrust`"


def trusted_settings(path: Path) -> bytes | None:
    """The content of a settings file that is trusted; None if there is none, or a person refused it.

    Raises:
        NotAllowed: If the file is neither trusted nor refused, or changed after it was trusted.
    """
    if not os.path.lexists(path):
        return None
    consent = _consent(path)
    if consent is not None and consent.content is None:
        return None
    content = small_file(path)
    if content is None:
        raise _refusal(f"{_shown(path)} is not a regular file of at most 64 KB", path)
    if consent is None:
        raise _refusal(f"the settings in {_shown(path)} were found in this folder and are not trusted", path)
    if consent.content != _hash(content):
        raise _refusal(f"the settings in {_shown(path)} changed since they were trusted", path)
    return content


def claim_journal(data_dir: Path) -> bool:
    """Create a data directory if it is absent; an empty one becomes trusted.

    Returns:
        False if the consent could not be stored; the directory must then be named with ``--data-dir``.
    """
    is_new = data_dir.name == JOURNAL_FOLDER and _holds_nothing(data_dir)
    make_private(data_dir)
    if is_new:
        try:
            _write(Consent(_place(data_dir), os.path.realpath(data_dir), _NOT_YET))
        except (OSError, NotAllowed):
            return False
    return True


def note_token(data_dir: Path, token: str) -> None:
    """Extend the consent for a data directory to its new owner token; call it before the token is written."""
    consent = _consent(data_dir)
    if consent is not None and consent.content is not None and consent.target == os.path.realpath(data_dir):
        with contextlib.suppress(OSError, NotAllowed):
            _write(Consent(consent.path, consent.target, _hash(token.encode())))


def is_noted(data_dir: Path) -> bool:
    """Whether there is a consent for a data directory, which allows to verify its service."""
    return data_dir.name == JOURNAL_FOLDER and _consent(data_dir) is not None


def trust(path: Path) -> Trusted:
    """Trust a journal or a settings file, as it is now.

    Args:
        path: The path, or a folder with a journal or settings file that is not trusted yet.

    Raises:
        NotFound: If there is none.
        InvalidQuery: If the folder has both, and neither is trusted.
        NotAllowed: If the path cannot be read, or the consent cannot be stored.
    """
    settings_files = _found(path)
    chosen = _only(
        [trusted for trusted in settings_files if not _is_trusted(trusted)] or settings_files[:1], path, "trust"
    )
    content = _token_hash(chosen.path) if chosen.kind == "journal" else _settings_hash(chosen.path)
    _keep(Consent(_place(chosen.path), os.path.realpath(chosen.path), content))
    return chosen


def untrust(path: Path) -> Trusted:
    """Refuse a journal, which is then not used, or a settings file, which is then ignored.

    Raises:
        NotFound: If there is none.
        InvalidQuery: If the folder has both.
        NotAllowed: If the refusal cannot be stored.
    """
    chosen = _only(_found(path), path, "untrust")
    _keep(Consent(_place(chosen.path), os.path.realpath(chosen.path), None))
    return chosen


def _found(path: Path) -> list[Trusted]:
    path = path.absolute()
    kinds = {JOURNAL_FOLDER: "journal", SETTINGS_FILE: "settings"}
    places = [path] if path.name in kinds else [path / JOURNAL_FOLDER, root_of(path) / SETTINGS_FILE]
    return [Trusted(kinds[place.name], place) for place in places if os.path.lexists(place)]


def _only(candidates: list[Trusted], path: Path, verb: str) -> Trusted:
    if not candidates:
        raise NotFound(
            f"there is neither a journal ({JOURNAL_FOLDER}) nor a settings file ({SETTINGS_FILE}) in {_shown(path)}",
            hint="name the folder that has one; a journal at another place is named with --data-dir and needs no trust",
        )
    if len(candidates) > 1:
        commands = " or ".join(f"`{_command(verb, trusted.path)}`" for trusted in candidates)
        raise InvalidQuery(
            f"there are a journal and settings in {_shown(path)}", hint=f"look at both, then run {commands}"
        )
    return candidates[0]


def _is_trusted(trusted: Trusted) -> bool:
    try:
        if trusted.kind == "journal":
            check_journal(trusted.path)
            return True
        return trusted_settings(trusted.path) is not None
    except NotAllowed:
        return False


def _keep(consent: Consent) -> None:
    try:
        _write(consent)
    except OSError as error:
        raise NotAllowed(
            f"the consent cannot be kept in {error.filename or consents_folder()}: {error.strerror}",
            hint="make this directory writable, or set XDG_CONFIG_HOME",
        ) from None


def _holds_nothing(data_dir: Path) -> bool:
    """Whether a path is free or a directory without a journal."""
    if not os.path.lexists(data_dir):
        return True
    if data_dir.is_symlink():
        return False
    try:
        with os.scandir(data_dir) as entries:
            return all(entry.name in _START_FILES and entry.is_file(follow_symlinks=False) for entry in entries)
    except OSError:
        return False


def _token_hash(data_dir: Path) -> str:
    if not os.path.lexists(data_dir / TOKEN_FILE):
        return _NOT_YET
    token = read_owner_token(data_dir)
    if token is None:
        raise NotAllowed(
            f"the owner's token in {_shown(data_dir / TOKEN_FILE)} cannot be read",
            hint="name the service with --url and --token",
        )
    return _hash(token.encode())


def _settings_hash(path: Path) -> str:
    content = small_file(path)
    if content is None:
        raise NotAllowed(
            f"{_shown(path)} is not a regular file of at most 64 KB",
            hint=f"replace it by a file, or run `{_command('untrust', path)}` to work without it",
        )
    return _hash(content)


def _refusal(problem: str, path: Path) -> NotAllowed:
    otherwise = f"or `{_command('untrust', path)}` to use your own journal here"
    if path.name == SETTINGS_FILE:
        otherwise = f"`{_command('untrust', path)}` to work without it"
    return NotAllowed(problem, hint=f"look at it, then run `{_command('trust', path)}` if it is yours; {otherwise}")


def _command(verb: str, path: Path) -> str:
    client = "crew-journal-client"
    name = client if Path(sys.argv[0]).name == client else "crew-journal"
    return f"{name} {verb} {shlex.quote(_shown(path))}"


def _shown(path: Path) -> str:
    text = str(path.absolute())
    return text if text.isprintable() else ascii(text)


def _hash(content: bytes) -> str:
    from hashlib import (
        sha256,
    )  # imported late, because a hook in a folder without a journal or settings does not need it

    return sha256(content).hexdigest()


def _place(path: Path) -> str:
    """The path with its parents resolved; a link at its end is not resolved."""
    absolute = path.absolute()
    return str(Path(os.path.realpath(absolute.parent), absolute.name))


def consents_folder() -> Path:
    """The folder of the consents.

    Raises:
        NotAllowed: If there is no home directory.
    """
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():  # the specification says to ignore it then
        try:
            base = Path.home() / ".config"
        except RuntimeError:
            raise NotAllowed(
                "there is no home directory to keep consents in", hint="set HOME or XDG_CONFIG_HOME"
            ) from None
    return base.joinpath(*STORE)


def _consent(path: Path) -> Consent | None:
    place = _place(path)
    try:
        kept = json.loads(
            small_file(consents_folder() / f"{_hash(place.encode(errors='surrogateescape'))}.json") or b""
        )
        consent = Consent(str(kept["path"]), str(kept["target"]), kept["content"])
    except (ValueError, KeyError, TypeError, NotAllowed):
        return None
    return consent if consent.path == place else None


def _write(consent: Consent) -> None:
    path = consents_folder() / f"{_hash(consent.path.encode(errors='surrogateescape'))}.json"
    kept = {"path": consent.path, "target": consent.target, "content": consent.content}
    write_private(path, json.dumps(kept) + "\n")


_MOST_CHARS: Final = 64
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_BETWEEN: Final = "__"
"""Separator of the parts of a remote's crew; it never occurs in the parts or in crews of folders."""
_PLAIN_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(?:_[A-Za-z0-9-]+)*\Z")
_CONFIG_BYTES: Final = 1_048_576
"""Maximum size of ``.git/config``; a file with 1,000 branches has about 100 KB."""
_HASH_CHARS: Final = 16
"""Number of hex digits of the hash (64 bits), enough to prevent collisions."""
_URL: Final = re.compile(r"[a-z+]+://(?:[^/@]*@)?(?P<host>\[[^\]]*\]|[^/:]*)(?::\d*)?/(?P<path>.*)\Z", re.IGNORECASE)
_SCP: Final = re.compile(r"(?:[^/@]*@)?(?P<host>\[[^\]]*\]|[^/:]+):(?P<path>.*)\Z")
_ORIGIN: Final = re.compile(r'\[remote "origin"\][^\[]*?^[ \t]*url[ \t]*=[ \t]*(\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Project:
    """The owner of the memory that a session reads and writes.

    Attributes:
        crew: The repository.
        agent: The program that works in it.
        workspace: The workspace; None for the token's workspace.
    """

    crew: str
    agent: str
    workspace: str | None = None


def project_of(folder: Path, program: str) -> Project:
    """The project of a folder, for a program such as ``claude-code``.

    Raises:
        NotAllowed: If the settings file of the repository is neither trusted nor refused.
    """
    root = root_of(folder)
    return _project(root, program, _settings_of(root))


def project_without_question(folder: Path, program: str) -> Project:
    """``project_of`` for cases in which no person can be asked, such as imports: untrusted settings are ignored."""
    root = root_of(folder)
    try:
        return _project(root, program, _settings_of(root))
    except NotAllowed:
        return _project(root, program, {})


def _project(root: Path, program: str, named: dict[str, str]) -> Project:
    crew = os.environ.get("CREW_JOURNAL_CREW") or named.get("crew")
    agent = os.environ.get("CREW_JOURNAL_AGENT") or named.get("agent") or program
    workspace = os.environ.get("CREW_JOURNAL_WORKSPACE") or named.get("workspace")
    return Project(slug(crew) if crew else _origin(root) or _crew_of_folder(root), slug(agent), workspace or None)


def slug(name: str) -> str:
    """A name as an id: other characters become ``-``."""
    return _NOT_IN_IDS.sub("-", name).strip("-_")[:_MOST_CHARS] or "project"


def settings_text(path: Path) -> str:
    """The content of a settings file on one line, for people; empty if it has no settings."""
    named = _names_in(small_file(path) or b"")
    return ", ".join(f"{key} {named[key]}" for key in ("crew", "agent", "workspace") if key in named)


def _settings_of(root: Path) -> dict[str, str]:
    return _names_in(trusted_settings(root / SETTINGS_FILE) or b"")


def _names_in(content: bytes) -> dict[str, str]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return {key: value for key, value in body.items() if isinstance(value, str)} if isinstance(body, dict) else {}


def _origin(root: Path) -> str | None:
    config = small_file((root / ".git" / "config").resolve(), _CONFIG_BYTES) or b""
    match = _ORIGIN.search(config.decode("utf-8", "replace"))
    return None if match is None else crew_of_remote(match[1].strip('"'))


def crew_of_remote(url: str) -> str | None:
    """The crew of a remote: ``github-com__acme__shop`` for ``git@github.com:acme/shop`` and for the same over HTTPS.

    A hyphen of the host is doubled and a dot becomes a hyphen. If the path has characters that ids do not have, or the name
    would be too long, or if there is no host, a hash of host and path follows after ``___``.
    """
    match = _URL.match(url) or ("://" not in url and not url.startswith((".", "/")) and _SCP.match(url)) or None
    host, path = (match["host"].lower(), match["path"]) if match else ("", url.partition("://")[2] or url)
    parts = [part for part in path.removesuffix("/").removesuffix(".git").split("/") if part]
    if not parts:
        return None
    named = [host.replace("-", "--").replace(".", "-") or "local", *parts]
    name = _BETWEEN.join(named)
    if host and len(name) <= _MOST_CHARS and all(map(_PLAIN_PART.match, named)):
        return name
    from hashlib import sha256  # imported late, because most hooks do not need it

    digest = sha256("/".join([host, *parts]).encode("utf-8", "surrogateescape")).hexdigest()[:_HASH_CHARS]
    readable = _BETWEEN.join(slug(part) for part in named)[: _MOST_CHARS - len(digest) - 3].rstrip("_-")
    return f"{readable}___{digest}"


def _crew_of_folder(root: Path) -> str:
    """The crew of a repository without a remote: the name of its folder, which never equals a remote's crew."""
    return re.sub("__+", "_", slug(root.name))
