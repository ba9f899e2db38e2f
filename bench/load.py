"""A writer in a process of its own: ``python -m bench.load URL PER_SECOND SECONDS``, the token on stdin.

Batches of 50 over HTTP, at the pace asked for as far as the service can follow.
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
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    loop = asyncio.get_running_loop()
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        began = loop.time()
        for first in range(0, entries, BATCH):
            last = min(entries, first + BATCH)
            batch = [{**corpus.submission(n), "workspace_id": corpus.workspace(n)} for n in range(first, last)]
            await asyncio.sleep(max(0.0, began + first / per_second - loop.time()))
            (await client.post("/v1/journal", content=orjson.dumps(batch))).raise_for_status()


if __name__ == "__main__":
    uvloop.run(_write(sys.argv[1], sys.stdin.readline().strip(), float(sys.argv[2]), float(sys.argv[3])))
