"""The parity suite on the providers over the journal and over HTTP, each with a real broker behind it."""

from __future__ import annotations

from support.stack import Stack

from crew_journal.services.memory.providers.http import HttpProvider, http_client
from crew_journal.services.memory.providers.parity import World, check


async def test_every_law_holds_over_http_and_the_journal(stack: Stack) -> None:
    async with http_client(stack.url, stack.owner) as http:
        report = await check(World(lambda scope: HttpProvider(http, scope)))
    assert report.broken == ()
