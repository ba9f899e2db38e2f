"""The installed command on a real journal: beside a running `up`, and without one."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli import COMMAND, RUN_S, Cli, Up, end, environment, eventually

from crew_journal.services.cli.demo import sample_entries

HOSTILE = "\x1b[2Jgone \x1b]0;owned\x07 \u202eexe [bold]x[/bold]"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "data")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, Up]]:
    """One `up` for the tests that only use it."""
    cli = Cli(tmp_path_factory.mktemp("cli") / "data")
    with cli.up() as up:
        yield cli, up


def publish(cli: Cli, summary: str, *options: str) -> int:
    seq: int = cli("publish", "--type", "peer.escalation", *options, summary, "--json").json["entries"][0]["seq"]
    return seq


def test_everything_works_without_a_running_up_and_leaves_no_process_behind(cli: Cli) -> None:
    sent = cli.spawned("publish", "--type", "peer.escalation", "the payment queue is stuck", "--agent", "ada", "--json")
    seq = sent.json["entries"][0]["seq"]
    assert cli("list", "--json").json["entries"][0]["seq"] == seq
    found = cli("recall", "payment queue", "--json", "--embedder", "none", "--min-seq", str(seq)).json
    assert [hit["summary"] for hit in found["hits"]] == ["the payment queue is stuck"]
    assert cli("verify", "--json").json["equal"] is True
    assert not (cli.data_dir / "runtime.json").exists()
    pid = int((cli.data_dir / "nats" / "nats.pid").read_text()) if (cli.data_dir / "nats" / "nats.pid").exists() else 0
    assert pid == 0 or not Path(f"/proc/{pid}").exists()


def test_what_is_published_is_listed_counted_and_recalled(running: tuple[Cli, Up]) -> None:
    cli, _ = running
    seq = publish(cli, "the lighthouse needs a new lamp", "--agent", "ada", "--crew", "coast", "--severity", "warn")
    listed = cli("list", "--crew", "coast", "--min-seq", str(seq), "--json").json
    assert [entry["summary"] for entry in listed["entries"]] == ["the lighthouse needs a new lamp"]
    assert cli("list", "--crew", "coast", "--count").out.strip() == "1"
    hits = cli("recall", "which lamp?", "--min-seq", str(seq), "--json", "--explain").json["hits"]
    assert hits[0]["summary"] == "the lighthouse needs a new lamp"
    assert "lighthouse" in cli("recall", "which lamp?").out


def test_a_repeated_id_counts_once_and_another_content_is_a_conflict(running: tuple[Cli, Up]) -> None:
    cli, _ = running
    first = cli("publish", "--id", "once", "--type", "a.b", "said", "--json").json["entries"][0]
    again = cli("publish", "--id", "once", "--type", "a.b", "said", "--json").json["entries"][0]
    assert (again["seq"], again["duplicate"]) == (first["seq"], True)
    refused = cli("publish", "--id", "once", "--type", "a.b", "something else", "--json", code=1)
    assert json.loads(refused.err)["error"]["type"] == "EntryConflict"


def test_an_array_from_stdin_is_all_or_nothing(running: tuple[Cli, Up]) -> None:
    cli, _ = running
    good, bad = {"entry_type": "batch.x", "summary": "one"}, {"entry_type": "batch.x"}
    refused = cli("publish", "-", "--json", stdin=json.dumps([good, bad]), code=2)
    assert json.loads(refused.err)["error"]["problems"][0]["field"] == "entries[1].summary"
    assert cli("list", "--type", "batch.x", "--count").out.strip() == "0"
    sent = cli("publish", "-", "--json", stdin=json.dumps([good, good])).json["entries"]
    assert cli("list", "--type", "batch.x", "--min-seq", str(sent[-1]["seq"]), "--count").out.strip() == "2"


def test_a_hostile_summary_does_not_act_on_the_terminal(running: tuple[Cli, Up]) -> None:
    cli, _ = running
    seq = publish(cli, HOSTILE, "--crew", "hostile")
    for argv in (["list", "--crew", "hostile"], ["recall", "owned exe"], ["tail", "--crew", "hostile", "-n", "1"]):
        shown = cli(*argv, *(["--min-seq", str(seq)] if argv[0] != "tail" else [])).out
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "[bold]x[/bold]" in shown


def test_a_tail_shows_what_arrives(running: tuple[Cli, Up]) -> None:
    cli, _ = running
    seq = publish(cli, "before", "--crew", "tailed")
    watching = cli.start("tail", "--crew", "tailed", "--after", str(seq), "--limit", "2", "--json")
    try:
        publish(cli, "first", "--crew", "tailed")
        publish(cli, "second", "--crew", "tailed")
        out, _ = watching.communicate(timeout=RUN_S)
    finally:
        end(watching)
    assert [json.loads(line)["summary"] for line in out.splitlines()] == ["first", "second"]
    assert watching.returncode == 0


def test_a_token_does_what_its_role_allows_until_it_is_revoked(running: tuple[Cli, Up]) -> None:
    cli, _ = running
    publish(cli, "not for ada", "--agent", "bruno")
    made = cli("token", "create", "--agent", "ada", "--label", "test", "--json").json
    token = made["token"]
    assert cli("token", "create", "--agent", "ada").out.startswith(token[:3])
    seq = publish(cli, "mine", "--token", token)
    mine = cli("list", "--token", token, "--min-seq", str(seq), "--json").json["entries"]
    assert {entry["agent_id"] for entry in mine} == {"ada"}
    assert cli("rebuild", "--token", token, code=3).err.startswith("error: ")
    assert cli("list", "--token", token, "--workspace", "other", code=3).out == ""
    listed = cli("token", "list", "--json").json["tokens"]
    assert made["token_id"] in {entry["token_id"] for entry in listed}
    assert token not in json.dumps(listed)
    cli("token", "revoke", made["token_id"])
    assert cli("list", "--token", token, code=3).out == ""
    granted = ("--may-publish", "keeper.*,approval.*", "--speaks-for", "keeper", "--expires", "30d")
    keeper = cli("token", "create", *granted, "--json").json
    assert (keeper["agent_id"], keeper["speaks_for"]) == ("keeper", ["keeper"])
    decision = ("publish", "the gate stays shut", "--type", "keeper.decision")
    cli(*decision, "--token", keeper["token"])
    plain = cli("token", "create", "--agent", "ada").out.strip()
    assert "--may-publish keeper.decision" in cli(*decision, "--token", plain, code=3).err
    assert "as keeper" in cli("token", "list").out
    assert "--expires" in cli("token", "create", "--agent", "x", "--expires", "soon", code=2).err
    assert cli("token", "revoke", "nobody", code=4).err.startswith("error: ")


def test_views_are_rebuilt_and_verified_and_the_node_is_well(running: tuple[Cli, Up]) -> None:
    cli, up = running
    publish(cli, "something to fold")
    assert "entries" in cli("rebuild", "--json").json["projections"]
    assert cli("verify", "--json").json["equal"] is True
    assert "the live views equal a fresh rebuild" in cli("verify").out
    assert cli("status", "--json").json["ready"] is True
    assert cli("dlq", "list", "--json").json == {"dead_letters": []}
    assert cli("embedder", "status", "--json").json["kind"] == "none"
    checks = {check["check"]: check["verdict"] for check in cli("doctor", "--json").json["checks"]}
    assert (checks["up"], checks["secrets"], checks["dead-letters"]) == ("ok", "ok", "ok")
    address, token = up.facts["http"], Path(up.facts["owner_token_file"]).read_text()
    elsewhere = Cli(cli.data_dir.parent / "elsewhere")
    assert elsewhere("status", "--json", "--url", address, "--token", token).json["ready"] is True
    by_environment = {"CREW_JOURNAL_URL": address, "CREW_JOURNAL_TOKEN": token}
    assert elsewhere("status", "--json", **by_environment).json["ready"] is True
    named = elsewhere("status", "--data-dir", str(elsewhere.data_dir), code=4, **by_environment)
    assert "elsewhere yet" in named.err, "an option counts before the environment"


def test_a_reader_that_has_seen_enough_is_no_failure(running: tuple[Cli, Up]) -> None:
    cli, _ = running
    many = [{"entry_type": "pipe.x", "summary": f"{n} " + "x" * 500} for n in range(900)]
    sent = cli("publish", "-", "--json", stdin=json.dumps(many)).json["entries"]
    listing = subprocess.Popen(
        [
            COMMAND,
            "list",
            "--all",
            "--type",
            "pipe.x",
            "--min-seq",
            str(sent[-1]["seq"]),
            "--data-dir",
            str(cli.data_dir),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert listing.stdout is not None
    assert listing.stderr is not None
    try:
        assert "pipe.x" in listing.stdout.readline()
        listing.stdout.close()
        assert listing.stderr.read() == ""
        assert listing.wait(RUN_S) == 0
    finally:
        end(listing)
        listing.stderr.close()


def test_the_sample_is_loaded_once_and_answers_a_question(cli: Cli) -> None:
    for _ in range(2):
        with cli.up("--sample") as up:
            eventually((cli.data_dir / "sample.json").exists, "the sample is loaded")
            loaded = json.loads((cli.data_dir / "sample.json").read_text())
            listed = cli("list", "--all", "--json", "--min-seq", str(loaded["last_seq"])).out.splitlines()
            seqs = [json.loads(line)["seq"] for line in listed]  # sweeps may have recorded entries after the sample
            assert sum(seq <= loaded["last_seq"] for seq in seqs) == loaded["entries"]
            assert "denied" in cli("recall", "why was the checkout deploy denied?").out
            assert up.stop() == 0
    assert (cli.data_dir / "up.log").read_text().count("entries loaded") == 1


def test_work_runs_a_reactor_beside_up_and_needs_one(cli: Cli) -> None:
    assert "--nats" in cli("work", "embed", "--embedder", "minilm", code=5).err
    with cli.up():
        working = cli.start("work", "embed", "--embedder", "minilm", "--json")
        try:
            assert working.stdout is not None
            assert json.loads(working.stdout.readline())["reactors"] == ["embed"]
            working.terminate()
            working.communicate(timeout=RUN_S)
        finally:
            end(working)
        assert working.returncode == 0


def test_the_demo_keeps_its_promises() -> None:
    done = subprocess.run(
        [COMMAND, "demo", "--embedder", "none", "--json"],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)["steps"]
    assert steps[4]["entries"] == steps[5]["repeated"] == len(sample_entries())
    assert any(step.get("same") is True for step in steps)
