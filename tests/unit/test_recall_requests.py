"""A recall that cannot be asked names the field, what is wrong with it, and what to send instead."""

from __future__ import annotations

from typing import Any

import pytest

from crew_journal.schemas.core.errors import InvalidQuery
from crew_journal.schemas.recall.operations import RECALL, RENDER
from crew_journal.services.desk import parse

KNOWN = (
    "query, k, scope, agent_id, crew_id, crew_only, recipe, walk_depth, mode, explain, asked_at, collect, "
    "max_tokens, min_seq"
)


@pytest.mark.parametrize(
    ("given", "field", "hint"),
    [
        ({"query": None}, "query", "send 1 to"),
        ({"query": " "}, "query", "send 1 to"),
        ({"query": "x" * 100_000}, "query", "send 1 to"),
        ({"k": "five"}, "k", "send an integer, 1 to 50"),
        ({"k": 2.5}, "k", "send an integer, 1 to 50"),
        ({"scope": "mine"}, "scope", "use 'own', 'crew_shared' or 'workspace'"),
        ({"agent_id": "a b"}, "agent_id", "use 1 to 64 of A-Z a-z 0-9 _ -"),
        ({"crew_id": 7}, "crew_id", "use 1 to 64 of A-Z a-z 0-9 _ -"),
        ({"workspace_id": "_system"}, "workspace_id", "use 1 to 64 of A-Z a-z 0-9 _ -, not starting with _"),
        ({"recipe": 3}, "recipe", "send a string"),
        ({"walk_depth": 2}, "walk_depth", "send 0 or 1"),
        ({"min_seq": -1}, "min_seq", "send the seq that an append returned, an integer from 0"),
        ({"explain": "yes"}, "explain", "send true or false"),
        ({"asked_at": "yesterday"}, "asked_at", 'send a time like 2026-11-21T09:30:00Z, or "unknown"'),
        ({"limit": 5}, "limit", f"leave it out; known fields: {KNOWN}"),
    ],
)
def test_a_recall_that_cannot_be_asked_names_the_field_and_what_to_send(
    given: dict[str, Any], field: str, hint: str
) -> None:
    with pytest.raises(InvalidQuery) as caught:
        parse(RECALL, {"query": "the disk", **given})
    error = caught.value
    assert error.field == field
    assert error.message.startswith((f"{field}: ", f"{field} must "))
    assert error.hint.startswith(f"{field}: {hint}")
    assert "yesterday" not in str(error)
    assert "_system" not in str(error)


def test_a_query_that_is_missing_is_asked_for() -> None:
    with pytest.raises(InvalidQuery) as caught:
        parse(RECALL, {})
    assert (caught.value.field, caught.value.hint) == ("query", "query: add query")


def test_a_render_says_what_its_own_field_takes() -> None:
    with pytest.raises(InvalidQuery) as caught:
        parse(RENDER, {"query": "the disk", "max_chars": "many"})
    assert (caught.value.field, caught.value.hint) == ("max_chars", "max_chars: send an integer")
