"""Google ADK: the same behaviour of the framework's own memory service and of ours, then what only ours does."""

import asyncio

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai.types import Content, Part

from crew_journal import AsyncCrewJournal
from crew_journal.services.client.adapters.adk_memory import CrewJournalMemoryService

ZOE = {"app_name": "tea", "user_id": "zoe"}
YANN = {"app_name": "tea", "user_id": "yann"}


def event(author: str, text: str) -> Event:
    return Event(author=author, content=Content(role=author, parts=[Part(text=text)]))


async def texts(service: BaseMemoryService, query: str, **who: str) -> list[str]:
    found = await service.search_memory(query=query, **(who or ZOE))
    return [part.text for memory in found.memories for part in memory.content.parts]


async def behaves_as_the_framework_expects(service: BaseMemoryService) -> None:
    tea, ok = event("user", "Zoe prefers green tea in the morning"), event("barista", "Noted: a pot at nine o'clock")
    session = Session(id="s1", events=[tea, ok, Event(author="barista")], last_update_time=0, **ZOE)
    await service.add_session_to_memory(session)
    assert (await texts(service, "Zoe prefers which tea"))[:1] == [tea.content.parts[0].text]
    assert await texts(service, "Zoe prefers which tea", **YANN) == []
    await service.add_session_to_memory(session)
    later = event("user", "The heron nests behind the mill")
    await service.add_events_to_memory(events=[tea, later], session_id="s1", **ZOE)
    assert (await texts(service, "Zoe prefers which tea")).count(tea.content.parts[0].text) == 1
    found = (await service.search_memory(query="heron behind mill", **ZOE)).memories[0]
    assert (found.author, found.content.parts[0].text) == ("user", later.content.parts[0].text)
    await service.delete_memory(memory_id=found.id, **YANN)
    assert (await texts(service, "heron behind mill"))[0] == later.content.parts[0].text
    await service.delete_memory(memory_id=found.id, **ZOE)
    assert later.content.parts[0].text not in await texts(service, "heron behind mill")
    await service.add_events_to_memory(events=[later], session_id="s1", **ZOE)
    assert later.content.parts[0].text not in await texts(service, "heron behind mill"), "what was deleted came back"
    assert await texts(service, "") == []


async def memories_are_kept_and_deleting_retracts(service: CrewJournalMemoryService, journal: AsyncCrewJournal) -> None:
    note = MemoryEntry(content=Content(parts=[Part(text="The kiln is called Bertha")]), author="zoe", id="kiln")
    await service.add_memory(memories=[note], custom_metadata={"ttl": "1d"}, **ZOE)
    (found,) = (await service.search_memory(query="what is the kiln called?", **ZOE)).memories
    assert (found.author, found.custom_metadata) == ("zoe", {"ttl": "1d"})
    await service.delete_memory(memory_id=found.id, **ZOE)
    entry = await journal.get(found.id)
    assert entry.standing is not None
    assert (entry.standing.state, entry.summary) == ("retracted", "The kiln is called Bertha")
    assert entry.standing.by, "the retraction has an author"


async def main() -> None:
    await behaves_as_the_framework_expects(InMemoryMemoryService())
    async with AsyncCrewJournal() as journal:
        service = CrewJournalMemoryService(journal)
        await behaves_as_the_framework_expects(service)
        await memories_are_kept_and_deleting_retracts(service, journal)


asyncio.run(main())
