"""Paths below ``/memories`` and the documents that they name."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core.errors import FileRefused
from crew_journal.schemas.documents.rules import (
    FILES,
    TIERS,
    DocumentPlace,
    Scope,
    inner_path,
    key_problem,
    owner_of,
    path_of,
    path_problem,
    place_of,
    tier_of_label,
)

PARTS = st.one_of(
    st.sampled_from(["crew", "workspace", "daily", "peers", "topics", "files", "AGENT.md", "CREW.md", "pins.md"]),
    st.sampled_from(["2026-05-14.md", "2026-02-30.md", "a.md", "a", ".md", "..", "."]),
    st.text(string.ascii_letters + string.digits + ".-_ %é", min_size=1, max_size=8),
)
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


@given(PATHS)
def test_a_path_and_its_document_name_each_other(path: str) -> None:
    place = place_of(path)
    if place is None:
        assert path_problem(path)
    else:
        assert path_of(owner_of(place.scope, "ada"), place.tier, place.key) == path
        assert key_problem(TIERS[place.tier], place.key) is None


@given(PATHS)
def test_a_document_of_each_tier_has_a_path_that_names_it(key: str) -> None:
    for tier, rule in TIERS.items():
        for scope in rule.writers:
            for one in (None, key, "2026-05-14"):
                if (one is None) == (rule.key.value == "none") and key_problem(rule, one) is None:
                    assert place_of(path_of(owner_of(scope, "ada"), tier, one)) == DocumentPlace(scope, tier, one)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("AGENT.md", (Scope.AGENT, "AGENT", None)),
        ("daily/2026-05-14.md", (Scope.AGENT, "daily", "2026-05-14")),
        ("daily/notes.md", (Scope.AGENT, FILES, "daily/notes.md")),
        ("crew/CREW.md", (Scope.CREW, "CREW", None)),
        ("crew/daily/2026-05-14.md", (Scope.CREW, "daily", "2026-05-14")),
        ("crew/topics/deploys.md", (Scope.CREW, "topics", "deploys")),
        ("workspace/WORKSPACE.md", (Scope.WORKSPACE, "WORKSPACE", None)),
        ("notes/a.md", (Scope.AGENT, FILES, "notes/a.md")),
        ("topics/deploys.md", (Scope.AGENT, FILES, "topics/deploys.md")),
        ("files/a.md", (Scope.AGENT, FILES, "files/a.md")),
        ("crew/notes.md", None),
        ("crew/AGENT.md", None),
        ("crew", None),
        ("", None),
    ],
)
def test_a_path_names_the_document_of_its_tier(path: str, place: DocumentPlace | None) -> None:
    assert place_of(path) == place


def test_a_file_takes_no_path_of_another_tier() -> None:
    for key in ("AGENT.md", "crew/x.md", "workspace", "peers/bob.md", "../a", "a//b", "a\\b", "x" * 513):
        assert key_problem(TIERS[FILES], key) is not None
    assert tier_of_label("files/notes/a.md") == (FILES, "notes/a.md")


@pytest.mark.parametrize("path", ["/memories/a/..", "/memories/%2e%2E/a", "/memories/%2E.%2Fa", "/memories/..%5ca"])
def test_a_part_of_two_dots_is_refused_in_every_encoding(path: str) -> None:
    with pytest.raises(FileRefused, match="would escape"):
        inner_path(path)


def test_a_path_is_relative_to_memories_without_empty_parts() -> None:
    assert inner_path("/memories") == inner_path("/memories/") == ""
    assert inner_path("/memories//a/./b.md/") == "a/b.md"
    assert inner_path("/memories/100%.md") == "100%.md"
    for elsewhere in ("", "/", "memories/a", "/memories2/a", "/etc/passwd"):
        with pytest.raises(FileRefused, match="must start with /memories"):
            inner_path(elsewhere)
