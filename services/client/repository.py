"""The main folder of a repository, found without running git, because a hook has milliseconds.

Invariant: a folder counts as a worktree of a repository only if that repository confirms it.
"""

from __future__ import annotations

from pathlib import Path

from ..data_dir import small_file


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
