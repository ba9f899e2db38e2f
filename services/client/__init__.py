"""The client of Crew Journal: ``CrewJournal`` (sync) and ``AsyncCrewJournal``; needs only schemas and httpx.

``strip_injected`` (both), ``strip_nudges`` and ``strip_recalled_memory`` take out of a model's answer what its prompt was
given by us.
"""

from ...schemas.rules.stripping import strip_injected, strip_nudges, strip_recalled_memory
from .aio import AsyncCrewJournal
from .generated_sync import CrewJournal

__all__ = ["AsyncCrewJournal", "CrewJournal", "strip_injected", "strip_nudges", "strip_recalled_memory"]
