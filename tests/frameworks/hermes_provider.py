"""Hermes Agent: its memory manager with our provider, loaded as a plugin from a home of its own."""

import json
import os
from pathlib import Path

from agent.memory_manager import MemoryManager
from plugins.memory import load_memory_provider

from crew_journal import CrewJournal

PLUGIN = "from crew_journal.services.client.adapters.hermes_provider import register  # register_memory_provider\n"


def loaded() -> MemoryManager:
    folder = Path(os.environ["HERMES_HOME"]) / "plugins" / "crew-journal"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(PLUGIN)
    provider = load_memory_provider("crew-journal")
    assert provider is not None
    assert provider.is_available(), provider.unavailable_reason()
    manager = MemoryManager()
    manager.add_provider(provider)
    manager.initialize_all("session-1", platform="cli", hermes_home=os.environ["HERMES_HOME"])
    return manager


def turns_are_recorded_and_the_next_session_is_given_them() -> None:
    manager = loaded()
    manager.sync_all("My cat is called Mia", "I will remember Mia.", session_id="session-1")
    manager.on_memory_write("add", "user", "The user plays the cello")
    manager.on_memory_write("add", "memory", "The build takes nine minutes")
    manager.on_memory_write("replace", "memory", "The build takes four minutes", {"old_text": "nine minutes"})
    manager.on_memory_write("remove", "user", "", {"old_text": "cello"})
    manager.shutdown_all()
    with CrewJournal() as journal:
        entries = {entry.summary: entry for entry in journal.entries()}
        assert entries["My cat is called Mia"].trace_id == "session-1"
        assert entries["I will remember Mia."].entry_type == "chat.agent_response"
        assert entries["The build takes four minutes"].standing is None
        for gone in ("The build takes nine minutes", "The user plays the cello"):
            assert (entries[gone].standing.state, bool(entries[gone].standing.by)) == ("retracted", True)
        second = loaded()
        assert "Mia" in second.prefetch_all("What is my cat called?", session_id="session-2")


def tools_answer_with_json_and_say_what_to_mend() -> None:
    manager = loaded()
    names = {schema["name"] for schema in manager.get_all_tool_schemas()}
    assert {"remember", "recall", "memory_read", "memory_write"} <= names
    assert json.loads(manager.handle_tool_call("remember", {"text": "The ferry leaves at six"}))["seq"] > 0
    found = json.loads(manager.handle_tool_call("recall", {"query": "when does the ferry leave?"}))
    assert [hit["summary"] for hit in found["hits"]] == ["The ferry leaves at six"]
    assert "text" in json.loads(manager.handle_tool_call("remember", {"txt": "x"}))["error"]
    manager.shutdown_all()


def a_memory_that_is_down_stops_nothing() -> None:
    os.environ["CREW_JOURNAL_URL"] = "http://127.0.0.1:9"
    manager = loaded()
    assert "Mia" not in manager.prefetch_all("What is my cat called?", session_id="s")
    manager.sync_all("hello", "hi", session_id="s")
    assert "not available" in json.loads(manager.handle_tool_call("recall", {"query": "x"}))["error"]
    manager.shutdown_all()


os.environ["HERMES_HOME"] = str(Path.cwd() / "home")
turns_are_recorded_and_the_next_session_is_given_them()
tools_answer_with_json_and_say_what_to_mend()
a_memory_that_is_down_stops_nothing()
