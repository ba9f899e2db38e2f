"""Bundles as files: what an export writes, which formats an import knows, and what has no place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core.errors import EntryTooLarge, InvalidFile
from crew_journal.schemas.documents.bundles import BundleFile, Choices, NotABundle, Planned, exported, planned
from crew_journal.schemas.documents.operations import BundleAnswer, BundleText
from crew_journal.services.cli import bundles as cli

CREW = Choices(with_crew=True)


def plan(files: dict[str, str], choices: Choices = CREW, wanted: str | None = None) -> tuple[str, dict[str, Planned]]:
    name, found = planned([BundleFile(*item) for item in files.items()], choices, wanted)
    return name, {one.path: one for one in found}


def places(found: dict[str, Planned]) -> dict[str, Any]:
    return {
        path: one.kind if one.target is None else f"{one.target.scope.value}/{one.target.tier}/{one.target.key}"
        for path, one in found.items()
    }


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)
PATHS = st.sampled_from(
    ["agent/AGENT.md", "agent/daily/2026-05-14.md", "agent/files/a/b.md", "crew/CREW.md", "crew/topics/billing.md"]
)


@given(st.dictionaries(PATHS, st.one_of(TEXTS, TEXTS.map(lambda text: f"---\ntype: x\n---\n{text}")), min_size=1))
def test_an_export_reads_back_byte_for_byte_and_exports_the_same(documents: dict[str, str]) -> None:
    files = exported((path, "memory.x", text) for path, text in documents.items())
    name, found = plan({file.path: file.content for file in files})
    assert name == "okf"
    assert {path: one.content for path, one in found.items()} == documents
    again = exported((path, "memory.x", one.content) for path, one in reversed(found.items()))
    assert again == files


def test_every_file_of_an_export_names_its_type_and_path() -> None:
    manifest, one = exported([("crew/topics/billing.md", "memory.topics", "Stripe.\n")])
    assert one.content == '---\ntype: memory.topics\ntitle: "billing"\npath: "crew/topics/billing.md"\n---\nStripe.\n'
    assert manifest.content.startswith("format: okf\nversion: 1\n")
    assert '  - path: "crew/topics/billing.md"\n    type: memory.topics\n' in manifest.content


def test_paths_outside_the_tiers_renderings_and_unwanted_crews_have_no_place() -> None:
    files = {
        "okf.yaml": "format: okf\n",
        "agent/AGENT.md": "a",
        "agent/../AGENT.md": "a",
        "agent//AGENT.md": "a",
        "agent/CREW.md": "a",
        "agent/daily/2026-02-30.md": "a",
        "agent/lessons.md": "a",
        "crew/learned.md": "a",
        "crew/CREW.md": "a",
        "etc/passwd": "a",
        "crew/users/0af9.md": "a",
    }
    _, found = plan(files, Choices())
    assert {path: one.kind for path, one in found.items()} == {
        "agent/AGENT.md": None,
        "agent/../AGENT.md": "path",
        "agent//AGENT.md": "path",
        "agent/CREW.md": "path",
        "agent/daily/2026-02-30.md": "path",
        "agent/lessons.md": "derived",
        "crew/learned.md": "derived",
        "crew/CREW.md": "crew",
        "crew/users/0af9.md": "crew",
        "etc/passwd": "path",
    }
    assert plan(files)[1]["crew/users/0af9.md"].kind == "derived"


def test_knowledge_of_others_in_the_open_knowledge_format_becomes_topics_with_its_front_matter() -> None:
    text = "---\ntype: Metric\ntitle: DAU\n---\n# Daily active users\n"
    name, found = plan({"metrics/daily users.md": text, "index.md": "# Index", "tables/orders.md": text})
    assert name == "okf"
    assert places(found) == {
        "metrics/daily users.md": "crew/topics/metrics-daily-users",
        "index.md": "path",
        "tables/orders.md": "crew/topics/tables-orders",
    }
    assert found["tables/orders.md"].content == text


def test_a_workspace_of_openclaw_is_known_by_its_files() -> None:
    files = {
        "MEMORY.md": "m",
        "SOUL.md": "soul",
        "IDENTITY.md": "name",
        "USER.md": "u",
        "AGENTS.md": "rules",
        "memory/2026-03-18.md": "d",
        "memory/2026-03-18-trip.md": "t",
    }
    name, found = plan({f"workspace/{path}": text for path, text in files.items()}, Choices(person_slug="0af9"))
    assert name == "openclaw"
    assert places(found) == {
        "MEMORY.md": "agent/AGENT/None",
        "SOUL.md": "agent/PERSONA/None",
        "IDENTITY.md": "joined",
        "USER.md": "agent/peers/0af9",
        "AGENTS.md": "skipped",
        "memory/2026-03-18.md": "agent/daily/2026-03-18",
        "memory/2026-03-18-trip.md": "agent/files/notes/2026-03-18-trip.md",
    }
    assert found["SOUL.md"].content == "name\nsoul"
    assert plan(files, Choices())[1]["USER.md"].kind == "person"


def test_of_several_groups_of_nanoclaw_one_is_chosen() -> None:
    files = {
        "groups/family/CLAUDE.md": "f",
        "groups/family/conversations/2026-01-02-trip.md": "c",
        "groups/family/logs/a.log": "l",
        "groups/work/CLAUDE.md": "w",
        "groups/global/CLAUDE.md": "g",
    }
    with pytest.raises(NotABundle, match="family, work"):
        plan(files)
    with pytest.raises(NotABundle, match="no group"):
        plan(files, Choices(group="golf"))
    name, found = plan(files, Choices(with_crew=True, group="family"))
    assert name == "nanoclaw"
    assert places(found) == {
        "groups/family/CLAUDE.md": "agent/AGENT/None",
        "groups/family/conversations/2026-01-02-trip.md": "agent/files/notes/conversations/2026-01-02-trip.md",
        "groups/family/logs/a.log": "skipped",
        "groups/work/CLAUDE.md": "skipped",
        "groups/global/CLAUDE.md": "crew/CREW/None",
    }


def test_a_tree_of_tiers_needs_no_manifest_and_anything_else_is_refused() -> None:
    name, found = plan({"AGENT.md": "a", "daily/2026-05-14.md": "d", "topics/x.md": "t", "index.sqlite": "i"})
    assert name == "crewship"
    assert places(found) == {
        "AGENT.md": "agent/AGENT/None",
        "daily/2026-05-14.md": "agent/daily/2026-05-14",
        "topics/x.md": "crew/topics/x",
        "index.sqlite": "path",
    }
    assert (
        places(plan({"CREW.md": "c", "daily/2026-05-14.md": "d"})[1])["daily/2026-05-14.md"] == "crew/daily/2026-05-14"
    )
    for files in ({"README.md": "x"}, {"a.txt": "x"}, {"package.json": "{}"}):
        with pytest.raises(NotABundle):
            plan(files)


ANSWER = BundleAnswer(
    format="okf",
    documents=tuple(
        BundleText(path=one.path, content=one.content) for one in exported([("agent/AGENT.md", "m", "ä\n")])
    ),
    skipped=(),
    view_seq=1,
)


@pytest.mark.parametrize("name", ["dir", "one.zip", "one.json"])
def test_a_bundle_is_the_same_bytes_in_a_directory_an_archive_and_a_document(tmp_path: Path, name: str) -> None:
    first, second = tmp_path / name, tmp_path / f"again-{name}"
    for out in (first, second):
        cli._write(out, ANSWER)
    documents, skipped = cli._read(first)
    assert {document["path"]: document["content"] for document in documents} == {
        document.path: document.content for document in ANSWER.documents
    }
    assert skipped == []
    if first.is_file():
        assert first.read_bytes() == second.read_bytes()


def test_links_and_bytes_that_are_no_text_are_skipped_and_listed(tmp_path: Path) -> None:
    (tmp_path / "AGENT.md").write_text("a")
    (tmp_path / "photo.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "link.md").symlink_to("/etc/passwd")
    (tmp_path / "etc").symlink_to("/etc")
    documents, skipped = cli._read(tmp_path)
    assert [document["path"] for document in documents] == ["AGENT.md"]
    assert {one["path"] for one in skipped} == {"photo.md", "link.md", "etc"}


def test_files_that_are_no_bundle_or_too_large_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"documents": [{"path": "a"}]}))
    (tmp_path / "a.zip").write_text("no archive")
    (tmp_path / "empty").mkdir()
    for name in ("a.json", "a.zip", "empty"):
        with pytest.raises(InvalidFile):
            cli._read(tmp_path / name)
    monkeypatch.setattr(cli, "MAX_BYTES", 3)
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "AGENT.md").write_text("four")
    with pytest.raises(EntryTooLarge):
        cli._read(tmp_path / "big")
