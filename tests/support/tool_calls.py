"""Calls of every tool, made from the toolsets: good ones, and what a model may get wrong.

A tool that needs a value which its schema does not suggest has it in ``Place.values``, by the name of the argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from support.stack import Stack

from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.operations import ALL
from crew_journal.schemas.toolsets import Tool, input_schema
from crew_journal.services.client import AsyncCrewJournal

OPERATIONS: Final = {operation.name: operation for operation in ALL}
LONG: Final = 300_000
WRONG: Final[Mapping[str, Any]] = {
    "string": {"not": "a text"},
    "integer": "many",
    "number": "much",
    "boolean": "perhaps",
    "array": 7,
    "object": "a text",
}
"""A value of another type, by the type that is asked for."""
TOO_MUCH: Final[Mapping[str, Any]] = {
    "string": "x" * LONG,
    "integer": 10**30,
    "number": 10**30,
    "array": ["x" * LONG],
    "object": {"text": "x" * LONG},
}
CASES: Final = {
    "memory_file": {"command": "create", "path": "/memories/notes.md", "file_text": "The press needs oil"},
    "memory_kg_invalidate": {"object": "the old press"},
    "bisect": {"hit": "no-such-entry"},
    "layered.memory_write": {"kind": "fact", "subject": "Ada", "object": "the press"},
}
"""Values of one tool, instead of those of its arguments; with its toolset where others have a tool of that name."""


def case(toolset: str, tool: str) -> Mapping[str, Any]:
    """The values of one tool."""
    return CASES.get(f"{toolset}.{tool}", CASES.get(tool, {}))


@dataclass(frozen=True, slots=True)
class Place:
    """A workspace that holds one of everything that tools ask for, each text with the workspace's mark in it."""

    workspace: str
    mark: str
    receipt: str
    drawer: str
    version: int
    fact: str

    def values(self, toolset: str, tool: str) -> dict[str, Any]:
        """Good values of arguments; the ids are those of this workspace."""
        return {
            "entry_id": f"{self.workspace}-first",
            "dst_entry_id": f"{self.workspace}-second",
            "receipt": self.receipt,
            "drawer_id": self.drawer,
            "workspace_id": self.workspace,
            "query": "Who keeps the press?",
            "tier": "AGENT",
            "mode": "append",
            "content": "The press needs oil",
            "entry_type": "run.completed",
            "from_version": self.version,
            "since": "1",
            "room": "cellar",
            "start_room": "cellar",
            "agent_name": "ada",
            "entity": "Ada",
            "predicate": "keeps",
            "fact_id": self.fact,
            **case(toolset, tool),
            **({"name": f"{self.workspace}-first"} if tool == "why" else {}),
            **({"kind": "fact", "name": self.fact} if (toolset, tool) == ("layered", "memory_read") else {}),
            **({"entry_id": f"{self.workspace}-retired"} if tool in ("retract", "restore") else {}),
            **({"id": f"{self.workspace}-corrected"} if tool == "correct" else {}),
        }


def described(toolset: str, tool: Tool) -> Mapping[str, Any]:
    """The schema of a tool's arguments."""
    return _described(toolset, tool.name, tool.operation)


@cache
def _described(toolset: str, tool: str, operation: str) -> Mapping[str, Any]:
    return input_schema(tool, toolset, OPERATIONS[operation])


def good(toolset: str, tool: Tool, place: Place) -> dict[str, Any]:
    """The required arguments, and the workspace if the tool takes one."""
    schema, known = described(toolset, tool), place.values(toolset, tool.name)
    names = {*schema.get("required", ()), *case(toolset, tool.name), "workspace_id"} & set(schema["properties"])
    return {name: known.get(name, _made(schema["properties"][name])) for name in names}


def bad(toolset: str, tool: Tool, place: Place) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what is wrong, arguments): each required argument left out, each of another type, one that is not known."""
    right, schema = good(toolset, tool, place), described(toolset, tool)
    for name in schema.get("required", ()):
        yield f"without {name}", {key: value for key, value in right.items() if key != name}
    for name, field in schema["properties"].items():
        yield f"{name} of another type", {**right, name: WRONG[field["type"]]}
    yield "colour is not known", {**right, "colour": "red"}


def oversized(toolset: str, tool: Tool, place: Place) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """(which argument is far too large, arguments, whether the call needs it, so that it has to be refused)."""
    right, schema = good(toolset, tool, place), described(toolset, tool)
    for name, field in schema["properties"].items():
        if field["type"] in TOO_MUCH:
            yield f"{name} is too much", {**right, name: TOO_MUCH[field["type"]]}, name in right


def foreign(
    toolset: str, tool: Tool, mine: Place, other: Place
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(what is the other workspace's, arguments, the same with one that does not exist): its ids, and its name."""
    right, theirs = good(toolset, tool, mine), good(toolset, tool, other)
    for name in right:
        if isinstance(theirs[name], str) and right[name] != theirs[name]:
            unknown = theirs[name][:-4] + "0000"
            yield f"{name} of the other workspace", {**right, name: theirs[name]}, {**right, name: unknown}


def _made(field: Mapping[str, Any]) -> Any:
    if "enum" in field:
        return field["enum"][0]
    return {"string": "something", "integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}}[
        field["type"]
    ]


async def furnished(stack: Stack, workspace: str, mark: str) -> Place:
    """A workspace with one of everything, recorded by its agent ``ada``."""
    token = await stack.token(Role.LEAD, workspace, agent="ada", crew="red")
    async with stack.client() as owner, stack.client(token.plaintext) as ada:
        return await furnish(owner, ada, workspace, mark)


async def furnish(owner: AsyncCrewJournal, ada: AsyncCrewJournal, workspace: str, mark: str) -> Place:
    """The same with clients of the owner and of the agent, a LEAD."""
    await owner.register_agent("ada", memory_enabled=True, crew_id="red", workspace_id=workspace)
    entries = [
        {
            "id": f"{workspace}-{name}",
            "entry_type": "run.completed",
            "summary": f"Who keeps the press? {mark} does, {name}",
        }
        for name in ("first", "second", "retired", "corrected")
    ]
    last = (await ada.append_batch([{**entry, "agent_id": "ada", "crew_id": "red"} for entry in entries]))[-1].seq
    found = await ada.recall("Who keeps the press?", min_seq=last)
    for number in (1, 2):
        written = await ada.document_write("AGENT", "append", f"- the press belongs to {mark} {number}")
    filed = await ada.add_drawer("works", "cellar", f"The press of {mark} stands here")
    made = await ada.kg_add("something", "keeps", "the old press", source_closet=mark)
    await ada.diary_write("ada", f"Today the press of {mark} was oiled")
    await ada.count(min_seq=made.seq)
    assert found.receipt is not None
    await ada.receipt(found.receipt)  # it is in the views, so that no record comes later
    return Place(workspace, mark, found.receipt, filed.drawer_id, written.seq, made.triple_id)
