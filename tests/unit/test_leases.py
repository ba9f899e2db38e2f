"""What a reactor has in hand: renewed while it works, settled once, and given back oldest first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from nats.errors import ConnectionClosedError

from crew_journal.consumers.reacting.pull import Leases


@dataclass
class Message:
    """A delivered message, as far as leases use one; ``said`` is what the broker was told, of all messages in order."""

    seq: int
    said: list[tuple[str, int]]
    fails: set[str] = field(default_factory=set)
    renewed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def metadata(self) -> Any:
        return SimpleNamespace(sequence=SimpleNamespace(stream=self.seq))

    async def _say(self, what: str) -> None:
        self.said.append((what, self.seq))
        if what in self.fails:
            raise ConnectionClosedError

    async def ack(self) -> None:
        await self._say("ack")

    async def nak(self, delay: float | None = None) -> None:
        await self._say("back" if delay is None else f"back in {delay:g} s")

    async def in_progress(self) -> None:
        self.renewed.set()
        await self._say("renew")


def held(leases: Leases, *seqs: int) -> tuple[list[Any], list[tuple[str, int]]]:
    said: list[tuple[str, int]] = []
    messages: list[Any] = [Message(seq, said) for seq in seqs]
    for message in messages:
        leases.hold(message)
    return messages, said


async def test_what_is_not_settled_is_given_back_once_oldest_first() -> None:
    leases = Leases(60, "embed")
    (_, _, second, fourth), said = held(leases, 30, 10, 20, 40)
    await leases.ack(second)
    await leases.put_off(fourth, 5)
    await leases.give_back()
    await leases.give_back()
    assert said == [("ack", 20), ("back in 5 s", 40), ("back", 10), ("back", 30)]


async def test_a_message_whose_ack_failed_is_still_pending() -> None:
    leases = Leases(60, "embed")
    (one,), said = held(leases, 1)
    one.fails = {"ack"}
    with pytest.raises(ConnectionClosedError):
        await leases.ack(one)
    await leases.give_back()
    assert said == [("ack", 1), ("back", 1)]


async def test_one_that_cannot_be_given_back_does_not_keep_the_others() -> None:
    leases = Leases(60, "embed")
    (one, _), said = held(leases, 1, 2)
    one.fails = {"back"}
    await leases.give_back()
    assert said == [("back", 1), ("back", 2)]


async def test_what_is_in_hand_is_renewed_while_the_block_runs_even_if_one_renewal_fails() -> None:
    leases = Leases(0.003, "embed")
    (one, other), said = held(leases, 1, 2)
    one.fails = {"renew"}
    async with asyncio.timeout(60), leases.renewed():
        await other.renewed.wait()
        await leases.ack(one)
        said.clear()
        other.renewed.clear()
        await other.renewed.wait()
    assert set(said) == {("renew", 2)}


async def test_what_was_put_off_or_given_back_is_unsettled_until_it_comes_again_and_is_acked() -> None:
    leases = Leases(60, "embed")
    (first, second, third), _ = held(leases, 1, 2, 3)
    await leases.ack(first)
    await leases.put_off(second, 5)
    await leases.give_back()
    assert leases.unsettled == {2, 3}
    leases.hold(second)
    leases.hold(third)
    assert leases.unsettled == {2, 3}
    await leases.ack(third)
    assert leases.unsettled == {2}


async def test_of_what_was_put_off_the_oldest_is_forgotten_when_there_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process may have settled it; nobody tells us."""
    monkeypatch.setattr("crew_journal.consumers.reacting.pull.PARTED_KEPT", 2)
    leases = Leases(60, "embed")
    messages, _ = held(leases, 1, 2, 3)
    for message in messages:
        await leases.put_off(message, 5)
    assert leases.unsettled == {2, 3}
