"""The parity suite passes on the provider on disk and names the law that a wrong provider breaks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.disk_provider import DiskProvider
from support.wrong_providers import WRONG

from crew_journal.services.documents.laws import LAWS, World, check


async def test_every_law_holds_on_disk(tmp_path: Path) -> None:
    report = await check(World(lambda scope: DiskProvider(tmp_path, scope)))
    assert report.broken == ()
    assert len(report.verdicts) == len(LAWS)


@pytest.mark.parametrize(("wrong", "law"), WRONG.items(), ids=lambda given: getattr(given, "__name__", given))
async def test_a_wrong_provider_is_named_with_the_law_that_it_breaks(
    wrong: type[DiskProvider], law: str, tmp_path: Path
) -> None:
    report = await check(World(lambda scope: wrong(tmp_path, scope)))
    assert law in [verdict.law for verdict in report.broken]
    assert any(line.startswith(f"BROKEN  {law}: ") for line in report.lines())


async def test_a_provider_that_does_not_answer_breaks_a_law_instead_of_hanging_the_suite(tmp_path: Path) -> None:
    (hung,) = (wrong for wrong, law in WRONG.items() if law == "health is prompt")

    async def law(world: World) -> None:
        """Health answers."""
        await world.bound().provider.health()

    report = await check(World(lambda scope: hung(tmp_path, scope)), [law], law_s=0.05)
    assert report.lines()[1] == "        seen: no end within 0 s"


async def test_every_law_holds_for_the_example_of_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "providers.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    module: dict[str, Any] = {}
    exec(compile(example, "docs/providers.md", "exec"), module)
    report = await check(World(module["DictionaryProvider"]))
    assert report.broken == ()


def test_every_law_says_in_a_sentence_what_holds() -> None:
    assert all((law.__doc__ or "").strip().endswith(".") for law in LAWS)
