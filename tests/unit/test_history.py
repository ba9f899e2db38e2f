"""Tables that keep history answer for the present and for every sequence, however the events were batched."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, NamedTuple

import duckdb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.events import at, control
from support.projection_contract import check
from support.views import node

from crew_journal.consumers.folds.payloads import decisions, end, succeed
from crew_journal.consumers.host.transaction import ProjectionTransaction, ddl
from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.schemas.access.events import AgentRegistered, CrewRegistered
from crew_journal.schemas.core.table import PRESENT, Seq, Table, Tables, as_of


class MemberRow(NamedTuple):
    workspace_id: str
    agent_id: str
    crew_id: str | None
    since_seq: Seq
    until_seq: Seq | None = None


MEMBERS = Table("members", MemberRow, "members", key=("workspace_id", "agent_id"))


class MembersProjection:
    """Which crew an agent is of, over time; a crew that is registered takes its namesake's membership away."""

    name: ClassVar[str] = "members"
    version: ClassVar[int] = 1
    tables: ClassVar[Tables] = (MEMBERS,)
    folds: ClassVar = (AgentRegistered, CrewRegistered)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        for event, payload in decisions(batch, *self.folds):
            if isinstance(payload, AgentRegistered):
                succeed(tx, MEMBERS, [MemberRow(event.workspace_id, payload.agent_id, payload.crew_id, event.seq)])
            elif isinstance(payload, CrewRegistered):
                end(tx, MEMBERS, event.seq, workspace_id=event.workspace_id, agent_id=payload.crew_id)


@settings(max_examples=max(3, settings.default.max_examples // 10), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_table_with_history_keeps_the_laws_of_every_projection(data: st.DataObject) -> None:
    check(MembersProjection, data, max_messages=25)


async def test_former_rows_stay_with_the_sequence_at_which_they_ceased(tmp_path: Path) -> None:
    events = [
        AgentRegistered(agent_id="a1", crew_id="c1", memory_walk_depth=0),
        AgentRegistered(agent_id="a1", crew_id="c2", memory_walk_depth=0),
        CrewRegistered(crew_id="a1"),
    ]
    async with node(tmp_path / "v.duckdb", [MembersProjection()]) as live:
        await live.host.fold([at(seq, control(one, f"m{seq}", workspace="w1")) for seq, one in enumerate(events, 1)])
        asked = {seq: live.store.rows(f"SELECT crew_id FROM members WHERE {as_of(seq)}") for seq in range(4)}
        assert asked == {0: [], 1: [("c1",)], 2: [("c2",)], 3: []}
        assert live.store.rows(f"SELECT * FROM members WHERE {PRESENT}") == []
        assert live.store.rows("SELECT crew_id, since_seq, until_seq FROM members ORDER BY 2") == [
            ("c1", 1, 2),
            ("c2", 2, 3),
        ]


CHANGES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["c1", "c2", None])), max_size=14)


@settings(max_examples=max(3, settings.default.max_examples // 3))
@given(CHANGES, st.lists(st.integers(1, 5), min_size=14, max_size=14))
def test_rows_that_come_together_give_the_same_history_as_rows_that_come_alone(
    changes: list[tuple[str, str | None]], sizes: list[int]
) -> None:
    rows = [MemberRow("w1", agent, crew, seq) for seq, (agent, crew) in enumerate(changes, 1)]
    found = []
    for steps in ([1] * len(rows), sizes):
        with duckdb.connect() as con:
            con.execute(ddl(MEMBERS))
            tx = ProjectionTransaction(con, MembersProjection())
            done = 0
            for step in steps:
                succeed(tx, MEMBERS, rows[done : done + step])
                done += step
            found.append(con.execute("SELECT * FROM members ORDER BY ALL").fetchall())
            for seq in range(len(rows) + 1):
                counted = dict(con.execute(f"SELECT agent_id, crew_id FROM members WHERE {as_of(seq)}").fetchall())
                assert counted == {row.agent_id: row.crew_id for row in rows[:seq]}
    assert found[0] == found[1]
