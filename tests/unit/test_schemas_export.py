import json
from importlib import resources

import pytest

from crew_journal.schemas.export import entry_json_schema, stored_json_schema


@pytest.mark.parametrize(
    ("name", "make"), [("entry.schema.json", entry_json_schema), ("entry_stored.schema.json", stored_json_schema)]
)
def test_the_committed_json_schema_is_current(name, make):
    committed = json.loads(resources.files("crew_journal.schemas").joinpath(name).read_text())
    assert committed == make(), f"write schemas/{name} anew from crew_journal.schemas.export"


def test_a_submission_needs_only_a_type_and_a_summary():
    assert sorted(entry_json_schema()["required"]) == ["entry_type", "summary"]
