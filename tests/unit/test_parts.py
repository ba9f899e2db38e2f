"""Parts of a node are started in order, stopped in reverse, and asked alike for figures and trouble."""

from __future__ import annotations

from contextlib import AsyncExitStack

from crew_journal.services.parts import Part, Parts


class Lamp(Part):
    def __init__(self, name: str, events: list[str]) -> None:
        self._name = name
        self._events = events
        self.broken = False

    async def start(self) -> None:
        self._events.append(f"{self._name} on")

    async def stop(self) -> None:
        self._events.append(f"{self._name} off")

    @property
    def trouble(self) -> str | None:
        return f"{self._name} is broken" if self.broken else None


async def test_parts_start_in_order_and_stop_in_reverse() -> None:
    events: list[str] = []
    async with AsyncExitStack() as stack:
        parts = Parts(stack)
        for name in ("one", "two"):
            await parts.begin(name, Lamp(name, events))
    assert events == ["one on", "two on", "two off", "one off"]


async def test_a_part_that_starts_last_stops_in_the_place_where_it_was_added() -> None:
    events: list[str] = []
    async with AsyncExitStack() as stack:
        parts = Parts(stack)
        late = parts.keep("late", Lamp("late", events))
        await parts.begin("one", Lamp("one", events))
        await late.start()
    assert events == ["one on", "late on", "one off", "late off"]


async def test_every_part_is_asked_for_figures_and_trouble() -> None:
    async with AsyncExitStack() as stack:
        parts = Parts(stack)
        lamp = await parts.begin("lamp", Lamp("lamp", []))

        async def asked_of_a_broker() -> dict[str, int]:
            return {"head": 7}

        parts.show("stream", asked_of_a_broker)
        parts.show("disk", lambda: {"free": 1}, lambda: "the disk is full")
        assert await parts.figures() == {"stream": {"head": 7}, "disk": {"free": 1}}
        assert await parts.figures("disk") == {"disk": {"free": 1}}
        assert parts.troubles() == ["the disk is full"]
        lamp.broken = True
        assert parts.troubles() == ["lamp is broken", "the disk is full"]
