"""``trust`` and ``untrust``: what a person says of the journal and the settings that are found in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from ..client.project import settings_text
from ..client.trust import Trusted
from ..client.trust import trust as trust_place
from ..client.trust import untrust as untrust_place
from .commands import Argument
from .options import Json
from .output import safe, show

Place = Annotated[
    Path,
    Argument(metavar="[PATH]", help="The folder, or the place in it; the current folder if left out.", exists=True),
]


def trust(path: Place = Path(), json_output: Json = False) -> None:
    """Use the journal (.crew-journal) or the settings (.crew-journal.json) found in a folder, as they are now.

    A journal that `up` makes here is trusted already. If the settings or the journal's owner's token change, they have to be
    trusted again. If a folder has both and neither is trusted, name one.
    """
    _show("trusted", trust_place(path), json_output)


def untrust(path: Place = Path(), json_output: Json = False) -> None:
    """Do not use the journal that is found in a folder, or ignore the settings there. If a folder has both, name one."""
    _show("refused", untrust_place(path), json_output)


def _show(verb: str, chosen: Trusted, json_output: bool) -> None:
    content = settings_text(chosen.path) if chosen.kind == "settings" else ""

    def printed(answer: dict[str, Any]) -> None:
        print(f"{verb}: the {answer['kind']} in {safe(answer['path'])}{': ' if content else ''}{safe(content)}")

    answer = {"state": verb, "kind": chosen.kind, "path": str(chosen.path), "content": content}
    show(answer, json_output, printed)
