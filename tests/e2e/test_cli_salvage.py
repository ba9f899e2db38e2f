"""A journal that lost its stream, brought back by the commands that its errors name."""

import json
import shutil
from pathlib import Path

import pytest
from support.cli import Cli

LINES = 20


@pytest.fixture
def damaged(tmp_path: Path) -> Cli:
    """A journal of 20 entries and a token whose stream is gone."""
    cli = Cli(tmp_path / "data")
    source = tmp_path / "source.jsonl"
    source.write_text(
        "".join(json.dumps({"entry_type": "note", "summary": f"line {n}", "id": f"n{n}"}) + "\n" for n in range(LINES))
    )
    cli("token", "create", "--agent", "ada")
    done = cli("import", str(source), "--json").json
    cli("list", "--count", "--min-seq", str(done["last_seq"]))
    shutil.rmtree(cli.data_dir / "nats" / "store" / "jetstream")
    return cli


@pytest.mark.parametrize(
    "running", [pytest.param(False, id="without up", marks=pytest.mark.nightly), pytest.param(True, id="beside up")]
)
def test_what_the_errors_say_brings_a_lost_journal_back(damaged: Cli, tmp_path: Path, running: bool) -> None:
    cli, out = damaged, tmp_path / "salvaged.jsonl"

    def bring_back() -> None:
        verified = cli("verify", code=6)
        assert "sequences are missing from the journal" in verified.err
        assert "salvage --out FILE" in verified.err
        assert "no view is rebuilt" in cli("rebuild", code=1).err
        doctor = cli("doctor", code=1).out
        assert "views.duckdb.ahead-" in doctor
        assert "delete them when" not in doctor, "doctor never has the last copy deleted"
        salvaged = cli("salvage", "--out", str(out), "--json").json
        assert (salvaged["entries"], salvaged["decisions"]) == (LINES, 1)
        assert out.stat().st_mode & 0o077 == 0
        assert Path(salvaged["decisions_out"]).read_text().count("token.created") == 1
        assert "exists already" in cli("salvage", "--out", str(out), code=2).err
        assert cli("rebuild", "--accept-loss", "--json").json["projections"]
        done = cli("import", str(out), "--json").json
        assert done["imported"] == LINES
        assert cli("list", "--type", "note", "--count", "--min-seq", str(done["last_seq"])).out.strip() == str(LINES)
        assert cli("status", "--json").json["ready"] is True
        cli("verify")

    if running:
        with cli.up():
            bring_back()
    else:
        bring_back()
    kept = list(cli.data_dir.glob("views.duckdb.before-loss-*"))
    assert kept
    assert "once what" in cli("doctor", code=None).out
