"""A journal or a settings file that is found in a folder counts only after a person has trusted it."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from crew_journal.schemas.core.errors import NotAllowed, NotFound
from crew_journal.services.cli.main import main
from crew_journal.services.client import CrewJournal
from crew_journal.services.client.find import find
from crew_journal.services.client.hook import run
from crew_journal.services.client.project import (
    Project,
    check_journal,
    claim_journal,
    note_token,
    project_of,
    project_without_question,
    trust,
    untrust,
)
from crew_journal.services.data_dir import announce, is_owned, lock

TOKEN = "cj_" + "t" * 43
OTHER = "cj_" + "o" * 43


class _Listening(BaseHTTPRequestHandler):
    received: list[str]

    def _take(self) -> None:
        self.received.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"text": "from the other service"}')

    do_GET = do_POST = _take  # noqa: N815 - names of the standard library

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[tuple[str, list[str]]]:
    """The address of a service that answers everything, and what it received."""
    received: list[str] = []
    handler = type("Handler", (_Listening,), {"received": received})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, without a journal that the environment names."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in [name for name in os.environ if name.startswith("CREW_JOURNAL_")]:
        monkeypatch.delenv(name)
    clone = tmp_path / "clone"
    clone.mkdir()
    monkeypatch.chdir(clone)
    return clone


@pytest.fixture
def planted(folder: Path, service: tuple[str, list[str]]) -> Iterator[Path]:
    """A clone that brings a journal with the address of another service, as if a process owned it."""
    data_dir = folder / ".crew-journal"
    data_dir.mkdir()
    release = lock(data_dir)
    (data_dir / "runtime.json").write_text(json.dumps({"http": service[0], "nats": "", "pid": os.getpid()}))
    (data_dir / "admin.token").write_text(TOKEN + "\n")
    yield data_dir
    release()


def _sealed(data_dir: Path, http: str, token: str = TOKEN) -> None:
    announce(data_dir, http, "nats://127.0.0.1:1", token)


@pytest.mark.parametrize(
    "command",
    [
        "recall x",
        "list",
        "tail",
        "status",
        "publish hello",
        "remember hello",
        "memory block --agent ada",
        "token list",
        "backup copy",
        "rebuild",
        "verify",
        "salvage --out lost.jsonl",
        "doctor",
        "clean journal --yes",
        "up --http 127.0.0.1:0",
        "work embed",
        "mirror files --agent ada --once",
        "sidecar --agent ada",
        "demo-file",
    ],
)
def test_no_command_uses_a_journal_that_came_with_the_folder(
    planted: Path, service: tuple[str, list[str]], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(planted.iterdir())
    if command == "demo-file":  # the restore of a backup into the folder's own data directory
        (planted.parent / "copy").write_bytes(b"x")
        command = "restore ./copy"
    assert main(command.split()) == 3
    assert f"crew-journal trust {planted}`" in capsys.readouterr().err
    assert service[1] == []
    assert sorted(planted.iterdir()) == before


@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "Stop"])
def test_a_hook_sends_nothing_to_a_service_that_came_with_the_folder(
    planted: Path, service: tuple[str, list[str]], event: str
) -> None:
    transcript = planted.parent / "t.jsonl"
    transcript.write_text(json.dumps({"uuid": "u", "message": {"role": "user", "content": "our plans"}}) + "\n")
    given = {"prompt": "our plans", "cwd": str(planted.parent), "session_id": "s", "transcript_path": str(transcript)}
    out = io.StringIO()
    assert run(event, "claude-code", io.StringIO(json.dumps(given)), out) == 0
    answer = json.loads(out.getvalue())
    assert set(answer) == {"systemMessage"}
    assert "crew-journal trust" in answer["systemMessage"]
    assert service[1] == []


def test_the_client_and_mcp_refuse_it_too_and_mcp_starts_nothing_on_it(
    planted: Path,
    service: tuple[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    with pytest.raises(NotAllowed, match="is not trusted"):
        CrewJournal()
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a process was started"))
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "recall", "arguments": {}}}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(call).encode() + b"\n")))
    assert main(["mcp", "--agent", "ada"]) == 0
    assert b"crew-journal trust" in capfdbinary.readouterr().out
    assert service[1] == []


@pytest.mark.parametrize("how", ["option", "argument", "environment"])
def test_a_directory_that_a_person_names_needs_no_consent(
    planted: Path, service: tuple[str, list[str]], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "option":
        main(["list", "--data-dir", ".crew-journal"])
    elif how == "argument":
        assert find(None, None, planted).url == service[0]
        return
    else:
        monkeypatch.setenv("CREW_JOURNAL_DATA_DIR", str(planted))
        assert find(None, None, None).token == TOKEN
        main(["list"])
    assert any(TOKEN in line for line in service[1])


def test_a_trusted_journal_is_used_until_its_owner_token_or_its_address_is_replaced(
    planted: Path, service: tuple[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trust"]) == 0
    assert capsys.readouterr().out == f"trusted: the journal in {planted}\n"
    with pytest.raises(NotAllowed, match="was not written by the service of this journal"):
        find(None, None, None)
    _sealed(planted, service[0])
    address = find(None, None, None)
    assert (address.url, address.token) == (service[0], TOKEN)
    written = json.loads((planted / "runtime.json").read_text())
    (planted / "runtime.json").write_text(json.dumps({**written, "http": "http://203.0.113.9"}))
    with pytest.raises(NotAllowed, match="was not written by"):
        find(None, None, None)
    (planted / "admin.token").write_text(OTHER + "\n")
    _sealed(planted, "http://203.0.113.9", OTHER)
    with pytest.raises(NotAllowed, match="is not the one that was trusted"):
        find(None, None, None)
    (planted / "admin.token").unlink()
    _sealed(planted, "http://203.0.113.9", "")
    with pytest.raises(NotAllowed, match="is not the one that was trusted"):
        find(None, None, None)


def test_the_address_of_a_journal_without_an_owner_token_is_never_sealed(
    planted: Path, service: tuple[str, list[str]]
) -> None:
    (planted / "admin.token").unlink()
    trust(planted.parent)
    _sealed(planted, service[0], "")
    with pytest.raises(NotAllowed, match="was not written by"):
        find(None, None, None)


def test_a_consent_is_kept_outside_the_folder_for_its_owner_alone_and_for_this_place_alone(
    planted: Path, tmp_path: Path
) -> None:
    trust(planted.parent)
    [kept] = (tmp_path / "config").rglob("*.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    check_journal(planted)
    twin = tmp_path / "twin"
    planted.parent.rename(twin)
    with pytest.raises(NotAllowed, match="is not trusted"):
        check_journal(twin / ".crew-journal")


def test_a_data_directory_that_a_command_made_is_trusted_with_the_token_it_got(folder: Path) -> None:
    data_dir = folder / ".crew-journal"
    claim_journal(data_dir)
    check_journal(data_dir)
    note_token(data_dir, TOKEN)
    (data_dir / "admin.token").write_text(TOKEN)
    check_journal(data_dir)
    (data_dir / "admin.token").write_text(OTHER)
    with pytest.raises(NotAllowed, match="is not the one"):
        check_journal(data_dir)


@pytest.mark.parametrize("brought", ["nats/store", "views.duckdb", "admin.token", "runtime.json"])
def test_a_directory_that_holds_something_is_not_taken_over_by_a_start(folder: Path, brought: str) -> None:
    data_dir = folder / ".crew-journal"
    (data_dir / brought).mkdir(parents=True)
    claim_journal(data_dir)
    note_token(data_dir, TOKEN)
    with pytest.raises(NotAllowed):
        check_journal(data_dir)


def test_a_link_to_another_journal_needs_a_consent_of_its_own(folder: Path, tmp_path: Path) -> None:
    mine, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    for base in (mine, elsewhere):
        claim_journal(base / ".crew-journal")
    (folder / ".crew-journal").symlink_to(mine / ".crew-journal")
    with pytest.raises(NotAllowed, match="is not trusted"):
        check_journal(folder / ".crew-journal")
    trust(folder)
    check_journal(folder / ".crew-journal")
    (folder / ".crew-journal").unlink()
    (folder / ".crew-journal").symlink_to(elsewhere / ".crew-journal")
    with pytest.raises(NotAllowed, match="its place changed"):
        check_journal(folder / ".crew-journal")


def test_a_lock_that_cannot_be_opened_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owned = tmp_path / "owned"
    owned.mkdir()
    release = lock(owned)
    (tmp_path / "lock").symlink_to(owned / "lock")
    assert not is_owned(tmp_path), "a link is not followed"
    (tmp_path / "lock").unlink()
    os.mkfifo(tmp_path / "lock")
    assert not is_owned(tmp_path), "a pipe is not waited for"

    def refused(path: object, *_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("os.open", refused)
        assert not is_owned(owned)
    release()


SETTINGS = {"crew": "store", "agent": "ann", "workspace": "acme"}


def test_settings_that_came_with_the_folder_choose_neither_crew_nor_agent_nor_workspace(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / ".crew-journal.json"
    file.write_text(json.dumps(SETTINGS))
    with pytest.raises(NotAllowed, match=f"crew-journal trust {file}`"):
        project_of(folder, "codex")
    assert project_without_question(folder, "codex") == Project("clone", "codex")
    assert main(["trust", str(folder)]) == 0
    assert capsys.readouterr().out == f"trusted: the settings in {file}: crew store, agent ann, workspace acme\n"
    assert project_of(folder, "codex") == Project("store", "ann", "acme")
    file.write_text(json.dumps({**SETTINGS, "agent": "lead"}))
    with pytest.raises(NotAllowed, match="changed since they were trusted"):
        project_of(folder, "codex")
    assert main(["untrust"]) == 0
    assert project_of(folder, "codex") == Project("clone", "codex")
    file.unlink()
    assert project_of(folder, "codex") == Project("clone", "codex")


def test_a_hook_asks_and_records_nothing_as_another_agent(
    folder: Path, service: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREW_JOURNAL_URL", service[0])
    monkeypatch.setenv("CREW_JOURNAL_TOKEN", TOKEN)
    (folder / ".crew-journal.json").write_text(json.dumps(SETTINGS))
    out = io.StringIO()
    run("SessionStart", "claude-code", io.StringIO(json.dumps({"cwd": str(folder)})), out)
    assert "crew-journal trust" in json.loads(out.getvalue())["systemMessage"]
    assert service[1] == []
    untrust(folder)
    out = io.StringIO()
    run("SessionStart", "claude-code", io.StringIO(json.dumps({"cwd": str(folder)})), out)
    assert [line.partition("&max")[0] for line in service[1]] == [
        "GET /v1/memory/block?agent_id=claude-code&crew_id=clone"
    ]


def test_mcp_for_a_project_says_that_its_settings_are_not_trusted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / ".crew-journal.json").write_text(json.dumps(SETTINGS))
    assert main(["mcp", "--project", "codex"]) == 3
    assert "crew-journal trust" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["link", "pipe", "large", "folder"])
def test_settings_that_are_not_a_small_file_are_not_read(folder: Path, tmp_path: Path, kind: str) -> None:
    file = folder / ".crew-journal.json"
    if kind == "link":
        (tmp_path / "secret.json").write_text(json.dumps(SETTINGS))
        file.symlink_to(tmp_path / "secret.json")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "large":
        file.write_text(json.dumps(SETTINGS) + " " * 100_000)
    else:
        file.mkdir()
    with pytest.raises(NotAllowed, match="not a regular file"):
        project_of(folder, "codex")
    with pytest.raises(NotAllowed, match="not a regular file"):
        trust(folder)


def test_trust_in_a_folder_without_settings_is_not_found(folder: Path) -> None:
    for decide in (trust, untrust):
        with pytest.raises(NotFound):
            decide(folder)


def test_without_a_place_for_consents_a_start_goes_on_and_trust_says_why(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert not claim_journal(folder / ".crew-journal")
    assert (folder / ".crew-journal").is_dir()
    with pytest.raises(NotAllowed, match="cannot be kept"):
        trust(folder)


def test_the_client_command_trusts_a_folder_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from crew_journal.services.client.command import main as client

    (folder / ".crew-journal.json").write_text(json.dumps(SETTINGS))
    monkeypatch.setattr("sys.argv", ["crew-journal-client"])
    with pytest.raises(NotAllowed, match="crew-journal-client trust"):
        project_of(folder, "codex")
    assert client(["trust"]) == 0
    assert "trusted: the settings in" in capsys.readouterr().out
    assert project_of(folder, "codex").crew == "store"
    assert client(["untrust"]) == 0
    assert client(["trust", str(folder.parent)]) == 4


def test_who_trusts_settings_does_not_trust_a_journal_that_came_with_them(
    planted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = planted.parent / ".crew-journal.json"
    file.write_text(json.dumps(SETTINGS))
    assert main(["trust"]) == 2
    said = capsys.readouterr().err
    assert f"`crew-journal trust {planted}` or `crew-journal trust {file}`" in said
    assert main(["untrust"]) == 2
    assert main(["trust", str(file)]) == 0
    assert project_of(planted.parent, "codex").crew == "store"
    with pytest.raises(NotAllowed, match="is not trusted"):
        check_journal(planted)
    assert main(["trust"]) == 0, "one is left to be trusted"
    check_journal(planted)
    assert main(["untrust", ".crew-journal.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["state"] == "refused"
    check_journal(planted)
