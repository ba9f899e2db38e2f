"""A node that is fed only up to a moment, as what a past view must answer like.

It follows the commits of a live feed in batches of random sizes from the first message on. A past view is folded at once and
loads its indexes from the file.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from support.requests_of import fields_of

from crew_journal.consumers.host.folding import Parked
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.rebuild import Fresh
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.core.errors import CrewJournalError
from crew_journal.schemas.core.operation import Operation
from crew_journal.schemas.core.principal import Principal
from crew_journal.schemas.core.timestamps import from_ms
from crew_journal.schemas.entries.tables import ENTRIES
from crew_journal.schemas.operations import ALL
from crew_journal.services.desk import Desk
from crew_journal.services.runtime.composition import desk_of
from crew_journal.services.runtime.past import PastViews

PAST = [operation for operation in ALL if operation.past]
BATCH_MOST = 40
MOVING = frozenset({"indexed_at", "last_success"})
"""When the node loaded its index, and when its model last answered."""
NONCE = re.compile(r"\b(?:r_)?[0-9a-f]{24,32}\b")


def still(value: Any, moving: frozenset[str] = frozenset()) -> Any:
    """An answer as JSON without the fields named in ``moving`` and without random marks in texts."""
    if isinstance(value, dict):
        return {name: still(part, moving) for name, part in value.items() if name not in moving}
    if isinstance(value, list):
        return [still(part, moving) for part in value]
    return NONCE.sub("", value) if isinstance(value, str) else value


def differences(ours: Any, theirs: Any, at: str = "", aged: float = 1e-6) -> list[str]:
    """Where two answers differ, numbers by more than ``aged``."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        names = ours.keys() | theirs.keys()
        return [
            found for name in names for found in differences(ours.get(name), theirs.get(name), f"{at}.{name}", aged)
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [found for n, pair in pairs for found in differences(*pair, f"{at}[{n}]", aged)]
    if isinstance(ours, float) and isinstance(theirs, float) and abs(ours - theirs) < aged:
        return []
    return [] if ours == theirs else [f"{at}: {ours!r} instead of {theirs!r}"]


@contextmanager
def caught_past() -> Iterator[list[PastViews]]:
    """The past views of the nodes that start in the block."""
    started: list[PastViews] = []

    async def start(part: PastViews, begin: Any = PastViews.start) -> None:
        started.append(part)
        await begin(part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PastViews, "start", start)
        yield started


class FedNode:
    """The node, and the sequence up to which it was fed."""

    def __init__(self, past: PastViews, fresh: Fresh, draw: random.Random) -> None:
        self._past, self._fresh, self._draw = past, fresh, draw
        self._moment = from_ms(0)
        self.seq = 0

    def clock(self) -> datetime:
        """The time of the last entry."""
        return self._moment

    async def begin(self, stack: AsyncExitStack) -> None:
        """Start the node over the empty views."""
        self.node = await self._past.over(stack, self._fresh.store, self.clock)
        self.desk = desk_of(self.node, past=True)

    async def to(self, seq: int) -> None:
        """Feed it up to a later sequence."""
        async for batch in self._past._views.source(self.seq + 1, seq):
            messages = [message for message in batch if self.seq < message.seq <= seq]
            while messages:
                count = self._draw.randint(1, BATCH_MOST)
                fed, messages = messages[:count], messages[count:]
                await self._fresh.host.fold(fed)
        await self._fresh.host.fold([], last_seq=seq)
        self.seq = seq
        self._moment = await self._past.moment_of(self._fresh)

    def ids(self, sql: str) -> list[Any]:
        """The first column of a query of its views."""
        return [row[0] for row in self._fresh.store.rows(sql, [])]


@asynccontextmanager
async def fed_node(past: PastViews, folder: Path, draw: random.Random) -> AsyncIterator[FedNode]:
    """A node that was fed nothing yet."""

    async def park(parked: Parked) -> None:
        raise AssertionError(f"{parked.projection} cannot fold {parked.message.seq}: {parked.reason}")

    async with AsyncExitStack() as stack:
        store = ViewStore.open(folder / "fed.duckdb", memory_mb=256)
        stack.callback(store.close)
        twins = [type(projection)() for projection in past._views.host.projections]
        host = Host(store, twins, park=park, housekeeping=False)
        await host.open()
        stack.push_async_callback(host.close)
        fed = FedNode(past, Fresh(store, host, []), draw)
        await fed.begin(stack)
        yield fed


async def answer(desk: Desk, operation: Operation[Any, Any], principal: Principal, fields: Mapping[str, Any]) -> Any:
    """The answer as JSON, or the error."""
    try:
        return still((await desk.run(operation, principal, fields)).model_dump(mode="json"), MOVING)
    except CrewJournalError as error:
        return f"{type(error).__name__}: {error}"


async def check_moments(
    past: PastViews,
    folder: Path,
    seqs: Sequence[int],
    draw: random.Random,
    principals: Sequence[Principal],
    workspace: str,
    queries: Sequence[str],
    agent_id: str = "ada",
) -> tuple[int, int]:
    """Compare every operation as of each sequence; the numbers of answers, and of those that are no refusal."""
    asked = answered = 0
    wrong: list[str] = []
    async with fed_node(past, folder, draw) as fed:
        for seq in sorted(seqs):
            await fed.to(seq)
            known = known_at(fed, draw, workspace, draw.choice(queries)) | {
                "agent_id": agent_id,
                "agent_name": agent_id,
            }
            async with past.at(str(seq), "as_of") as kept:
                await kept.node.recall.settled()
                await fed.node.recall.settled()
                for operation in PAST:
                    for principal in principals:
                        fields = _fields(operation, known)
                        then = await answer(fed.desk, operation, principal, fields)
                        now = await answer(kept.desk, operation, principal, fields)
                        if found := differences(now, then):
                            wrong.append(f"{operation.name} {fields} as of {seq}: {found}")
                        asked += 1
                        answered += not isinstance(then, str)
    assert not wrong, "\n".join((f"{len(wrong)} of {asked}", *wrong))
    return asked, answered


def known_at(fed: FedNode, draw: random.Random, workspace: str, query: str) -> dict[str, Any]:
    """Values of fields that name something that there was."""

    def one(sql: str, else_: Any = "something") -> Any:
        found = fed.ids(sql)
        return draw.choice(found) if found else else_

    of = f"workspace_id = '{workspace}'"
    room = one(f"SELECT room FROM drawers WHERE {of} ORDER BY drawer_id")
    entry = one(f"SELECT id FROM {ENTRIES} WHERE {of} AND entry_type NOT LIKE 'chain.%' ORDER BY seq")
    return {
        "entry_id": entry,
        "name": entry,
        "drawer_id": one(f"SELECT drawer_id FROM drawers WHERE {of} ORDER BY drawer_id"),
        "room": room,
        "start_room": room,
        "fact": one(f"SELECT fact_id FROM kg_facts WHERE {of} ORDER BY since_seq"),
        "entity": one(f"SELECT name FROM kg_entities WHERE {of} ORDER BY name"),
        "proposal_id": one(f"SELECT proposal_id FROM memory_proposals WHERE {of} ORDER BY proposal_id"),
        "from_version": one(f"SELECT seq FROM memory_versions WHERE {of} AND tier = 'AGENT' ORDER BY seq", 1),
        "tier": "AGENT",
        "crew_id": "red",
        "user": "maria",
        "kind": "fact",
        "content": query,
        "query": query,
        "prompt": query,
        "workspace_id": workspace,
    }


def _fields(operation: Operation[Any, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    model = operation.request.model_fields
    given = {name: known[name] for name in ("workspace_id", "agent_id") if name in model}
    if operation.name == "layered_read":
        given["name"] = known["fact"]
    return {**fields_of(operation, known), **given}
