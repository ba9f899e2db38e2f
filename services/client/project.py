"""Determines the crew and agent of a project's sessions, for reading and for writing.

The crew is the repository: host and path of its remote ``origin``, else the name of its folder. The agent is the
program that works in it. A file ``.crew-journal.json`` in the repository, ``{"crew": …, "agent": …, "workspace": …}``,
overrides both once a person trusts the file (``trust``); the environment (``CREW_JOURNAL_CREW``,
``CREW_JOURNAL_AGENT``, ``CREW_JOURNAL_WORKSPACE``) overrides the file.

Invariants: remotes with different hosts or paths have different crews, and the crew of a folder never equals the crew
of a remote. A worktree belongs to a repository only if the repository confirms it. Standard library only; git is not
run, because a hook has milliseconds.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...schemas.core.errors import NotAllowed
from ..data_dir import small_file
from .repository import root_of
from .trust import SETTINGS_FILE, trusted_settings

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
