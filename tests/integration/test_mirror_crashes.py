"""A mirror that is killed, and random edits on both sides of it: both sides end equal, and nothing is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.mirroring import MirrorWorld, played, shell
from support.stack import Stack

DAY = "2026-05-14"
EDITS = 25
NIGHTLY_EDITS = 1_000


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.nightly)])
async def test_a_mirror_killed_at_any_step_of_an_append_writes_it_once(
    stack: Stack, tmp_path: Path, stride: int
) -> None:
    def play(world: MirrorWorld) -> None:
        file = world.memory / "AGENT.md"
        world.sync()
        expected, number, killed = "", 0, True
        while killed:
            line, other = f"- line {number}", f"- other {number}"
            shell(line, file)
            world.write("append", other)
            killed = world.sync_killed(number)
            shell(f"{line} more", file)
            world.sync(3)
            expected = world.read()
            assert file.read_text() == expected
            for one in (line, other, f"{line} more"):
                assert expected.splitlines().count(one) == 1, (number, one)
            number += stride
        assert number > 8
        assert world.report.summary()["conflicts"] == []

    await played(stack, tmp_path, play)


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.nightly)])
async def test_a_mirror_killed_at_any_step_of_a_conflict_loses_neither_text(
    stack: Stack, tmp_path: Path, stride: int
) -> None:
    def play(world: MirrorWorld) -> None:
        file = world.memory / "AGENT.md"
        world.write("replace", "- start\n")
        world.sync()
        number, killed = 0, True
        while killed:
            here, there = f"- here {number}\n", f"- there {number}\n"
            file.write_text(here)
            world.write("replace", there)
            killed = world.sync_killed(number)
            world.sync(3)
            assert file.read_text() == world.read() == there, number
            assert here in [path.read_text() for path in world.memory.glob("AGENT.md.conflict-*")]
            versions = world.texts()
            assert versions.count(here) == 1, number
            assert versions.count(there) == 2, number
            number += stride
        assert number > 8

    await played(stack, tmp_path, play)


async def _random_edits(stack: Stack, tmp_path: Path, edits: int, seed: int) -> None:
    chance = random.Random(seed)
    document = ("daily", DAY)

    def play(world: MirrorWorld) -> None:
        file = world.memory / "daily" / f"{DAY}.md"
        kept: set[str] = set()
        world.sync()
        for number in range(edits):
            token = f"- token {number}."
            what = chance.choices(("append", "edit", "append there", "edit there"), (4, 1, 4, 1))[0]
            here = file.read_text().splitlines() if file.exists() else []
            if what == "append":
                shell(token, file)
            elif what == "edit":
                gone = chance.choice(here) if here else ""
                file.parent.mkdir(exist_ok=True)
                file.write_text("".join(f"{line}\n" for line in here[-40:] if line != gone) + f"{token}\n")
                kept -= {gone, *here[:-40]}
            elif what == "append there":
                world.write("append", token, *document)
            else:
                there = world.read(*document).splitlines()
                world.write("replace", "".join(f"{line}\n" for line in there[-40:]) + f"{token}\n", *document)
            kept.add(token)
            then = chance.random()
            if then < 0.3:
                world.sync_killed(chance.randrange(14))
            elif then < 0.7:
                world.sync(1)
        world.sync(3)
        text = world.read(*document)
        assert file.read_text() == text
        lines = text.splitlines()
        assert len(lines) == len(set(lines)), "a line was written twice"
        recorded = {line for version in world.texts(*document) for line in version.splitlines()}
        assert kept <= recorded

    await played(stack, tmp_path, play)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
async def test_random_edits_on_both_sides_end_equal_and_lose_nothing(stack: Stack, tmp_path: Path, seed: int) -> None:
    await _random_edits(stack, tmp_path, EDITS, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
async def test_a_thousand_random_edits_end_equal_and_lose_nothing(stack: Stack, tmp_path: Path, seed: int) -> None:
    await _random_edits(stack, tmp_path, NIGHTLY_EDITS, 100 + seed)
