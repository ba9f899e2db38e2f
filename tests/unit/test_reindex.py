"""A reindex, folded: tombstones are forgotten where it was asked, in any batching, and vectors stay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.events import at, control, entry, vector
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.schemas.access.events import WorkspaceConfigured
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.models import rules as embed_policy
from crew_journal.schemas.models.events import ReindexRequested
from crew_journal.schemas.models.rules import EMBEDDABLE, Policy

ROWS = "SELECT workspace_id, entry_id, model, dim FROM journal_embeddings ORDER BY ALL"


def reindex(name: str = "r1", model: str | None = None, policy: int = 1) -> OutgoingMessage:
    return control(ReindexRequested(policy=policy, model=model), name, workspace="w1")


async def rows(path: Path, messages: Sequence[OutgoingMessage], batch: int) -> tuple[list[tuple], dict[str, str]]:
    stream = [at(seq, message) for seq, message in enumerate(messages, 1)]
    async with node(path / "views.duckdb", discover_projections()) as live:
        for start in range(0, len(stream), batch):
            await live.host.fold(stream[start : start + batch])
        assert live.dead.names() == set()
        return live.store.rows(ROWS), live.digests()


@pytest.mark.parametrize(
    ("model", "kept"),
    [(None, [("w1", "e2", "mini", 4)]), ("mini", [("w1", "e1", "nomic", 0), ("w1", "e2", "mini", 4)])],
)
async def test_tombstones_of_the_workspace_go_and_all_else_stays(
    tmp_path: Path, model: str | None, kept: list[tuple]
) -> None:
    """Contract §3 [TRAP]: a tombstone is permanent there."""
    messages = [
        entry("e1", entry_type="peer.escalation"),
        entry("e2", entry_type="peer.escalation"),
        entry("e1", workspace="w2", entry_type="peer.escalation"),
        vector("e1", dim=0),
        vector("e1", dim=0, model="nomic"),
        vector("e2", entry_seq=2),
        vector("e1", entry_seq=3, workspace="w2", dim=0),
        reindex(model=model),
    ]
    found, digests = await rows(tmp_path / "whole", messages, len(messages))
    assert found == [*kept, ("w2", "e1", "mini", 0)]
    assert (await rows(tmp_path / "single", messages, 1)) == (found, digests)


async def test_a_vector_that_a_tombstone_had_replaced_does_not_come_back(tmp_path: Path) -> None:
    messages = [entry("e1", entry_type="peer.escalation"), vector("e1"), vector("e1", dim=0), reindex(), reindex("r2")]
    for batch in (1, 2, len(messages)):
        found, _ = await rows(tmp_path / str(batch), messages, batch)
        assert found == []


async def test_a_text_refused_again_after_the_reindex_has_its_tombstone_again(tmp_path: Path) -> None:
    messages = [entry("e1", entry_type="peer.escalation"), vector("e1", dim=0), reindex(), vector("e1", dim=0)]
    for batch in (1, len(messages)):
        found, _ = await rows(tmp_path / str(batch), messages, batch)
        assert found == [("w1", "e1", "mini", 0)]


# a policy that changes

JUDGED = "SELECT workspace_id, id FROM journal_entries WHERE embeddable ORDER BY ALL"


@pytest.fixture
def fourth_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 4: runs are embedded, conversations not any more."""
    types = EMBEDDABLE | {"run.completed"}
    fourth = Policy(types, lambda kind, _severity, _payload, _refs: kind != "peer.conversation")
    monkeypatch.setitem(embed_policy.POLICIES, 4, fourth)


MIXED = [
    entry("run1"),
    entry("talk1", entry_type="peer.conversation", refs={"episodic": True}),
    entry("run2", workspace="w2"),
    reindex(policy=4),
    entry("run3"),
    entry("talk2", entry_type="peer.conversation", refs={"episodic": True}),
    entry("run4", workspace="w2"),
    entry("talk3", workspace="w2", entry_type="peer.conversation", refs={"episodic": True}),
]


async def judged(path: Path, messages: Sequence[OutgoingMessage], batch: int) -> tuple[list[tuple], dict[str, str]]:
    stream = [at(seq, message) for seq, message in enumerate(messages, 1)]
    async with node(path / "views.duckdb", discover_projections()) as live:
        for start in range(0, len(stream), batch):
            await live.host.fold(stream[start : start + batch])
        assert live.dead.names() == set()
        return live.store.rows(JUDGED), live.digests()


@pytest.mark.usefixtures("fourth_policy")
async def test_a_new_policy_is_in_force_from_its_reindex_on_for_all_entries_of_its_workspace(tmp_path: Path) -> None:
    found, digests = await judged(tmp_path / "whole", MIXED, len(MIXED))
    assert found == [("w1", "run1"), ("w1", "run3"), ("w2", "talk3")]
    for batch in (1, 3):
        assert await judged(tmp_path / str(batch), MIXED, batch) == (found, digests)


@pytest.mark.usefixtures("fourth_policy")
async def test_without_a_reindex_a_new_policy_changes_nothing(tmp_path: Path) -> None:
    messages = [message for message in MIXED if "reindex" not in message.subject]
    found, _ = await judged(tmp_path, messages, 3)
    assert found == [("w1", "talk1"), ("w1", "talk2"), ("w2", "talk3")]


@pytest.mark.usefixtures("fourth_policy")
async def test_a_reindex_can_go_back_to_an_older_policy(tmp_path: Path) -> None:
    for batch in (1, len(MIXED) + 1):
        found, _ = await judged(tmp_path / str(batch), [*MIXED, reindex("r2")], batch)
        assert found == [("w1", "talk1"), ("w1", "talk2"), ("w2", "talk3")]


async def test_a_policy_this_version_does_not_know_is_parked_and_changes_nothing(tmp_path: Path) -> None:
    stream = [at(1, entry("talk1", entry_type="peer.escalation")), at(2, reindex(policy=7))]
    async with node(tmp_path / "views.duckdb", discover_projections()) as live:
        await live.host.fold(stream)
        assert {name for name, _, seq in live.dead.names() if seq == 2} == {"entries"}
        assert live.store.rows(JUDGED) == [("w1", "talk1")]


# chat, which a workspace chooses


def chosen(name: str, *, embed_chat: bool) -> OutgoingMessage:
    return control(WorkspaceConfigured(settings={"embed_chat": embed_chat}), name, workspace="w1")


async def test_the_choice_of_a_workspace_judges_its_chat_alone_and_leaves_the_policy_in_force(tmp_path: Path) -> None:
    messages = [
        entry("c1", entry_type="chat.user_message"),
        entry("c2", workspace="w2", entry_type="chat.user_message"),
        entry("run1"),
        chosen("s1", embed_chat=True),
        reindex(),
        entry("c3", entry_type="chat.agent_response", refs={"episodic": True}),
        entry("note1", entry_type="memory.remembered"),
    ]
    off = [*messages, chosen("s2", embed_chat=False), entry("c4", entry_type="chat.user_message")]
    for stream, expected in ((messages, ["c1", "c3"]), (off, [])):
        known = None
        for batch in (len(stream), 1, 3):
            found, digests = await judged(tmp_path / f"{len(stream)}-{batch}", stream, batch)
            in_w1 = [name for workspace, name in found if workspace == "w1"]
            assert in_w1 == expected, "policy 1 does not select what is remembered"
            assert ("w2", "c2") in found, "a workspace that made no choice embeds speech"
            assert known in (None, digests)
            known = digests


async def test_speech_is_embedded_from_the_third_policy_on_unless_the_workspace_chose_that_it_is_not(
    tmp_path: Path,
) -> None:
    spoken = [
        entry("c1", entry_type="chat.user_message"),
        entry("m1", entry_type="message.posted"),
        entry("b1", entry_type="message.broadcast"),
        entry("other", workspace="w2", entry_type="message.posted"),
    ]
    other = control(WorkspaceConfigured(settings={"palace_ingest": True}), "s0", workspace="w1")
    off, on = chosen("s1", embed_chat=False), chosen("s2", embed_chat=True)
    cases: list[tuple[list[OutgoingMessage], list[str]]] = [
        ([], ["c1", "m1"]),
        ([other], ["c1", "m1"]),
        ([off], []),
        ([off, on], ["c1", "m1"]),
        ([off, other], ["c1", "m1"]),
        ([reindex(policy=2)], []),
        ([reindex(policy=2), on], ["c1"]),
        ([reindex(policy=2), on, reindex("r2", policy=3)], ["c1", "m1"]),
        ([reindex(policy=2), reindex("r2", policy=3)], ["c1", "m1"]),
        ([off, reindex(policy=3)], []),
    ]
    for n, (decisions, expected) in enumerate(cases):
        late = [entry("c2", entry_type="chat.agent_response")] if expected else []
        stream = [*spoken, *decisions, *late]
        wanted = sorted([("w1", name) for name in [*expected, *(one for one in ["c2"] if late)]] + [("w2", "other")])
        whole = await judged(tmp_path / f"{n}-whole", stream, len(stream))
        assert whole[0] == wanted, f"case {n}"
        if n in (3, 7):  # batches of one message take a second each
            assert await judged(tmp_path / f"{n}-single", stream, 1) == whole
