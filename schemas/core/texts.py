"""Texts that can be recalled: one type of row and one declaration for every kind (chunk, drawer, fact, entity …).

A family's fold writes the rows; the index loads and follows them, the embedder fills their vectors, and searches find
them, all by looping over the declared kinds (``schemas/texts``). Entries of the journal have tables of their own
(``schemas/entries/tables``): a million of them are loaded from postings that are stored sorted by term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .table import Int32, Ms, Seq, Table


class TextRow(NamedTuple):
    """One text. A family keeps further columns in its own tables, under the same ``key``."""

    key: Seq  # of the item (document, drawer, fact, entity): ``ids.name_key`` of workspace and the item's names
    workspace_id: str
    owner: str  # the memory that the text belongs to: ``a-<agent>``, ``c-<crew>``, ``u-<user>`` or ``w``
    place: str  # position within that memory: a tier, ``<wing>/<room>`` or a namespace; may be empty
    item: str  # names the item in requests: a document's key, a drawer's id, a fact's id
    number: Int32  # piece of the item, from 0
    first_line: Int32  # of the item's text, from 1
    last_line: Int32
    label: str  # headings above the text, joined by `` > ``; searched and embedded with the text
    text: str
    text_hash: Seq  # ``ids.hash64`` of the embedded text (``indexed_text``), the key of its vector
    terms: bytes  # uint64 term keys, little-endian, each once, sorted
    counts: bytes  # uint16 frequency of each term, in the same order
    source_id: str  # id of the entry or document write that contains the text
    ts_ms: Ms  # when it was said
    from_ms: Ms | None  # time from which the text is true, if known
    to_ms: Ms | None  # time until which the text is true, if known
    importance: float  # 1 to 5; 3 if the family does not rank texts
    flags: Int32  # bits defined by the family; searches skip a text with ``HIDDEN``
    since_seq: Seq  # of the event that made the row


HIDDEN = 1
"""Flag of a text that is neither searched nor embedded, because it is blocked by the scanners, superseded or merged."""
MIDDLE_IMPORTANCE = 3.0


@dataclass(frozen=True, slots=True)
class TextKind:
    """A kind of text.

    Attributes:
        name: ``chunk``, ``drawer``, ``fact`` …
        table: Its rows.
        embedded: Whether its texts get vectors.
    """

    name: str
    table: Table[TextRow]
    embedded: bool = True


def text_table(name: str, projection: str) -> Table[TextRow]:
    """The table of the texts of one projection."""
    return Table(name, TextRow, projection, key=("key", "number"))
