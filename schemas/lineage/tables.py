"""Tables of lineage: what messages were made of, which runs were given what, and notices about the end of memories."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..core.table import Seq, Table
from ..erasure.lineage import VECTOR_OF
from ..models.tables import EMBEDDINGS

LINEAGE_PROJECTION: Final = "lineage"


class LineageRow(NamedTuple):
    """A message refers to another one; ``how`` as in ``schemas/erasure/lineage.origins_of``."""

    workspace_id: str
    seq: Seq
    source: str  # id of an entry or document write, ``drawer:…``, ``fact:…``, or id of a lesson
    how: str


class LineageNameRow(NamedTuple):
    """A name that a message bears beside its id."""

    key: Seq  # ``ids.name_key`` of workspace and name
    workspace_id: str
    name: str
    entry_id: str
    seq: Seq


class GivenRow(NamedTuple):
    """A run was given a memory."""

    key: Seq  # ``ids.name_key`` of workspace and entry id
    workspace_id: str
    entry_id: str  # of the entry or document write
    holder: str  # ``agent:<id>``, or ``token:<id>`` of a token without an agent
    run: str  # empty if the request named none
    view_seq: Seq  # of the views from which it was given
    seq: Seq  # of the receipt


class EndingRow(NamedTuple):
    """A memory that no longer counts."""

    key: Seq  # ``ids.name_key`` of workspace and entry id
    workspace_id: str
    entry_id: str
    why: str  # ``schemas/lineage/rules.Why``
    by_id: str | None  # what replaces or contradicts it
    seq: Seq


class NearRow(NamedTuple):
    """An entry that says almost the same as another one; one row for each of the two."""

    key: Seq  # ``ids.name_key`` of workspace and entry id
    workspace_id: str
    entry_id: str
    other_id: str
    seq: Seq


class NoticeRow(NamedTuple):
    """A run has to be told, or was told, that a memory which it was given has ended."""

    key: Seq  # ``ids.name_key`` of workspace, holder and run
    workspace_id: str
    holder: str
    run: str
    entry_id: str
    why: str
    by_id: str | None
    near: str | None  # the refuted entry, if ``entry_id`` only says almost the same
    seq: Seq  # of the event that made the notice
    told_seq: Seq | None = None


LINEAGE: Final = Table("lineage", LineageRow, LINEAGE_PROJECTION)
LINEAGE_SOURCE: Final = f"""(SELECT workspace_id, seq, source, how FROM {LINEAGE} UNION ALL
    SELECT workspace_id, seq, entry_id, '{VECTOR_OF}' FROM {EMBEDDINGS})"""
"""The references of messages and of the vectors that entries have."""
LINEAGE_NAMES: Final = Table("lineage_names", LineageNameRow, LINEAGE_PROJECTION, key=("key", "entry_id"))
GIVEN: Final = Table("lineage_given", GivenRow, LINEAGE_PROJECTION)
ENDINGS: Final = Table("lineage_endings", EndingRow, LINEAGE_PROJECTION)
NEAR: Final = Table("lineage_near", NearRow, LINEAGE_PROJECTION)
NOTICES: Final = Table(
    "lineage_notices",
    NoticeRow,
    LINEAGE_PROJECTION,
    key=("key", "workspace_id", "holder", "run", "entry_id", "why"),
)
