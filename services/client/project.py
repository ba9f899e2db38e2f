"""Which crew and agent a project's sessions belong to: one rule for reading and for writing.

The crew is the repository: the last two parts of its remote ``origin``, else the name of its folder. The agent is the
program that works in it. A file ``.crew-journal.json`` in the repository, ``{"crew": …, "agent": …, "workspace": …}``, or
the environment (``CREW_JOURNAL_CREW``, ``CREW_JOURNAL_AGENT``, ``CREW_JOURNAL_WORKSPACE``) overrides that.
Invariant: a worktree belongs to its repository. Standard library only; git is not run, because a hook has milliseconds.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SETTINGS_FILE: Final = ".crew-journal.json"
_MOST_CHARS: Final = 64
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_ORIGIN: Final = re.compile(r'\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Project:
    """Whose memory a session reads and writes.

    Attributes:
        crew: The repository.
        agent: The program that works in it.
        workspace: None for the token's.
    """

    crew: str
    agent: str
    workspace: str | None = None


def project_of(folder: Path, program: str) -> Project:
    """The project of a folder, for a program such as ``claude-code``."""
    root = _root(folder)
    named = _settings_of(root)
    crew = os.environ.get("CREW_JOURNAL_CREW") or named.get("crew") or _origin(root) or root.name
    agent = os.environ.get("CREW_JOURNAL_AGENT") or named.get("agent") or program
    workspace = os.environ.get("CREW_JOURNAL_WORKSPACE") or named.get("workspace")
    return Project(slug(crew), slug(agent), workspace or None)


def slug(name: str) -> str:
    """A name as an id: other characters become ``-``."""
    return _NOT_IN_IDS.sub("-", name).strip("-_")[:_MOST_CHARS] or "project"


def _root(folder: Path) -> Path:
    """The repository's main folder, else the folder itself."""
    here = folder.absolute()
    for one in (here, *here.parents):
        git = one / ".git"
        if git.is_dir():
            return one
        if git.is_file():  # a worktree: `gitdir: <repository>/.git/worktrees/<name>`
            named = git.read_text("utf-8", "replace").partition("gitdir:")[2].strip()
            inside = (one / named).resolve()
            return inside.parents[2] if inside.parent.name == "worktrees" else one
    return here


def _settings_of(root: Path) -> dict[str, str]:
    try:
        found = json.loads((root / SETTINGS_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def _origin(root: Path) -> str | None:
    try:
        found = _ORIGIN.search((root / ".git" / "config").read_text("utf-8", "replace"))
    except OSError:
        return None
    if found is None:
        return None
    parts = [part for part in re.split(r"[/:]", found[1].removesuffix(".git")) if part]
    return "-".join(parts[-2:]) or None
