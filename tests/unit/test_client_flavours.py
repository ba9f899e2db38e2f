"""Both flavours of the client offer the same, and what a caller is shown of it is true."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pytest

from crew_journal.services.client import AsyncCrewJournal, CrewJournal
from crew_journal.services.client.flavours import Awaiting, Blocking, Call
from crew_journal.services.client.wire import Pause, Steps


class Requests:
    @Call
    def doubled(self, number: int, *, times: int = 1) -> Steps[int]:
        """Twice as much, so many times."""
        for _ in range(times):
            yield Pause(0.0)
            number *= 2
        return number


def taken(steps: Steps[Any]) -> Any:
    while True:
        try:
            steps.send(None)
        except StopIteration as done:
            return done.value


class Patient(Blocking, Requests):
    def _run(self, steps: Steps[Any]) -> Any:
        return taken(steps)


class Busy(Awaiting, Requests):
    async def _run(self, steps: Steps[Any]) -> Any:
        return taken(steps)


async def test_a_request_declared_once_blocks_in_one_flavour_and_is_awaited_in_the_other() -> None:
    assert Patient().doubled(3, times=2) == 12
    assert await Busy().doubled(3, times=2) == 12
    assert Patient.doubled(Patient(), 3) == 6
    with pytest.raises(TypeError, match="time"):
        Patient().doubled(3, time=2)  # type: ignore[call-arg]  # what is tested


@pytest.mark.parametrize("client", [Patient, Busy])
def test_help_shows_the_callers_arguments_and_the_result(client: type[Any]) -> None:
    assert str(inspect.signature(client().doubled)) == "(number: 'int', *, times: 'int' = 1) -> 'int'"
    assert client().doubled.__doc__ == "Twice as much, so many times."
    assert inspect.iscoroutinefunction(client().doubled) is (client is Busy)


def public(client: type[Any]) -> Mapping[str, list[inspect.Parameter]]:
    return {
        name: list(inspect.signature(method).parameters.values())
        for name, method in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_")
    }


def test_both_flavours_have_the_same_methods_with_the_same_parameters() -> None:
    assert public(CrewJournal) == public(AsyncCrewJournal)
    assert {"append", "list", "tail", "relate", "create_token", "close"} <= set(public(CrewJournal))
