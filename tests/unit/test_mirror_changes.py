"""What a mirror makes of a changed file: appended lines, replacements, and the version that a text was made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.core.errors import CrewJournalError, DataDirBusy
from crew_journal.schemas.documents.rules import TIERS, Scope, joint
from crew_journal.services.cli.mirror.folder import (
    STATE_FILE,
    Base,
    Folder,
    Former,
    Known,
    MirrorState,
    Sending,
    UnkeptText,
    base_among,
    change_of,
    lock,
    sha256,
    write_id,
)

texts = st.lists(st.sampled_from(["", "- one", "- two", "\n", "ž", "- three\n", " "])).map("\n".join)


@dataclass(frozen=True)
class Listed:
    seq: int
    bytes: int
    sha256: str


def listed(seq: int, text: str) -> Listed:
    return Listed(seq, len(text.encode()), sha256(text.encode()))


@given(base=texts, data=texts | st.just(None), rest=texts)
def test_the_write_makes_the_file_s_text_of_the_base_but_for_a_last_line_break(
    base: str, data: str | None, rest: str
) -> None:
    after = base + rest if data is None else data
    change = change_of(UnkeptText.of(base.encode()), after.encode())
    content = change.content.decode()
    if change.mode == "replace":
        assert content == after
    else:
        assert content.strip()
        assert base + joint(base, content) in (after, after + "\n")
        assert change.whole_lines == after.endswith("\n")


@pytest.mark.parametrize(
    ("base", "after", "mode", "content"),
    [
        ("", "- one\n", "append", "- one\n"),
        ("- one\n", "- one\n- two\n", "append", "- two\n"),
        ("- one\n", "- one\n- tw", "append", "- tw"),
        ("- one", "- one\n- two\n", "append", "- two\n"),
        ("- one", "- one more\n", "replace", "- one more\n"),
        ("- one\n", "- ONE\n", "replace", "- ONE\n"),
        ("- one\n- two\n", "- one\n", "replace", "- one\n"),
        ("- one\n", "- one\n\n", "replace", "- one\n\n"),
    ],
)
def test_a_longer_text_with_the_same_beginning_is_an_append(base: str, after: str, mode: str, content: str) -> None:
    change = change_of(UnkeptText.of(base.encode()), after.encode())
    assert (change.mode, change.content) == (mode, content.encode())


def test_the_base_of_a_text_is_the_longest_later_version_that_it_begins_with() -> None:
    versions = [
        listed(9, "- a\n- b\n- c\n"),
        listed(7, "- a\n- b\n"),
        listed(5, "- a\n"),
        listed(3, ""),
        listed(2, "- x\n"),
    ]
    assert base_among(versions, b"- a\n- b\n- new\n", 0) == Base(7, UnkeptText.of(b"- a\n- b\n"))
    assert base_among(versions, b"- a\n- new\n", 5) is None
    assert base_among(versions, b"- other\n", 0) is None, "an empty version is the beginning of everything"


def test_a_write_id_follows_from_what_is_written() -> None:
    assert write_id("m", "agent/AGENT.md", 3, "x") == write_id("m", "agent/AGENT.md", 3, "x")
    assert write_id("ab", "c") != write_id("a", "bc")
    assert len(write_id("m")) <= 64


def test_the_state_survives_a_restart_and_belongs_to_one_agent(tmp_path: Path) -> None:
    state = MirrorState.load(tmp_path, "agent ada")
    sending = Sending("m_1", "conflict", UnkeptText.of(b"new"), 4, "AGENT.md.conflict-20260514T101500Z")
    state.former["agent/.crew-journal-old-4-1-AGENT.md"] = Former("AGENT.md", UnkeptText.of(b"old"))
    state.put("agent/AGENT.md", Known(Base(3, UnkeptText.of(b"old")), sending))
    again = MirrorState.load(tmp_path, "agent ada")
    assert (again.files, again.former, again.mirror) == (state.files, state.former, state.mirror)
    with pytest.raises(CrewJournalError, match="mirror of agent ada, not of agent bruno"):
        MirrorState.load(tmp_path, "agent bruno")
    (tmp_path / STATE_FILE).write_text("{")
    with pytest.raises(CrewJournalError, match="cannot be read"):
        MirrorState.load(tmp_path, "agent ada")


def test_one_mirror_runs_on_a_directory(tmp_path: Path) -> None:
    lock(tmp_path)
    with pytest.raises(DataDirBusy, match="another mirror"):
        lock(tmp_path)


def test_a_file_that_changed_since_it_was_seen_is_not_replaced(tmp_path: Path) -> None:
    folder = Folder(tmp_path, Scope.AGENT)
    folder.make()
    assert folder.place("AGENT.md", b"one\n", None, "", read_only=False)
    assert not folder.place("AGENT.md", b"other\n", None, "", read_only=False), "somebody made it in between"
    seen, _ = folder.read("AGENT.md")
    former = folder.former_label("AGENT.md", 7, seen.inode)
    with (tmp_path / ".memory" / "AGENT.md").open("a") as file:
        file.write("two\n")
    assert not folder.place("AGENT.md", b"other\n", seen, former, read_only=False)
    seen, data = folder.read("AGENT.md")
    assert data == b"one\ntwo\n"
    assert folder.place("AGENT.md", b"other\n", seen, former, read_only=True)
    assert folder.read(former)[1] == b"one\ntwo\n"
    assert sorted(folder.scan().files) == ["AGENT.md"]


def test_a_mirrored_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".memory").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"\.memory"):
        Folder(tmp_path / "home", Scope.AGENT).make()


def test_only_a_daily_log_has_another_cap_as_a_file() -> None:
    caps = {name: (rule.cap_of("api"), rule.cap_of("mirror")) for name, rule in TIERS.items()}
    assert caps.pop("daily") == (30_000, 100_000)
    assert all(api == mirror for api, mirror in caps.values())
