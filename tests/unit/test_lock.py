"""`make setup` and `make test` install what the locks in ``deploy/`` pin: each dependency, by hash, within its range."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LOCKS = {"requirements.lock": "setup", "requirements-dev.lock": "dev"}
"""Lock → the extra that it holds besides the dependencies."""
SYSTEMS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": system,
        "platform_machine": machine,
    }
    for python in ("3.11", "3.12", "3.13")
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
]


def applies(requirement: Requirement, system: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(system)


def text_of(lock: str) -> str:
    return (ROOT / "deploy" / lock).read_text("utf-8")


def blocks_of(lock: str) -> list[str]:
    parts = re.split(r"\n(?=[a-zA-Z])", text_of(lock))
    return [part.replace("\\\n", " ") for part in parts if not part.startswith("#")]


def pins_of(lock: str) -> list[Requirement]:
    return [Requirement(block.split("--hash")[0].strip()) for block in blocks_of(lock)]


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: "-".join(system.values()))
def test_every_direct_dependency_is_pinned_once_within_its_range(lock: str, system: dict[str, str]) -> None:
    pins = [(canonicalize_name(pin.name), pin) for pin in pins_of(lock) if applies(pin, system)]
    pinned = dict(pins)
    assert len(pinned) == len(pins)
    direct = (*PROJECT["dependencies"], *PROJECT["optional-dependencies"][LOCKS[lock]])
    for wanted in map(Requirement, direct):
        if applies(wanted, system):
            [version] = pinned[canonicalize_name(wanted.name)].specifier
            assert version.operator == "=="
            assert wanted.specifier.contains(version.version), f"{wanted} is locked to {version}: run `make lock`"


def test_running_and_developing_use_the_same_versions() -> None:
    developing = {str(pin).partition(";")[0] for pin in pins_of("requirements-dev.lock")}
    running = {str(pin).partition(";")[0] for pin in pins_of("requirements.lock")}
    assert running - developing == set()
    assert not any(pin.startswith(("pytest", "mypy")) for pin in running)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes(lock: str) -> None:
    assert [
        block.split()[0] for block in blocks_of(lock) if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", block)
    ] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index_and_no_path(lock: str) -> None:
    assert re.findall(r"://|--index|--find-links|--extra|file:|^/| /", text_of(lock), re.MULTILINE) == []
