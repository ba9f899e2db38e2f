"""Recall over real views: a host folds, the hot index follows, tokens see what is theirs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support.events import EPOCH_MS, control, entry, vector
from support.recall import ANALYZER
from support.recalling import AGENT, LEAD, MINI, OWNER, recalling
from support.strategies import journals
from support.views import node

from crew_journal.consumers.discovery import discover_projections
from crew_journal.schemas.access.events import AgentRegistered
from crew_journal.schemas.core.errors import InvalidQuery, NotAllowed, NotFound, ViewsBehind
from crew_journal.schemas.core.timestamps import format_ts
from crew_journal.schemas.facts.events import EntityNamed, FactEntity
from crew_journal.schemas.models.events import EmbeddingsActivated
from crew_journal.schemas.recall.events import PriorityChanged
from crew_journal.schemas.recall.operations import RECALL, RenderRequest
from crew_journal.services.desk import parse
from crew_journal.services.index.cache import HotCache
from crew_journal.services.index.entry_slot import EntryIndexes
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.index.take import load
from crew_journal.services.index.vectors import TokenStore
from crew_journal.services.recall.asking import Query
from crew_journal.services.recall.recipes import RECIPES
from crew_journal.services.recall.render import RenderService
from crew_journal.services.recall.search import search


def told(entry_id, summary="the parser broke", **fields):
    fields.setdefault("actor_id", entry_id)  # another speaker, so that the same words are no repeat
    return entry(entry_id, summary=summary, entry_type=fields.pop("entry_type", "chat.user_message"), **fields)


async def test_a_hit_shows_its_entry_and_the_answer_says_how_it_came_about(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(MINI, told("e1", payload={"run": 7}, refs={"x": "y"}, trace_id="t1", actor_id="Ada"))
        answer = await at_work.recall(explain=True)
        (hit,) = answer.hits
        assert hit.model_dump(exclude={"explain", "score", "confidence", "reason"}) == {
            "entry_id": "e1", "ts": "2026-11-18T11:06:40.000Z", "age_seconds": 60.0, "entry_type": "chat.user_message",
            "summary": "the parser broke", "agent_id": "a1", "crew_id": "c1", "actor_type": "agent", "actor_id": "Ada",
            "severity": "info", "priority": "normal", "live_priority": "normal",
            "trace_id": "t1", "mission_id": None, "payload": {"run": 7},
            "refs": {"x": "y"}, "supersedes": (), "valid_at": None, "seq": 2, "via": None,
            "standing": None, "repeats": 0,
        }  # fmt: skip
        assert (answer.recipe, answer.model, answer.degraded, answer.view_seq) == ("conversational", "mini", None, 2)
        assert hit.explain.lexical.rank == 1
        assert hit.explain.dense.rank is None


@pytest.mark.parametrize("records", [True, False], ids=["from memory", "from the views"])
async def test_hits_read_the_same_from_memory_and_from_the_views(tmp_path, records):
    async with recalling(tmp_path, budget_bytes=64 << 20 if records else 0) as at_work:
        big = {"n": 2**70, "text": 'größe \u0001 "quoted"'}
        rare = {"supersedes": ["e0", "-"], "valid_at": "1969-12-31T23:59:59.999Z"}
        await at_work.fold(told("e1", payload=big, **rare), told("e2", crew=None, agent=None))
        hits = {hit.entry_id: hit for hit in (await at_work.recall()).hits}
        assert hits["e1"].payload == big
        assert (hits["e1"].supersedes, hits["e1"].valid_at) == (("e0", "-"), "1969-12-31T23:59:59.999Z")
        assert (hits["e2"].supersedes, hits["e2"].valid_at) == ((), None)
        assert (hits["e2"].agent_id, hits["e2"].crew_id, hits["e2"].payload) == (None, None, {})


async def test_a_collection_has_lines_within_the_budget_in_order_of_time(tmp_path):
    """Lists and totals need many entries: more than 50, the further ones as shorter lines, the oldest first, as fit."""
    async with recalling(tmp_path) as at_work:
        long = " ".join(["the parser broke on host", *[f"n{at}" for at in range(200)]])
        texts = [f"{long} and number {at} came back" for at in range(80)]
        await at_work.fold(
            *(told(f"e{at:02}", texts[at], ts_ms=EPOCH_MS - 1_000 * at, payload={"n": at}) for at in range(80))
        )
        answer = await at_work.recall(query="how many times did the parser break?", collect=True)
        assert 50 < len(answer.hits) <= 80
        assert [hit.ts for hit in answer.hits] == sorted(hit.ts for hit in answer.hits)
        assert all(len(hit.summary) <= 163 and "parser" in hit.summary and hit.payload == {} for hit in answer.hits)
        assert sorted(len(hit.summary) > 103 for hit in answer.hits) == [False] * (len(answer.hits) - 50) + [True] * 50
        few = await at_work.recall(query="how many times did the parser break?", collect=True, max_tokens=400)
        assert 0 < len(few.hits) <= 10
        assert {hit.entry_id for hit in few.hits} <= {hit.entry_id for hit in answer.hits}


async def test_an_unknown_name_is_an_error_that_lists_the_known_ones(tmp_path):
    async with recalling(tmp_path) as at_work:
        registered = control(AgentRegistered(agent_id="a9", crew_id="c9"), "reg", workspace="w1")
        await at_work.fold(told("e1"), entry("n1", entry_type="exec.output_chunk", agent="a2", crew="c2"), registered)
        for fields, kind, there in (
            ({"agent_id": "a7"}, "agent a7 in workspace w1", "agents that there are: a1, a2, a9"),
            ({"crew_id": "c7"}, "crew c7 in workspace w1", "crews that there are: c1, c2, c9"),
            ({"workspace_id": "w7", "agent_id": "a7"}, "workspace w7", "workspaces that there are: w1"),
        ):
            with pytest.raises(NotFound) as unknown:
                await at_work.recall(**fields)
            assert unknown.value.message == f"there is no {kind}"
            assert unknown.value.hint == there
        for fields in ({"agent_id": "a2"}, {"crew_id": "c9"}, {"agent_id": "a9"}):
            assert (await at_work.recall(**fields)).hits == (), "known, with nothing to recall"
        other = AGENT.model_copy(update={"agent_id": "new"})
        assert (await at_work.recall(other)).hits == (), "a token's own agent need not have an entry"


async def test_a_new_agent_is_answered_from_its_crew_and_crew_only_from_no_other(tmp_path):
    """The first session in a repository: a person named the crew, and the agent has recorded nothing yet."""
    async with recalling(tmp_path) as at_work:
        await at_work.fold(told("e1", entry_type="memory.remembered"))
        for scope in (None, "crew_shared"):
            answer = await at_work.recall(agent_id="new", crew_id="c1", scope=scope)
            assert [hit.entry_id for hit in answer.hits] == ["e1"]
        both = {"agent_id": "a1", "crew_id": "c2", "scope": "crew_shared"}
        await at_work.fold(told("e2", crew="c2"))
        assert set(await at_work.ids(**both)) == {"e1", "e2"}, "its own entries count in every crew"
        assert await at_work.ids(**both, crew_only=True) == ["e2"]
        first_there = {"agent_id": "new", "crew_id": "c7", "scope": "crew_shared", "crew_only": True}
        assert await at_work.ids(**first_there) == [], "not refused: other kinds of memory may answer"
        with pytest.raises(InvalidQuery, match="crew_only"):
            await at_work.recall(agent_id="a1", crew_only=True)
        for fields in ({"agent_id": "new", "crew_id": "c1", "scope": "own"}, {"agent_id": "new", "crew_id": "c7"}):
            with pytest.raises(NotFound):
                await at_work.recall(**fields)


async def test_commits_after_the_first_query_are_found_at_once(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(told("e1"))
        assert await at_work.ids() == ["e1"]
        for n in range(2, 20):
            seq = await at_work.fold(told(f"e{n}", ts_ms=EPOCH_MS + n))
            answer = await at_work.recall(min_seq=seq, k=1)
            assert [hit.entry_id for hit in answer.hits] == [f"e{n}"]
            assert answer.view_seq == seq


async def test_an_entry_dated_in_the_future_wins_ties_alone_and_has_no_age(tmp_path):
    """docs/recall.md: its time is what its author said; no score grows with it."""
    async with recalling(tmp_path) as at_work:
        ahead = EPOCH_MS + 400 * 86_400_000
        await at_work.fold(
            told("z-ahead", ts_ms=ahead),
            told("a-now"),
            told("better", summary="the parser broke, the parser broke again", ts_ms=EPOCH_MS - 1),
        )
        hits = (await at_work.recall(recipe="lexical")).hits
        by_id = {hit.entry_id: hit for hit in hits}
        assert by_id["z-ahead"].score == by_id["a-now"].score, "a tie"
        ids = [hit.entry_id for hit in hits]
        assert ids.index("z-ahead") < ids.index("a-now")
        assert ids[0] == max(hits, key=lambda hit: hit.score).entry_id
        assert (by_id["z-ahead"].age_seconds, by_id["a-now"].age_seconds) == (0.0, 60.0)


async def test_relative_dates_of_a_query_count_from_now_or_from_when_it_says_it_was_asked(tmp_path):
    """The service's now is the entry's day: today for "today", yesterday for who asked a day later."""

    async def days(query, **fields):
        answer = await at_work.recall(query=query, recipe="conversational", explain=True, **fields)
        return [hit.explain.shares.get("day") for hit in answer.hits]

    async with recalling(tmp_path) as at_work:
        await at_work.fold(told("e1", entry_type="peer.conversation", summary="the parser is slow"))
        today = datetime.fromtimestamp(EPOCH_MS / 1000, UTC)
        assert await days("parser today") == [3.0]
        assert await days("parser tomorrow") == [0.0]
        later = format_ts(today + timedelta(days=1))
        assert await days("parser yesterday", asked_at=later) == [3.0]
        assert await days("parser tomorrow", asked_at=later) == [0.0]
        assert await days("parser today", asked_at="unknown") == [None]


@pytest.mark.parametrize("asked_at", ["last week", "2026-11-21T10:00:00", "2026-02-30T10:00:00Z"])
def test_an_invalid_time_is_refused_naming_its_field(asked_at):
    with pytest.raises(InvalidQuery, match="asked_at: "):
        parse(RECALL, {"query": "parser today", "asked_at": asked_at})


async def test_a_query_during_commits_misses_nothing(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(told("e0"))

        async def write():
            for n in range(1, 30):
                await at_work.fold(told(f"e{n}"))

        async def ask():
            seen = 0
            while seen < 30:
                answer = await at_work.recall(k=50, recipe="lexical")
                assert len(answer.hits) == answer.view_seq
                seen = len(answer.hits)

        async with asyncio.timeout(120):
            await asyncio.gather(write(), ask())


async def test_min_seq_that_is_not_reached_says_how_far_the_views_are(tmp_path):
    async with recalling(tmp_path, min_seq_wait_s=0.05) as at_work:
        await at_work.fold(told("e1"))
        with pytest.raises(ViewsBehind, match="at 1"):
            await at_work.recall(min_seq=2)


async def test_two_workspaces_never_see_each_other(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(told("mine"), told("theirs", workspace="w2"))
        assert await at_work.ids(AGENT) == ["mine"]
        assert await at_work.ids(OWNER, workspace_id="w2") == ["theirs"]
        with pytest.raises(NotAllowed):
            await at_work.ids(AGENT, workspace_id="w2")
        await at_work.fold(told("mine2"), told("theirs2", workspace="w2"))
        assert set(await at_work.ids(AGENT)) == {"mine", "mine2"}
        assert set(await at_work.ids(OWNER, workspace_id="w2")) == {"theirs", "theirs2"}


async def test_crew_memory_is_ones_own_and_what_the_crew_escalates_or_pins(tmp_path):
    async with recalling(tmp_path) as at_work:
        pin = PriorityChanged(target_entry_id="pinned", previous_priority="normal", new_priority="pin", reason="r")
        await at_work.fold(
            told("own", crew=None),
            told("chat", agent="a2"),
            told("pinned", agent="a2"),
            told("raised", agent="a2", entry_type="peer.escalation"),
            told("foreign", agent="a3", crew="c2", entry_type="peer.escalation"),
            control(pin, "p1", workspace="w1"),
        )
        assert set(await at_work.ids(LEAD)) == {"own", "pinned", "raised"}
        assert set(await at_work.ids(LEAD, scope="own")) == {"own"}
        assert set(await at_work.ids(AGENT)) == {"own"}
        unpin = PriorityChanged(target_entry_id="pinned", previous_priority="pin", new_priority="normal", reason="r")
        await at_work.fold(control(unpin, "p2", workspace="w1"))
        assert set(await at_work.ids(LEAD)) == {"own", "raised"}
        assert set(load(at_work.store, "w1").documents.crews.names()) == {"c1", "c2"}


async def test_a_vector_is_found_once_its_fact_is_folded(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(MINI, told("e1", entry_type="peer.escalation"))
        assert await at_work.ids(query="zebra") == []
        await at_work.fold(vector("e1", entry_seq=2, model="mini"), vector("e1", entry_seq=2, model="other"))
        answer = await at_work.recall(query="zebra", recipe="dense")
        assert [hit.entry_id for hit in answer.hits] == ["e1"]
        assert -1 <= answer.hits[0].score <= 1


async def test_activating_another_model_changes_the_vectors(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(MINI, told("e1", entry_type="peer.escalation"), vector("e1", entry_seq=2, model="mini"))
        assert await at_work.ids(query="zebra", recipe="dense") == ["e1"]
        other = EmbeddingsActivated(model="other", embedder="ollama", dim=4)
        await at_work.fold(control(other, "n2", workspace="w1"))
        await at_work.service.settled()
        answer = await at_work.recall(query="zebra", recipe="dense", min_seq=at_work.seq)
        assert (answer.hits, answer.degraded, answer.model) == ((), "no-vectors", None)
        at_work.embedder.model_id = "other"
        await at_work.fold(vector("e1", entry_seq=2, model="other"))
        assert await at_work.ids(query="zebra", recipe="dense", min_seq=at_work.seq) == ["e1"]


@pytest.mark.parametrize("fault", ["fails", "hangs"])
async def test_without_the_model_hybrid_recall_goes_on_lexically_and_says_so(tmp_path, fault):
    async with recalling(tmp_path, embed_timeout_s=0.05) as at_work:
        await at_work.fold(MINI, told("e1", entry_type="peer.escalation"), vector("e1", entry_seq=2, model="mini"))
        setattr(at_work.embedder, fault, True)
        for recipe in ("robust", "rrf"):
            answer = await at_work.recall(recipe=recipe)
            assert [hit.entry_id for hit in answer.hits] == ["e1"]
            assert (answer.degraded, answer.model) == ("lexical-only", None)
        assert (await at_work.recall(recipe="dense")).hits == ()
        assert (await at_work.recall(recipe="lexical")).degraded is None


async def test_an_empty_workspace_answers_with_nothing(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(MINI)
        answer = await at_work.recall(OWNER.model_copy(update={"workspace_id": "nobody-there"}))
        assert (answer.hits, answer.view_seq) == ((), 1)


async def test_a_rebuilt_view_voids_the_index(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(told("e1"), told("e2"))
        assert len(await at_work.ids()) == 2
        await at_work.store.write(lambda con: con.execute("DELETE FROM journal_entries WHERE id = 'e2'"))
        at_work.store.invalidate()
        assert await at_work.ids() == ["e1"]


async def test_the_least_recently_used_workspace_is_dropped_first(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(*(told(f"e{n}", workspace=f"w{n}") for n in range(4)))
        hot = HotCache(at_work.store, 1)
        cache = EntryIndexes(hot)
        try:
            for n in (0, 1, 2, 1, 3):
                await cache.get(f"w{n}")
            assert len(hot.slots()) == 1
            hot.budget_bytes = 1 << 20
            for n in (0, 1, 2, 0, 3):
                await cache.get(f"w{n}")
            assert len(hot.slots()) == 4
            hot.budget_bytes = hot.nbytes // 2
            await cache.get("w9")
            kept = [slot.workspace_id for slot in hot.slots()]
            assert kept == ["w1", "w2", "w0", "w3", "w9"][-len(kept) :]
            assert 1 < len(kept) < 5
        finally:
            hot.close()


async def test_workspaces_without_entries_are_not_kept_without_bound(tmp_path, monkeypatch):
    """Each index that is kept is walked by every commit."""

    def token(n):
        return OWNER.model_copy(update={"workspace_id": f"empty-{n}"})

    monkeypatch.setattr("crew_journal.services.index.cache.EMPTY_KEPT", 3)
    async with recalling(tmp_path) as at_work:
        await at_work.fold(told("e1"))
        assert await at_work.ids() == ["e1"]
        for n in range(12):
            assert await at_work.ids(token(n)) == []
        slots = [slot.workspace_id for slot in at_work.service.cache.slots()]
        assert slots == ["w1", *(f"empty-{n}" for n in range(8, 12))]
        await at_work.fold(told("e2", workspace="empty-1"), told("e3", workspace="empty-11"))
        for n, entry_id in ((1, "e2"), (11, "e3")):
            assert await at_work.ids(token(n)) == [entry_id]


async def test_concurrent_queries_load_a_workspace_once(tmp_path, monkeypatch):
    loads = []

    def counted(views, workspace_id, record_bytes=0):
        loads.append(workspace_id)
        return load(views, workspace_id, record_bytes)

    monkeypatch.setattr("crew_journal.services.index.entry_slot.load", counted)
    async with recalling(tmp_path) as at_work:
        await at_work.fold(told("e1"))
        answers = await asyncio.gather(*(at_work.ids() for _ in range(8)))
    assert answers == [["e1"]] * 8
    assert loads == ["w1"]


def turns_of(index):
    """What the index holds of every document's turn and of its tokens in context."""
    every = np.arange(len(index))
    tokens = index.vectors.tokens if index.vectors is not None else TokenStore()
    runs = [(ragged, ragged.gather(every)) for ragged in (index.turns.pieces, index.turns.days, tokens.runs)]
    held = [(found.counts.tolist(), ragged.values[found.at].tolist()) for ragged, found in runs]
    first = [int(tokens.first_passage[doc]) if doc < len(tokens) else 0 for doc in every]
    return index.turns.flags.tolist(), index.turns.first_passage.tolist(), held, first, tokens.quantiser


def edges_of(index):
    return {doc: sorted(index.edges.neighbours(doc)) for doc in range(len(index))}


@settings(
    max_examples=max(3, settings.default.max_examples // 4), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(journals())
def test_an_index_that_followed_every_commit_equals_one_loaded_afterwards(tmp_path_factory, stream):
    async def run():
        async with node(tmp_path_factory.mktemp("v") / "views.duckdb", discover_projections()) as made:
            hot = HotCache(made.store, 1 << 26)
            cache = EntryIndexes(hot)
            for workspace in ("w1", "w2"):
                await cache.get(workspace)
            for first in range(0, len(stream), 3):
                await made.host.fold(stream[first : first + 3])
            for workspace in ("w1", "w2"):
                followed = await cache.get(workspace, made.store.view_seq("entries", "fulltext"))
                loaded = load(made.store, workspace, 1 << 23)
                assert followed.seq == loaded.seq
                assert followed.documents.words.tolist() == loaded.documents.words.tolist()
                assert followed.documents.flags.tolist() == loaded.documents.flags.tolist()
                assert followed.priorities == loaded.priorities
                standings = [[i.standings.of(doc) for doc in range(len(loaded))] for i in (followed, loaded)]
                assert standings[0] == standings[1]
                assert not loaded.stale
                followed = await cache.get(workspace, followed.needed_seq)  # a sweep's work is read beside
                every = np.arange(len(loaded))
                followed.importances.cover(len(loaded))
                assert followed.importances.of(every).tolist() == loaded.importances.of(every).tolist()
                assert edges_of(followed) == edges_of(loaded)
                assert turns_of(followed) == turns_of(loaded)
                assert followed.walk_depths == loaded.walk_depths
                for text in ("deployed größe 42", "日本語", "lorem word end"):
                    for scope in (RecallScope(ScopeKind.WORKSPACE), RecallScope(ScopeKind.CREW_SHARED, "a1", "c1")):
                        query = Query(text, ANALYZER.terms(text), None)
                        for recipe in (RECIPES["robust"], RECIPES["conversational"]):
                            one, two = (search(i, scope, query, recipe, 20) for i in (followed, loaded))
                            assert [(h.doc, h.score) for h in one] == [(h.doc, h.score) for h in two]
                            for hit in one:
                                assert followed.records.get(hit.doc) == loaded.records.get(hit.doc)
            hot.close()

    asyncio.run(run())


async def test_recalls_one_after_the_other_let_the_event_loop_run_in_between(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(MINI, told("e1"))
        await at_work.recall()  # loads the index and the query's vector: from now on nothing has to wait
        turns = []
        for number in range(3):
            asyncio.get_running_loop().call_soon(turns.append, number)
            await at_work.recall()
        assert turns[:2] == [0, 1]


async def test_without_a_vector_in_scope_dense_says_that_it_could_not_search(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(MINI, told("e1"))
        assert (await at_work.recall(recipe="dense")).degraded == "no-vectors"
        rendered = await RenderService(at_work.service).render(
            OWNER, RenderRequest(query="parser", recipe="dense", workspace_id="w1")
        )
        assert rendered.status == "unavailable"
        assert (await at_work.recall(recipe="lexical")).degraded is None


async def test_without_a_model_no_entry_is_said_to_get_a_vector(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(told("e1", entry_type="peer.escalation"))
        answer = await at_work.recall()
        assert (answer.without_vectors, answer.awaiting_vectors) == (1, None)
        await at_work.fold(MINI)
        await at_work.service.settled()
        assert (await at_work.recall()).awaiting_vectors == 1


async def test_a_reason_names_no_function_words_of_other_languages(tmp_path):
    async with recalling(tmp_path) as at_work:
        await at_work.fold(told("e1", "Umsatz und Gewinn sind gestiegen"), told("e2", "Regen und Wind"))
        hits = (await at_work.recall(query="Umsatz und Gewinn")).hits
        reasons = {hit.entry_id: hit.reason.partition(";")[0] for hit in hits}
        assert sorted(reasons["e1"].removeprefix("same words: ").split(", ")) == ["gewinn", "umsatz"]
        assert reasons["e2"] == "same words: und", "nothing else speaks for it"


async def test_a_query_is_about_the_person_whom_the_memory_calls_otherwise(tmp_path):
    """Stated ("Emi is what everybody calls Kate"), in the knowledge graph, misspelt and shortened; and in scope alone."""
    async with recalling(tmp_path) as at_work:
        note = {"entry_type": "memory.remembered", "actor_id": "user"}
        await at_work.fold(
            told("alias", "Emi is what everybody calls Kate", **note),
            told("nuts", "Emi cannot eat walnuts", **note),
            told("other", "the garage is rented until June", **note),
            told("trip", "Muhhamed: the ferry leaves at nine", actor_id="muhhamed", actor_type="user"),
            told("cat", "Melanie: my cat sleeps all day", actor_id="melanie", actor_type="user"),
            told("secret", "Zoe is what everybody calls Nina", agent="a2", crew="c2", **note),
            told("nina", "Zoe keeps bees", agent="a1", **note),
            control(
                EntityNamed(
                    entity=FactEntity(entity_id="van", name="Blitz"),
                    aliases=(FactEntity(entity_id="old", name="Rostlaube"),),
                ),
                "named",
                workspace="w1",
            ),
            told("tyres", "the Blitz has new tyres", **note),
        )
        own = {"agent_id": "a1", "scope": "own", "k": 2}
        for query, first in (
            ("Which foods make Kate ill?", "nuts"),
            ("Where is Muhammed?", "trip"),
            ("What does Mel own?", "cat"),
            ("In which state is the Rostlaube?", "tyres"),
        ):
            assert first in await at_work.ids(query=query, recipe="lexical", **own), query
        assert "nina" not in await at_work.ids(query="Where is Nina?", recipe="lexical", **own), "said elsewhere"
        assert "nina" in await at_work.ids(query="Where is Nina?", recipe="lexical", scope="workspace", k=9)
