"""The distribution `crew-journal-client` works in an environment that has httpx and pydantic only."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAIN = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SLIM = tomllib.loads((ROOT / "deploy" / "client" / "pyproject.toml").read_text())["project"]
MAX_BYTES = 25 * 1024 * 1024
NEEDED = (
    "anyio", "annotated-types", "certifi", "h11", "httpcore", "httpx", "idna", "pydantic", "pydantic-core",
    "typing-extensions", "typing-inspection",
)  # fmt: skip


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both wheels of a release."""
    dist = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, ROOT / "deploy" / "build", dist], check=True)
    return dist


@pytest.fixture(scope="module")
def wheel(release: Path) -> Path:
    (built,) = release.glob("crew_journal_client-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel; its dependencies are linked from this one, so nothing is downloaded."""
    folder = tmp_path_factory.mktemp("client") / "venv"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in NEEDED:
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(str(distribution(name).locate_file(top)))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    return folder


def run(environment: Path, *argv: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CREW_JOURNAL_", "PYTHON"))}
    command = [str(environment / "bin" / argv[0]), *argv[1:]]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=True, env={**kept, **env}, cwd=environment
    )


def test_it_holds_the_client_alone(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    folders = {"/".join(name.split("/")[1:3]) for name in names if name.startswith("crew_journal/services/")}
    assert folders == {"services/__init__.py", "services/data_dir.py", "services/client"}
    assert {name.split("/")[1] for name in names} == {"__init__.py", "py.typed", "schemas", "services"}
    assert "crew_journal/services/client/adapters/langgraph_store.py" in names


def test_no_file_is_in_both_wheels_and_together_they_are_the_checkout(
    release: Path, wheel: Path, tmp_path: Path
) -> None:
    (rest,) = release.glob("crew_journal-*.whl")
    held = [{name for name in zipfile.ZipFile(one).namelist() if ".dist-info/" not in name} for one in (wheel, rest)]
    assert held[0] & held[1] == set()
    modules = {file for top in ("schemas", "consumers", "services") for file in (ROOT / top).rglob("*.py")}
    names = {f"crew_journal/{file.relative_to(ROOT).as_posix()}" for file in modules} | {"crew_journal/__init__.py"}
    assert {name for name in held[0] | held[1] if name.endswith(".py")} == names
    beside = {
        f"crew_journal/{path.relative_to(ROOT).as_posix()}"
        for top in ("schemas", "consumers", "services")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert beside - held[0] - held[1] == set(), "data files that no wheel has"
    for one in (wheel, rest):
        zipfile.ZipFile(one).extractall(tmp_path)
    (metadata,) = tmp_path.glob("crew_journal-*.dist-info/METADATA")
    assert f"Requires-Dist: crew-journal-client=={MAIN['version']}" in metadata.read_text()
    script = f"""
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path.insert(0, {str(tmp_path)!r})
from crew_journal import CrewJournal
from crew_journal.services.runtime import composition
from crew_journal.services.cli.main import main
assert composition.__file__.startswith({str(tmp_path)!r})
sys.argv = ["crew-journal", "--version"]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert MAIN["version"] in done.stdout


def test_installed_with_its_dependencies_it_is_small(environment: Path) -> None:
    (site,) = environment.glob("lib/python*/site-packages")
    files = [Path(folder) / name for folder, _, found in os.walk(site, followlinks=True) for name in found]
    assert sum(file.stat().st_size for file in files if file.suffix != ".pyc") <= MAX_BYTES


def test_it_imports_the_client_and_nothing_else_is_there(environment: Path) -> None:
    script = """
import importlib.util
from crew_journal import AsyncCrewJournal, CrewJournal, NotFound
from crew_journal.services.client.adapters import openai_session
for heavy in ("orjson", "duckdb", "numpy", "nats", "pydantic_settings", "click", "crew_journal.consumers"):
    assert importlib.util.find_spec(heavy) is None, heavy
with CrewJournal("http://127.0.0.1:9", "token") as journal:
    print(journal.recall.__name__)
"""
    assert run(environment, "python", "-c", script).stdout.strip() == "recall"


def test_its_command_serves_hooks_and_tools(environment: Path) -> None:
    nowhere = {"CREW_JOURNAL_URL": "http://127.0.0.1:9", "CREW_JOURNAL_TOKEN": "token"}
    given = json.dumps({"cwd": str(environment), "session_id": "s", "prompt": "hello"})
    answer = json.loads(
        run(environment, "crew-journal-client", "hook", "UserPromptSubmit", stdin=given, **nowhere).stdout
    )
    assert "memory is not used here" in answer["systemMessage"]
    assert "--project" in run(environment, "crew-journal-client", "mcp", "--help").stdout


def test_both_distributions_state_the_same() -> None:
    assert SLIM["version"] == MAIN["version"]
    names = [{re.split(r"[^\w-]", one)[0] for one in each["dependencies"]} for each in (SLIM, MAIN)]
    assert names[0] <= names[1]
    own = ("crewai", "hermes")  # their pins do not fit those of the service
    extras = {name: wanted for name, wanted in SLIM["optional-dependencies"].items() if name not in own}
    assert extras == {
        name: wanted
        for name, wanted in MAIN["optional-dependencies"].items()
        if name not in ("dev", "setup", "broker", "otel")
    }
