"""The client of Crew Journal: ``CrewJournal`` (sync) and ``AsyncCrewJournal``; needs only schemas and httpx."""

from crew_journal.services.client.aio import AsyncCrewJournal
from crew_journal.services.client.sync import CrewJournal

__all__ = ["AsyncCrewJournal", "CrewJournal"]
