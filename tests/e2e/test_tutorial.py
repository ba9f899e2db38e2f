"""The tutorial works as it is written: its commands are run in its order."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.cli import COMMAND, RUN_S, Cli, environment
from support.nats import PROJECT

BLOCKS = re.findall(
    r"^```sh\n(.*?)^```", (PROJECT / "docs" / "tutorial.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)
REFUSED = "Another text"
"""In the one block whose command fails, as the text above it says."""


@pytest.mark.nightly
def test_the_commands_of_the_tutorial_do_what_it_says(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "first-journal")
    begin, environs, *steps = BLOCKS
    assert "crew-journal up" in begin
    assert "CREW_JOURNAL_DATA_DIR" in environs
    with cli.up() as up:
        path = os.pathsep.join((str(Path(COMMAND).parent), os.environ["PATH"]))
        env = environment(PATH=path, CREW_JOURNAL_DATA_DIR=str(cli.data_dir))
        for step in steps:
            script = step.replace("http://127.0.0.1:9220", up.facts["http"]).replace("/tmp", str(tmp_path))
            done = subprocess.run(
                [str(shutil.which("bash")), "-euo", "pipefail", "-c", script],
                capture_output=True,
                text=True,
                timeout=RUN_S,
                check=False,
                env=env,
            )
            assert (done.returncode == 0) is (REFUSED not in step), f"{script}\n{done.stdout}{done.stderr}"
            if "--token" in step:
                assert "/srv/backup" not in done.stdout, "ada does not see what bruno wrote"
