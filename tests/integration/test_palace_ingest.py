"""The hot path of the palace: from turns to drawers, whatever is away and wherever it is killed."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from support.embedding import QUICK_TIMES, until
from support.flaky_publisher import Flaky
from support.memory_node import SWIFT_CHUNKS, WORKSPACE, MemoryNode, Themes

from crew_journal.consumers.models.missing_reactor import EmbedChunksReactor
from crew_journal.consumers.palace import exchange_filing as palace_filing
from crew_journal.consumers.palace.ingest_reactor import IngestLimits, PalaceIngestReactor
from crew_journal.schemas.access.events import WorkspaceConfigured
from crew_journal.schemas.core.timestamps import format_ms
from crew_journal.schemas.palace.events import CentroidComputed, DrawerDeleted, PalaceIngestAsked
from crew_journal.schemas.settings import Settings

TIMES = {name: value for name, value in QUICK_TIMES.items() if not name.startswith("retry")}
PATIENT = IngestLimits(**TIMES, stop_s=3.0)
HASTY = IngestLimits(**TIMES, stop_s=3.0, quiet_ms=50, clocks_differ_ms=0)
SHIPPED = "It worked! We finally shipped the importer, version 2, because the parser is fixed."


async def start(
    live: MemoryNode, limits: IngestLimits = PATIENT, publisher: Any = None, **settings: Any
) -> PalaceIngestReactor:
    return await live.react(
        PalaceIngestReactor, limits=limits, publisher=publisher or live.writer, settings=Settings(**settings)
    )


async def choose(live: MemoryNode, *, files: bool = True) -> None:
    payload = WorkspaceConfigured(settings={"palace_ingest": files})
    done = await live.journal.record(WORKSPACE, payload, summary="chosen")
    await live.caught_up(done.seq)


async def say(live: MemoryNode, entry_id: str, text: str, session: str = "s1", **payload: str) -> None:
    user = entry_id.startswith("u")
    await live.append(
        entry_id,
        text[:2_000],
        "chat.user_message" if user else "chat.agent_response",
        trace_id=session,
        agent_id="ada",
        payload={**({"text": text} if len(text) > 2_000 else {}), **payload},
    )


def drawers(live: MemoryNode) -> list[tuple[Any, ...]]:
    return live.store.rows(
        "SELECT content, memory_type, room, state FROM drawers WHERE until_seq IS NULL ORDER BY since_seq"
    )


async def until_filed(live: MemoryNode, count: int) -> list[tuple[Any, ...]]:
    async def enough() -> object:
        return len(drawers(live)) >= count

    await until(enough, f"{count} drawers")
    return drawers(live)


async def until_counted(reactor: PalaceIngestReactor, **wanted: int) -> None:
    async def counted() -> object:
        counts = (await reactor.status()).counts
        return all(counts[name] >= least for name, least in wanted.items()) or counts

    async def reached() -> object:
        return await counted() is True

    await until(reached, str(wanted))


async def until_settled(reactor: PalaceIngestReactor) -> None:
    async def settled() -> object:
        status = await reactor.status()
        return status.state == "running" and not status.pending

    await until(settled, "every message to be settled")


async def consumer(live: MemoryNode) -> Any:
    return await live.client.jetstream().consumer_info("JOURNAL", "palace-ingest-v1")


async def test_an_exchange_is_filed_once_the_next_begins_without_its_noise(live: MemoryNode) -> None:
    await choose(live)
    reactor = await start(live)
    await say(live, "u1", SHIPPED)
    await say(live, "a1", "ok")
    await say(live, "a2", "Passed on to the tester.", kind="delegation")
    await say(live, "a3", "Congratulations, that was a long way.")
    await say(live, "u2", "thanks!")
    await say(live, "u3", "and now the documentation of it")
    [(content, kind, room, state)] = await until_filed(live, 1)
    assert content == f"User: {SHIPPED}\n\nAgent: Congratulations, that was a long way."
    assert (kind, room, state) == ("milestone", "milestones", "processed")
    await until_counted(reactor, completed=2, noise=1)
    [fact] = live.entries("drawer.filed")
    [(refs,)] = live.store.rows("SELECT refs FROM journal_entries WHERE id = ?", [fact["_id"]])
    assert '"source_entry_ids":["u1","a1","a2","a3"]' in refs.replace(" ", "")
    assert live.store.rows("SELECT octet_length(vector) FROM memory_chunk_vectors") == [(16,)]


async def test_silence_ends_an_exchange_and_a_late_answer_is_one_of_its_own_with_its_question(
    live: MemoryNode,
) -> None:
    await choose(live)
    reactor = await start(live, replace(HASTY, quiet_ms=1))
    await say(live, "u1", "the token of the importer expired")
    live.advance(seconds=600)
    assert (await until_filed(live, 1))[0][0].startswith("User: the token")
    await say(live, "u2", "what is on the disk of the importer?")
    live.advance(seconds=600)
    await until_counted(reactor, noise=1)
    await say(live, "a1", "a queue of unread files from last week")
    live.advance(seconds=600)
    question, answer = "User: what is on the disk of the importer?", "Agent: a queue of unread files from last week"
    assert (await until_filed(live, 2))[1][0] == f"{question}\n\n{answer}"


async def test_a_short_answer_of_the_user_is_filed_with_the_question_of_the_agent(live: MemoryNode) -> None:
    await choose(live)
    await start(live)
    await say(live, "u1", "the queue has to be emptied once a week")
    await say(live, "a1", "Shall I do that on Tuesday?")
    await say(live, "u2", "yes")
    await say(live, "u3", "the disk of the importer is full")
    [(content, *_)] = await until_filed(live, 1)
    assert content.split("\n\n")[1:] == ["Agent: Shall I do that on Tuesday?", "User: yes"]


async def test_a_text_with_another_day_is_filed_however_near_its_vector_is(live: MemoryNode) -> None:
    await choose(live)
    reactor = await start(live, HASTY)
    await say(live, "u1", "the disk is emptied on Thursday")
    await say(live, "u2", "emptying the disk changes from Thursday to Tuesday")
    await say(live, "u3", "the disk is emptied on thursday")
    live.advance(seconds=600)
    await until_counted(reactor, completed=3, duplicates=1)
    assert [row[0] for row in await until_filed(live, 2)] == [
        "User: the disk is emptied on Thursday",
        "User: emptying the disk changes from Thursday to Tuesday",
    ]


async def test_a_drawer_has_the_time_at_which_its_exchange_was_held(live: MemoryNode) -> None:
    await choose(live)
    await start(live, HASTY)
    said: dict[str, Any] = {"agent_id": "ada", "trace_id": "s1", "ts": "2026-01-05T10:00:00Z"}
    await live.append("u1", "the disk of the importer is full", "chat.user_message", **said)
    live.advance(seconds=600)
    await until_filed(live, 1)
    [(filed_ms,)] = live.store.rows("SELECT filed_ms FROM drawers")
    assert format_ms(filed_ms).startswith("2026-01-05T10:00:00")


async def test_what_is_alike_is_filed_once_and_again_after_it_was_deleted(live: MemoryNode) -> None:
    await choose(live)
    reactor = await start(live)
    await say(live, "u1", "the disk of the importer is full")
    await say(live, "u2", "the disk of our importer is full")
    await say(live, "u3", "that was all of it for the night")
    await until_counted(reactor, completed=2, duplicates=1)
    assert len(await until_filed(live, 1)) == 1
    [(name,)] = live.store.rows("SELECT drawer_id FROM drawers")
    done = await live.journal.record(WORKSPACE, DrawerDeleted(drawer_id=name), summary="gone")
    await live.caught_up(done.seq)
    await say(live, "u4", "the disk of the importer is full")
    await say(live, "u5", "and that was all of it for today")
    assert any("disk of the importer" in row[0] for row in await until_filed(live, 2))


async def test_where_the_words_are_not_certain_the_nearest_centroid_decides_the_type(live: MemoryNode) -> None:
    await choose(live)
    [vector] = await live.embedder.embed_documents(["disk disk disk disk"])
    payload = CentroidComputed(
        memory_type="task", model="themes", vector=b64encode(vector).decode(), samples=50, source_hash="0" * 64
    )
    done = await live.journal.record(WORKSPACE, payload, summary="centroid")
    await live.caught_up(done.seq)
    await start(live, heuristic_high="0.8", heuristic_low="0")
    await say(live, "u1", "one disk and another disk of the importer")
    await say(live, "u2", "a queue of files and a queue of tokens")
    await say(live, "u3", "that is all of it")
    decided = {(kind, room, state) for _, kind, room, state in await until_filed(live, 2)}
    assert decided == {("task", "tasks", "processed"), ("fact", "facts", "raw")}
    assert live.store.rows("SELECT pipeline_tier FROM drawers WHERE room = 'tasks'") == [("centroid",)]


async def test_a_workspace_files_nothing_unless_it_chose_to_and_then_what_was_said_before_on_demand(
    live: MemoryNode,
) -> None:
    reactor = await start(live, HASTY)
    await say(live, "u1", "the disk of the importer is full")
    await say(live, "u2", "a token of the parser expired")
    await until_settled(reactor)
    assert (await consumer(live)).delivered.consumer_seq == 0
    assert drawers(live) == []
    live.advance(seconds=600)
    for _ in range(2):
        await live.journal.record(WORKSPACE, PalaceIngestAsked(), summary="ingest")
        assert len(await until_filed(live, 2)) == 2
    await until_counted(reactor, completed=4)
    assert len(live.entries("drawer.filed")) == 2


async def test_what_a_full_palace_puts_off_is_filed_on_demand(
    live: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await choose(live)
    reactor = await start(live, HASTY)
    monkeypatch.setattr(palace_filing, "MOST_DRAWERS", 1)
    await say(live, "u1", "the disk of the importer is full")
    await say(live, "u2", "a token of the parser expired")
    live.advance(seconds=600)
    await until_counted(reactor, put_off=1)
    monkeypatch.setattr(palace_filing, "MOST_DRAWERS", 2)
    await live.journal.record(WORKSPACE, PalaceIngestAsked(), summary="ingest")
    await until_filed(live, 2)


async def test_without_a_model_drawers_are_filed_and_embedded_later(live: MemoryNode, themes: Themes) -> None:
    await choose(live)
    themes.down = True
    reactor = await start(live, HASTY)
    await say(live, "u1", "the disk of the importer is full")
    live.advance(seconds=600)
    await until_counted(reactor, without_vector=1)
    themes.down = False
    await live.react(EmbedChunksReactor, limits=SWIFT_CHUNKS)

    async def embedded() -> object:
        return live.store.rows("SELECT count(*) FROM memory_chunk_vectors WHERE dim > 0") == [(1,)]

    await until(embedded, "the vector")


async def test_wherever_it_is_killed_every_chunk_is_filed_once_and_none_is_cut(live: MemoryNode) -> None:
    await choose(live)
    themes = ("disk ", "queue ", "token ")
    said = "".join(f"{theme * 9}number {n} of the list. " for theme in themes for n in range(12))
    for n, text in enumerate((said, "a queue of files", "that is all of it")):
        await say(live, f"u{n}", text)
    live.advance(seconds=600)
    for published in range(6):
        flaky = Flaky(live)
        flaky.left = published
        reactor = await start(live, HASTY, flaky)

        async def stuck_or_done(reactor: PalaceIngestReactor = reactor) -> object:
            status = await reactor.status()
            return (status.state == "waiting" and status.last_error) or not status.pending

        await until(stuck_or_done, "the reactor to get stuck or finish")
        await reactor.stop()
    await start(live, HASTY)

    async def settled() -> object:
        return (await live.reactors[-1].status()).pending == 0

    await until(settled, "every turn to be settled")
    await live.caught_up(await live.append("last", "the last of it"))
    filed = [entry["drawer_id"] for entry in live.entries("drawer.filed")]
    assert len(filed) == len(set(filed)) >= 3
    pieces = [row[0] for row in drawers(live)]
    assert all(len(one) <= 800 for one in pieces)
    assert all(any(sentence in one for one in pieces) for sentence in (f"number {n} of the list." for n in range(12)))


async def test_turns_after_the_choice_are_filed_even_if_the_broker_passed_over_them_before(live: MemoryNode) -> None:
    await say(live, "u0", "a token of the parser expired", session="s0")
    reactor = await start(live, HASTY)
    await until_settled(reactor)
    await reactor.stop()
    await choose(live)  # nobody follows the choice, so the filters leave out what comes
    await say(live, "u1", "the disk of the importer is full")
    await live.append("n1", "a note", "peer.conversation")
    reactor = await start(live, HASTY)
    live.advance(seconds=600)
    assert [row[0] for row in await until_filed(live, 1)] == ["User: the disk of the importer is full"]
    await say(live, "u2", "a queue of unread files from last week")
    live.advance(seconds=600)
    assert len(await until_filed(live, 2)) == 2


async def test_turns_between_a_choice_and_the_change_of_the_filters_are_filed_once_they_have_ended(
    live: MemoryNode,
) -> None:
    reactor = await start(live, replace(HASTY, quiet_ms=3_000))
    await until_settled(reactor)
    await say(live, "u1", "a token of the parser expired", session="s0")
    payload = WorkspaceConfigured(settings={"palace_ingest": True})
    await live.journal.record(WORKSPACE, payload, summary="chosen")
    for name in ("u2", "a2"):
        await say(live, name, f"the disk of {name} is full")
    live.advance(seconds=600)
    [(content, *_)] = await until_filed(live, 1)
    assert content == "User: the disk of u2 is full\n\nAgent: the disk of a2 is full"


async def test_a_workspace_that_files_no_longer_is_left_out_and_followed_again_after_its_next_choice(
    live: MemoryNode,
) -> None:
    await choose(live)
    reactor = await start(live, HASTY)
    await say(live, "u1", "the disk of the importer is full")
    live.advance(seconds=600)
    await until_filed(live, 1)
    await choose(live, files=False)
    await until_settled(reactor)
    before = (await consumer(live)).delivered.consumer_seq
    await say(live, "u2", "a token of the parser expired", session="s2")
    await until_settled(reactor)
    assert (await consumer(live)).delivered.consumer_seq == before
    await choose(live)
    await say(live, "u3", "a queue of unread files from last week")
    live.advance(seconds=600)
    assert [row[0] for row in await until_filed(live, 2)][1] == "User: a queue of unread files from last week"
