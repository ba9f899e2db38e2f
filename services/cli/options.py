"""The options that several commands share, so that one name means one thing everywhere.

Invariant: no module that ``main`` imports needs httpx, duckdb, rich or a library of that weight, so that ``--help`` and
shell completion answer at once. Commands import such libraries when they run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from ..client.find import data_dir_of
from .commands import Option
from .completing import complete_workspace

if TYPE_CHECKING:
    from ...schemas.settings import Settings

FALLBACK_DATA_DIR: Final = Path(".crew-journal")
"""As in ``Settings`` (a test compares), which is not imported here."""

DataDir = Annotated[
    Path | None,
    Option(
        "--data-dir",
        envvar="CREW_JOURNAL_DATA_DIR",
        file_okay=False,
        show_default=str(FALLBACK_DATA_DIR),
        help="Data directory; a running `up` is found in it.",
    ),
]
Workspace = Annotated[
    str | None,
    Option(
        "--workspace",
        "-w",
        envvar="CREW_JOURNAL_WORKSPACE",
        help="Workspace, for a token of all workspaces (default: `default`).",
        autocompletion=complete_workspace,
    ),
]
Json = Annotated[bool, Option("--json", help="JSON on stdout; a failure is JSON on stderr.")]
Embedder = Annotated[
    str | None,
    Option("--embedder", envvar="CREW_JOURNAL_EMBEDDER", help="auto, openai, ollama, minilm or none. [default: auto]"),
]
MinSeq = Annotated[
    int | None, Option("--min-seq", min=0, help="Wait until the views have passed this sequence: read your own writes.")
]


@dataclass(frozen=True, slots=True)
class Where:
    """The journal of a command: a data directory, or a service at an address.

    Attributes:
        data_dir: Used if there is no address; None for the data directory of the current folder (see ``folder``).
        url: The address.
        token: The token to send; surrounding blanks (a file's line break) do not count.
    """

    data_dir: DataDir = None
    url: Annotated[
        str | None, Option("--url", envvar="CREW_JOURNAL_URL", help="HTTP address of a running service.")
    ] = None
    token: Annotated[
        str | None,
        Option(
            "--token",
            envvar="CREW_JOURNAL_TOKEN",
            help="Token to send; by default the owner's token of the data directory.",
        ),
    ] = field(default=None, repr=False)

    @property
    def folder(self) -> Path:
        """The data directory.

        Raises:
            NotAllowed: If it was not named, but found in the current folder, and is not trusted.
        """
        return data_dir_of(self.data_dir)

    @property
    def bearer(self) -> str | None:
        """The token, None if there is none."""
        return (self.token or "").strip() or None


def json_value(text: str | bytes, option: str) -> Any:
    """The JSON of an option or of stdin.

    Raises:
        click.BadParameter: If it is not JSON, naming the option.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint=option) from None
    except RecursionError:
        raise click.BadParameter("is nested too deeply", param_hint=option) from None


def json_object(text: str, option: str) -> dict[str, Any]:
    """The value of an option that takes a JSON object.

    Raises:
        click.BadParameter: If it is not a JSON object, naming the option.
    """
    value = json_value(text, option)
    if not isinstance(value, dict):
        raise click.BadParameter("must be a JSON object", param_hint=option)
    return value


def settings_from(**given: Any) -> Settings:
    """Settings of the environment, overridden by the options that were given.

    Raises:
        click.BadParameter: If a value is not valid, naming the option.
    """
    from pydantic import ValidationError

    from ...schemas.settings import Settings

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        option = "--" + str((first["loc"] or ("setting",))[0]).replace("_", "-")
        raise click.BadParameter(first["msg"].removeprefix("Value error, "), param_hint=option) from None
