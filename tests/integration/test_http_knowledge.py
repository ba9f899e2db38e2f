"""The knowledge graph over HTTP: who may assert and end facts, and what held and was known when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

import anyio
import pytest
from support.events import control
from support.mcp_client import connected
from support.stack import Stack

from crew_journal.schemas.core.errors import InvalidEntry, InvalidQuery, NotAllowed
from crew_journal.schemas.core.principal import Role
from crew_journal.schemas.facts.events import FactAsserted, FactEntity
from crew_journal.schemas.facts.names import entity_id
from crew_journal.schemas.facts.operations import KgAddRequest
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.desk import Caller
from crew_journal.services.facts.use_cases import KnowledgeGraph


@asynccontextmanager
async def as_agent(stack: Stack, workspace: str, agent: str = "ada") -> AsyncIterator[AsyncCrewJournal]:
    token = await stack.token(Role.AGENT, workspace, agent=agent)
    async with stack.client(token.plaintext) as client:
        yield client


async def databases(client: AsyncCrewJournal) -> int:
    """The example of the seed; the sequence of its last event."""
    await client.kg_add("Crawbl Backend", "uses", "MongoDB", valid_from="2024-06-01")
    await client.kg_invalidate("crawbl backend", "uses", "mongodb", ended="2025-01-14", reason="slow")
    return (await client.kg_add("Crawbl Backend", "uses", "PostgreSQL", valid_from="2025-01-15")).seq


@pytest.mark.parametrize(
    ("as_of", "held"),
    [
        ("2024-05-31", []),
        ("2024-06-01", ["MongoDB"]),
        ("2025-01-14", ["MongoDB"]),
        ("2025-01-14T23:59:59Z", ["MongoDB"]),
        ("2025-01-15T00:00:00Z", ["PostgreSQL"]),
        ("2026-01-01", ["PostgreSQL"]),
        (None, ["PostgreSQL", "MongoDB"]),
    ],
)
async def test_what_held_on_a_date_includes_both_ends(stack: Stack, as_of: str | None, held: list[str]) -> None:
    workspace = f"kg-{as_of or 'all'}".replace(":", "-")
    async with as_agent(stack, workspace) as agent:
        seq = await databases(agent)
        answer = await agent.kg_query("CRAWBL  backend", as_of=as_of, min_seq=seq)
    assert [result.object for result in answer.results] == held
    assert answer.entity == "Crawbl Backend"


async def test_a_fact_says_who_asserted_and_who_ended_it(stack: Stack) -> None:
    async with as_agent(stack, "kg-who") as ada, as_agent(stack, "kg-who", "bob") as bob:
        added = await ada.kg_add("Ann", "owns", "Auth Module", source_closet="drawer_1", confidence=0.5)
        ended = await bob.kg_invalidate("Ann", "owns", "Auth Module", reason="left", min_seq=added.seq)
        assert (ended.ended_ids, ended.ended) == ((added.triple_id,), datetime.now(UTC).date().isoformat())
        [fact] = (await ada.kg_query("Auth Module", min_seq=ended.seq)).results
    assert (fact.direction, fact.current, fact.confidence) == ("incoming", False, 0.5)
    assert (fact.asserted_by, fact.ended_by, fact.end_reason) == ("ada", "bob", "left")
    assert fact.source_closet == "drawer_1"


async def test_what_was_known_at_a_sequence_can_be_asked(stack: Stack) -> None:
    async with as_agent(stack, "kg-seq") as agent:
        first = await agent.kg_add("Ann", "lives in", "Berlin")
        ended = await agent.kg_invalidate("Ann", "lives in", "Berlin")
        assert ended.seq is not None
        then = await agent.kg_query("Ann", as_of_seq=str(first.seq), min_seq=ended.seq)
        assert [(result.valid_to, result.current) for result in then.results] == [(None, True)]
        assert (await agent.kg_stats(as_of_seq=str(first.seq))).current_facts == 1
        now = await agent.kg_stats()
        assert (now.entities, now.triples, now.current_facts, now.expired_facts) == (2, 1, 0, 1)
        assert (await agent.kg_query("Ann", as_of_seq=str(first.seq - 1))).results == ()


async def test_a_fact_without_an_end_is_added_once_and_again_after_its_end(stack: Stack) -> None:
    async with as_agent(stack, "kg-once") as agent:
        added = []

        async def add() -> None:
            added.append(await agent.kg_add("Ann", "knows", "Bob", valid_from="2026-01-01"))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(add)
        assert len({one.triple_id for one in added}) == 1
        assert sum(one.added for one in added) == 1
        await agent.kg_invalidate("Ann", "knows", "Bob", ended="2026-02-01")
        again = await agent.kg_add("ann", "knows", "BOB")
        assert again.added
        assert again.triple_id != added[0].triple_id


async def test_ending_what_has_no_open_match_changes_nothing_and_says_so(stack: Stack) -> None:
    async with as_agent(stack, "kg-none") as agent:
        added = await agent.kg_add("Ann", "knows", "Bob")
        answer = await agent.kg_invalidate("Ann", "Knows", "Bob")
        assert (answer.ended_ids, answer.seq) == ((), None)
        assert "nothing changed" in answer.info
        assert [result.current for result in (await agent.kg_query("Ann", min_seq=added.seq)).results] == [True]


async def test_an_agent_may_not_end_what_an_operator_asserted(stack: Stack) -> None:
    async with stack.client() as owner, as_agent(stack, "kg-rank") as agent:
        added = await owner.kg_add("Ann", "owns", "Budget", workspace_id="kg-rank")
        with pytest.raises(NotAllowed, match=added.triple_id):
            await agent.kg_invalidate("Ann", "owns", "Budget")
        with pytest.raises(NotAllowed):
            await agent.kg_entity("Ann", type="person")
        assert (await owner.kg_invalidate("Ann", "owns", "Budget", workspace_id="kg-rank")).ended_ids


async def test_an_agent_ends_what_a_reactor_found_in_a_drawer(stack: Stack) -> None:
    ends = [FactEntity(entity_id=entity_id(name), name=name) for name in ("Ann", "Budget")]
    found = FactAsserted(fact_id="f1", subject=ends[0], predicate="owns", object=ends[1], source_drawer_id="drawer_1")
    event = control(found, "f_event", workspace="kg-drawer", actor_type="system")
    published = await stack.writer.publish(event.subject, event.body, event.headers)
    async with as_agent(stack, "kg-drawer") as agent:
        ended = await agent.kg_invalidate("Ann", "owns", "Budget", min_seq=published.seq)
    assert ended.ended_ids == ("f1",)


async def test_a_fact_with_one_object_at_a_time_ends_the_day_before_the_next(stack: Stack) -> None:
    async with as_agent(stack, "kg-one") as agent, stack.client() as owner:
        first = await agent.kg_add("Tour", "has_price", "10 euros", valid_from="2026-01-01")
        second = await agent.kg_add("tour", "has_price", "12 euros", valid_from="2026-03-01")
        assert second.ended_ids == (first.triple_id,)
        past = await agent.kg_add("Tour", "has_price", "8 euros", valid_from="2024-01-01", valid_to="2025-12-31")
        assert past.ended_ids == ()
        for day, price in (("2025-06-01", "8 euros"), ("2026-02-28", "10 euros"), ("2026-03-01", "12 euros")):
            answer = await agent.kg_query("Tour", as_of=day, min_seq=past.seq)
            assert [result.object for result in answer.results] == [price]
        fixed = await owner.kg_add("Hall", "price", "90 euros", workspace_id="kg-one")
        assert (await agent.kg_add("Hall", "price", "95 euros", min_seq=fixed.seq)).ended_ids == ()
        assert (await agent.kg_add("Ann", "uses", "SQLite")).ended_ids == ()
        assert (await agent.kg_add("Ann", "uses", "DuckDB")).ended_ids == ()


async def test_no_workspace_sees_facts_of_another(stack: Stack) -> None:
    async with as_agent(stack, "kg-mine") as mine, as_agent(stack, "kg-theirs") as theirs:
        added = await mine.kg_add("Ann", "knows", "a secret")
        assert (await theirs.kg_query("Ann", min_seq=added.seq)).results == ()
        assert (await theirs.kg_timeline()).events == ()
        assert (await theirs.kg_stats()).entities == 0
        with pytest.raises(NotAllowed):
            await theirs.kg_query("Ann", workspace_id="kg-mine")


async def test_dates_that_are_wrong_are_refused_with_the_field(stack: Stack) -> None:
    async with as_agent(stack, "kg-dates") as agent:
        wrong: tuple[dict[str, Any], ...] = (
            {"valid_from": "2026"},
            {"valid_to": "2026-02-30"},
            {"valid_from": "2026-01-01 00:00:00"},
        )
        for fields in wrong:
            with pytest.raises(InvalidEntry) as caught:
                await agent.kg_add("Ann", "knows", "Bob", **fields)
            assert caught.value.field in fields
        with pytest.raises(InvalidEntry, match="before the start"):
            await agent.kg_add("Ann", "knows", "Bob", valid_from="2026-02-01", valid_to="2026-01-31")
        with pytest.raises(InvalidQuery, match="as_of"):
            await agent.kg_query("Ann", as_of="2026-01")
        await agent.kg_add("Ann", "knows", "Bob", valid_from="2026-02-01")
        with pytest.raises(InvalidEntry, match="before the start"):
            await agent.kg_invalidate("Ann", "knows", "Bob", ended="2026-01-01")
        assert (await agent.kg_stats()).current_facts == 1


async def test_a_timeline_is_in_order_of_the_start_with_unknown_starts_last(stack: Stack) -> None:
    async with as_agent(stack, "kg-time") as agent:
        await agent.kg_add("Ann", "met", "Zoe")
        await agent.kg_add("Ann", "met", "Bob", valid_from="2026-02-01")
        await agent.kg_add("Eve", "met", "Ann", valid_from="2026-01-31T10:00:00Z")
        last = await agent.kg_add("Kim", "met", "Lee", valid_from="2020-01-01")
        of_ann = await agent.kg_timeline(entity="ann", min_seq=last.seq)
        assert [(event.subject, event.object) for event in of_ann.events] == [
            ("Eve", "Ann"),
            ("Ann", "Bob"),
            ("Ann", "Zoe"),
        ]
        assert (await agent.kg_timeline()).events[0].subject == "Kim"


async def test_an_entity_related_to_itself_is_listed_once_as_outgoing(stack: Stack) -> None:
    async with as_agent(stack, "kg-loop") as agent:
        added = await agent.kg_add("Ann", "trusts", "ann")
        [fact] = (await agent.kg_query("Ann", min_seq=added.seq)).results
        assert fact.direction == "outgoing"
        assert (await agent.kg_stats()).entities == 1
        for direction in ("incoming", "outgoing", "both", "sideways"):
            found = (await agent.kg_query("Ann", direction=cast("Any", direction))).results
            assert [one.id for one in found] == [fact.id]


async def test_a_fact_about_an_alias_is_a_fact_about_its_entity(stack: Stack) -> None:
    async with stack.client((await stack.token(Role.ADMIN, "kg-alias")).plaintext) as admin:
        await admin.kg_add("Alice", "owns", "Auth Module")
        named = await admin.kg_entity("Alice Smith", type="person", aliases=["Alice", "A. Smith"])
        assert named.aliases == ("A. Smith", "Alice")
        later = await admin.kg_add("a. smith", "owns", "Billing", subject_type="robot")
        facts = (await admin.kg_query("ALICE", min_seq=later.seq)).results
        assert [(fact.subject, fact.object) for fact in facts] == [
            ("Alice Smith", "Billing"),
            ("Alice Smith", "Auth Module"),
        ]
        assert not (await admin.kg_add("Alice Smith", "owns", "Auth Module")).added
        with pytest.raises(InvalidEntry, match="means another entity"):
            await admin.kg_entity("Bob", aliases=["Alice"])
        again = await admin.kg_entity("Alice", dropped_aliases=["A. Smith"])
        assert (again.name, again.type, again.aliases) == ("Alice Smith", "person", ("Alice",))


async def test_a_fact_beyond_the_limits_is_refused_and_known_entities_stay_usable(stack: Stack) -> None:
    principal = stack.tokens.authenticate((await stack.token(Role.OWNER, "kg-full")).plaintext)
    graph = KnowledgeGraph(stack.shared, max_entities=2, max_facts=2)
    caller = Caller.of(principal)

    async def add(subject: str, predicate: str, object_: str) -> bool:
        return (await graph.add(caller, KgAddRequest(subject=subject, predicate=predicate, object=object_))).added

    assert await add("Ann", "knows", "Bob")
    with pytest.raises(InvalidQuery, match="2 entities"):
        await add("Ann", "knows", "Eve")
    assert await add("Bob", "knows", "Ann")
    assert not await add("Bob", "knows", "Ann")
    with pytest.raises(InvalidQuery, match="2 facts"):
        await add("Ann", "likes", "Bob")


async def test_a_model_adds_asks_and_ends_facts_with_the_tools_of_the_palace(stack: Stack) -> None:
    token = await stack.token(Role.AGENT, "kg-mcp", agent="ada")
    async with connected(stack, token.plaintext, tools="palace") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {f"memory_kg_{name}" for name in ("query", "add", "invalidate", "timeline", "stats")} <= names
        fact = {"subject": "Ann", "predicate": "owns", "object": "Auth Module"}
        made = await client.call_tool("memory_kg_add", {**fact, "valid_from": "2025-03-01", "description": "Noting"})
        assert not made.is_error
        asked = await client.call_tool("memory_kg_query", {"entity": "ann", "as_of": "2025-03-01"})
        assert [result["id"] for result in asked.structured_content["results"]] == [
            made.structured_content["triple_id"]
        ]
        ended = await client.call_tool("memory_kg_invalidate", fact)
        assert ended.structured_content["ended_ids"] == [made.structured_content["triple_id"]]
        stats = (await client.call_tool("memory_kg_stats", {})).structured_content
        assert (stats["expired_facts"], stats["relationship_types"]) == (1, ["owns"])
        assert (await client.call_tool("memory_kg_timeline", {})).structured_content["count"] == 1
        wrong = await client.call_tool("memory_kg_add", {"subject": "Ann", "predicate": "owns"})
        assert wrong.is_error
        assert "object" in wrong.content[0].text
