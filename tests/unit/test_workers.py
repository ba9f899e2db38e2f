"""``--workers``: no test is lost, not even with its process, and what fails is reported as it is without workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
FILES = {
    "test_one.py": """
        import os, pytest

        @pytest.fixture(scope="module")
        def made(tmp_path_factory):
            yield tmp_path_factory.mktemp("once")
            with open(os.environ["MADE"], "a") as file:
                file.write("made ")

        def test_passes(made):
            pass

        def test_ends_its_process(made):
            os._exit(3)

        def test_after_it(made):
            print("what it printed")
            assert [1, 2] == [1, 3]
        """,
    "test_two.py": """
        import warnings

        def test_warns():
            warnings.warn("a warning of a worker")
        """,
}


def _run(folder: Path, *options: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "MADE": str(folder / "fixtures"),
    }
    command = [sys.executable, "-m", "pytest", "-p", "support.workers", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [
            *command,
            "--workers",
            "2",
            "--rootdir",
            str(folder),
            "--basetemp",
            str(folder / "made"),
            *options,
            str(folder),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stdout


def test_tests_of_a_process_that_ends_are_reported_and_the_rest_of_its_file_runs(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text("\n".join(line[8:] for line in text.splitlines()))
    report = _run(tmp_path)
    assert "2 failed, 2 passed" in report
    assert "the process that ran this test ended in the middle of it" in report
    assert "assert [1, 2] == [1, 3]" in report
    assert "what it printed" in report
    assert "a warning of a worker" in report
    assert (tmp_path / "fixtures").read_text() == "made "  # by the process that ran the rest; the other's ended with it
    assert "1 failed" in _run(tmp_path, "-x")
