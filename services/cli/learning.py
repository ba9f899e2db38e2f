"""Groups of the commands about what crews learn; the commands are made from the operations."""

from __future__ import annotations

import typer

consolidate = typer.Typer(help="Rules that are learned from recurring entries.", no_args_is_help=True)
proposals = typer.Typer(help="Proposed rules that wait for a person.", no_args_is_help=True)
lessons = typer.Typer(help="Lessons of crews and agents.", no_args_is_help=True)
