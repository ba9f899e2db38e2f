"""Files of ``deploy/``: they can be parsed, and name only figures, commands and settings that exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import click
import yaml  # type: ignore[import-untyped]  # the package ships no types
from support.monitoring import METRIC, expressions
from support.nats import nats_binary

from crew_journal.schemas.settings import Settings
from crew_journal.services.cli.main import app
from crew_journal.services.operate import status

PROJECT = Path(__file__).parents[2]
DEPLOY = PROJECT / "deploy"
SUFFIXES = re.compile(r"_(bucket|total)$")


def test_every_yaml_file_can_be_parsed() -> None:
    files = sorted(DEPLOY.rglob("*.yaml"))
    assert len(files) >= 4
    for file in files:
        assert all(yaml.safe_load_all(file.read_text())), file.name


def test_board_and_alerts_ask_only_for_figures_that_the_service_has() -> None:
    sources = [PROJECT / "services/operate/status.py", PROJECT / "services/http/routes_status.py"]
    known = {name for source in sources for name in METRIC.findall(source.read_text())}
    known |= {f"crew_journal_{name}" for name in status._GAUGES}
    asked = expressions()
    assert len(asked) >= 15
    assert {SUFFIXES.sub("", name) for expr in asked for name in METRIC.findall(expr)} <= known


def test_deployments_use_existing_options_and_settings() -> None:
    command = app.commands["up"]
    up = {name for param in command.get_params(click.Context(command)) for name in param.opts}
    variables = {f"CREW_JOURNAL_{name.upper()}" for name in Settings.model_fields} | {"CREW_JOURNAL_CACHE_DIR"}
    files = [*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.service"), DEPLOY / "container/Dockerfile"]
    for file in files:
        text = file.read_text()
        for line in re.findall(r"crew-journal up ([^'\n&]*)", text):
            assert set(re.findall(r"--[a-z-]+", line)) <= up, file.name
        assert set(re.findall(r"CREW_JOURNAL_[A-Z_]+[A-Z]", text)) <= variables, file.name


def test_the_servers_of_the_cluster_take_their_configuration(tmp_path: Path) -> None:
    compose = yaml.safe_load((DEPLOY / "cluster/compose.yaml").read_text())
    file = tmp_path / "nats.conf"
    file.write_text(compose["configs"]["nats"]["content"].replace("$$", "$"))
    command = [str(nats_binary().path), "-c", str(file), "--name", "nats-1", "-t"]
    done = subprocess.run(
        command, env=os.environ | {"NATS_PASSWORD": "p1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_nodes_of_the_cluster_share_the_keys_of_the_first(tmp_path: Path) -> None:
    """The commands of the Compose file, with a ``crew-journal`` that makes keys as ``up`` does."""
    program = tmp_path / "bin/crew-journal"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ncd "$DATA"\nfor key in subject.key admin.token; do [ -s $key ] || echo $$ > $key; done\n'
        'echo "$@" > options\nuntil [ -s "$KEYS/admin.token" ]; do sleep 0.01; done\n'
    )
    program.chmod(0o755)
    (keys := tmp_path / "keys").mkdir()
    services = yaml.safe_load((DEPLOY / "cluster/compose.yaml").read_text())["services"]
    running = []
    for name in ("node-2", "node-1"):
        (data := tmp_path / name).mkdir()
        command = services[name]["command"].replace("/keys", str(keys)).replace("/data", str(data))
        environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "DATA": str(data), "KEYS": str(keys)}
        running.append(subprocess.Popen(shlex.split(command), env=environment))
    for process in reversed(running):
        assert process.wait(timeout=30) == 0
    for key in ("subject.key", "admin.token"):
        assert {(tmp_path / node / key).read_text() for node in ("node-1", "node-2")} == {f"{running[1].pid}\n"}
    assert "--node two" in (tmp_path / "node-2/options").read_text()
