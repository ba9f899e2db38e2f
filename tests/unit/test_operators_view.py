"""What the view keeps of people: models only of those who opted in, one consent for all names, and one key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.events import at, control, entry
from support.views import node

from crew_journal.consumers.operators.fold import OperatorsProjection
from crew_journal.schemas.access.events import ConsentChanged
from crew_journal.schemas.core import headers as h
from crew_journal.schemas.core.derived import OutgoingMessage
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.operators.events import (
    OperatorDeleted,
    OperatorForgotten,
    OperatorKeyReplaced,
    OperatorNamed,
    OperatorProfileUpdated,
    StatedFact,
)

MARIA, ADDRESS, OTTO = "a" * 64, "b" * 64, "c" * 64
KEY, OTHER_KEY = "1" * 16, "2" * 16


class Story:
    """Decisions about people, in order; each takes one sequence."""

    def __init__(self) -> None:
        self.messages: list[OutgoingMessage] = []

    def add(self, payload: ControlPayload, workspace: str = "w1") -> Story:
        self.messages.append(control(payload, f"n{len(self.messages)}", workspace=workspace))
        return self

    def consents(self, hashed: str = MARIA, *, granted: bool = True, key_id: str | None = KEY) -> Story:
        return self.add(ConsentChanged(subject_hash=hashed, granted=granted, key_id=key_id))

    def learns(self, value: str = "tea", hashed: str = MARIA, seq: int = 2**40) -> Story:
        fact = StatedFact(key="prefers", value=value, quote=value, entry_id="t1", seq=seq)
        return self.add(OperatorProfileUpdated(subject_hash=hashed, facts=(fact,)))

    def names(self, name: str = ADDRESS, person: str = MARIA, *, declared: bool = True) -> Story:
        return self.add(OperatorNamed(subject_hash=name, person_hash=person, declared=declared, key_id=KEY))

    async def rows(self, folder: Path, sql: str, parked: int = 0) -> list[tuple[Any, ...]]:
        """The result after all messages; that batches do not matter is proven by the contract of projections."""
        stream = [at(seq, message) for seq, message in enumerate(self.messages, 1)]
        async with node(folder / "v.duckdb", [OperatorsProjection()]) as live:
            await live.host.fold(stream)
            assert len(live.dead.parked) == parked
            return live.store.rows(sql)

    async def models(self, folder: Path, parked: int = 0) -> list[str]:
        sql = "SELECT slug FROM operator_profiles WHERE until_seq IS NULL ORDER BY slug"
        return [slug[:1] for (slug,) in await self.rows(folder, sql, parked)]


@pytest.mark.parametrize(
    ("story", "models"),
    [
        (Story().learns(), []),
        (Story().learns().consents(), []),
        (Story().consents().learns(), ["a"]),
        (Story().consents(key_id=None).learns(), ["a"]),
        (Story().consents().learns(seq=1), []),
        (Story().consents(OTTO).learns(), []),
        (Story().consents().consents(granted=False).learns(), []),
        (Story().consents().learns().consents(granted=False), []),
        (Story().consents().learns().add(OperatorDeleted(subject_hash=MARIA)).learns(), []),
        (Story().consents().learns().add(OperatorForgotten(subject_hash=MARIA)).learns("tea", seq=3), []),
        (Story().consents(granted=False).consents().learns(), ["a"]),
    ],
)
async def test_a_model_is_kept_of_a_person_who_opted_in_alone(tmp_path: Path, story: Story, models: list[str]) -> None:
    assert await story.models(tmp_path) == models


@pytest.mark.parametrize(
    ("story", "models"),
    [
        (Story().consents().names().learns(hashed=ADDRESS), ["a"]),
        (Story().consents().learns().names(), []),
        (Story().consents().consents(ADDRESS, granted=False).names().learns(), []),
        (Story().consents(granted=False).consents(ADDRESS).names().learns(hashed=ADDRESS), []),
        (Story().names().consents(ADDRESS).learns(), ["a"]),
        (Story().names().consents().consents(ADDRESS, granted=False).learns(), []),
        (Story().consents().names().names(declared=False).learns(hashed=ADDRESS), []),
        (Story().consents().names().learns().names(declared=False), []),
        (Story().consents(OTTO).names().names(MARIA, OTTO).learns(hashed=ADDRESS), ["c"]),
        (Story().consents().names(MARIA, MARIA).learns(), ["a"]),
        (Story().consents().names().names(MARIA, ADDRESS).learns(), ["a"]),
    ],
)
async def test_consent_counts_for_all_names_of_a_person(tmp_path: Path, story: Story, models: list[str]) -> None:
    assert await story.models(tmp_path) == models


async def test_a_decision_under_another_key_is_parked_until_the_key_is_replaced(tmp_path: Path) -> None:
    mixed = Story().consents().learns().consents(OTTO, key_id=OTHER_KEY).learns(hashed=OTTO)
    assert await mixed.models(tmp_path / "mixed", parked=1) == ["a"]
    replaced = Story().consents().learns().names()
    replaced.add(OperatorKeyReplaced(key_id=OTHER_KEY), "_system").learns()
    replaced.consents(OTTO, key_id=OTHER_KEY).learns(hashed=OTTO)
    assert await replaced.models(tmp_path / "replaced") == ["c"]
    foreign = Story().consents().learns().add(OperatorKeyReplaced(key_id=OTHER_KEY))
    assert await foreign.models(tmp_path / "foreign", parked=1) == ["a"], (
        "another workspace decides nothing about the key"
    )


async def test_own_turns_are_those_with_the_header_of_named_people(tmp_path: Path) -> None:
    def turn(number: int, value: str | None, actor: str = "Maria", **fields: Any) -> OutgoingMessage:
        given = {"entry_type": "chat.user_message", "actor_type": "user", "actor_id": actor, "agent": "a1", **fields}
        made = entry(f"e{number}", summary="I prefer tea.", workspace="w1", crew=None, **given)
        if value is not None:
            made.headers[h.ACTOR_VOUCHED] = value
        return made

    story = Story()
    story.messages = [
        turn(1, h.VOUCHED),
        turn(2, None),
        turn(3, "yes"),
        turn(4, h.VOUCHED, "user"),
        turn(5, h.VOUCHED, entry_type="note.taken"),
        turn(6, h.VOUCHED, actor_type="agent"),
        turn(7, h.VOUCHED, "maria"),
    ]
    found = await story.rows(tmp_path, "SELECT seq, person FROM operator_turns ORDER BY seq")
    assert found == [(1, "maria"), (7, "maria")]
