"""Tokens follow the views, also where the views changed without a commit: rebuild, catch-up, swap."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crew_journal.schemas.errors import NotAuthenticated
from crew_journal.services.journal.owner_token import mint_token, token_hash
from crew_journal.services.journal.tokens import TokenRegistry


class Views:
    """A ``ViewReader`` that holds the rows of ``tokens`` and nothing else."""

    def __init__(self) -> None:
        self.generation = 0
        self.held: list[tuple[Any, ...]] = []

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self.held)

    def subscribe(self, listener: Callable[[Any], None]) -> Callable[[], None]:
        return lambda: None


def test_a_token_that_a_catch_up_folded_counts_without_a_restart():
    views, token = Views(), mint_token()
    registry = TokenRegistry(views, None, mint_token())  # type: ignore[arg-type]  # only reads here
    registry.load()
    with pytest.raises(NotAuthenticated):
        registry.authenticate(token)
    views.held.append(("t_1", token_hash(token), "AGENT", "default", None, "ada", None))
    views.generation += 1
    assert registry.authenticate(token).agent_id == "ada"
    assert registry.counts("t_1")


def test_a_token_that_a_rebuild_no_longer_knows_does_not_count():
    views, token = Views(), mint_token()
    views.held.append(("t_1", token_hash(token), "AGENT", "default", None, "ada", None))
    registry = TokenRegistry(views, None, mint_token())  # type: ignore[arg-type]  # only reads here
    registry.load()
    assert registry.authenticate(token)
    views.held.clear()
    views.generation += 1
    assert not registry.counts("t_1")
    with pytest.raises(NotAuthenticated):
        registry.authenticate(token)
