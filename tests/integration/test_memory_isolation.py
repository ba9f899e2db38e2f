"""Whatever is registered, no route, block or search shows an agent what is another agent's, crew's or workspace's."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.stack import Stack, running_stack

from crew_journal.schemas.context.operations import MEMORY_BLOCK
from crew_journal.schemas.core.operation import Effect, Operation
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.documents import operations as documents

NAMES = ("support", "core", "w", "a-core")
"""Few, so that agents, crews and workspaces share names; two look like the owner of a document."""
DAY = "2026-11-20"
KEYS = {"daily": DAY, "topics": "plan", "peers": "eva"}
TIERS_OF = {
    "agent": ("AGENT", "daily", "peers", "pins"),
    "crew": ("CREW", "daily", "topics", "pins"),
    "workspace": ("pins", "WORKSPACE"),
}
OTHERS = ("memory_file", "export_bundle", "import_bundle")
OPERATIONS: tuple[Operation[Any, Any], ...] = (
    *(operation for operation in documents.OPERATIONS if operation.name not in OTHERS),
    MEMORY_BLOCK,
)
TRIES = 40


@dataclass
class Registry:
    """Who there is: agent → its crew, in each workspace; and the word that only one owner's documents hold."""

    crews: dict[str, dict[str, str | None]]
    words: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def word(self, workspace: str, kind: str, name: str) -> str:
        return self.words.setdefault((workspace, kind, name), f"quokka{'abcdefghijklmnopqrstuvwxyz'[len(self.words)]}x")

    def readable(self, workspace: str, agent: str) -> set[str]:
        owners = [("agent", agent), ("workspace", "")]
        if (crew := self.crews[workspace][agent]) is not None:
            owners.append(("crew", crew))
        return {word for (where, *owner), word in self.words.items() if where == workspace and tuple(owner) in owners}


def registry(draw: random.Random, seed: int) -> Registry:
    return Registry(
        {
            f"{name}-{seed}": {
                agent: draw.choice((*NAMES[:2], None)) for agent in draw.sample(NAMES, draw.randint(2, 3))
            }
            for name in draw.sample(NAMES, 2)
        }
    )


async def fill(stack: Stack, made: Registry) -> None:
    async with stack.http() as http:
        for workspace, agents in made.crews.items():
            owners = [("agent", agent) for agent in agents]
            owners += [("crew", crew) for crew in {*agents.values()} - {None} if crew is not None] + [("workspace", "")]
            for kind, name in owners:
                named = {} if kind == "workspace" else {f"{kind}_id": name, "scope": kind}
                for tier in TIERS_OF[kind]:
                    body = {"tier": tier, "key": KEYS.get(tier), "mode": "append", "workspace_id": workspace, **named}
                    text = f"# Notes\n{made.word(workspace, kind, name)} knows the {tier}"
                    answer = await http.post("/memory/write", json={**body, "content": text})
                    assert answer.status_code == 201, answer.text


def asked_of(operation: Operation[Any, Any], draw: random.Random, made: Registry) -> dict[str, Any]:
    """Fields of a request that may name anybody."""
    fields = operation.request.model_fields
    names = [*NAMES, None, None, None]
    tier = draw.choice(("AGENT", "CREW", "daily", "topics", "peers", "pins"))
    drawn = {
        "agent_id": draw.choice(names),
        "crew_id": draw.choice(names),
        "workspace_id": draw.choice([*made.crews, None, None, None]),
        "scope": draw.choice(("agent", "crew", "both", "workspace", "own", "crew_shared", None, None)),
        "tier": None if operation is documents.DOCUMENT_SEARCH else tier,
        "key": KEYS.get(tier),
        "query": " ".join(made.words.values()),
        "from_version": 0,
        "limit": 50,
        "mode": "append",
        "content": "a trespasser was here",
        "entry": "a trespasser was here",
        "reason": "trespass",
    }
    return {name: value for name, value in drawn.items() if name in fields and value is not None}


async def send(http: httpx.AsyncClient, operation: Operation[Any, Any], asked: dict[str, Any]) -> httpx.Response:
    if operation.method == "GET":
        return await http.get(operation.path, params=asked)
    return await http.request(operation.method, operation.path, json=asked)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 20))])
async def test_no_route_block_or_search_shows_or_changes_what_is_anothers(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    made = registry(draw, seed)
    async with running_stack(tmp_path) as stack:
        await fill(stack, made)
        for workspace, agents in made.crews.items():
            for agent, crew in agents.items():
                role = Role.LEAD if crew is not None and draw.random() < 0.4 else Role.AGENT
                token = (await stack.token(role, workspace, agent=agent, crew=crew)).plaintext
                own = made.readable(workspace, agent)
                foreign = set(made.words.values()) - own
                seen: set[str] = set()
                async with stack.http(token) as http:
                    for operation in OPERATIONS:
                        for _ in range(TRIES // len(OPERATIONS) + 1):
                            asked = asked_of(operation, draw, made)
                            answer = await send(http, operation, asked)
                            shown = {word for word in made.words.values() if word in answer.text}
                            assert not shown & foreign, (
                                f"{agent} of {workspace}: {operation.name} {asked}: {answer.text}"
                            )
                            seen |= shown
                    for path in (
                        "/v1/memory/block",
                        *(f"/v1/memory/document?tier=pins&scope={one}" for one in TIERS_OF),
                    ):
                        text = (await http.get(path)).text
                        assert not {word for word in foreign if word in text}, f"{agent} of {workspace}: {path}"
                        seen |= {word for word in own if word in text}
                assert seen == own, "what an agent may read, it is shown"
        await assert_no_trespass(stack, made)


async def assert_no_trespass(stack: Stack, made: Registry) -> None:
    """What only operators may write was written by them alone."""
    async with stack.http() as http:
        for workspace in made.crews:
            found = (await http.get("/v1/memory/documents", params={"workspace_id": workspace})).json()
            written = {(document["owner"], document["tier"]): document["writes"] for document in found["documents"]}
            assert {writes for (_, tier), writes in written.items() if tier == "pins"} == {1}


def test_every_operation_on_memory_is_tried() -> None:
    assert {operation.effect for operation in OPERATIONS} >= {Effect.READS, Effect.CREATES, Effect.CHANGES}
    assert len(OPERATIONS) == 17
