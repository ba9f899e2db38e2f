"""Files of ``deploy/``: they can be parsed, and name only figures, commands and settings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import yaml  # type: ignore[import-untyped]  # the package ships no types
from support.monitoring import METRIC, expressions

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
