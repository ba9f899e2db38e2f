"""Tables of operator models and peer cards, of consent, names, own words, and forgotten keys.

Invariant: profiles exist only of people who have opted in, and only from the time after.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..core.table import Ms, Seq, Table

OPERATORS_PROJECTION: Final = "operators"


class OperatorProfileRow(NamedTuple):
    """The profile of a person from ``since_seq`` on: the model (``agent_id`` NULL) or an agent's card."""

    workspace_id: str
    slug: str
    agent_id: str | None
    crew_id: str | None
    facts: str  # JSON list of ``schemas/operators/events.StatedFact``
    updated_ms: Ms
    since_seq: Seq
    until_seq: Seq | None = None


class OperatorConsentRow(NamedTuple):
    """Whether a person agrees to models and cards; without a row they do not."""

    workspace_id: str
    slug: str
    granted: bool
    changed_ms: Ms
    seq: Seq


class OperatorForgottenRow(NamedTuple):
    """Turns up to ``seq`` no longer count for a key, or for any key if it is empty."""

    workspace_id: str
    slug: str
    key: str
    seq: Seq


class OperatorNameRow(NamedTuple):
    """A further name of a person: the slug of the name, and the person by hash and slug."""

    workspace_id: str
    slug: str
    person_hash: str
    person_slug: str
    seq: Seq


class OperatorKeyRow(NamedTuple):
    """The key with which people's names are hashed, since ``seq``; at most one row."""

    key_id: str
    seq: Seq


class OperatorTurnRow(NamedTuple):
    """A turn of a conversation in the own words of a person (``core/grants.person_of``)."""

    workspace_id: str
    seq: Seq
    person: str
    agent_id: str | None
    trace_id: str | None


OPERATOR_PROFILES: Final = Table(
    "operator_profiles", OperatorProfileRow, OPERATORS_PROJECTION, key=("workspace_id", "slug", "agent_id")
)
OPERATOR_CONSENTS: Final = Table(
    "operator_consents", OperatorConsentRow, OPERATORS_PROJECTION, key=("workspace_id", "slug")
)
OPERATOR_FORGOTTEN: Final = Table(
    "operator_forgotten", OperatorForgottenRow, OPERATORS_PROJECTION, key=("workspace_id", "slug", "key")
)
OPERATOR_NAMES: Final = Table("operator_names", OperatorNameRow, OPERATORS_PROJECTION, key=("workspace_id", "slug"))
OPERATOR_KEY: Final = Table("operator_key", OperatorKeyRow, OPERATORS_PROJECTION, key=("key_id",))
OPERATOR_TURNS: Final = Table("operator_turns", OperatorTurnRow, OPERATORS_PROJECTION, key=("workspace_id", "seq"))
