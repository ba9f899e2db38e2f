"""Proposals, rules, lessons, operator models, promoted notes and the archive of one workspace are not visible in another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.events import control, document
from support.stack import DEADLINE_S, SUBJECT_KEY, Stack, running_stack

from crew_journal.schemas.access.events import ConsentChanged
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.core.sequence_set import SequenceSet, format_ranges, ranges_of
from crew_journal.schemas.entries.events import MemoryCompacted
from crew_journal.schemas.learning.events import LessonRecorded, RuleLearned, RuleProposed
from crew_journal.schemas.operators.events import OperatorProfileUpdated, StatedFact
from crew_journal.schemas.operators.rules import slug_of, subject_hash
from crew_journal.services.http.app import App

MARK = {"acme": "zirconium", "globex": "palladium"}
"""A word that is in every text of one workspace and in none of the other."""
ROLES: dict[str, dict[str, str]] = {
    "OWNER": {},
    "LEAD": {"agent": "lena", "crew": "core"},
    "AGENT": {"agent": "ada", "crew": "core"},
}
PAIRS = [*(("acme", "globex", role) for role in ROLES), ("globex", "acme", "OWNER")]
NOISE = "exec.output_chunk"
TS = "2026-01-05T10:00:00.000Z"
GIVEN: dict[str, Any] = {
    "entity": "ada", "agent_name": "ada", "start_room": "attic", "user": "maria", "opener": "maria", "kind": "fact",
    "name": "t_1", "from_version": 0, "include_archive": "true", "crew_id": "core", "agent_id": "ada",
}  # fmt: skip
"""What routes are asked with; ``tier`` and ``key`` are tried in turn."""
STREAMS = {"/v1/journal/stream"}


@dataclass
class World:
    stack: Stack
    tokens: dict[tuple[str, str], str] = field(default_factory=dict)
    head: int = 0


async def learn(stack: Stack, workspace: str) -> int:
    """Everything that is learned in a workspace: crews, agents, people and ids are those of the other one, but for ids
    that begin with the mark."""
    mark = MARK[workspace]
    async with stack.client() as owner:
        of_crew: dict[str, Any] = {"crew_id": "core", "memory_enabled": True, "workspace_id": workspace}
        await owner.register_agent("lena", role="lead", **of_crew)
        await owner.register_agent("ada", **of_crew)
        said = {"workspace_id": workspace, "crew_id": "core", "agent_id": "ada", "ts": TS}
        chunks = [{**said, "id": f"{mark}-{n}", "entry_type": NOISE, "summary": f"{mark} chunk {n}"} for n in range(12)]
        seqs = [one.seq for one in await owner.append_batch(chunks)]
        await owner.append({**said, "id": "e1", "entry_type": "peer.escalation", "summary": f"{mark} needs a plan"})
        pinned = await owner.append(
            {**said, "id": f"{mark}-pin", "entry_type": "note.taken", "summary": f"{mark} pinned"}
        )
        await stack.store.wait_for(pinned.seq, DEADLINE_S)
        await owner.set_priority(pinned.id, "pin", "true", workspace_id=workspace)
    learned: dict[str, Any] = {
        "crew_id": "core",
        "action": f"ask {mark}",
        "evidence": ("e1", f"{mark}-pin"),
        "confidence": 1,
        "publishers": ("agent:ada", "agent:lena"),
    }
    model: dict[str, Any] = {
        "subject_hash": subject_hash(SUBJECT_KEY, workspace, "maria"),
        "crew_id": "core",
        "facts": (
            StatedFact(key="owns", value=f"the {mark} mine", quote=f"I own the {mark} mine.", entry_id="e1", seq=2**40),
        ),
    }
    archived = MemoryCompacted(
        crew_id="core",
        bucket_date=TS[:10],
        entry_type=NOISE,
        count=len(seqs),
        bytes_sum=1,
        bytes_freed=0,
        first_ts=TS,
        last_ts=TS,
        cutoff=TS,
        entries=SequenceSet(sequences=format_ranges(ranges_of(seqs))),
    )
    facts: dict[str, ControlPayload] = {
        f"rule-{mark}": RuleLearned(pattern=f"{mark} is refused", **learned),
        f"proposal-{mark}": RuleProposed(pattern=f"{mark} is late", **learned),
        f"skill-{mark}": RuleProposed(
            pattern=f"{mark} skill", skill_of=f"rule-{mark}", score=0.9, recalls=12, **learned
        ),
        f"consent-{mark}": ConsentChanged(subject_hash=model["subject_hash"], granted=True),
        f"model-{mark}": OperatorProfileUpdated(**model),
        f"card-{mark}": OperatorProfileUpdated(**model, agent_id="ada"),
        f"lesson-{mark}": LessonRecorded(lesson_id="same", kind="negative", source="manual", rule=f"Avoid {mark}"),
        f"bucket-{mark}": archived,
    }
    messages = [control(payload, fact_id, workspace=workspace) for fact_id, payload in facts.items()]
    for owner_of, tier in (("a-ada", "AGENT"), ("c-core", "CREW")):
        note = {"content": f"- {mark} recurs\n", "source": "consolidation", "actor_type": "system"}
        messages.append(document(f"n-{tier}", workspace=workspace, owner=owner_of, tier=tier, key=None, **note))
    for message in messages:
        done = await stack.writer.publish(message.subject, message.body, message.headers)
    return done.seq


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with running_stack(tmp_path_factory.mktemp("isolation")) as stack:
        made = World(stack)
        for workspace in MARK:
            made.head = await learn(stack, workspace)
            for role, bound in ROLES.items():
                made.tokens[workspace, role] = (await stack.token(Role(role), workspace, **bound)).plaintext
        await stack.store.wait_for(made.head, DEADLINE_S)
        yield made


def documents_of(other: str) -> list[dict[str, str]]:
    """Documents to ask for: also under the slug that the person has in the other workspace."""
    slug = slug_of(subject_hash(SUBJECT_KEY, other, "maria"))
    named = [("AGENT", ""), ("CREW", ""), ("lessons", ""), ("topics", "pins"), ("users", slug), ("peers", slug)]
    return [{"tier": tier, **({"key": key} if key else {})} for tier, key in named]


@pytest.mark.parametrize(("mine", "other", "role"), PAIRS)
async def test_no_route_that_reads_shows_what_another_workspace_learned(
    world: World, mine: str, other: str, role: str
) -> None:
    seen = 0
    async with world.stack.http(world.tokens[mine, role]) as http:
        for path, methods in App(world.stack.services).openapi()["paths"].items():
            if "get" not in methods or path in STREAMS:
                continue
            accepts = {one["name"] for one in methods["get"].get("parameters", ()) if one["in"] == "query"}
            given = {name: value for name, value in GIVEN.items() if name in accepts}
            tiers = documents_of(other) if "tier" in accepts else [{}]
            for mark in (MARK[mine], MARK[other]) if "{" in path else (MARK[mine],):
                named = {
                    "entry_id": f"{mark}-1",
                    "proposal_id": f"proposal-{mark}",
                    "agent_id": "ada",
                    "crew_id": "core",
                }
                where = path.format_map(defaultdict(lambda: "1", named))
                for tier in tiers:
                    wanted = [given, {k: v for k, v in given.items() if k not in ("crew_id", "agent_id")}]
                    for params in wanted:
                        answer = await http.get(where, params={**params, **tier})
                        assert answer.status_code < 500, (where, answer.text)
                        text = answer.text.replace(f"proposal-{mark}", "").replace(f"{mark}-1", "")
                        assert MARK[other] not in text, where
                        seen += MARK[mine] in text
    assert seen > 10, "what belongs to the token's own workspace is shown"


@pytest.mark.parametrize(("mine", "other", "role"), PAIRS)
async def test_no_search_block_or_bundle_shows_what_another_workspace_learned(
    world: World, mine: str, other: str, role: str
) -> None:
    asked: dict[str, dict[str, Any]] = {
        "/v1/recall": {"query": f"{MARK[other]} refused", "k": 20},
        "/memory/search": {"query": f"{MARK[other]} recurs", "scope": "both"},
        "/v1/context": {"query": MARK[other], "run_id": "r1"},
    }
    async with world.stack.http(world.tokens[mine, role]) as http:
        for path, body in asked.items():
            answer = await http.post(path, json=body)
            assert answer.status_code < 500, (path, answer.text)
            assert MARK[other] not in answer.text.replace(str(body["query"]), ""), path


async def test_what_another_workspace_learned_cannot_be_decided_or_removed(world: World) -> None:
    mine, other = MARK
    stack, mark = world.stack, MARK[other]
    decided = "SELECT count(*) FROM journal_entries WHERE workspace_id = ? AND NOT starts_with(entry_type, 'memory.')"
    before = stack.store.rows(decided, [other])
    async with stack.http(world.tokens[mine, "OWNER"]) as http:
        for proposal in (f"proposal-{mark}", f"skill-{mark}"):
            for decision, sent in (("approve", {}), ("reject", {"reason": "mine"}), ("undo", {"reason": "mine"})):
                answer = await http.post(f"/v1/admin/proposals/{proposal}/{decision}", json=sent)
                assert answer.status_code == 404, answer.text
        for entry_id in (f"rule-{mark}", f"{mark}-1", f"lesson-{mark}"):
            answer = await http.post(f"/v1/journal/{entry_id}/retract", json={"reason": "mine"})
            assert answer.status_code == 404, answer.text
        gone = await http.post("/v1/operator/consent", json={"user": "maria", "decision": "withdrawn"})
        assert gone.status_code == 200, gone.text
        shown = await http.get("/v1/operator", params={"user": "maria"})
        assert MARK[mine] not in shown.text
    async with stack.http(world.tokens[other, "OWNER"]) as http:
        shown = await http.get("/v1/operator", params={"user": "maria"})
        assert mark in shown.text, "the consent of a person holds in one workspace"
    assert stack.store.rows(decided, [other]) == before
