"""Operations are declared once: every shell has each of them, and a new one appears everywhere by itself."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from crew_journal.schemas.operations import ALL
from crew_journal.schemas.operations.operation import Operation
from crew_journal.services import generate
from crew_journal.services.client.generated import AsyncOperations, Operations

ROOT = Path(__file__).parents[2]


def test_names_routes_and_commands_are_unique() -> None:
    for values in (
        [operation.name for operation in ALL],
        [operation.route for operation in ALL],
        [operation.command for operation in ALL if operation.command],
    ):
        assert len(values) == len(set(values))


def test_an_operation_has_at_most_twelve_fields() -> None:
    assert len(fields(Operation)) <= 12


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.name)
def test_every_operation_and_every_field_explains_itself(operation: Operation) -> None:  # type: ignore[type-arg]
    assert operation.summary
    assert all(field.description for field in operation.request.model_fields.values())


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.name)
def test_every_field_of_the_path_is_a_required_field_of_the_request(operation: Operation) -> None:  # type: ignore[type-arg]
    assert all(operation.request.model_fields[name].is_required() for name in operation.path_fields)


@pytest.mark.parametrize("client", [Operations, AsyncOperations])
def test_every_operation_is_a_method_with_every_field(client: type) -> None:
    for operation in ALL:
        parameters = inspect.signature(getattr(client, operation.name)).parameters
        assert set(parameters) - {"self"} == set(operation.request.model_fields)


def test_the_committed_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    for name in (generate.CLIENT, generate.DOCS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    generate.write(tmp_path)
    formatted = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--quiet",
        "--line-length",
        "120",
        str(tmp_path / generate.CLIENT),
    ]
    subprocess.run(formatted, check=True)
    for name in (generate.CLIENT, generate.DOCS):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), f"{name} is old: run `make generate`"
