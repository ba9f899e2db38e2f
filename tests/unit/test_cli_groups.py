"""Options declared once as a dataclass read like those that a command declares itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer

from crew_journal.services.cli.groups import grouped


@dataclass(frozen=True, slots=True)
class Place:
    """Where to."""

    names: Annotated[list[str] | None, typer.Option("--name", "-n", help="Any of these.")] = None
    depth: Annotated[int, typer.Option("--depth", min=1, help="How deep.")] = 3


def answered(*arguments: str) -> Any:
    app = typer.Typer()
    told: list[Any] = []

    @app.command()
    @grouped
    def ask(what: str, *, place: Place, loud: Annotated[bool, typer.Option("--loud")] = False) -> None:
        """Ask for a thing."""
        told.append((what, place, loud))

    app(args=list(arguments), standalone_mode=False)
    return told[0]


def test_a_group_arrives_whole_with_its_defaults_where_nothing_was_said() -> None:
    assert answered("tea") == ("tea", Place(), False)
    assert answered("tea", "-n", "a", "--name", "b", "--depth", "2", "--loud") == ("tea", Place(["a", "b"], 2), True)


def test_an_option_of_a_group_fails_by_its_own_name() -> None:
    with pytest.raises(typer.BadParameter) as caught:
        answered("tea", "--depth", "0")
    assert "--depth" in str(caught.value.format_message())
