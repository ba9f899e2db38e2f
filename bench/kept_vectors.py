"""Vectors and token bits by MiniLM, kept on disk by the text they are of, so that a second run embeds nothing.

Invariant: what is kept is what the embedder of the product computed; model, quantiser and longest input are part of the key.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from crew_journal.consumers.adapters.minilm import QUANTISER, MiniLmEmbedder
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID, install_minilm
from crew_journal.schemas.core.ports import TokenBits
from crew_journal.schemas.settings import EMBED_INPUT_BYTES, Settings

FILE: Final = "bench-vectors.sqlite"
"""Beside the folder of the models."""
AT_ONCE: Final = 512
"""Texts embedded before they are written: so much is lost if a run is ended."""
_CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, vector BLOB, bits BLOB, dim INTEGER, first INTEGER)"
)
Embedded = tuple[bytes, TokenBits]


class KeptVectors:
    """Embeds texts by MiniLM, or reads what an earlier run embedded; an async context manager."""

    def __init__(self) -> None:
        cache = Settings().models_dir
        install_minilm(cache)
        self._embedder = MiniLmEmbedder(cache)
        self._file = sqlite3.connect(Path(cache).parent / FILE, timeout=60.0)
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute(_CREATE)

    async def __aenter__(self) -> KeptVectors:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._embedder.close()
        self._file.close()

    async def documents(self, texts: Sequence[str]) -> list[Embedded]:
        """Vector and token bits of each text, in order; MiniLM embeds queries and entries alike."""
        known = {text: self._kept(text) for text in dict.fromkeys(texts)}
        new = [text for text, embedded in known.items() if embedded is None]
        for begin in range(0, len(new), AT_ONCE):
            some = new[begin : begin + AT_ONCE]
            results = await self._embedder.embed_documents_tokens(some)
            known |= (new_ones := dict(zip(some, results, strict=True)))
            self._keep(new_ones)
        return [embedded for text in texts if (embedded := known[text]) is not None]

    def _kept(self, text: str) -> Embedded | None:
        row = self._file.execute("SELECT vector, bits, dim, first FROM kept WHERE key = ?", (_key(text),)).fetchone()
        return None if row is None else (row[0], TokenBits(QUANTISER, row[1], row[2], row[3]))

    def _keep(self, embedded: dict[str, Embedded]) -> None:
        rows = [(_key(text), vector, own.bits, own.dim, own.first_passage) for text, (vector, own) in embedded.items()]
        with self._file:
            self._file.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?)", rows)


def _key(text: str) -> bytes:
    return hashlib.sha256(f"{MODEL_ID} {QUANTISER} {EMBED_INPUT_BYTES} {text}".encode("utf-8", "replace")).digest()
