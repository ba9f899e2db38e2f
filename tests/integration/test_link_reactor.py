"""The link reactor on a real broker, over real views: what it links, when, and how often."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.embedding import QUICK_TIMES
from support.embedding import until as until_true
from support.nats import nats_binary
from support.stack import DEADLINE_S, Stack, running_stack, until

from crew_journal.consumers.feed.jetstream import FILTERS_SINCE
from crew_journal.consumers.relations.reactor import LinkFinder, LinkLimits, LinkReactor
from crew_journal.schemas.core.derived import encode_link, encode_vector
from crew_journal.schemas.core.envelope import LinkDerived, VectorDerived
from crew_journal.schemas.core.errors import BrokerUnavailable
from crew_journal.schemas.core.ports import ENTRY_KIND, NearQuery, NearText, Published
from crew_journal.schemas.core.subjects import JOURNAL_STREAM
from crew_journal.schemas.models.events import EmbeddingsActivated
from crew_journal.schemas.recall.operations import RecallRequest
from crew_journal.schemas.settings import Settings
from crew_journal.services.index.take import load
from crew_journal.services.recall.similar import NearEntries

MODEL = "mini"
QUICK = LinkLimits(**QUICK_TIMES)


def turned(degrees: float) -> bytes:
    import numpy as np

    angle = math.radians(degrees)
    return np.array([math.cos(angle), math.sin(angle)], "<f4").tobytes()


def near(fact: VectorDerived, k: int = 3) -> NearQuery:
    return NearQuery(
        ENTRY_KIND, fact.workspace_id, MODEL, k, 0.8, [fact.vector], entry_seq=fact.entry_seq, before=fact.seq
    )


class Linking:
    """A journal with vectors that a test chooses, and reactors that link it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.reactors: list[LinkReactor] = []

    async def tell(self, entry_id: str, summary: str, *, workspace: str = "w1", **fields: Any) -> int:
        owner = self.stack.tokens.authenticate(self.stack.owner)
        appended = await self.stack.services.journal.append(
            owner,
            {"id": entry_id, "workspace_id": workspace, "entry_type": "peer.escalation", "summary": summary, **fields},
        )
        return appended.seq

    async def embed(
        self,
        entry_id: str,
        seq: int,
        vector: bytes,
        *,
        workspace: str = "w1",
        model: str = MODEL,
        crew: str | None = None,
    ) -> int:
        fact = VectorDerived(
            0, workspace, entry_id, seq, model, len(vector) // 4, vector, "ab", "peer.escalation", "info", "normal",
            crew, None, 1_795_000_000_000, 0, "embed@1",
        )  # fmt: skip
        message = encode_vector(fact, 1)
        return (await self.stack.writer.publish(message.subject, message.body, message.headers)).seq

    async def both(self, entry_id: str, degrees: float, summary: str = "the parser broke", **fields: Any) -> int:
        model = fields.pop("model", MODEL)
        seq = await self.tell(entry_id, summary, **fields)
        workspace, crew = fields.get("workspace", "w1"), fields.get("crew_id")
        return await self.embed(entry_id, seq, turned(degrees), workspace=workspace, model=model, crew=crew)

    def near(self) -> NearEntries:
        return NearEntries(self.stack.store, self.stack.recall.indexes)

    def finder(self) -> LinkFinder:
        return LinkFinder(self.stack.store, self.near(), threshold=0.8)

    async def reactor(self, *, finder: Any = None, publisher: Any = None, limits: LinkLimits = QUICK) -> LinkReactor:
        context = replace(self.stack.context(), clock=lambda: datetime.now(UTC), finder=self.near())
        context = replace(context, publisher=publisher or self.stack.writer, client=self.stack.client_of_broker)
        made = LinkReactor(context, self.stack.store, limits=limits, draw=lambda: 0.5)
        if finder is not None:
            made._links = finder
        self.reactors.append(made)
        await made.start()
        return made

    async def idle(self, reactor: LinkReactor) -> None:
        async def nothing_left() -> bool:
            status = await reactor.status()
            return status.state == "running" and status.pending == 0

        await until_true(nothing_left, "an idle reactor")
        await self.folded()

    async def folded(self) -> None:
        info = await self.stack.client_of_broker.jetstream().stream_info(JOURNAL_STREAM)
        await self.stack.store.wait_for(info.state.last_seq, DEADLINE_S)

    async def link_messages(self) -> int:
        info = await self.stack.client_of_broker.jetstream().stream_info(
            JOURNAL_STREAM, subjects_filter="derived.*.link"
        )
        return sum((info.state.subjects or {}).values())

    def edges(self, workspace: str = "w1") -> set[tuple[str, str, str, float, str]]:
        rows = self.stack.store.rows(
            "SELECT src_entry_id, dst_entry_id, relation, round(weight, 3), state FROM memory_relations "
            "WHERE workspace_id = ?",
            [workspace],
        )
        return set(rows)  # type: ignore[arg-type]


@pytest.fixture
async def linking(tmp_path: Path) -> AsyncIterator[Linking]:
    async with running_stack(tmp_path) as stack:
        active = EmbeddingsActivated(model=MODEL, embedder="minilm", dim=2)
        await stack.services.journal.record("_system", active, summary="mini is active")  # type: ignore[attr-defined]
        made = Linking(stack)
        try:
            yield made
        finally:
            for reactor in made.reactors:
                await reactor.stop()


async def test_each_new_entry_is_linked_to_its_three_nearest_earlier_ones(linking: Linking) -> None:
    """Contract §7 and seed 1: top three from 0.80 on, from the new entry to its predecessors."""
    for number, degrees in enumerate([0, 10, 20, 30, 80], 1):
        await linking.both(f"e{number}", degrees)
    reactor = await linking.reactor()
    await linking.idle(reactor)
    cosine = {d: round(math.cos(math.radians(d)), 3) for d in (10, 20, 30)}
    assert linking.edges() == {
        ("e2", "e1", "similar", cosine[10], "derived"),
        ("e3", "e2", "similar", cosine[10], "derived"),
        ("e3", "e1", "similar", cosine[20], "derived"),
        ("e4", "e3", "similar", cosine[10], "derived"),
        ("e4", "e2", "similar", cosine[20], "derived"),
        ("e4", "e1", "similar", cosine[30], "derived"),
    }
    counts = (await reactor.status()).counts
    assert (counts["proposed"], counts["written"], counts["failed"]) == (5, 6, 0)


async def test_only_what_came_before_counts_however_late_it_runs(linking: Linking) -> None:
    first = await linking.tell("e1", "the parser broke")
    second = await linking.tell("e2", "the parser broke")
    await linking.embed("e2", second, turned(0))
    await linking.embed("e1", first, turned(5))
    await linking.idle(await linking.reactor())
    [(src, dst, *_)] = linking.edges()
    assert (src, dst) == ("e2", "e1"), "stored from the newer entry, though the older one was embedded last"


async def test_workspaces_crews_and_other_models_are_not_linked(linking: Linking) -> None:
    await linking.both("a1", 0, crew_id="red")
    await linking.both("a2", 0, crew_id="blue")
    await linking.both("a3", 0)
    await linking.both("b1", 0, workspace="w2")
    await linking.both("a4", 0, model="nomic")
    tombstoned = await linking.tell("a5", "nobody can embed this")
    await linking.embed("a5", tombstoned, b"")
    reactor = await linking.reactor()
    await linking.idle(reactor)
    assert linking.edges() == linking.edges("w2") == set()
    await linking.both("a6", 0, crew_id="red")
    await linking.both("b2", 0, workspace="w2")
    await linking.idle(reactor)
    await until(lambda: bool(linking.edges() and linking.edges("w2")))
    assert {edge[:2] for edge in linking.edges()} == {("a6", "a1")}
    assert {edge[:2] for edge in linking.edges("w2")} == {("b2", "b1")}


async def test_after_a_switch_the_new_models_facts_are_linked_from_the_first_on(linking: Linking) -> None:
    await linking.both("e1", 0)
    reactor = await linking.reactor()
    await linking.idle(reactor)
    active = EmbeddingsActivated(model="nomic", embedder="ollama", dim=2)
    await linking.stack.services.journal.record("w1", active, summary="nomic is active")  # type: ignore[attr-defined]
    await linking.both("e2", 0, model="nomic")
    await linking.both("e3", 0, model="nomic")
    await linking.both("e4", 0)
    await linking.idle(reactor)
    assert {edge[:2] for edge in linking.edges()} == {("e3", "e2")}


async def test_a_run_from_the_beginning_publishes_nothing_twice(linking: Linking) -> None:
    """Contract §7: idempotent."""
    for number in range(1, 6):
        await linking.both(f"e{number}", number)
    first = await linking.reactor()
    await linking.idle(first)
    await first.stop()
    links, edges = await linking.link_messages(), linking.edges()
    await linking.stack.client_of_broker.jetstream().delete_consumer(JOURNAL_STREAM, "link-v1")
    again = await linking.reactor()
    await linking.idle(again)
    counts = (await again.status()).counts
    assert (counts["written"], counts["repeated"]) == (0, links)
    assert (await linking.link_messages(), linking.edges()) == (links, edges)


async def test_a_changed_number_is_proposed_as_a_contradiction_and_a_correction_is_not(linking: Linking) -> None:
    await linking.both("e1", 0, "The upload timeout is 30 seconds")
    await linking.both("e2", 1, "The upload timeout is 60 seconds")
    await linking.both("e3", 2, "The upload timeout is 90 seconds", refs={"parent_entry_id": "e2"})
    await linking.idle(await linking.reactor())
    proposed = {edge[:2]: edge[3:] for edge in linking.edges() if edge[2] == "contradicts"}
    assert proposed == {("e2", "e1"): (0.9, "proposed"), ("e3", "e1"): (0.9, "proposed")}
    assert {edge[:2] for edge in linking.edges() if edge[2] == "similar"} == {("e2", "e1"), ("e3", "e1"), ("e3", "e2")}
    [[reason]] = linking.stack.store.rows(
        "SELECT reason FROM memory_relations WHERE relation = 'contradicts' AND src_entry_id = 'e2'"
    )
    assert reason == 'two values of the same: "60 seconds" and "30 seconds"'


async def test_a_contradiction_is_found_among_many_that_are_alike(linking: Linking) -> None:
    await linking.both("old", 30, "The port of the parser is 5433")
    for number in range(6):
        await linking.both(f"e{number}", number, f"The parser opens sockets, note {number}")
    await linking.both("new", 0, "The port of the parser is 5432")
    await linking.idle(await linking.reactor())
    assert ("new", "old", "contradicts", 0.9, "proposed") in linking.edges()
    assert len([edge for edge in linking.edges() if edge[0] == "new" and edge[2] == "similar"]) == 3


def updates(linking: Linking) -> dict[str, str]:
    """Older entry → the newer one that retires it, where the relation counts."""
    return {edge[1]: edge[0] for edge in linking.edges() if edge[2] == "supersedes" and edge[4] != "retracted"}


async def shown(linking: Linking, query: str, mode: Any = "search", **also: Any) -> list[tuple[str, str | None]]:
    """(id, the entry by which it is superseded) of each hit."""
    request = RecallRequest(query=query, workspace_id="w1", mode=mode, recipe="lexical", **also)
    owner = linking.stack.tokens.authenticate(linking.stack.owner)
    answer = await linking.stack.recall.recall(owner, request)
    return [(hit.entry_id, None if hit.standing is None else hit.standing.by) for hit in answer.hits]


SAID: dict[str, Any] = {"entry_type": "memory.remembered", "agent_id": "ada", "actor_type": "user", "actor_id": "maria"}


async def test_a_newer_statement_retires_the_older_one_whatever_comes_first(linking: Linking) -> None:
    await linking.both("new", 20, "The bakery now opens at 7:00", ts="2026-03-01T00:00:00Z", **SAID)
    await linking.both("old", 0, "The bakery opens at 6:30.", ts="2026-02-01T00:00:00Z", **SAID)
    await linking.both("also", 10, "The butcher opens at 6:30.", ts="2026-04-01T00:00:00Z", **SAID)
    await linking.idle(await linking.reactor())
    assert updates(linking) == {"old": "new"}
    assert await shown(linking, "bakery opens 6:30", k=3) == [("new", None), ("old", "new"), ("also", None)]
    assert ("old", "new") not in await shown(linking, "bakery opens 6:30", "inject", k=3)


async def test_a_question_about_a_past_date_gets_what_held_then(linking: Linking) -> None:
    await linking.both("old", 0, "The bakery opens at 6:30.", ts="2026-02-01T00:00:00Z", **SAID)
    await linking.both("new", 20, "From 10 March on the bakery opens at 7:00.", ts="2026-03-01T00:00:00Z", **SAID)
    await linking.idle(await linking.reactor())
    asked = {"asked_at": "2026-06-30T00:00:00Z", "k": 2}
    assert [hit[0] for hit in await shown(linking, "When does the bakery open?", **asked)] == ["new", "old"]
    then = "When did the bakery open on 5 March?"
    assert [hit[0] for hit in await shown(linking, then, **asked)] == ["old", "new"]
    assert "new" not in dict(await shown(linking, then, "inject", **asked))
    early = {"asked_at": "2026-03-05T00:00:00Z", "k": 2}
    assert [hit[0] for hit in await shown(linking, "When does the bakery open?", **early)] == ["old", "new"]


async def test_the_replacement_comes_in_where_only_the_older_statement_was_found(linking: Linking) -> None:
    await linking.both("old", 0, "Invoices are paid by Sven.", ts="2026-02-01T00:00:00Z", **SAID)
    await linking.both("new", 20, "Mira handles them instead of Sven, the invoices.", ts="2026-03-01T00:00:00Z", **SAID)
    await linking.idle(await linking.reactor())
    assert updates(linking) == {"old": "new"}
    assert await shown(linking, "paid", k=5) == [("new", None), ("old", "new")]


async def test_a_restored_entry_counts_again_and_is_not_retired_a_second_time(linking: Linking) -> None:
    await linking.both("old", 0, "The bakery opens at 6:30.", ts="2026-02-01T00:00:00Z", **SAID)
    await linking.both("new", 20, "The bakery now opens at 7:00", ts="2026-03-01T00:00:00Z", **SAID)
    await linking.idle(await linking.reactor())
    client = linking.stack.client(linking.stack.owner)
    done = await client.restore("old", reason="two branches", workspace_id="w1")
    assert (done.changed, done.retracted) == (True, False)
    assert updates(linking) == {}
    assert sorted(await shown(linking, "bakery opens", k=2)) == [("new", None), ("old", None)]
    assert not (await client.restore("old", reason="again", workspace_id="w1")).changed
    jetstream = linking.stack.client_of_broker.jetstream()
    for reactor in linking.reactors:
        await reactor.stop()
    await jetstream.delete_consumer(JOURNAL_STREAM, "link-v1")
    await linking.idle(await linking.reactor())
    assert updates(linking) == {}
    await client.close()


async def test_no_agent_retires_what_another_agent_or_a_pin_says(linking: Linking) -> None:
    agent = {"entry_type": "memory.remembered", "actor_type": "agent", "actor_id": "ada", "agent_id": "ada"}
    await linking.both("theirs", 0, "The bakery opens at 6:30.", **{**SAID, "agent_id": "bruno"})
    await linking.both("pinned", 5, "The door code is 4471.", priority="permanent", **SAID)
    await linking.both("mine", 10, "The bakery now opens at 7:00", **agent)
    await linking.both("code", 15, "The door code is now 9002.", **agent)
    await linking.idle(await linking.reactor())
    assert updates(linking) == {}
    await linking.both("owner", 18, "The door code is now 5555.", **SAID)
    await linking.idle(linking.reactors[-1])
    assert updates(linking)["pinned"] == "owner"


async def test_what_an_operator_remembers_for_the_crew_retires_what_a_session_heard_and_not_the_reverse(
    linking: Linking,
) -> None:
    heard = {"entry_type": "chat.user_message", "actor_type": "user", "actor_id": "root", "agent_id": "coder"}
    of_crew = {"entry_type": "memory.remembered", "actor_type": "user"}
    await linking.both("heard", 0, "The bakery opens at 6:30.", crew_id="shop", **heard)
    await linking.both("elsewhere", 5, "The bakery opens at 6:30.", crew_id="depot", **{**heard, "agent_id": "packer"})
    await linking.both("said", 10, "The bakery now opens at 7:00.", crew_id="shop", **of_crew)
    await linking.both("later", 15, "The bakery now opens at 9:00", crew_id="shop", **{**heard, "agent_id": "reviewer"})
    await linking.idle(await linking.reactor())
    assert updates(linking) == {"heard": "said"}
    hits = dict(await shown(linking, "bakery opens", k=5))
    assert (hits["heard"], hits["said"], hits["elsewhere"]) == ("said", None, None)
    await linking.both("low", 100, "The API limit is 100 requests per minute", crew_id="shop", **heard)
    await linking.both("high", 105, "The API limit is 250 requests per minute", crew_id="shop", **of_crew)
    await linking.idle(linking.reactors[-1])
    assert await shown(linking, "API limit", k=5) == [("high", None), ("low", "high")]
    assert [hit[0] for hit in await shown(linking, "what is the API limit?", "inject", k=5)] == ["high"]


ANNA = {**SAID, "mission_id": "user-anna", "data_subject_id": "anna"}
BEN = {**SAID, "mission_id": "user-ben", "data_subject_id": "ben"}


async def test_no_user_of_an_agent_retires_what_another_user_said(linking: Linking) -> None:
    await linking.both("anna", 0, "My favourite season is spring.", **ANNA)
    await linking.both("ben", 5, "My favourite season is now autumn", **BEN)
    await linking.both("hers", 10, "My favourite season is now winter", **ANNA)
    await linking.idle(await linking.reactor())
    assert updates(linking) == {"anna": "hers"}
    assert dict(await shown(linking, "favourite season", k=3)) == {"anna": "hers", "ben": None, "hers": None}


async def test_a_link_between_two_users_that_was_published_before_does_not_count(linking: Linking) -> None:
    older = await linking.tell("anna", "My favourite season is spring.", **ANNA)
    newer = await linking.tell("ben", "My favourite season is now autumn", **BEN)
    await linking.folded()
    assert dict(await shown(linking, "favourite season", k=2)) == {"anna": None, "ben": None}
    for relation in ("supersedes", "contradicts"):
        link = LinkDerived(0, "w1", "ben", newer, "anna", older, relation, 0.9, 0, "link@1", None, "autumn now")
        message = encode_link(link, 1)
        await linking.stack.writer.publish(message.subject, message.body, message.headers)
    await linking.folded()
    assert {edge[2] for edge in linking.edges()} == {"supersedes", "contradicts"}
    client = linking.stack.client(linking.stack.owner)
    assert dict(await shown(linking, "favourite season", k=2)) == {"anna": None, "ben": None}
    assert load(linking.stack.store, "w1").standings.of(0) is None
    assert (await client.get("anna", workspace_id="w1")).standing is None
    await client.relate("ben", "anna", relation="supersedes", reason="one person", workspace_id="w1")
    await linking.folded()
    assert dict(await shown(linking, "favourite season", k=2)) == {"anna": "ben", "ben": None}
    standing = (await client.get("anna", workspace_id="w1")).standing
    assert standing is not None
    assert standing.by == "ben"
    await client.close()


class Faulty:
    """A finder that fails for one entry, or a while for all."""

    def __init__(self, inner: LinkFinder, fails: Callable[[VectorDerived], Exception | None]) -> None:
        self._inner = inner
        self._fails = fails

    async def find(self, fact: VectorDerived, reactor: str) -> list[LinkDerived]:
        error = self._fails(fact)
        if error is not None:
            raise error
        return await self._inner.find(fact, reactor)


async def test_an_entry_that_fails_is_put_off_alone_and_tried_again(linking: Linking) -> None:
    failures: list[str] = []

    def fails(fact: VectorDerived) -> Exception | None:
        if fact.entry_id != "e2" or len(failures) >= 3:
            return None
        failures.append(fact.entry_id)
        return ValueError("a fault of ours")

    for number in range(1, 4):
        await linking.both(f"e{number}", number)
    reactor = await linking.reactor(finder=Faulty(linking.finder(), fails))
    await linking.idle(reactor)
    assert {edge[:2] for edge in linking.edges()} == {("e2", "e1"), ("e3", "e1"), ("e3", "e2")}
    status = await reactor.status()
    assert (status.counts["failed"], status.last_error) == (3, None)


async def test_views_that_are_behind_are_waited_for_and_nothing_is_lost(linking: Linking) -> None:
    tried: list[int] = []

    def behind(fact: VectorDerived) -> Exception | None:
        tried.append(fact.seq)
        return BrokerUnavailable("away") if len(tried) <= 2 else None

    await linking.both("e1", 0)
    await linking.both("e2", 0)
    reactor = await linking.reactor(finder=Faulty(linking.finder(), behind))
    await linking.idle(reactor)
    assert {edge[:2] for edge in linking.edges()} == {("e2", "e1")}


class HalfWriter:
    """A publisher that dies after the first link of a batch."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.sent = 0
        self.dead = True

    async def publish(self, subject: str, body: bytes, headers: Any) -> Published:
        self.sent += 1
        if self.dead and self.sent > 1:
            raise BrokerUnavailable("no ack")
        return await self._inner.publish(subject, body, headers)


async def test_a_fact_is_acked_only_after_all_its_links(linking: Linking) -> None:
    """All-or-nothing as far as a stream can be: a crash in the middle is made good by the next delivery."""
    for number in range(1, 3):
        await linking.both(f"e{number}", number)
    reactor = await linking.reactor()
    await linking.idle(reactor)
    await reactor.stop()
    half = HalfWriter(linking.stack.writer)
    dying = await linking.reactor(publisher=half)
    await linking.both("e3", 3)

    async def failing() -> bool:
        return (await dying.status()).last_error is not None and half.sent > 1

    await until_true(failing, "a failed publish")
    filtered = nats_binary().version >= FILTERS_SINCE
    assert (await dying.status()).pending == (1 if filtered else 2), (
        "the fact; unfiltered, the link that was published too"
    )
    half.dead = False
    await linking.idle(dying)
    assert {edge[:2] for edge in linking.edges()} == {("e2", "e1"), ("e3", "e1"), ("e3", "e2")}


async def test_without_views_there_is_no_reactor(linking: Linking) -> None:
    assert LinkReactor.create(replace(linking.stack.context(), views=None)) is None


@pytest.mark.parametrize("host", ["http://[::1", "http://127.0.0.1:port", "http://127.0.0.1:99999999"])
async def test_a_judge_with_an_invalid_address_is_left_out_and_status_says_so(linking: Linking, host: str) -> None:
    stack = linking.stack
    similar = NearEntries(stack.store, stack.recall.indexes)
    settings = Settings(ollama_host=host, judge_model="llama3.2")
    reactor = LinkReactor.create(replace(stack.context(), settings=settings, finder=similar))
    assert reactor is not None
    error = (await reactor.status()).last_error
    assert error is not None
    assert "no judge" in error
    assert "OLLAMA_HOST" in error


async def test_similar_waits_for_the_views_to_pass_the_fact(linking: Linking) -> None:
    await linking.both("e1", 0)
    seq = await linking.tell("e2", "the parser broke")
    at = await linking.embed("e2", seq, turned(0))
    fact = VectorDerived(
        at, "w1", "e2", seq, MODEL, 2, turned(0), "ab", "peer.escalation", "info", "normal", None, None, 0, 0, "embed@1"
    )
    similar = NearEntries(linking.stack.store, linking.stack.recall.indexes)
    [found] = await asyncio.wait_for(similar.nearest(near(fact)), DEADLINE_S)
    assert found == [NearText("e1", 1.0, found[0].seq)]


async def test_what_is_asked_at_once_is_answered_as_if_asked_one_by_one(linking: Linking) -> None:
    facts = []
    for name, degrees in (("e1", 0), ("e2", 5), ("e3", 90), ("e4", 95), ("e5", 10), ("e6", 200)):
        seq = await linking.tell(name, f"the parser broke at {degrees}")
        at = await linking.embed(name, seq, turned(degrees))
        facts.append(
            VectorDerived(
                at,
                "w1",
                name,
                seq,
                MODEL,
                2,
                turned(degrees),
                "ab",
                "peer.escalation",
                "info",
                "normal",
                None,
                None,
                0,
                0,
                "e",
            )
        )
    similar = NearEntries(linking.stack.store, linking.stack.recall.indexes)
    one_by_one = [(await similar.nearest(near(fact)))[0] for fact in facts]
    given_up = asyncio.ensure_future(similar.nearest(near(facts[0])))
    asking = [asyncio.ensure_future(similar.nearest(near(fact, k))) for fact in facts for k in (3, 1)]
    await asyncio.sleep(0)
    given_up.cancel()
    at_once = [found for [found] in await asyncio.wait_for(asyncio.gather(*asking), DEADLINE_S)]
    assert at_once[::2] == one_by_one
    assert at_once[1::2] == [found[:1] for found in one_by_one]
    assert [len(found) for found in one_by_one] == [0, 1, 0, 1, 2, 0]
