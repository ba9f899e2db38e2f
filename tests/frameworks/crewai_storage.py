"""CrewAI: the same behaviour of the framework's own storage and of ours, its ``Memory`` on ours, and the tools beside it."""

import sys
import tempfile
from datetime import UTC, datetime, timedelta
from typing import Any

from crewai import BaseLLM, Memory
from crewai.memory.storage.backend import StorageBackend
from crewai.memory.storage.lancedb_storage import LanceDBStorage
from crewai.memory.types import MemoryRecord

from crew_journal import CrewJournal
from crew_journal.services.client.adapters.crewai_storage import CrewJournalStorage, memory_tools

NOW = datetime(2026, 11, 20, tzinfo=UTC).replace(tzinfo=None)  # as CrewAI keeps times
TEXTS = {"tea": "Zoe prefers green tea", "mill": "The heron nests behind the mill", "kiln": "The kiln is called Bertha"}


class NoModel(BaseLLM):
    """A model that is never asked: every field of a memory is given."""

    def call(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a model was asked")


def embed(texts: list[str]) -> list[list[float]]:
    """A vector that has one place for each of a few words."""
    words = ("tea", "heron", "kiln", "zoe")
    return [[1.0 if word in text.lower() else 0.1 for word in words] for text in texts]


def record(name: str, scope: str, categories: list[str], days: int) -> MemoryRecord:
    made = NOW + timedelta(days=days)
    vector = embed([TEXTS[name]])[0]
    return MemoryRecord(
        id=name, content=TEXTS[name], scope=scope, categories=categories, metadata={"by": "ann"}, created_at=made,
        embedding=vector,
    )  # fmt: skip


def behaves_as_the_framework_expects(storage: StorageBackend) -> None:
    assert isinstance(storage, StorageBackend)
    tea, mill = record("tea", "/people/zoe", ["taste"], 0), record("mill", "/places", [], 1)
    kiln = record("kiln", "/places/yard", ["name"], 2)
    storage.save([tea, mill])
    storage.save([kiln])
    assert storage.count() == 3
    assert [record.id for record in storage.list_records()] == ["kiln", "mill", "tea"]
    assert [record.id for record in storage.list_records("/places", limit=1, offset=1)] == ["mill"]
    found = storage.search(embed(["which tea?"])[0], limit=2)
    assert found[0][0].id == "tea"
    assert found[0][1] > found[1][1]
    assert [one.id for one, _ in storage.search(embed(["kiln"])[0], categories=["taste"])] == ["tea"]
    assert storage.search(embed(["kiln"])[0], metadata_filter={"by": "bob"}) == []
    assert storage.get_record("tea").content == TEXTS["tea"]
    assert storage.get_record("tee") is None
    assert storage.list_scopes("/") == ["/people", "/places"]
    assert storage.list_scopes("/places") == ["/places/yard"]
    assert storage.list_categories() == {"taste": 1, "name": 1}
    info = storage.get_scope_info("/places")
    assert (info.record_count, info.categories, info.child_scopes) == (2, ["name"], ["/places/yard"])
    storage.update(tea.model_copy(update={"content": "Zoe prefers black tea"}))
    assert storage.get_record("tea").content == "Zoe prefers black tea"
    assert storage.count() == 3
    assert storage.delete(record_ids=["mill"]) == 1
    assert storage.get_record("mill") is None
    assert storage.delete(older_than=NOW + timedelta(days=1)) == 1
    storage.reset("/places")
    assert storage.count() == 0
    storage.save([mill])
    assert [record.id for record in storage.list_records()] == ["mill"]


def deleting_is_a_retraction_with_an_author(journal: CrewJournal) -> None:
    storage = CrewJournalStorage(journal, name="other")
    assert storage.count() == 0, "storages of other names are apart"
    storage.save([record("kiln", "/", [], 0)])
    storage.reset()
    (entry,) = journal.entries(mission_id="other")
    assert entry.summary == TEXTS["kiln"]
    assert entry.standing is not None
    assert (entry.standing.state, bool(entry.standing.by)) == ("retracted", True)


def the_frameworks_memory_runs_on_it(journal: CrewJournal) -> None:
    memory = Memory(storage=CrewJournalStorage(journal, name="memory"), embedder=embed, llm=NoModel(model="none"))
    kept = memory.remember(TEXTS["tea"], scope="/people", categories=["taste"], importance=0.9, metadata={"by": "ann"})
    assert kept is not None
    found = memory.recall("which tea?", depth="shallow")
    assert [match.record.content for match in found] == [TEXTS["tea"]]
    assert memory.forget(record_ids=[kept.id]) == 1
    assert memory.recall("which tea?", depth="shallow") == []


def tools_stand_beside_it(journal: CrewJournal) -> None:
    tools = {tool.name: tool for tool in memory_tools(journal)}
    assert "text" in tools["remember"].args_schema.model_json_schema()["required"]
    assert tools["remember"].run(text="The ferry leaves at six")["seq"] > 0
    hits = tools["recall"].run(query="when does the ferry leave?")["hits"]
    assert [hit["summary"] for hit in hits] == ["The ferry leaves at six"]
    assert "Error" in tools["memory_read"].run(tier="NOWHERE")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        behaves_as_the_framework_expects(LanceDBStorage(path=folder, vector_dim=4))
    with CrewJournal() as journal:
        behaves_as_the_framework_expects(CrewJournalStorage(journal))
        deleting_is_a_retraction_with_an_author(journal)
        the_frameworks_memory_runs_on_it(journal)
        tools_stand_beside_it(journal)


sys.exit(main())
