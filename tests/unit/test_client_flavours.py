"""Both flavours of the client offer the same, and what a caller is shown of it is true."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from crew_journal.services.client import AsyncCrewJournal, CrewJournal


def public(client: type[Any]) -> Mapping[str, list[inspect.Parameter]]:
    return {
        name: list(inspect.signature(method).parameters.values())
        for name, method in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_")
    }


def test_both_flavours_have_the_same_methods_with_the_same_parameters() -> None:
    assert public(CrewJournal) == public(AsyncCrewJournal)
    assert {"append", "list", "tail", "relate", "create_token", "close"} <= set(public(CrewJournal))


def test_only_the_client_for_asyncio_is_awaited() -> None:
    for name in public(CrewJournal):
        blocking, awaiting = getattr(CrewJournal, name), getattr(AsyncCrewJournal, name)
        assert not inspect.iscoroutinefunction(blocking)
        assert inspect.iscoroutinefunction(awaiting) or "AsyncIterator" in str(inspect.signature(awaiting))
