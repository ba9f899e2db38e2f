"""The options that several commands share, so that one name means one thing everywhere.

Invariant: nothing heavier than typer is imported here or in any module that ``main`` imports, so that ``--help`` and
shell completion answer at once. Commands import what they need when they run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

ENV_DATA_DIR: Final = "CREW_JOURNAL_DATA_DIR"
ENV_URL: Final = "CREW_JOURNAL_URL"
ENV_TOKEN: Final = "CREW_JOURNAL_TOKEN"
FALLBACK_DATA_DIR: Final = Path(".crew-journal")
"""As in ``Settings`` (a test compares), whose import would double the time of ``--help``."""

DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        envvar=ENV_DATA_DIR,
        file_okay=False,
        help="Data directory; a running `up` is found in it.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--url", envvar=ENV_URL, help="HTTP address of a running service."),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar=ENV_TOKEN,
        help="Token to send; by default the owner's token of the data directory.",
    ),
]
Workspace = Annotated[
    str | None,
    typer.Option("--workspace", "-w", help="Workspace, for a token of all workspaces (default: `default`)."),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="JSON on stdout; a failure is JSON on stderr."),
]
Embedder = Annotated[
    str | None,
    typer.Option(
        "--embedder",
        envvar="CREW_JOURNAL_EMBEDDER",
        help="auto, ollama, minilm or none. [default: auto]",
    ),
]
MinSeq = Annotated[
    int | None,
    typer.Option("--min-seq", min=0, help="Wait until the views have passed this sequence: read your own writes."),
]
Model = Annotated[str, typer.Argument(help="minilm, or a model's name as `ollama list` shows it.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is recorded.")]
DeadLetterSeqs = Annotated[list[int], typer.Argument(metavar="SEQ…", help="Sequences of the dead letters.")]


@dataclass(frozen=True, slots=True)
class Where:
    """Which journal a command talks to: that of a data directory, or the service at an address.

    Attributes:
        data_dir: Used unless there is an address.
        url: The address.
        token: Whom to ask as; blanks around it (a file's line break) do not count.
    """

    data_dir: DataDir = FALLBACK_DATA_DIR
    url: Url = None
    token: Token = field(default=None, repr=False)

    @property
    def bearer(self) -> str | None:
        """The token, None if there is none."""
        return (self.token or "").strip() or None


def json_object(text: str | None, option: str) -> dict[str, Any] | None:
    """The value of an option that takes a JSON object; None where it was not given.

    Raises:
        typer.BadParameter: If it is none, naming the option.
    """
    if text is None:
        return None
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint=option) from None
    except RecursionError:
        raise typer.BadParameter("is nested too deeply", param_hint=option) from None
    if not isinstance(value, dict):
        raise typer.BadParameter("must be a JSON object", param_hint=option)
    return value
