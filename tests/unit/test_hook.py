"""Hooks of coding agents: what is read from transcripts, whose memory it is, and that they fail open."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from crew_journal.services.cli.entry import main
from crew_journal.services.client.hook import run, without_injected
from crew_journal.services.client.project import Project, project_of, slug, trust


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("fix it <system-reminder>a secret</system-reminder> now", "fix it  now"),
        ("[AGENT MEMORY]\nx\n[END AGENT MEMORY]\nhello", "hello"),
        ('<recalled-memory nonce="ab">x</recalled-memory nonce="ab"> hello', "hello"),
        ("[PINS] without an end", ""),
        ("[OPERATOR MODEL]\nlikes tea\n[END OPERATOR MODEL]\nhello", "hello"),
        ("[MEMORY NOTICE]\nx\n[END MEMORY NOTICE]\nhello", "hello"),
        ("nothing given", "nothing given"),
    ],
)
def test_what_a_session_was_given_is_removed_from_its_turns(text: str, left: str) -> None:
    assert without_injected(text) == left


def _repository(folder: Path, url: str) -> Path:
    (folder / ".git" / "worktrees" / "fix").mkdir(parents=True)
    (folder / ".git" / "config").write_text(f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n')
    return folder


@pytest.mark.parametrize("url", ["git@example.org:acme/shop.git", "https://example.org/acme/shop"])
def test_the_crew_is_the_repository_and_worktrees_belong_to_it(tmp_path: Path, url: str) -> None:
    main = _repository(tmp_path / "shop", url)
    worktree = tmp_path / "fix" / "deep"
    worktree.mkdir(parents=True)
    (tmp_path / "fix" / ".git").write_text(f"gitdir: {main}/.git/worktrees/fix\n")
    (main / ".git" / "worktrees" / "fix" / "gitdir").write_text(f"{tmp_path}/fix/.git\n")
    assert project_of(main / ".git" / "..", "claude-code").agent == "claude-code"
    assert project_of(worktree, "codex") == Project("example-org__acme__shop", "codex")


def test_a_file_and_the_environment_override_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = _repository(tmp_path / "shop", "git@example.org:acme/shop.git")
    (main / ".crew-journal.json").write_text(json.dumps({"crew": "store", "agent": "ann", "workspace": "acme"}))
    trust(main)
    assert project_of(main, "codex") == Project("store", "ann", "acme")
    monkeypatch.setenv("CREW_JOURNAL_AGENT", "bob")
    assert project_of(main, "codex") == Project("store", "bob", "acme")


def test_any_name_becomes_an_id() -> None:
    assert (slug("Ärger/../x y"), slug("..."), slug("a" * 99)) == ("rger-x-y", "project", "a" * 64)


@pytest.mark.parametrize("given", ["", "[]", "{", '{"cwd": "/nowhere", "prompt": "x"}', '{"cwd": 3}'])
def test_a_hook_fails_open_and_says_why(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREW_JOURNAL_DATA_DIR", str(tmp_path))
    for name in ("CREW_JOURNAL_URL", "CREW_JOURNAL_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    out = io.StringIO()
    assert run("UserPromptSubmit", "claude-code", io.StringIO(given), out) == 0
    assert "memory is not used here" in json.loads(out.getvalue())["systemMessage"]


def test_a_hook_called_by_hand_says_what_it_expects(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["crew-journal", "hook", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert "JSON object is read from stdin" in " ".join(capsys.readouterr().out.split())
    out = io.StringIO()
    run("Stop", "claude-code", io.StringIO("junk"), out)
    assert 'such as {"prompt": "…"}' in json.loads(out.getvalue())["systemMessage"]
