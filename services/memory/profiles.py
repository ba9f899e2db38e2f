"""Reads operator models, peer cards and consent from the views, now or as of a sequence; blocking.

Invariant: of a person who opted out the view holds nothing, so a read of the past finds nothing either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...schemas.ports import ViewReader
from ...schemas.rules.operators import as_markdown, facts_of, slug_of
from ...schemas.views.operators import (
    OPERATOR_CONSENTS,
    OPERATOR_KEY,
    OPERATOR_NAMES,
    OPERATOR_PROFILES,
    OPERATOR_TURNS,
    OperatorConsentRow,
    OperatorProfileRow,
)
from ...schemas.views.table import as_of
from .learned import NOW

PROFILES_LISTED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Opener:
    """The person who opened a session.

    Attributes:
        user: The name, as it was given.
        slug: The name of the person's documents.
        model: The text of the model; empty if there is none, or the caller may not read it.
        card: Likewise of the agent's card.
        opted_out: Whether consent was withdrawn.
        verified: Whether the caller may read what is known about the person.
    """

    user: str
    slug: str
    model: str = ""
    card: str = ""
    opted_out: bool = False
    verified: bool = True


class Profiles:
    """Reads profiles.

    Args:
        views: The views.
    """

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    def of(self, workspace_id: str, slug: str, seq: int = NOW) -> list[OperatorProfileRow]:
        """The model, then the cards by agent."""
        sql = f"""SELECT {OPERATOR_PROFILES.names} FROM {OPERATOR_PROFILES} WHERE workspace_id = ? AND slug = ?
            AND {as_of(seq)} ORDER BY agent_id NULLS FIRST"""
        return [OperatorProfileRow(*row) for row in self._views.rows(sql, [workspace_id, slug])]

    def models(self, workspace_id: str) -> list[OperatorProfileRow]:
        """The models of a workspace, the newest first."""
        sql = f"""SELECT {OPERATOR_PROFILES.names} FROM {OPERATOR_PROFILES} WHERE workspace_id = ? AND agent_id IS NULL
            AND {as_of(NOW)} ORDER BY updated_ms DESC, slug LIMIT {PROFILES_LISTED}"""
        return [OperatorProfileRow(*row) for row in self._views.rows(sql, [workspace_id])]

    def consent(self, workspace_id: str, slug: str) -> OperatorConsentRow | None:
        """The person's consent; None if not recorded."""
        sql = f"SELECT {OPERATOR_CONSENTS.names} FROM {OPERATOR_CONSENTS} WHERE workspace_id = ? AND slug = ?"
        rows = self._views.rows(sql, [workspace_id, slug])
        return OperatorConsentRow(*rows[0]) if rows else None

    def model_text(self, workspace_id: str, crew_id: str, slug: str, seq: int = NOW) -> str:
        """The document ``users/<slug>.md`` of a crew; empty if the person's model is not there."""
        rows = (row for row in self.of(workspace_id, slug, seq) if row.agent_id is None and row.crew_id == crew_id)
        return next((text_of(row) for row in rows), "")

    def card_text(self, workspace_id: str, agent_id: str, slug: str, seq: int = NOW) -> str:
        """The document ``peers/<slug>.md`` of an agent as it is rendered; empty if there is no card."""
        rows = (row for row in self.of(workspace_id, slug, seq) if row.agent_id == agent_id)
        return next((text_of(row) for row in rows), "")

    def person_hash(self, workspace_id: str, hashed: str) -> str:
        """The hash of the person, also for the hash of a further name."""
        sql = f"SELECT person_hash FROM {OPERATOR_NAMES} WHERE workspace_id = ? AND slug = ?"
        rows = self._views.rows(sql, [workspace_id, slug_of(hashed)])
        return rows[0][0] if rows else hashed

    def key_in_use(self) -> str | None:
        """The id of the key by which the journal names people; None if it names none yet."""
        rows = self._views.rows(f"SELECT key_id FROM {OPERATOR_KEY}")
        return rows[0][0] if rows else None

    def opener_of(self, workspace_id: str, session: str, agent_id: str | None) -> str | None:
        """Who opened a session with an agent: the person of its first own turn; None if it has none."""
        sql = f"""SELECT person FROM {OPERATOR_TURNS} WHERE workspace_id = ? AND trace_id = ?
            AND agent_id IS NOT DISTINCT FROM ? ORDER BY seq LIMIT 1"""
        rows = self._views.rows(sql, [workspace_id, session, agent_id])
        return rows[0][0] if rows else None

    def opener(self, workspace_id: str, user: str, slug: str, agent_id: str | None, seq: int = NOW) -> Opener:
        """The profile of the person who opened the session, for a prompt."""
        rows = {row.agent_id: text_of(row) for row in self.of(workspace_id, slug, seq)}
        card = "" if agent_id is None else rows.get(agent_id, "")
        return Opener(user, slug, rows.get(None, ""), card, self.opted_out(workspace_id, slug))

    def opted_out(self, workspace_id: str, slug: str) -> bool:
        """Whether the person's consent was withdrawn."""
        consent = self.consent(workspace_id, slug)
        return consent is not None and not consent.granted


def text_of(row: OperatorProfileRow) -> str:
    """A profile as Markdown."""
    return as_markdown(facts_of(row.facts))
