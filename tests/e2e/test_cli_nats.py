"""An agent's way onto NATS as docs/operating.md tells it: the command, the page's own script, and the recall after it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from support.cli import RUN_S, Cli
from support.nats import PROJECT

SCRIPT = re.compile(
    r"^```python\n(# python agent\.py ADDRESS USER PASSWORD SUBJECT\n.*?)^```$", re.MULTILINE | re.DOTALL
)


def agent(folder: Path, shown: dict[str, str], entry_id: str = "disk-7") -> subprocess.CompletedProcess[str]:
    """Run the page's script with what the command printed."""
    [script] = SCRIPT.findall((PROJECT / "docs" / "operating.md").read_text("utf-8"))
    path = folder / "agent.py"
    path.write_text(script.replace("disk-7", entry_id), "utf-8")
    argv = [sys.executable, str(path), *(shown[name] for name in ("address", "user", "password", "subject"))]
    return subprocess.run(argv, capture_output=True, text=True, timeout=RUN_S, check=False)


def pairs(out: str) -> dict[str, str]:
    return {line.split()[0]: line.split()[1] for line in out.splitlines()}


def test_credentials_made_without_an_up_and_beside_one_append_what_is_recalled_until_they_are_revoked(
    tmp_path: Path,
) -> None:
    cli = Cli(tmp_path / "data")
    ada = pairs(cli("token", "create", "--agent", "ada", "--crew", "platform", "--nats").out)
    assert list(ada) == ["token", "address", "user", "password", "subject", "max_bytes"]
    with cli.up():
        beside = cli("token", "create", "--role", "lead", "--agent", "bo", "--crew", "ops", "--nats", "--json").json
        for _ in ("first", "again"):  # an id that is sent again is the same entry
            appended = agent(tmp_path, ada)
            assert appended.returncode == 0, appended.stderr
        seq = appended.stdout.strip()
        found = cli("recall", "node seven", "--min-seq", seq, "--json").json["hits"]
        assert [(hit["agent_id"], hit["entry_type"]) for hit in found] == [("ada", "disk.checked")]
        taken = agent(tmp_path, beside["nats_access"])
        assert taken.returncode == 1
        assert "already with other content: disk-7" in taken.stderr
        assert agent(tmp_path, beside["nats_access"], "disk-8").returncode == 0
        listed = cli("token", "list")
        assert listed.out.count(" yes ") == 2
        assert ada["password"] not in listed.out
        cli("token", "revoke", ada["user"])
        refused = agent(tmp_path, ada)
        assert refused.returncode != 0
        assert "authorization" in refused.stderr.lower()
    cli("token", "revoke", beside["token_id"])
    with cli.up():
        assert agent(tmp_path, beside["nats_access"]).returncode != 0


def test_on_nats_counts_one_agent_only(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data")
    assert "AGENT or LEAD" in cli("token", "create", "--role", "ADMIN", "--nats", code=2).err
