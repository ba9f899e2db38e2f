"""A writer in a process of its own: ``python -m bench.load URL PER_SECOND SECONDS``, the token on stdin.

Batches of 50 over HTTP, at the pace asked for as far as the service can follow. They are made before the first is sent: what
making them costs is not the service's, and the cores are shared.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import httpx
import orjson
import uvloop

from bench.corpus import Corpus

BATCH: Final = 50


async def _write(url: str, token: str, per_second: float, seconds: float) -> None:
    entries = int(per_second * seconds)
    corpus = Corpus(entries, seed=8, prefix="w")
    batches = [_batch(corpus, first, min(entries, first + BATCH)) for first in range(0, entries, BATCH)]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    loop = asyncio.get_running_loop()
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        began = loop.time()
        for number, batch in enumerate(batches):
            await asyncio.sleep(max(0.0, began + number * BATCH / per_second - loop.time()))
            (await client.post("/v1/journal", content=batch)).raise_for_status()


def _batch(corpus: Corpus, first: int, last: int) -> bytes:
    return orjson.dumps([{**corpus.submission(n), "workspace_id": corpus.workspace(n)} for n in range(first, last)])


if __name__ == "__main__":
    uvloop.run(_write(sys.argv[1], sys.stdin.readline().strip(), float(sys.argv[2]), float(sys.argv[3])))
