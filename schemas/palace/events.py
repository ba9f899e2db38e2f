"""Payloads about the drawers of the palace: texts filed verbatim under wing and room.

Invariant: the payload contains the drawer's id, which differs from the entry's id, so that a deleted text can be filed
again. Its text never changes; every later change is a separate event and can be reverted.
"""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from ..core.derived import FLOAT_BYTES
from ..core.payload import STORED, ControlPayload

CONTENT_CHARS: Final = 10_000
"""Maximum number of characters of a drawer (contract of the palace, §12)."""
IDENTITY_CHARS: Final = 2_000
"""Maximum number of characters of a workspace's identity (likewise)."""
MOST_DRAWERS: Final = 10_000
"""Maximum number of live drawers of a workspace (likewise)."""
MOST_REJECTED: Final = 3
"""Number of unusable answers about a single drawer after which it is ``failed`` (contract, §3)."""
MOST_IMPORTANCE: Final = 5.0
DEFAULT_IMPORTANCE: Final = 3.0
PLACE_CHARS: Final = 128
"""Maximum number of characters of a wing, room or hall."""
MEMORY_TYPE_CHARS: Final = 64
"""Maximum number of characters of the type of a drawer."""

LAST_MS: Final = 4_102_444_800_000
"""2100-01-01; a later time is refused."""

DrawerId = Annotated[str, StringConstraints(min_length=1, max_length=320)]
"""``drawer_<wing>_<room>_<16 hex>``."""
Importance = Annotated[float, Field(ge=0.0, le=MOST_IMPORTANCE, allow_inf_nan=False)]
_Place = Annotated[str, StringConstraints(max_length=PLACE_CHARS)]
_Name = Annotated[str, StringConstraints(max_length=512)]


def _vector(text: str) -> str:
    size = len(base64.b64decode(text, validate=True))
    if not size or size % FLOAT_BYTES:
        raise ValueError("not the base64 of float32")
    return text


class PipelineTier(StrEnum):
    """The step that decided a drawer's type."""

    HEURISTIC = "heuristic"
    CENTROID = "centroid"
    LLM = "llm"


class DrawerState(StrEnum):
    """The state of a drawer: ``raw`` waits for a model, ``merged`` is represented by another drawer."""

    RAW = "raw"
    PROCESSED = "processed"
    MERGED = "merged"
    FAILED = "failed"


class DrawerFiled(ControlPayload):
    """A text was filed.

    Attributes:
        memory_type: ``decision``, ``preference`` …, ``general`` if unclassified, ``diary``.
        added_by: ``auto-ingest``, ``mobile`` or the name of the author.
        added_by_agent: Id of the agent, empty if none.
        source_file: File that the text is from, empty if unknown.
        filed_ms: When it was filed elsewhere, milliseconds since the epoch; None if it is filed here.
        imported_from: The store or folder that it was imported from, empty if none.
        conversation: Session of the exchange that was filed, empty if it is not an exchange.
    """

    ENTRY_TYPE = "drawer.filed"
    drawer_id: DrawerId
    wing: _Place
    room: _Place
    hall: _Place = ""
    content: str = Field(min_length=1, max_length=CONTENT_CHARS)
    memory_type: str = Field(max_length=MEMORY_TYPE_CHARS)
    importance: Importance = DEFAULT_IMPORTANCE
    added_by: _Name = ""
    added_by_agent: str = Field(default="", max_length=64)
    source_file: _Name = ""
    conversation: _Name = ""
    pipeline_tier: PipelineTier = PipelineTier.LLM
    state: DrawerState = DrawerState.RAW
    filed_ms: Annotated[int, Field(ge=0, le=LAST_MS)] | None = None
    imported_from: _Name = ""


class DrawerClassified(ControlPayload):
    """A classifier decided on a drawer; ``room`` None keeps the room."""

    ENTRY_TYPE = "drawer.classified"
    drawer_id: DrawerId
    memory_type: str = Field(max_length=MEMORY_TYPE_CHARS)
    importance: Importance
    pipeline_tier: PipelineTier
    state: DrawerState = DrawerState.PROCESSED
    summary: str = Field(default="", max_length=2_000)
    room: _Place | None = None


class DrawerUpdated(ControlPayload):
    """A caller moved a drawer or set its type or importance; None changes nothing. The id stays."""

    ENTRY_TYPE = "drawer.updated"
    drawer_id: DrawerId
    wing: _Place | None = None
    room: _Place | None = None
    hall: _Place | None = None
    memory_type: str | None = Field(default=None, max_length=MEMORY_TYPE_CHARS)
    importance: Importance | None = None


class DrawerMerged(ControlPayload):
    """Drawers with the same content were merged: ``into`` represents them, with a summary of all."""

    ENTRY_TYPE = "drawer.merged"
    into: DrawerId
    drawer_ids: tuple[DrawerId, ...] = Field(min_length=1, max_length=100)
    summary: str = Field(default="", max_length=2_000)


class DrawerSuperseded(ControlPayload):
    """A newer drawer contradicts an older one, which was true until ``until_ms`` (None if unknown)."""

    ENTRY_TYPE = "drawer.superseded"
    drawer_id: DrawerId
    superseded_by: DrawerId
    until_ms: Annotated[int, Field(ge=0, le=LAST_MS)] | None = None


class DrawerLinked(ControlPayload):
    """A model looked for entities and triples in a drawer, whether or not it found any; they are ``fact.asserted``."""

    ENTRY_TYPE = "drawer.linked"
    drawer_id: DrawerId
    entity_count: int = Field(default=0, ge=0, le=1_000)
    triple_count: int = Field(default=0, ge=0, le=1_000)


class DrawerReinforced(ControlPayload):
    """A caller added a drawer that is similar to others, so that these gain importance.

    Attributes:
        added: The added drawer; each drawer reinforces others once.
        drawer_ids: The similar drawers.
        boost: The importance that each similar drawer gains, up to 5.
    """

    ENTRY_TYPE = "drawer.reinforced"
    added: DrawerId
    drawer_ids: tuple[DrawerId, ...] = Field(min_length=1, max_length=100)
    boost: Importance


class DrawerAnswerRejected(ControlPayload):
    """A model's answer about drawers could not be used.

    Attributes:
        alone: Whether the model was asked about a single drawer; after ``MOST_REJECTED`` such answers the drawer is
            ``failed``.
    """

    ENTRY_TYPE = "drawer.answer_rejected"
    drawer_ids: tuple[DrawerId, ...] = Field(min_length=1, max_length=100)
    alone: bool


class CentroidComputed(ControlPayload):
    """The mean vector of the drawers of a type that a model classified.

    Attributes:
        model: The embedding model.
        vector: Base64 of (d,) float32, little-endian, not normalised.
        samples: Number of drawers.
        source_hash: SHA-256 of their ids; the same drawers give no second event.
    """

    ENTRY_TYPE = "drawer.centroid_computed"
    memory_type: str = Field(min_length=1, max_length=MEMORY_TYPE_CHARS)
    model: str = Field(min_length=1, max_length=256)
    vector: Annotated[str, StringConstraints(min_length=1, max_length=65_536), AfterValidator(_vector)]
    samples: int = Field(ge=1, le=MOST_DRAWERS)
    source_hash: str = Field(min_length=64, max_length=64)


class DrawerPruned(ControlPayload):
    """Drawers of little importance were removed."""

    ENTRY_TYPE = "drawer.pruned"
    drawer_ids: tuple[DrawerId, ...] = Field(min_length=1, max_length=1_000)


class DrawerDeleted(ControlPayload):
    """A caller deleted a drawer."""

    ENTRY_TYPE = "drawer.deleted"
    drawer_id: DrawerId


class DrawerRestored(ControlPayload):
    """A drawer that was deleted, pruned, merged or superseded counts again; one that failed is classified again."""

    ENTRY_TYPE = "drawer.restored"
    drawer_id: DrawerId


class PalaceIdentitySet(ControlPayload):
    """The text about the workspace for the start of every conversation; the last event counts."""

    ENTRY_TYPE = "drawer.identity_set"
    content: str = Field(min_length=1, max_length=IDENTITY_CHARS)


class PalaceIngestAsked(ControlPayload):
    """A request to file the workspace's conversations that are not filed yet; None means from the first on."""

    ENTRY_TYPE = "drawer.ingest_asked"
    since_seq: int | None = Field(default=None, ge=0)


# Payloads about explicit tunnels: connections between two rooms of the palace that a caller created.


LABEL_CHARS: Final = 256
MOST_FOLLOWED: Final = 1_000
"""Maximum number of tunnels of one event."""

TunnelId = Annotated[str, StringConstraints(pattern="^tunnel_[0-9a-f]{16}$")]
_TunnelsPlace = Annotated[str, StringConstraints(min_length=1, max_length=PLACE_CHARS)]


class TunnelEnd(BaseModel):
    """A room of a wing and, if the tunnel points to one, a drawer in it."""

    model_config = STORED
    wing: _TunnelsPlace
    room: _TunnelsPlace
    drawer_id: DrawerId | None = None


class TunnelCreated(ControlPayload):
    """Two rooms were connected, or the label of their connection was set."""

    ENTRY_TYPE = "tunnel.created"
    tunnel_id: TunnelId
    source: TunnelEnd
    target: TunnelEnd
    label: str = Field(default="", max_length=LABEL_CHARS)


class TunnelFollowed(ControlPayload):
    """A caller followed these tunnels, which makes them stronger."""

    ENTRY_TYPE = "tunnel.followed"
    tunnel_ids: tuple[TunnelId, ...] = Field(min_length=1, max_length=MOST_FOLLOWED)


class TunnelDeleted(ControlPayload):
    """A caller deleted a tunnel."""

    ENTRY_TYPE = "tunnel.deleted"
    tunnel_id: TunnelId
