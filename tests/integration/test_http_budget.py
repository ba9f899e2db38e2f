"""Bytes of request bodies in memory: bounded for a token and for the node, given back with each request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from support.stack import HTTP_TIMEOUT_S, Stack, running_stack, until

from crew_journal.schemas.core.errors import TooManyBodies
from crew_journal.schemas.core.principal import Role
from crew_journal.services.http.bodies import SMALL_BYTES, BodyBudget, Share
from crew_journal.services.http.route import HttpLimits

MIB = 2**20
ENTRY = b'{"entry_type":"run.completed","summary":"it ran","workspace_id":"w"}'


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path_factory.mktemp("budget"), limits=HttpLimits(bodies_bytes=2 * MIB)) as running:
        yield running


class Upload:
    """An append whose body comes in parts, as many bytes as are asked for and no end before ``finish``."""

    def __init__(self, stack: Stack, token: str) -> None:
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._http = httpx.AsyncClient(base_url=stack.url, timeout=HTTP_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {token}"}
        self._task = asyncio.create_task(self._http.post("/v1/journal", content=self._body(), headers=headers))

    async def _body(self) -> AsyncIterator[bytes]:
        while part := await self._parts.get():
            yield part
        if part is None:
            raise ConnectionAbortedError

    def send(self, size: int) -> None:
        self._parts.put_nowait(b" " * size)

    async def answer(self) -> httpx.Response:
        self._parts.put_nowait(ENTRY)
        self._parts.put_nowait(b"")
        try:
            return await self._task
        finally:
            await self._http.aclose()

    async def leave(self) -> None:
        self._parts.put_nowait(None)
        with pytest.raises(ConnectionAbortedError):
            await self._task
        await self._http.aclose()


async def test_large_bodies_under_way_are_bounded_by_token_and_node_while_small_ones_pass(stack: Stack) -> None:
    budget: BodyBudget = stack.app.state.bodies
    one, two, three = [(await stack.token(Role.ADMIN, "w")).plaintext for _ in range(3)]
    first, other = Upload(stack, one), Upload(stack, two)
    first.send(MIB - SMALL_BYTES)
    other.send(MIB - SMALL_BYTES)
    await until(lambda: budget.held == 2 * (MIB - SMALL_BYTES))

    too_many = Upload(stack, one)
    too_many.send(4 * SMALL_BYTES)
    refused = await too_many.answer()
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["title"] == "Too many request bodies"
    assert refused.json()["hint"]

    no_room = Upload(stack, three)
    no_room.send(4 * SMALL_BYTES)
    refused = await no_room.answer()
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["title"] == "Too many request bodies in memory"

    for token in (one, two, three):
        small = Upload(stack, token)
        small.send(SMALL_BYTES // 2)
        assert (await small.answer()).status_code == 201

    assert (await first.answer()).status_code == 201
    await until(lambda: budget.held == MIB - SMALL_BYTES)
    await other.leave()
    await until(lambda: budget.held == 0)


def test_the_client_learns_that_it_is_a_matter_of_time() -> None:
    budget = BodyBudget(8 * MIB)
    Share(budget, "t").hold(4 * MIB)
    with pytest.raises(TooManyBodies):
        Share(budget, "t").hold(SMALL_BYTES + 1)
    Share(budget, "u").hold(4 * MIB)
