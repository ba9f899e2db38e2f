"""``clean``: lists what Crew Journal has installed and stored on this machine, and removes it by name.

Invariant: only named items are removed; a data directory in use is not touched.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import click

from ...schemas.core.errors import DataDirBusy
from ...schemas.core.user_folders import state_folder
from ..client.find import config_file, data_dir_of
from ..client.project import consents_folder
from .commands import Argument, Option
from .connection import SIGNS
from .importing.key import KEY_FILE
from .options import DataDir, Json, settings_from
from .output import print_table, say, show, size_text

_VIEWS: Final = "views.duckdb"


@dataclass(frozen=True, slots=True)
class RemovableFiles:
    """Something that can be removed.

    Attributes:
        name: Name for the command line.
        what: A description, and the consequence of removing it.
        paths: Its files and directories that exist.
        of_journal: Whether it is in the data directory.
    """

    name: str
    what: str
    paths: tuple[Path, ...]
    of_journal: bool = False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(_size(path) for path in self.paths)


def clean(
    names: Annotated[
        list[str] | None, Argument(metavar="[NAME]…", help="What to remove; lists everything if left out.")
    ] = None,
    data_dir: DataDir = None,
    yes: Annotated[bool, Option("--yes", help="Remove it; without, only show what would be removed.")] = False,
    json_output: Json = False,
) -> None:
    """List what is installed and kept on this machine, or remove what is named, with --yes."""
    folder = data_dir_of(data_dir)
    known = {item.name: item for item in kept(folder)}
    for name in names or ():
        if name not in known:
            raise click.BadParameter(f"{name} is not one of {', '.join(known) or 'nothing'}", param_hint="NAME")
    chosen = [known[name] for name in names] if names else list(known.values())
    if names and yes:
        _remove(chosen, folder)
    rows = [
        {"name": item.name, "bytes": item.size, "what": item.what, "paths": [*map(str, item.paths)]} for item in chosen
    ]
    removed = bool(names and yes)
    show({"kept": rows, "removed": removed}, json_output, _print)
    if names and not yes and not json_output:
        say("nothing was removed: add --yes")


def kept(data_dir: Path) -> Iterator[RemovableFiles]:
    """Everything that exists."""
    settings = settings_from(data_dir=data_dir)
    state = state_folder()
    old = [path for path in data_dir.glob(f"{_VIEWS}.*") if path.name != f"{_VIEWS}.wal"]
    items = (
        RemovableFiles("models", "model weights; `model install minilm` downloads them again", (settings.models_dir,)),
        RemovableFiles("broker", "nats-server; needed to start `up`, unless one is on PATH", (settings.nats_dir,)),
        RemovableFiles(
            "hooks",
            "how far hooks have read transcripts, whose prompts they are, and the key of imports; without them, turns are "
            "recorded twice and a repeated import stores all again",
            (state / "hooks", state / "persons.json", state / KEY_FILE),
        ),
        RemovableFiles(
            "trust", "which folders are trusted; without it, each has to be trusted again", (consents_folder(),)
        ),
        RemovableFiles("configuration", "contexts with their tokens, and settings", (config_file(),)),
        RemovableFiles(
            "imports",
            "positions of imports; imports start again, and store nothing twice",
            (data_dir / "imports",),
            True,
        ),
        RemovableFiles(
            "old-views",
            "views that were put aside; they may be the last copy of lost entries",
            tuple(sorted(old)),
            True,
        ),
        RemovableFiles(
            "journal", "the journal itself with its views and tokens: make a `backup` first", (data_dir,), True
        ),
    )
    for item in items:
        paths = tuple(path for path in item.paths if path.exists())
        if item.name == "journal" and not any((data_dir / sign).exists() for sign in SIGNS):
            continue
        if paths:
            yield RemovableFiles(item.name, item.what, paths, item.of_journal)


def _remove(chosen: list[RemovableFiles], data_dir: Path) -> None:
    from ..data_dir import is_owned

    if any(kept_file.of_journal for kept_file in chosen) and is_owned(data_dir):
        raise DataDirBusy(f"`up` runs on {data_dir}", hint="stop it first")
    for kept_file in chosen:
        say(f"removed {kept_file.name}: {size_text(kept_file.size)}")
        for path in kept_file.paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size if path.exists() else 0
    return sum(path.lstat().st_size for path in path.rglob("*") if path.is_file() and not path.is_symlink())


def _print(answer: Mapping[str, Any]) -> None:
    if answer["removed"]:
        return
    rows = [(item["name"], size_text(item["bytes"]), item["paths"][0], item["what"]) for item in answer["kept"]]
    print_table(("name", "size", "where", "what"), rows, right=("size",), empty="nothing is installed or kept")
