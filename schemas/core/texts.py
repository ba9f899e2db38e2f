"""Texts that can be recalled: one type of row and one declaration for every kind (chunk, drawer, fact, entity …).

A family's fold writes the rows; the index loads and follows them, the embedder fills their vectors, and searches find
them, all by looping over the declared kinds (``schemas/texts``). Entries of the journal have tables of their own
(``schemas/entries/tables``): a million of them are loaded from postings that are stored sorted by term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from .table import Int32, Ms, Seq, Table


class TextRow(NamedTuple):
    """One text. A family keeps further columns in its own tables, under the same ``key``."""

    key: Seq  # of the item (document, drawer, fact, entity): ``ids.name_key`` of workspace and the item's names
    workspace_id: str
    owner: str  # whose memory it is in: ``a-<agent>``, ``c-<crew>``, ``u-<user>`` or ``w``
    item: str  # by which it is opened: a document's key, a drawer's id, a fact's id
    text: str
    text_hash: Seq  # ``ids.hash64`` of the embedded text (``indexed_text``), the key of its vector
    terms: bytes  # uint64 term keys, little-endian, each once, sorted
    counts: bytes  # uint16 frequency of each term, in the same order
    source_id: str  # id of the entry or document write that contains the text
    ts_ms: Ms  # when it was said
    since_seq: Seq  # of the event that made the row
    place: str = ""  # where in the owner's memory: a tier, ``<wing>/<room>``, a namespace
    number: Int32 = 0  # piece of the item, from 0
    first_line: Int32 = 1  # of the item's text, from 1
    last_line: Int32 = 1
    label: str = ""  # what stands above it, such as headings joined by `` > ``; searched and embedded with the text
    from_ms: Ms | None = None  # from when it holds, if that is known
    to_ms: Ms | None = None  # until when, likewise
    importance: float = 3.0  # 1 to 5; 3 where a family does not rank
    flags: Int32 = 0  # bits of the family; a text with ``HIDDEN`` is in no hit


HIDDEN: Final = 1
"""Flag: it is not searched and not embedded (blocked by the scanners, superseded, merged)."""
WORKSPACE_OWNER: Final = "w"
"""Owner of what all agents and crews of a workspace share."""


@dataclass(frozen=True, slots=True)
class TextKind:
    """A kind of text.

    Attributes:
        name: ``chunk``, ``drawer``, ``fact`` …
        table: Its rows.
        embedded: Whether its texts get vectors.
        recalled: How requests name the kind where recall finds its texts by the declaration alone, such as ``tickets``; None
            if the family has a search of its own, or its texts are no hits.
        causes: Subjects of messages that make its texts, beside those of ``consumers/models/missing_reactor``.
    """

    name: str
    table: Table[TextRow]
    embedded: bool = True
    recalled: str | None = None
    causes: tuple[str, ...] = ()


def text_table(name: str, projection: str) -> Table[TextRow]:
    """The table of the texts of one projection."""
    return Table(name, TextRow, projection, key=("key", "number"))
