"""A file ``*_fold.py`` in a family is all a new projection takes."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.events import at, entry
from support.projection_contract import check
from support.views import MEMORY_MB, node, source_of

from crew_journal.consumers import entries as family
from crew_journal.consumers.discovery import DiscoveryError, discover_projections, discover_reactors
from crew_journal.consumers.entries import fold as entries
from crew_journal.consumers.entries import fulltext_fold as fulltext
from crew_journal.consumers.entries import turns_fold as turns
from crew_journal.consumers.host.rebuild import rebuild, verify
from crew_journal.consumers.relations import fold as relations
from crew_journal.consumers.standing import importance_fold as importance
from crew_journal.schemas.recall import turns as turn_rules
from crew_journal.schemas.relations import rules as relation_rules
from crew_journal.schemas.standing import rules as importance_rules
from crew_journal.schemas.text import analyzer as text
from crew_journal.schemas.text import word_pieces
from crew_journal.services.cli.main import main

RULES_OF_VIEWS = [
    (entries, text),
    (fulltext, text),
    (importance, importance_rules),
    (relations, relation_rules),
    (turns, text),
    (turns, turn_rules),
    (turns, word_pieces),
]
NEW = '''
"""Counts entries per workspace."""
from typing import ClassVar, NamedTuple

from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.table import Table

class CountRow(NamedTuple):
    workspace_id: str
    n: int

COUNTS = Table("entry_counts", CountRow, "counting", key=("workspace_id",))

class Counting:
    name: ClassVar = "counting"
    version: ClassVar = 1
    tables: ClassVar = (COUNTS,)
    folds: ClassVar = (EntryRecorded,)

    def apply(self, batch, tx):
        for event in batch.entries:
            known = tx.get(COUNTS, workspace_id=event.workspace_id)
            tx.replace(COUNTS, [CountRow(event.workspace_id, 1 + (known[0].n if known else 0))])

PROJECTION = Counting
'''


@pytest.fixture
def dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory whose files count as files of ``consumers/entries``."""
    folder = tmp_path / "entries"
    folder.mkdir()
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(folder)])
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("crew_journal.consumers.entries."):
            del sys.modules[name]
            monkeypatch.delattr(family, name.rpartition(".")[2], raising=False)


async def test_a_new_file_is_discovered_and_rebuilt_without_another_line(dropped: Path, tmp_path: Path) -> None:
    stream = [at(seq, entry(f"e{seq}", workspace=f"w{seq % 2}")) for seq in range(1, 12)]
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(stream)
    (dropped / "counting_fold.py").write_text(NEW)
    async with node(tmp_path / "v.duckdb", discover_projections()) as live:
        assert live.host.laggards == ("counting",)
        await rebuild(live.host, source_of(stream), memory_mb=MEMORY_MB, names=["counting"])
        assert live.host.laggards == ()
        assert live.store.rows("SELECT * FROM entry_counts ORDER BY 1") == [("w0", 5), ("w1", 6)]
        results = await verify(live.host, source_of(stream), memory_mb=MEMORY_MB)
        assert {result.projection: result.equal for result in results}["counting"]


def test_a_new_file_is_held_to_the_contract_without_another_line(dropped: Path) -> None:
    (dropped / "counting_fold.py").write_text(NEW)
    [found] = [type(p) for p in discover_projections() if p.name == "counting"]

    @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        check(found, data, max_messages=12)

    holds()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (('"counting"', '"entries"'), "called entries"),
        (("entry_counts", "tokens"), "claim the table tokens"),
        (("PROJECTION =", "SOMETHING ="), "exposes no PROJECTION"),
        (("class Counting:", "class Counting"), "cannot be imported: SyntaxError in line 14: expected ':'"),
        (
            ("from typing", "import nowhere_to_be_found\nfrom typing"),
            "cannot be imported: ModuleNotFoundError: No module",
        ),
        (("PROJECTION = Counting", "PROJECTION = Counting()"), "is of type Counting"),
        (("PROJECTION = Counting", "PROJECTION = 'counting'"), "is of type str"),
        (("PROJECTION = Counting", "PROJECTION = dict"), r"dict of .* is not a projection: it has no name"),
        (("    def apply", "    def __init__(self, _): pass\n    def apply"), "cannot be made: TypeError"),
        (("def apply", "def fold"), "is not a projection: it has no apply"),
        (("version: ClassVar = 1", "version: ClassVar = '1'"), "its version must be a positive integer"),
        (("(COUNTS,)", '("entry_counts",)'), "its tables is not a tuple of Table"),
        (("(EntryRecorded,)", "('entry.recorded',)"), "its folds is not a tuple of payload and event classes"),
        (("n: int", "n: complex"), "cannot be imported: KeyError"),
    ],
)
def test_a_file_that_holds_no_projection_that_fits_is_named_with_the_fault_and_what_to_do(
    dropped: Path, change: tuple[str, str], complaint: str
) -> None:
    file = dropped / "counting_fold.py"
    file.write_text(NEW.replace(*change))
    with pytest.raises(DiscoveryError, match=complaint) as refused:
        discover_projections()
    assert str(file) in refused.value.message
    assert refused.value.hint


def test_a_reactor_s_file_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_reactor.py").write_text("def create(:\n")
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path)])
    with pytest.raises(DiscoveryError, match=r"broken_reactor\.py cannot be imported: SyntaxError in line 1"):
        discover_reactors()


def test_doctor_and_commands_name_the_file_and_what_to_do(
    dropped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data-dir", str(tmp_path / "data")]
    assert main(["doctor", "--http", "127.0.0.1:0", "--json", *where]) in (0, 1)
    findings = {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert findings["parts"]["verdict"] == "ok"
    (dropped / "counting_fold.py").write_text(NEW.replace("class Counting:", "class Counting"))
    assert main(["doctor", "--http", "127.0.0.1:0", "--json", *where]) == 1
    findings = {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert findings["parts"]["verdict"] == "fail"
    assert findings["parts"]["found"].startswith(
        f"{dropped / 'counting_fold.py'} cannot be imported: SyntaxError in line 14"
    )
    assert findings["parts"]["next_step"] == "mend the file or remove it"


def test_the_order_is_the_same_every_time() -> None:
    names = [projection.name for projection in discover_projections()]
    assert names == [projection.name for projection in discover_projections()]
    assert {"entries", "fulltext", "vectors", "activations", "dead_letters", "tokens"} <= set(names)


@pytest.mark.parametrize(("view", "rule"), RULES_OF_VIEWS)
def test_a_new_version_of_a_rule_is_a_new_version_of_every_view_whose_rows_follow_from_it(
    view: ModuleType, rule: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN §1: a changed rule is an explicit re-derivation; one that kept its version would stay stale."""
    before = view.PROJECTION.version
    monkeypatch.setattr(rule, "VERSION", rule.VERSION + 1)
    name = f"{view.__name__}_again"  # in the same package, for its imports are relative
    spec = importlib.util.spec_from_file_location(name, view.__file__ or "")
    assert spec is not None
    assert spec.loader is not None
    anew = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, anew)
    spec.loader.exec_module(anew)
    assert anew.PROJECTION.version > before
