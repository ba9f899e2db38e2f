"""Tables of a projection are made whatever its fold has planned in this process before."""

from __future__ import annotations

from pathlib import Path

import duckdb

from crew_journal.consumers.host.ownership import ownership_of
from crew_journal.consumers.host.transaction import CHECKPOINT_DDL, create_tables
from crew_journal.consumers.views.fulltext import FulltextProjection


def test_a_scratch_table_that_a_fold_has_made_is_not_taken_for_one_that_lacks_columns(tmp_path: Path) -> None:
    projection = FulltextProjection()
    ownership_of(projection).check(f"CREATE OR REPLACE TEMP TABLE {projection.scratch[0]} AS SELECT * FROM postings")
    with duckdb.connect(tmp_path / "views.duckdb") as con:
        con.execute(CHECKPOINT_DDL)
        create_tables(con, projection)
        assert con.execute("SELECT count(*) FROM postings").fetchone() == (0,)
