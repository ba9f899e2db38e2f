"""Tables of operator models and peer cards, of consent, and of forgotten keys.

Invariant: there are no profiles of a person who opted out, not even past ones.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .table import Ms, Seq, Table

OPERATORS_PROJECTION: Final = "operators"


class OperatorProfileRow(NamedTuple):
    """The profile of a person from ``since_seq`` on: the model (``agent_id`` NULL) or an agent's card."""

    workspace_id: str
    slug: str
    agent_id: str | None
    crew_id: str | None
    facts: str  # JSON list of ``events/operators.StatedFact``
    updated_ms: Ms
    since_seq: Seq
    until_seq: Seq | None = None


class OperatorConsentRow(NamedTuple):
    """Whether a person agrees to models and cards; without a row they do."""

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


OPERATOR_PROFILES: Final = Table(
    "operator_profiles", OperatorProfileRow, OPERATORS_PROJECTION, key=("workspace_id", "slug", "agent_id")
)
OPERATOR_CONSENTS: Final = Table(
    "operator_consents", OperatorConsentRow, OPERATORS_PROJECTION, key=("workspace_id", "slug")
)
OPERATOR_FORGOTTEN: Final = Table(
    "operator_forgotten", OperatorForgottenRow, OPERATORS_PROJECTION, key=("workspace_id", "slug", "key")
)
