"""Answers of the operations of the palace."""

from __future__ import annotations

from typing import Literal

from .operation import Answer


class WingCount(Answer):
    """A wing and its number of drawers."""

    wing: str
    count: int


class RoomCount(Answer):
    """A room of a wing and its number of drawers."""

    wing: str
    room: str
    count: int


class WingRooms(Answer):
    """The rooms of a wing with their numbers of drawers."""

    rooms: dict[str, int]


class PalaceStatusAnswer(Answer):
    """Numbers of drawers, the largest first."""

    total_drawers: int
    wings: tuple[WingCount, ...]
    rooms: tuple[RoomCount, ...]


class PalaceWingsAnswer(Answer):
    """Wings, the largest first."""

    wings: tuple[WingCount, ...]


class PalaceRoomsAnswer(Answer):
    """Rooms, the largest first."""

    rooms: tuple[RoomCount, ...]


class PalaceTaxonomyAnswer(Answer):
    """Wing → its rooms."""

    taxonomy: dict[str, WingRooms]


class DrawerHit(Answer):
    """A drawer that was found; ``score`` is what it was ranked by, ``author`` is who filed it, by the token.

    ``quarantined`` is what the scanners block in its text (``category/pattern``); an AGENT or LEAD then gets a notice
    in its place.
    """

    id: str
    wing: str
    room: str
    content: str
    memory_type: str
    importance: float
    similarity: float
    score: float
    filed_at: str
    author: str
    quarantined: str | None = None


class PalaceSearchAnswer(Answer):
    """Hits, best first; ``receipt`` names the record of this search, None if it could not be recorded."""

    results: tuple[DrawerHit, ...]
    count: int
    receipt: str | None = None


class CheckDuplicateAnswer(Answer):
    """The five most similar drawers that reach the threshold."""

    duplicates: tuple[DrawerHit, ...]
    has_duplicate: bool


class AddDrawerAnswer(Answer):
    """The drawer; ``added`` is false if it was there already, and ``seq`` is then None."""

    drawer_id: str
    memory_type: str
    info: str
    added: bool
    seq: int | None = None


class DeleteDrawerAnswer(Answer):
    """Whether there was such a drawer."""

    deleted: bool
    info: str
    seq: int | None = None


class DrawerAnswer(Answer):
    """A drawer; ``live`` is false if it is superseded or merged.

    ``held_until`` is the time at which the drawer in ``superseded_by`` began to hold; null if that is not known.
    ``author`` is who filed it, by the token: ``agent ada``, or ``actor user`` and the id of the token of an OWNER or
    ADMIN; ``added_by`` is a label. ``quarantined`` is as in a hit. ``entity_count`` and ``triple_count`` are what a
    model found in it, ``retry_count`` its unusable answers about it.
    """

    id: str
    wing: str
    room: str
    hall: str
    content: str
    memory_type: str
    importance: float
    pipeline_tier: str
    state: str
    summary: str
    superseded_by: str | None
    held_until: str | None = None
    cluster_id: str | None
    author: str
    added_by: str
    added_by_agent: str
    source_file: str
    imported_from: str
    filed_at: str
    last_accessed_at: str | None
    access_count: int
    entity_count: int
    triple_count: int
    retry_count: int
    live: bool
    seq: int
    quarantined: str | None = None


class ImportedDrawerAnswer(Answer):
    """The result, or the planned result, for a drawer.

    ``added``; ``replaced``: its text differed; ``unchanged``; ``deleted_here``: it was deleted after an earlier
    import; ``noise``: it is only a greeting or the like; ``no_room``: the workspace has as many drawers as it may
    have.
    """

    drawer_id: str
    outcome: Literal["added", "replaced", "unchanged", "deleted_here", "noise", "no_room"]


class ImportDrawersAnswer(Answer):
    """The result for each drawer, in the order of the request; ``room_left`` is how many more the workspace takes."""

    drawers: tuple[ImportedDrawerAnswer, ...]
    room_left: int
    seq: int | None = None


class DrawersAnswer(Answer):
    """Drawers, newest first; ``total`` counts those that match the filter."""

    drawers: tuple[DrawerAnswer, ...]
    total: int


class InfoAnswer(Answer):
    """The result of a write."""

    info: str
    seq: int


class DiaryWriteAnswer(Answer):
    """The drawer that holds the entry."""

    drawer_id: str
    info: str
    seq: int


class DiaryEntry(Answer):
    """An entry of a diary; ``author`` is who wrote it, by the token, ``quarantined`` is as in a hit."""

    id: str
    content: str
    hall: str
    filed_at: str
    author: str
    quarantined: str | None = None


class DiaryReadAnswer(Answer):
    """Entries, newest first."""

    entries: tuple[DiaryEntry, ...]
    count: int


class PalaceTextAnswer(Answer):
    """A text for a prompt; ``receipt`` names the record of the search, if it is one and could be recorded."""

    text: str
    chars: int
    receipt: str | None = None
