"""What each view makes of its events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.events import EPOCH_MS, at, control, entry, vector
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.feed.messages import RawMessage
from crew_journal.schemas.access.events import (
    AgentRegistered,
    CrewRegistered,
    TokenCreated,
    TokenNatsAllowed,
    TokenRevoked,
)
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.models.events import EmbeddingsActivated, EmbeddingsAdded, EmbeddingsDropped
from crew_journal.schemas.operate.events import DeadLetterDiscarded, DeadLetterRetried, EventParked

SHA = "a" * 64
BCRYPT = "$2b$04$" + "." * 53


async def rows_after(
    path: Path, messages: list[OutgoingMessage], sql: str
) -> tuple[list[tuple[object, ...]], set[int]]:
    """The rows of a query after the messages, and the sequences that were parked."""
    stream: list[RawMessage] = [at(seq, message) for seq, message in enumerate(messages, 1)]
    async with node(path / "v.duckdb", discover_projections()) as live:
        await live.host.fold(stream)
        return live.store.rows(sql), {p.message.seq for p in live.dead.parked}


async def test_an_entry_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    payload = {"run_id": "r7", "n": 2**80, "text": "Größe\x00 ok", "state": "escalated"}
    sent = entry(
        "e1", summary="one two", entry_type="peer.conversation", payload=payload, refs={"parent_entry_id": "e0"},
        trace_id="t1", data_subject_id="Ada", severity="warn", actor_type="user", actor_id="ada", ts_ms=EPOCH_MS + 5,
        supersedes=["e0", "-"], valid_at="1969-12-31T23:59:59.999Z",
    )  # fmt: skip
    [row], parked = await rows_after(
        tmp_path,
        [sent],
        "SELECT seq, id, workspace_id, crew_id, agent_id, trace_id, ts_ms, entry_type, severity, priority, actor_type, "
        "actor_id, summary, refs, data_subject_id, supersedes, valid_ms, run_id, control, embeddable, words, size, payload "
        "FROM journal_entries",
    )
    assert not parked
    assert row[:-1] == (
        1, "e1", "w1", "c1", "a1", "t1", EPOCH_MS + 5, "peer.conversation", "warn", "normal", "user",
        "ada", "one two", '{"parent_entry_id":"e0"}', "Ada", '["e0", "-"]', -1, "r7", False, True, 6, len(sent.body),
    )  # fmt: skip
    assert json.loads(str(row[-1])) == payload


async def test_of_several_vectors_the_last_counts_and_the_first_says_since_when(tmp_path: Path) -> None:
    facts = [
        entry("e1"),
        vector("e1", seed=1),
        vector("e1", seed=2, model="nomic"),
        vector("e1", seed=3),
        vector("e1", seed=1, workspace="w2"),
        vector("unknown", entry_seq=2, dim=0),
    ]
    rows, parked = await rows_after(
        tmp_path,
        facts,
        "SELECT workspace_id, entry_id, model, dim, vector, indexed_at, seq FROM journal_embeddings ORDER BY seq",
    )
    assert not parked
    expected = [(3, 3, facts[2]), (4, 2, facts[3]), (5, 5, facts[4]), (6, 6, facts[5])]
    assert [(row[6], row[5], row[4]) for row in rows] == [
        (seq, EPOCH_MS + 10 * at_, m.body) for seq, at_, m in expected
    ]
    assert rows[-1][:4] == ("w1", "unknown", "mini", 0)


async def test_a_dropped_model_has_no_vectors_until_it_is_added_again(tmp_path: Path) -> None:
    dropped, added = EmbeddingsDropped(model="nomic"), EmbeddingsAdded(model="nomic", embedder="ollama")
    rows, parked = await rows_after(
        tmp_path,
        [
            control(added, "n1"),
            vector("e1", model="nomic"),
            vector("e1", model="mini"),
            control(dropped, "n2", workspace="w1"),  # a workspace does not decide for all
            control(dropped, "n3"),
            vector("e2", model="nomic", seed=1),  # late: its reactor did not know yet
            control(added, "n4"),
            vector("e3", model="nomic", seed=2),
        ],
        "SELECT e.entry_id, e.model, m.state, m.dropped_seq FROM journal_embeddings e "
        "LEFT JOIN embedding_models m USING (model) ORDER BY e.seq",
    )
    assert rows == [("e1", "mini", None, None), ("e3", "nomic", "added", 5)]
    assert not parked


async def test_activating_a_dropped_model_takes_its_vectors_again(tmp_path: Path) -> None:
    active = EmbeddingsActivated(model="nomic", embedder="ollama")
    rows, _ = await rows_after(
        tmp_path,
        [
            control(EmbeddingsDropped(model="nomic"), "n1"),
            control(active, "n2", workspace="w1"),
            vector("e1", model="nomic"),
        ],
        "SELECT e.entry_id, m.state, m.dropped_seq, m.seq FROM journal_embeddings e JOIN embedding_models m USING (model)",
    )
    assert rows == [("e1", "activated", 1, 2)]


async def test_the_last_activation_of_a_workspace_counts(tmp_path: Path) -> None:
    def active(model: str) -> EmbeddingsActivated:
        return EmbeddingsActivated(model=model, embedder="minilm", dim=4)

    rows, parked = await rows_after(
        tmp_path,
        [
            control(active("a"), "n1"),
            control(active("b"), "n2", workspace="w1"),
            control(active("c"), "n3"),
            control({"model": 7}, "n4", entry_type="embeddings.activated"),
        ],
        "SELECT workspace_id, model, seq FROM embeddings_active ORDER BY seq",
    )
    assert rows == [("w1", "b", 2), ("_system", "c", 3)]
    assert parked == {4}


async def test_a_dead_letter_keeps_its_first_parking_and_its_last_decision(tmp_path: Path) -> None:
    def parked(seq: int, reason: str = "r") -> EventParked:
        return EventParked(projection="entries", version=1, seq=seq, subject="journal.w1.c1.a1.x", reason=reason)

    rows, refused = await rows_after(
        tmp_path,
        [
            control(parked(5), "n1", workspace="w1"),
            control(parked(5, "again"), "n2", workspace="w1"),
            control(parked(6), "n3"),
            control(DeadLetterRetried(projection="entries", seq=5, new_seq=9), "n4"),
            control(DeadLetterDiscarded(projection="entries", seq=6), "n5"),
            control(DeadLetterDiscarded(projection="entries", seq=77), "n6"),
        ],
        "SELECT seq, reason, state, workspace_id FROM dead_letters ORDER BY seq",
    )
    assert rows == [(5, "r", "retried", "w1"), (6, "r", "discarded", "_system")]
    assert not refused


def minted(token_id: str, workspace: str | None, role: Role = Role.ADMIN, **fields: str) -> TokenCreated:
    return TokenCreated(token_id=token_id, sha256=SHA, role=role, workspace_id=workspace, **fields)


@pytest.mark.parametrize(
    ("message", "believed"),
    [
        (control(minted("k1", "w1"), "n1", workspace="w1"), True),
        (control(minted("k1", "w1"), "n1"), True),
        (control(minted("k1", None, Role.OWNER), "n1"), True),
        (control(minted("k1", "w2"), "n1", workspace="w1"), False),
        (control(minted("k1", None, Role.OWNER), "n1", workspace="w1"), False),
        (control(minted("k1", None, Role.ADMIN), "n1"), False),
        (control(minted("k1", "w1", Role.AGENT), "n1", workspace="w1"), False),
        (control(minted("k1", "w1", Role.AGENT, agent_id="a1"), "n1", workspace="w1"), True),
        (control({"token_id": "k1"}, "n1", entry_type="token.created"), False),
    ],
)
async def test_a_token_is_believed_only_from_where_it_may_come(
    tmp_path: Path, message: OutgoingMessage, believed: bool
) -> None:
    rows, parked = await rows_after(tmp_path, [message], "SELECT token_id FROM tokens")
    assert (rows == [("k1",)]) is believed
    assert (parked == {1}) is not believed


async def test_a_token_is_revoked_by_its_workspace_or_the_system_only(tmp_path: Path) -> None:
    rows, parked = await rows_after(
        tmp_path,
        [
            control(minted("k1", "w1"), "n1", workspace="w1"),
            control(minted("k2", "w1"), "n2", workspace="w1"),
            control(minted("k1", "w2"), "n3", workspace="w2"),
            control(TokenRevoked(token_id="k1"), "n4", workspace="w2"),
            control(TokenRevoked(token_id="k2"), "n5"),
            control(TokenRevoked(token_id="k2"), "n6", workspace="w1", ts_ms=EPOCH_MS + 1),
        ],
        "SELECT token_id, workspace_id, revoked_ms FROM tokens ORDER BY 1",
    )  # fmt: skip
    assert rows == [("k1", "w1", None), ("k2", "w1", EPOCH_MS)]
    assert parked == {3, 4}


async def test_a_token_is_allowed_on_nats_by_its_workspace_or_the_system_and_if_it_is_one_agents(
    tmp_path: Path,
) -> None:
    def allowed(token_id: str) -> TokenNatsAllowed:
        return TokenNatsAllowed(token_id=token_id, bcrypt=BCRYPT)

    rows, parked = await rows_after(
        tmp_path,
        [
            control(minted("k1", "w1", Role.AGENT, agent_id="a1"), "n1", workspace="w1"),
            control(minted("k2", "w1", Role.LEAD, agent_id="a2", crew_id="c1"), "n2", workspace="w1"),
            control(minted("k3", "w1"), "n3", workspace="w1"),
            control(allowed("k1"), "n4", workspace="w1"),
            control(allowed("k2"), "n5", workspace="w2"),
            control(allowed("k3"), "n6", workspace="w1"),
            control(allowed("nobody"), "n7"),
        ],
        "SELECT token_id, nats_bcrypt FROM tokens ORDER BY 1",
    )
    assert rows == [("k1", BCRYPT), ("k2", None), ("k3", None)]
    assert parked == {5, 6, 7}


async def test_an_agents_forged_control_entry_changes_no_view(tmp_path: Path) -> None:
    forged = control(minted("k1", None, Role.OWNER), "n1")
    agents = OutgoingMessage("journal.w1.c1.a1.token.created", forged.body, {})
    rows, parked = await rows_after(tmp_path, [agents], "SELECT * FROM tokens")
    assert rows == []
    assert parked == {1}


async def test_an_agent_registered_before_there_was_memory_has_it_off(tmp_path: Path) -> None:
    rows, _ = await rows_after(
        tmp_path,
        [control({"agent_id": "a1", "settings": {}}, "n1", entry_type="agent.registered", workspace="w1")],
        "SELECT name, role, memory_enabled, memory_budget_chars FROM agents",
    )
    assert rows == [(None, "agent", False, None)]


async def test_the_last_registration_of_an_agent_or_crew_counts_and_the_first_says_since_when(tmp_path: Path) -> None:
    def agent(depth: int, **also: object) -> AgentRegistered:
        return AgentRegistered(agent_id="a1", memory_walk_depth=depth, **also)  # type: ignore[arg-type]

    rows, parked = await rows_after(
        tmp_path,
        [
            control(agent(0, crew_id="c1", settings={"x": 1}), "n1", workspace="w1"),
            control(agent(1), "n2", workspace="w1"),
            control(agent(0), "n3", workspace="w2"),
            control({"agent_id": "a1", "memory_walk_depth": 7}, "n4", entry_type="agent.registered", workspace="w1"),
            control(CrewRegistered(crew_id="c1", settings={"y": 2**70}), "n5", workspace="w1"),
        ],
        "SELECT workspace_id, agent_id, crew_id, memory_walk_depth, settings, registered_ms, updated_ms, since_seq "
        "FROM agents WHERE until_seq IS NULL UNION ALL SELECT workspace_id, crew_id, NULL, NULL, settings, registered_ms, "
        "updated_ms, since_seq FROM crews WHERE until_seq IS NULL ORDER BY since_seq",
    )
    assert rows == [
        ("w1", "a1", None, 1, "{}", EPOCH_MS + 10, EPOCH_MS + 20, 2),
        ("w2", "a1", None, 0, "{}", EPOCH_MS + 30, EPOCH_MS + 30, 3),
        ("w1", "c1", None, None, f'{{"y":{2**70}}}', EPOCH_MS + 50, EPOCH_MS + 50, 5),
    ]
    assert parked == {4}
