"""The wheel holds what the folders hold, and works without the checkout."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import crew_journal

ROOT = Path(__file__).parents[2]
HEAVY = {"nats", "faststream", "duckdb", "numpy", "pyarrow", "starlette", "orjson", "Stemmer", "uvicorn", "ollama"}
TOP = ("schemas", "consumers", "services")


def _config() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_folder_is_listed():
    inits = [ROOT / "__init__.py", *(init for top in TOP for init in (ROOT / top).rglob("__init__.py"))]
    found = {".".join(("crew_journal", *init.parent.relative_to(ROOT).parts)) for init in inits}
    assert set(_config()["tool"]["setuptools"]["packages"]) == found


def test_every_folder_with_modules_is_a_package():
    folders = {path.parent for top in TOP for path in (ROOT / top).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_type_checkers_see_the_same_folders_as_the_interpreter():
    links = {link.name: link.resolve() for link in (ROOT / ".typecheck" / "crew_journal").iterdir()}
    assert links == {name: ROOT / name for name in (*TOP, "__init__.py", "py.typed")}


@pytest.mark.parametrize("top", TOP)
def test_imports_inside_the_package_are_relative_so_that_editors_follow_them(top):
    absolute = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / top).rglob("*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.match(r"\s*(from|import) crew_journal\b", line)
    ]
    assert absolute == [], "write `from ..a.b import c`"


@pytest.fixture(scope="module")
def unpacked_wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    scratch = tmp_path_factory.mktemp("build")  # in the checkout, another worker's build would be in the way
    (scratch / "options.cfg").write_text(f"[build]\nbuild_base = {scratch}\n[egg_info]\negg_base = {scratch}\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT],
        check=True,
        capture_output=True,
        env={**os.environ, "DIST_EXTRA_CONFIG": str(scratch / "options.cfg")},
    )
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_the_wheel_works_without_the_checkout(unpacked_wheel):
    script = f"""
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path.insert(0, {str(unpacked_wheel)!r})
import crew_journal
from crew_journal.schemas.catalogue import catalogue
import crew_journal.consumers.discovery as discovery
from crew_journal.services.cli.main import main
for module in (crew_journal, discovery):
    assert module.__file__.startswith({str(unpacked_wheel)!r}), module.__file__
assert len(catalogue()) > 100 and len(discovery.discover_projections()) >= 6
sys.argv = ["crew-journal", "--version"]
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=unpacked_wheel, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert _config()["project"]["version"] in ran.stdout


def test_the_wheel_holds_the_data_files(unpacked_wheel):
    base = unpacked_wheel / "crew_journal"
    assert (base / "py.typed").exists()
    for name in (
        "schemas/catalogue.json",
        "schemas/text/injection.toml",
        "schemas/text/sentences.toml",
        "schemas/entry.schema.json",
        "schemas/text/word_pieces.txt",
        "schemas/text/language/de.json",
        "schemas/text/language/stop_words.json",
        "schemas/recall/evidence.json",
        "consumers/adapters/minilm_mean.json",
        "services/cli/sample/journal.jsonl",
    ):
        assert (base / name).stat().st_size > 0


def test_the_wheel_holds_every_file_beside_the_modules(unpacked_wheel):
    beside = [
        path.relative_to(ROOT)
        for top in TOP
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert len(beside) > 10
    assert [str(path) for path in beside if not (unpacked_wheel / "crew_journal" / path).exists()] == []


def test_the_client_needs_only_schemas_and_httpx():
    script = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise ImportError("the client imports " + name)
sys.meta_path.insert(0, Refuse())
from crew_journal import AsyncCrewJournal, CrewJournal, NotFound
from crew_journal.services import client
from crew_journal.schemas.core import errors
assert (AsyncCrewJournal, CrewJournal, NotFound) == (client.AsyncCrewJournal, client.CrewJournal, errors.NotFound)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_importing_the_package_imports_none_of_its_modules():
    script = "import sys, crew_journal; print(*(name for name in sys.modules if name.startswith('crew_journal.')))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_the_package_has_no_other_names():
    assert not hasattr(crew_journal, "CrewJurnal")
    assert not hasattr(crew_journal, "dataclass")
