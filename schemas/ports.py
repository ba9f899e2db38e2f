"""Protocols between the parts, so that services and consumers meet only in the composition root.

Invariant: vectors cross a port as bytes (little-endian float32, L2-normalised, ``4 * dim`` long).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from .events.envelope import EntryRecorded, VectorDerived


@runtime_checkable
class Embedder(Protocol):
    """A model that turns text into vectors."""

    @property
    def model_id(self) -> str:
        """Name of the model, ``[A-Za-z0-9._:/-]{1,96}``; vectors of different models never mix."""
        ...

    @property
    def dim(self) -> int | None:
        """Dimensions; None until the model has answered once."""
        ...

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """One vector per text, in order.

        Raises:
            EmbedderError: One of its subclasses, saying whose fault it is.
        """
        ...

    async def embed_query(self, text: str) -> bytes:
        """The vector of a query (some models want another prefix).

        Raises:
            EmbedderError: One of its subclasses.
        """
        ...

    async def probe(self) -> None:
        """A cheap real call.

        Raises:
            EmbedderError: What is wrong.
        """
        ...

    async def close(self) -> None:
        """Give connections and threads back."""
        ...


@dataclass(frozen=True, slots=True)
class TokenBits:
    """The tokens of a text in context, one bit a dimension.

    Attributes:
        quantiser: Version of ``rules/token_bits`` that made them.
        bits: ``dim / 8`` bytes a token that counts, in order of the text.
        dim: Bits a token.
        first_passage: How many tokens belong to the first passage; the rest is the second.
    """

    quantiser: int
    bits: bytes
    dim: int
    first_passage: int


@runtime_checkable
class TokenEmbedder(Protocol):
    """An embedder that also gives the bits of a text's tokens, from the same pass; None where it has none to give."""

    @property
    def token_quantiser(self) -> int | None:
        """The quantiser of its token bits; None if it gives none at all."""
        ...

    async def embed_documents_tokens(self, texts: Sequence[str]) -> Sequence[tuple[bytes, TokenBits | None]]:
        """Vector and token bits of each text, in order; errors as in ``Embedder.embed_documents``."""
        ...

    async def embed_query_tokens(self, text: str) -> tuple[bytes, TokenBits | None]:
        """The same of a query."""
        ...


@dataclass(slots=True)
class TableChanges:
    """What one commit changed in a table, so that hot indexes follow it without a query.

    Attributes:
        written: Rows that were appended or took the place of those with the same key, as ``pyarrow.Table``.
        removed: Rows with these values in these columns were deleted.
        rewritten: Workspaces of which so many rows were changed in place that they are read again.
    """

    written: list[Any] = field(default_factory=list)
    removed: list[Mapping[str, Any]] = field(default_factory=list)
    rewritten: set[str] = field(default_factory=set)


Changes = dict[str, TableChanges]
"""By table."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """What one transaction of the host committed, so that caches are extended without reading it back.

    Attributes:
        first_seq: First stream sequence covered.
        last_seq: Last stream sequence covered.
        entries: Admitted entries among them.
        projections: Names of the projections that committed.
        changes: Table → what they changed in it.
    """

    first_seq: int
    last_seq: int
    entries: Sequence[EntryRecorded]
    projections: frozenset[str]
    changes: Mapping[str, TableChanges] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimilarEntry:
    """An entry near another one: its id, stream sequence and cosine."""

    entry_id: str
    seq: int
    cosine: float


class SimilarReader(Protocol):
    """The nearest earlier entries of an entry, for the reactor that links them."""

    async def similar(self, fact: VectorDerived, k: int, threshold: float) -> list[SimilarEntry]:
        """The best ``k`` earlier entries with a cosine of at least ``threshold``.

        Same workspace, same crew (none with none), vectors of the same model and length whose facts came before this
        one; cosine descending, then newer, then id. Waits until the views have passed the fact.

        Raises:
            ViewsBehind: If they do not come so far in time.
        """
        ...


@runtime_checkable
class ViewReader(Protocol):
    """Read access to the DuckDB views; blocking, one cursor per calling thread, safe beside the writer."""

    def rows(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a parametrised query; a mapping fills ``$name``, a sequence ``?`` or ``$1``."""
        ...

    def columns(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """The result as a ``pyarrow.Table`` (one copy, no Python objects)."""
        ...

    @property
    def generation(self) -> int:
        """Counts swaps (rebuild, erasure): caches built under another generation are void."""
        ...

    def view_seq(self, *projections: str) -> int:
        """The lowest committed checkpoint of the named projections (of all, if none is named)."""
        ...

    async def wait_for(self, seq: int, timeout_s: float, *projections: str) -> int:
        """Wait until the named projections have committed ``seq``.

        Returns:
            The lowest checkpoint reached.

        Raises:
            ViewsBehind: After ``timeout_s`` seconds.
        """
        ...

    def subscribe(self, listener: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        """Call ``listener`` on the event loop after every commit, in order; returns the way to unsubscribe."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Where an id was first seen and with which content."""

    seq: int
    content: bytes


class IdentityReader(Protocol):
    """The first entry of each (workspace, id), as far as the views have come."""

    def find(self, workspace_id: str, entry_id: str) -> Identity | None:
        """The first entry with this id, if the views know one; memory only, does not block."""
        ...

    def find_all(self, wanted: Sequence[tuple[str, str]]) -> list[Identity | None]:
        """``find`` for many workspaces and ids at once."""
        ...


@dataclass(slots=True)  # not frozen: one is made for every append, and freezing triples its cost
class Published:
    """The broker's ack of one message."""

    seq: int
    duplicate: bool


class Publisher(Protocol):
    """Publishes to JOURNAL and returns after the ack."""

    async def publish(self, subject: str, body: bytes, headers: Mapping[str, str]) -> Published:
        """Publish one message; retried with the same ``Nats-Msg-Id`` until acked or out of time.

        Raises:
            BrokerUnavailable: If no ack came within the bound.
        """
        ...
