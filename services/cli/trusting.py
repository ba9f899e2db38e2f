"""``trust`` and ``untrust``: what a person says of the journal and the settings that are found in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from ..client.project import settings_text
from ..client.trust import Trusted
from ..client.trust import trust as trust_folder
from ..client.trust import untrust as untrust_folder
from .options import Json
from .output import safe, show

Folder = Annotated[
    Path, Argument(metavar="[DIR]", help="The folder; the current one if left out.", exists=True, file_okay=False)
]


def trust(folder: Folder = Path(), json_output: Json = False) -> None:
    """Use the journal (.crew-journal) and the settings (.crew-journal.json) that are found in a folder, as they are now.

    A journal that `up` makes here is trusted already. If the settings or the journal's owner's token change, the folder has
    to be trusted again.
    """
    _say("trusted", trust_folder, folder, json_output)


def untrust(folder: Folder = Path(), json_output: Json = False) -> None:
    """Do not use the journal that is found in a folder, and ignore the settings there."""
    _say("refused", untrust_folder, folder, json_output)


def _say(verb: str, decide: Callable[[Path], list[Trusted]], folder: Path, json_output: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"kind": one.kind, "path": str(one.path), "content": settings_text(one.path) if one.kind == "settings" else ""}
        for one in decide(folder)
    ]

    def printed(answer: dict[str, Any]) -> None:
        for row in answer[verb]:
            content = f": {safe(row['content'])}" if row["content"] else ""
            print(f"{verb}: the {row['kind']} in {safe(row['path'])}{content}")

    show({verb: rows}, json_output, printed)
