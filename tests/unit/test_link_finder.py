"""Which of two entries that say otherwise are linked: only those of one mission and person, and none of a keyed store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.events import EPOCH_MS, at, control, entry
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.relations.reactor import LinkFinder
from crew_journal.schemas.core.entry import Priority
from crew_journal.schemas.core.envelope import LinkDerived, VectorDerived
from crew_journal.schemas.core.ports import NearQuery, NearText
from crew_journal.schemas.core.timestamps import DAY_MS
from crew_journal.schemas.recall.events import PriorityChanged
from crew_journal.schemas.relations.rules import ITEM, RECORD, slot

SAID: dict[str, Any] = {
    "entry_type": "memory.remembered", "agent": "bot", "actor_type": "user", "actor_id": "maria", "mission_id": "m1",
    "data_subject_id": "anna",
}  # fmt: skip
OPENS = ("The bakery opens at 6:30.", "The bakery now opens at 7:00")
PORT = ("The port of the parser is 5433", "The port of the parser is 5432")
CHANGED = "I changed the door code from 4471 to 9002."
LINKS = {OPENS: "supersedes", PORT: "contradicts"}
APART: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"mission_id": "m2"}),
    ({}, {"mission_id": None}),
    ({"mission_id": None}, {}),
    ({}, {"data_subject_id": "ben"}),
    ({}, {"data_subject_id": None}),
    ({"data_subject_id": None}, {}),
    ({"trace_id": slot(ITEM, "a")}, {"trace_id": slot(ITEM, "b")}),
    ({"trace_id": slot(RECORD, "a")}, {"trace_id": slot(RECORD, "b")}),
    ({"trace_id": slot(ITEM, "a")}, {}),
    ({}, {"trace_id": slot(RECORD, "a")}),
]
TOGETHER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"mission_id": None, "data_subject_id": None}, {"mission_id": None, "data_subject_id": None}),
    ({"trace_id": "t1"}, {"trace_id": "t2"}),
]


class Near:
    """Finds the entries before a fact, all alike."""

    async def nearest(self, query: NearQuery) -> list[list[NearText]]:
        return [[NearText(f"e{seq}", 0.9, seq) for seq in range(1, query.entry_seq)]]


async def links(path: Path, *said: tuple[str, dict[str, Any]], first: str | None = None) -> list[LinkDerived]:
    """The links of the last of some entries, ``e1``, ``e2`` …, each said a day after the one before.

    ``first`` is the priority that the first one gets.
    """
    stream = []
    for seq, (text, fields) in enumerate(said, 1):
        given = {name: value for name, value in {**SAID, **fields}.items() if value is not None}
        stream.append(at(seq, entry(f"e{seq}", summary=text, ts_ms=EPOCH_MS + seq * DAY_MS, **given)))
    if first is not None:
        kept = Priority(first)
        change = PriorityChanged(
            target_entry_id="e1", previous_priority=Priority.NORMAL, new_priority=kept, reason="kept"
        )
        stream.append(at(len(said) + 1, control(change, "p1", workspace="w1")))
    async with node(path / "v.duckdb", discover_projections()) as made:
        await made.host.fold(stream)
        assert not made.dead.parked
        finder = LinkFinder(made.store, Near(), threshold=0.8)
        fact = VectorDerived(
            99, "w1", f"e{len(said)}", len(said), "m", 1, b"", "", "x", "info", "normal", None, None, 0, 0, "embed@1"
        )
        return await finder.find(fact, "link@1")


def of(found: list[LinkDerived], relation: str) -> list[tuple[str, str]]:
    return [(link.src_entry_id, link.dst_entry_id) for link in found if link.relation == relation]


@pytest.mark.parametrize("texts", LINKS)
@pytest.mark.parametrize(("older", "newer"), APART)
async def test_nothing_is_proposed_between_missions_persons_and_keys(
    tmp_path: Path, texts: tuple[str, str], older: dict[str, Any], newer: dict[str, Any]
) -> None:
    found = await links(tmp_path, (texts[0], older), (texts[1], newer))
    assert of(found, "supersedes") == of(found, "contradicts") == []
    assert of(found, "similar") == [("e2", "e1")]


@pytest.mark.parametrize("texts", LINKS)
@pytest.mark.parametrize(("older", "newer"), TOGETHER)
async def test_it_is_proposed_within_one_mission_about_one_person(
    tmp_path: Path, texts: tuple[str, str], older: dict[str, Any], newer: dict[str, Any]
) -> None:
    found = await links(tmp_path, (texts[0], older), (texts[1], newer))
    assert of(found, LINKS[texts]) == [("e2", "e1")]


async def test_the_statement_of_the_same_mission_is_retired_and_that_of_another_stays(tmp_path: Path) -> None:
    found = await links(tmp_path, (OPENS[0], {}), (OPENS[0], {"mission_id": "m2"}), (OPENS[1], {"mission_id": "m2"}))
    assert of(found, "supersedes") == [("e3", "e2")]


@pytest.mark.parametrize("priority", ["pin", "permanent"])
@pytest.mark.parametrize(
    "kind", ["chat.user_message", "chat.agent_response", "peer.conversation", "message.sent", "message.received"]
)
@pytest.mark.parametrize("actor", ["user", "agent"])
async def test_no_turn_of_a_conversation_retires_what_is_kept(
    tmp_path: Path, priority: str, kind: str, actor: str
) -> None:
    turn = {"entry_type": kind, "actor_type": actor}
    found = await links(tmp_path, ("The door code is 4471.", {"actor_type": actor}), (CHANGED, turn), first=priority)
    assert of(found, "supersedes") == []


async def test_a_turn_of_a_user_retires_what_is_not_kept_and_another_entry_of_theirs_what_is(tmp_path: Path) -> None:
    turn = {"entry_type": "chat.user_message"}
    (tmp_path / "other").mkdir()
    code = ("The door code is 4471.", {})
    assert of(await links(tmp_path, code, (CHANGED, turn)), "supersedes") == [("e2", "e1")]
    found = await links(tmp_path / "other", code, (CHANGED, {}), first="permanent")
    assert of(found, "supersedes") == [("e2", "e1")]


async def test_what_only_speaks_of_a_retired_liking_is_retired_with_it(tmp_path: Path) -> None:
    turn = {"entry_type": "chat.user_message", "trace_id": "t1"}
    found = await links(
        tmp_path,
        ("I really like Nina Lind, she is my favourite singer.", turn),
        ("I love how warm her voice is.", turn),
        ("Her mother called me today.", {**turn, "actor_id": "ben"}),
        ("I used to like Nina Lind, but lately I listen to Omar Kay.", {**turn, "trace_id": "t2"}),
    )
    assert of(found, "supersedes") == [("e4", "e1"), ("e4", "e2")]
    reason = next(link.reason for link in found if link.dst_entry_id == "e2" and link.relation == "supersedes")
    assert reason.endswith("speaks of what e1 says")


async def test_what_speaks_of_a_retired_plan_may_still_hold(tmp_path: Path) -> None:
    turn = {"entry_type": "chat.user_message", "trace_id": "t1"}
    found = await links(
        tmp_path,
        ("We meet at Café Luna.", turn),
        ("We meet there at 9.", turn),
        ("Café Luna is out, we meet at the library.", turn),
    )
    assert of(found, "supersedes") == [("e3", "e1")]
