"""Protocols between services and consumers, so that only the composition root imports both.

Invariant: vectors cross a port as bytes (little-endian float32, L2-normalised, ``4 * dim`` long).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from .envelope import DocumentWritten, EntryRecorded

R = TypeVar("R")


@runtime_checkable
class Embedder(Protocol):
    """A model that turns text into vectors."""

    @property
    def model_id(self) -> str:
        """Name of the model, ``[A-Za-z0-9._:/-]{1,96}``; vectors of different models are never compared."""
        ...

    @property
    def dim(self) -> int | None:
        """Dimensions; None before the model's first answer."""
        ...

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """One vector per text, in order.

        Raises:
            EmbedderError: A subclass that says what failed.
        """
        ...

    async def embed_query(self, text: str) -> bytes:
        """The vector of a query; some models use another prefix for queries.

        Raises:
            EmbedderError: One of its subclasses.
        """
        ...

    async def probe(self) -> None:
        """Test the model with a short text.

        Raises:
            EmbedderError: A subclass that says what failed.
        """
        ...

    async def close(self) -> None:
        """Close connections and stop threads."""
        ...


@dataclass(frozen=True, slots=True)
class TokenBits:
    """Contextual vectors of a text's word pieces, quantised to one bit per dimension.

    Attributes:
        quantiser: Version of ``consumers/adapters/minilm.token_bits`` that computed the bits.
        bits: ``dim / 8`` bytes per selected word piece, in the order of the text.
        dim: Bits per word piece.
        first_passage: How many word pieces belong to the first passage; the others belong to the second.
    """

    quantiser: int
    bits: bytes
    dim: int
    first_passage: int


@runtime_checkable
class TokenEmbedder(Protocol):
    """An embedder that also computes token bits in the same pass, or None for a text without them."""

    @property
    def token_quantiser(self) -> int | None:
        """The quantiser of its token bits; None if it computes none."""
        ...

    async def embed_documents_tokens(self, texts: Sequence[str]) -> Sequence[tuple[bytes, TokenBits | None]]:
        """Vector and token bits of each text, in order; errors as in ``Embedder.embed_documents``."""
        ...

    async def embed_query_tokens(self, text: str) -> tuple[bytes, TokenBits | None]:
        """Vector and token bits of a query."""
        ...


@dataclass(slots=True)
class TableChanges:
    """The changes of one commit to a table, so that hot indexes follow it without a query.

    Attributes:
        written: Columns of the rows that were appended or that replaced rows with the same key.
        removed: Rows with these values in these columns were deleted.
        rewritten: Workspaces in which so many rows changed that indexes must read all their rows again.
    """

    written: list[Mapping[str, Any]] = field(default_factory=list)
    removed: list[Mapping[str, Any]] = field(default_factory=list)
    rewritten: set[str] = field(default_factory=set)

    def rows(self, row: type[R]) -> Iterator[R]:
        """The written rows, if the fold wrote rows instead of columns."""
        names: tuple[str, ...] = row._fields  # type: ignore[attr-defined] # a NamedTuple
        for columns in self.written:
            yield from map(row._make, zip(*(columns[name] for name in names), strict=True))  # type: ignore[attr-defined]


Changes = dict[str, TableChanges]
"""The changes by table."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A committed transaction: sequences ``first_seq`` to ``last_seq``, folded by ``projections``.

    Attributes:
        first_seq: First stream sequence covered.
        last_seq: Last stream sequence covered.
        entries: Admitted entries in this range.
        projections: Names of the projections that committed.
        changes: Table → its changes.
        documents: Document writes in this range, repeats included.
    """

    first_seq: int
    last_seq: int
    entries: Sequence[EntryRecorded]
    projections: frozenset[str]
    changes: Mapping[str, TableChanges] = field(default_factory=dict)
    documents: Sequence[DocumentWritten] = ()


ENTRY_KIND: Final = "entry"
DRAWER_KIND: Final = "drawer"


@dataclass(frozen=True, slots=True)
class NearQuery:
    """Which texts are asked for: those nearest to vectors, or to stored texts.

    Attributes:
        kind: ``ENTRY_KIND`` or the name of a kind of text (``schemas/texts``).
        workspace_id: The workspace.
        model: The model of the vectors; nothing is near if the workspace's active model is another one.
        k: Most texts for each vector.
        least: Lowest cosine.
        vectors: Each d little-endian float32, any norm.
        items: Ids of stored texts whose vectors are taken, instead of ``vectors``; none is near itself.
        entry_seq: Sequence of the entry whose vector it is: the entry itself and entries of other crews are not near.
        before: Only vectors whose facts are below this sequence count, and the views must have reached it; 0 for all.
    """

    kind: str
    workspace_id: str
    model: str
    k: int
    least: float
    vectors: Sequence[bytes] = ()
    items: Sequence[str] = ()
    entry_seq: int = 0
    before: int = 0


@dataclass(frozen=True, slots=True)
class NearText:
    """A text that is near: the id of its item, its cosine, and the sequence of its entry (0 for other kinds)."""

    item: str
    cosine: float
    seq: int = 0


class Finder(Protocol):
    """Finds the nearest texts in the hot indexes, for reactors."""

    async def nearest(self, query: NearQuery) -> list[list[NearText]]:
        """For each vector or item, the nearest texts: cosine descending, then newer, then id.

        Raises:
            ViewsBehind: If the views do not reach ``before`` in time.
        """
        ...


@runtime_checkable
class ViewReader(Protocol):
    """Read access to the DuckDB views. Blocking; each calling thread has its own cursor."""

    def rows(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a parametrised query; a mapping fills ``$name``, a sequence ``?`` or ``$1``."""
        ...

    def columns(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """The result as a ``pyarrow.Table`` (one copy, no Python objects)."""
        ...

    @property
    def generation(self) -> int:
        """Incremented when the file is replaced (rebuild, erasure); caches of another generation are invalid."""
        ...

    def view_seq(self, *projections: str) -> int:
        """The lowest committed checkpoint of these projections; of all projections if the call names no projection."""
        ...

    async def wait_for(self, seq: int, timeout_s: float, *projections: str, patient: bool = False) -> int:
        """Wait until these projections have committed ``seq``.

        Args:
            seq: The sequence.
            timeout_s: Seconds to wait at most.
            *projections: The projections, all if none is named.
            patient: Whether the fold may wait for further messages first, because nobody waits for an answer.

        Returns:
            The lowest checkpoint reached.

        Raises:
            ViewsBehind: After ``timeout_s`` seconds.
        """
        ...

    def subscribe(self, listener: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        """Call ``listener`` on the event loop after every commit, in order; returns a function that unsubscribes."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Sequence and content hash of the first entry with an id."""

    seq: int
    content: bytes


class IdentityReader(Protocol):
    """Looks up the first entry of each (workspace, id) that the views have folded."""

    def find(self, workspace_id: str, entry_id: str) -> Identity | None:
        """The first entry with this id, or None. In memory, does not block."""
        ...

    def find_all(self, wanted: Sequence[tuple[str, str]]) -> list[Identity | None]:
        """``find`` for many workspaces and ids at once."""
        ...


@dataclass(slots=True)  # not frozen: freezing triples the cost, which every append pays
class Published:
    """The broker's ack of one message."""

    seq: int
    duplicate: bool


class Publisher(Protocol):
    """Publishes to JOURNAL and returns after the ack."""

    async def publish(self, subject: str, body: bytes, headers: Mapping[str, str]) -> Published:
        """Publish one message; retried with the same ``Nats-Msg-Id`` until acked or out of time.

        Raises:
            BrokerUnavailable: If no ack came in time.
        """
        ...
