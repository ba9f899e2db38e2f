"""The groups ``palace`` and ``layered``: their commands are those of the operations."""

from __future__ import annotations

import typer

layered = typer.Typer(help="Layered memory: facts, procedures and episodes.", no_args_is_help=True)
palace = typer.Typer(help="Drawers of the palace: texts filed under wing and room.", no_args_is_help=True)
