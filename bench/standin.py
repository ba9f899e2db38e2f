"""A stand-in for Ollama that costs nearly nothing: ``python -m bench.standin DIM`` prints its port and serves.

It answers each text with a random direction that depends on the text alone. What a model would cost is left out of the
benchmarks on purpose; what our side of the call costs is not. One process of its own, so that it disturbs neither client
nor service but for its CPU.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import orjson
import uvloop

MODEL: Final = "nomic-embed-text"


class StandIn(asyncio.Protocol):
    """One connection, HTTP/1.1 with keep-alive, requests one after the other."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._received = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's is not a subclass of WriteTransport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end])
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"), 0
            )
            if len(self._received) < end + 4 + length:
                return
            body = bytes(self._received[end + 4 : end + 4 + length])
            del self._received[: end + 4 + length]
            answer = orjson.dumps(self._answer(head.split(b" ", 2)[1], body), option=orjson.OPT_SERIALIZE_NUMPY)
            assert self._transport is not None
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
            )
            self._transport.write(answer)

    def _answer(self, path: bytes, body: bytes) -> dict[str, Any]:
        if path == b"/api/embed":
            texts = orjson.loads(body)["input"]
            return {
                "model": MODEL,
                "embeddings": [self._vector(t) for t in ([texts] if isinstance(texts, str) else texts)],
            }
        if path == b"/api/show":
            return {"capabilities": ["embedding"], "model_info": {"embedding_length": self._dim}}
        if path == b"/api/tags":
            return {"models": [{"name": f"{MODEL}:latest", "model": f"{MODEL}:latest"}]}
        return {"version": "0.12.0", "status": "Ollama is running"}

    def _vector(self, text: str) -> Any:
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        drawn = np.random.default_rng(seed).standard_normal(self._dim, dtype=np.float32)
        return drawn / np.linalg.norm(drawn)


async def _serve(dim: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: StandIn(dim), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the parent closes it


@contextmanager
def stand_in(dim: int) -> Iterator[str]:
    """A running stand-in; yields its URL."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.standin", str(dim)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.wait(10)


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
