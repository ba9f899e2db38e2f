"""The group ``palace``: its commands are those of the operations."""

from __future__ import annotations

import typer

palace = typer.Typer(help="Drawers of the palace: texts filed under wing and room.", no_args_is_help=True)
