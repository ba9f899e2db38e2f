"""Options declared once as a dataclass read like those that a command declares itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import click
import pytest

from crew_journal.schemas.operations import ALL
from crew_journal.schemas.palace.operations import CHECK_DUPLICATE, UPDATE_DRAWER
from crew_journal.services.cli.commands import Argument, Command, Option
from crew_journal.services.cli.options import Fields, cli_type


@dataclass(frozen=True, slots=True)
class Place:
    """Where to."""

    names: Annotated[list[str] | None, Option("--name", "-n", help="Any of these.")] = None
    depth: Annotated[int, Option("--depth", min=1, help="How deep.")] = 3


def answered(*arguments: str) -> Any:
    told: list[Any] = []

    def ask(what: Annotated[str, Argument()], *, place: Place, loud: Annotated[bool, Option("--loud")] = False) -> None:
        """Ask for a thing."""
        told.append((what, place, loud))

    Command("ask", callback=ask).main(list(arguments), standalone_mode=False)
    return told[0]


def test_a_group_of_options_arrives_complete_with_its_defaults() -> None:
    assert answered("tea") == ("tea", Place(), False)
    assert answered("tea", "-n", "a", "--name", "b", "--depth", "2", "--loud") == ("tea", Place(["a", "b"], 2), True)


def test_an_option_of_a_group_fails_by_its_own_name() -> None:
    with pytest.raises(click.BadParameter) as caught:
        answered("tea", "--depth", "0")
    assert "--depth" in str(caught.value.format_message())


@pytest.mark.parametrize(
    ("operation", "option", "field"),
    [(UPDATE_DRAWER, "--importance", "importance"), (CHECK_DUPLICATE, "--threshold", "threshold")],
)
def test_a_number_with_decimals_is_read_as_it_is_and_a_word_is_refused(operation: Any, option: str, field: str) -> None:
    given: list[Any] = []

    def ask(asked: dict[str, Any]) -> None:
        given.append(asked[field])

    command = Command("ask", callback=ask, parts={"asked": Fields(operation)})
    for value in ("0.7", "4"):
        command.main(["d1", option, value], standalone_mode=False)
    assert given == [0.7, 4.0]
    with pytest.raises(click.BadParameter, match="float"):
        command.main(["d1", option, "high"], standalone_mode=False)


def test_no_option_reads_a_number_with_decimals_as_an_integer() -> None:
    for operation in ALL:
        for name, field in operation.request.model_fields.items():
            if "float" in str(field.annotation).lower() and cli_type(operation, name) is int:
                raise AssertionError(f"{operation.name}.{name} is read as an integer")
