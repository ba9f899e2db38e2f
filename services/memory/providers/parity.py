"""The parity suite of memory providers, to be run against any provider: ``crew-journal provider-parity``."""

from __future__ import annotations

from collections.abc import Iterable

from .laws import LAWS
from .trial import LAW_S, Law, TrialReport, World, run

__all__ = ["LAWS", "LAW_S", "Law", "TrialReport", "World", "check"]


async def check(world: World, laws: Iterable[Law] = LAWS, *, law_s: float = LAW_S) -> TrialReport:
    """Run the laws, one after the other; never raises for what a provider does."""
    return await run(world, laws, law_s=law_s)
