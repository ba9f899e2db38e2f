"""MiniLM in a thread of this process, so that recall by meaning needs no server.

Invariants: the event loop is never blocked; a query waits for documents at most one layer of one micro-batch; a
cancelled call completes at most its current micro-batch. The model is loaded on first use; after an
`EmbedderModelMissing`, each call tries again.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.core.errors import EmbedderBadAnswer, EmbedderModelMissing, EmbedderUnavailable
from ...schemas.core.ports import TokenBits
from ...schemas.models.rules import cap_bytes
from ...schemas.settings import EMBED_INPUT_BYTES
from ...schemas.text.analyzer import STOP_WORDS
from ...schemas.text.vocabulary import vocabulary
from .minilm_encoder import DIM, FLOAT32_LE, Floats, MiniLmEncoder, batches, pooled
from .minilm_weights import MODEL_ID, find_minilm

# Converts MiniLM's hidden states to bits for late interaction: 48 bytes per token instead of 1,536.


QUANTISER: Final = 1
PASSAGE_PIECES: Final = 126
"""Number of word pieces of the first passage; the rest of the 256 that the model reads is the second passage. Recall@10
on entries of eight joined turns is .867; with a cut at the end of a sentence .868, with separate passes .865.
"""
NO_TOKENS: Final = TokenBits(QUANTISER, b"", DIM, 0)
_MEAN_FILE: Final = "minilm_mean.json"
"""Mean of the 1,401 token vectors of bench/data/everyday_chat.txt. The means of other chats give the same recall@10
(.856 to .858).
"""
_CONTINUED: Final = "##"


@cache
def mean() -> Floats:
    """(384,) float32."""
    text = resources.files("crew_journal.consumers.adapters").joinpath(_MEAN_FILE).read_text("utf-8")
    return np.array(json.loads(text), np.float32)


@cache
def counting() -> npt.NDArray[np.bool_]:
    """(pieces,) bool: which word pieces are neither stop words nor punctuation."""
    return np.array(
        [
            piece.startswith(_CONTINUED)
            or (piece not in STOP_WORDS and not piece.startswith("[") and any(map(str.isalnum, piece)))
            for piece in vocabulary()
        ]
    )


def token_bits(hidden: Floats, pieces: Sequence[Sequence[int]]) -> list[TokenBits]:
    """The token bits of each text.

    Args:
        hidden: (word pieces, 384) last hidden states, text after text.
        pieces: Ids of each text's word pieces, [CLS] and [SEP] included.
    """
    counts = counting()
    middle = mean()
    bits_per_text = []
    end = 0
    for ids in pieces:
        start, end = end, end + len(ids)
        kept = counts[np.asarray(ids)]
        bits = np.packbits(hidden[start:end][kept] > middle, axis=1)
        early = int(np.count_nonzero(kept[: PASSAGE_PIECES + 1]))  # [CLS] precedes the passage
        first = early or len(bits)  # a first passage of stop words only is left out
        bits_per_text.append(TokenBits(QUANTISER, bits.tobytes(), DIM, first))
    return bits_per_text


MICRO_BATCH_WORD_PIECES: Final = 512
"""Word pieces of one micro-batch. One layer, the longest that a query waits, takes 30 ms. Throughput is 64 texts/s
instead of 70 with 2,048 (turns of 40 word pieces).
"""
PROBE_TEXT: Final = "Is the embedder there?"
Embedding = tuple[bytes, TokenBits]
"""A vector and the token bits of a text."""


@dataclass(slots=True)
class _Documents:
    texts: list[str]
    done: Future[list[Embedding]] = field(default_factory=Future)
    pieces: list[list[int]] | None = None
    groups: deque[list[int]] = field(default_factory=deque)
    vectors: list[Embedding] = field(default_factory=list)


@dataclass(slots=True)
class _Query:
    text: str
    done: Future[Embedding] = field(default_factory=Future)


class MiniLmEmbedder:
    """An `Embedder` (see `schemas.core.ports`) computing all-MiniLM-L6-v2 in this process.

    Measured on one core at 2.5 GHz: 11 ms a query of 14 word pieces, 64 texts of 40 word pieces a second, loaded
    in 0.1 s; 58 MB resident once loaded, 73 MB with full batches.

    Args:
        cache_dir: The directory given to `minilm_weights.install_minilm`.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._encoder: MiniLmEncoder | None = None
        self._loading = threading.Lock()
        self._queries: deque[_Query] = deque()
        self._documents: deque[_Documents] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def model_id(self) -> str:
        """``all-MiniLM-L6-v2``."""
        return MODEL_ID

    @property
    def dim(self) -> int:
        """384."""
        return DIM

    @property
    def token_quantiser(self) -> int:
        """The version of ``token_bits``."""
        return QUANTISER

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """One vector per text, in order: 1,536 bytes, little-endian float32, L2-normalised.

        Raises:
            EmbedderModelMissing: The weights are missing or have the wrong hash.
            EmbedderUnavailable: The embedder is closed, or memory is insufficient.
        """
        return [vector for vector, _ in await self.embed_documents_tokens(texts)]

    async def embed_documents_tokens(self, texts: Sequence[str]) -> list[Embedding]:
        """Vector and token bits of each text, from one pass."""
        if not texts:
            return []
        job = _Documents([cap_bytes(text, EMBED_INPUT_BYTES) for text in texts])
        self._submit(job)
        return await asyncio.wrap_future(job.done)

    async def embed_query(self, text: str) -> bytes:
        """The vector of a query; it is computed before waiting documents. Errors as in `embed_documents`."""
        vector, _ = await self.embed_query_tokens(text)
        return vector

    async def embed_query_tokens(self, text: str) -> Embedding:
        """Vector and token bits of a query."""
        job = _Query(cap_bytes(text, EMBED_INPUT_BYTES))
        self._submit(job)
        return await asyncio.wrap_future(job.done)

    async def probe(self) -> None:
        """Load the model if necessary and embed a sentence. Errors as in `embed_documents`."""
        await self.embed_query(PROBE_TEXT)

    async def close(self) -> None:
        """Stop the worker after its current step; waiting calls raise `EmbedderUnavailable`."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        if self._encoder is not None:
            self._encoder.close()
            self._encoder = None

    def encode(self, texts: Sequence[str]) -> Floats:
        """Embed in the calling thread; texts are cut to 256 word pieces.

        Returns:
            `(len(texts), 384)` float32, rows L2-normalised.

        Raises:
            EmbedderModelMissing: As in `embed_documents`.
        """
        return self._loaded().encode(texts)

    def _submit(self, job: _Documents | _Query) -> None:
        with self._wake:
            if self._closed:
                raise EmbedderUnavailable("the embedder is closed")
            if isinstance(job, _Query):
                self._queries.append(job)
            else:
                self._documents.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="minilm", daemon=True)
                self._thread.start()
            self._wake.notify()

    def _loaded(self) -> MiniLmEncoder:
        with self._loading:
            if self._encoder is None:
                directory = find_minilm(self._cache_dir)
                if directory is None:
                    raise EmbedderModelMissing(
                        f"the weights of {MODEL_ID} are not installed, or differ from the published ones",
                        hint="run `crew-journal embedder install minilm`",
                    )
                try:
                    self._encoder = MiniLmEncoder(directory)
                except MemoryError:
                    raise
                except Exception as error:  # the tokenizer raises plain Exception
                    raise EmbedderModelMissing(
                        f"{MODEL_ID} cannot be loaded: {error}",
                        hint="run `crew-journal embedder install minilm`",
                    ) from error
            return self._encoder

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._queries or self._documents)
                if self._closed:
                    break
            self._answer_queries()
            if self._documents:
                self._advance(self._documents[0])
        closed = EmbedderUnavailable("the embedder was closed")
        for query in self._queries:
            _fail(query.done, closed)
        for job in self._documents:
            _fail(job.done, closed)

    def _answer_queries(self) -> None:
        while self._queries:
            query = self._queries.popleft()
            if query.done.cancelled():
                continue
            try:
                encoder = self._loaded()
                [embedding] = _embeddings(encoder, [encoder.word_pieces(query.text)])
            except Exception as error:  # passed to the caller; the worker continues
                _fail(query.done, error)
            else:
                with suppress(InvalidStateError):  # cancelled meanwhile
                    query.done.set_result(embedding)

    def _advance(self, job: _Documents) -> None:
        """Compute the next micro-batch of a job; queries run before every layer."""
        try:
            if job.done.cancelled() or self._step(job):
                self._documents.popleft()
        except Exception as error:  # as above
            self._documents.popleft()
            _fail(job.done, error)

    def _step(self, job: _Documents) -> bool:
        encoder = self._loaded()
        if job.pieces is None:
            job.pieces = [encoder.word_pieces(text) for text in job.texts]
            job.groups.extend(batches([len(ids) for ids in job.pieces], MICRO_BATCH_WORD_PIECES))
            job.vectors = [(b"", NO_TOKENS)] * len(job.texts)
        group = job.groups.popleft()
        embeddings = _embeddings(encoder, [job.pieces[index] for index in group], self._answer_queries)
        for index, embedding in zip(group, embeddings, strict=True):
            job.vectors[index] = embedding
        if job.groups:
            return False
        with suppress(InvalidStateError):  # cancelled meanwhile
            job.done.set_result(job.vectors)
        return True


def _embeddings(
    encoder: MiniLmEncoder, pieces: Sequence[Sequence[int]], interlude: Callable[[], None] | None = None
) -> list[Embedding]:
    """Vector and token bits of each text, from one pass."""
    hidden = encoder.hidden(pieces, interlude)
    vectors = _checked(pooled(hidden, [len(ids) for ids in pieces]))
    return list(zip(vectors, token_bits(hidden, pieces), strict=True))


def _checked(vectors: Floats) -> list[bytes]:
    if not np.isfinite(vectors).all():
        raise EmbedderBadAnswer(f"{MODEL_ID} computed NaN or infinite values")
    return [row.tobytes() for row in vectors.astype(FLOAT32_LE, copy=False)]


def _fail(done: Future[Embedding] | Future[list[Embedding]], error: Exception) -> None:
    if isinstance(error, MemoryError):
        error = EmbedderUnavailable("not enough memory to embed", hint="free memory, or use --embedder ollama")
    with suppress(InvalidStateError):  # cancelled meanwhile
        done.set_exception(error)
