"""An embed reactor in a process of its own, for tests that kill it: ``python -m support.embed_process URL USER OLLAMA``.

The password comes on stdin.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime

from support.embedding import COMES_AGAIN

from crew_journal.consumers.adapters.ollama import OllamaEmbedder
from crew_journal.consumers.models.embed_reactor import EmbedReactor
from crew_journal.services.journal.broker.connection import connect
from crew_journal.services.journal.publishing import Writer


async def _main(url: str, user: str, ollama: str, password: str) -> None:
    client = await connect(url, user, password, "embed process")
    writer = Writer(client)
    await writer.open()
    reactor = EmbedReactor(client, writer, OllamaEmbedder(ollama), clock=lambda: datetime.now(UTC), limits=COMES_AGAIN)
    await reactor.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    _url, _user, _ollama = sys.argv[1:]
    asyncio.run(_main(_url, _user, _ollama, sys.stdin.readline().strip()))
