"""`make setup` installs what ``deploy/requirements.lock`` pins: every dependency, by hash, and within its range."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DIRECT = [Requirement(line) for line in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"])]
TEXT = (ROOT / "deploy" / "requirements.lock").read_text("utf-8")
BLOCKS = [block.replace("\\\n", " ") for block in re.split(r"\n(?=[a-zA-Z])", TEXT) if not block.startswith("#")]
PINS = [Requirement(block.split("--hash")[0].strip()) for block in BLOCKS]
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


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: "-".join(system.values()))
def test_every_direct_dependency_is_pinned_once_within_its_range(system: dict[str, str]) -> None:
    pins = [(canonicalize_name(pin.name), pin) for pin in PINS if applies(pin, system)]
    pinned = dict(pins)
    assert len(pinned) == len(pins)
    for wanted in DIRECT:
        if applies(wanted, system):
            [version] = pinned[canonicalize_name(wanted.name)].specifier
            assert version.operator == "=="
            assert wanted.specifier.contains(version.version), f"{wanted} is locked to {version}: run `make lock`"


def test_every_pin_has_hashes() -> None:
    assert [block.split()[0] for block in BLOCKS if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", block)] == []


def test_the_lock_names_no_index_and_no_path() -> None:
    assert re.findall(r"://|--index|--find-links|--extra|file:|^/| /", TEXT, re.MULTILINE) == []
