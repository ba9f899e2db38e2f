"""Refreshes the cards that agents have of the people they talk with, once a day, an hour before the models of operators.

Invariant: as for the models (``reactor``); an agent's card contains only statements made to this agent.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ...schemas.sweeps.rules import PEER_CARDS, Sweep
from .reactor import OperatorsReactor


class PeerCardsReactor(OperatorsReactor):
    """Consumes ``sweep.ticked`` of the peer cards."""

    name: ClassVar[str] = "peer_cards"
    sweep: ClassVar[Sweep] = PEER_CARDS
    of_agents: ClassVar[bool] = True


REACTORS: Final = {"peer_cards": PeerCardsReactor.create}
