"""A kind of text that no family has, a ticket: a fold and a declaration, and its texts are embedded and recalled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from support import folded_journal
from support.cli import environment
from support.embedding import until
from support.memory_node import SWIFT_CHUNKS, WORKSPACE, Themes, memory_node
from support.tickets import ANSWERS, JAMS, TICKET, TicketsProjection

from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.models.missing_reactor import EmbedChunksReactor
from crew_journal.consumers.models.missing_rows import missing_texts
from crew_journal.schemas.texts import TEXT_KINDS
from crew_journal.services.journal.broker.broker import ManagedBroker

TESTS = Path(__file__).parents[1]
EMBEDDED = """SELECT item FROM ticket_texts JOIN memory_chunk_vectors USING (workspace_id, text_hash)
    WHERE dim > 0 ORDER BY item"""


class EmbedTicketsReactor(EmbedChunksReactor):
    """The reactor of texts, with one kind more."""

    filter_subjects = (*EmbedChunksReactor.filter_subjects, *TICKET.causes)
    needs = (*EmbedChunksReactor.needs, "tickets")
    kinds = (*TEXT_KINDS, TICKET)


async def test_texts_of_a_new_kind_are_asked_for_and_embedded_unless_they_are_hidden(
    broker: ManagedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folded_journal, "discover_projections", lambda: [*discover_projections(), TicketsProjection()])
    themes = Themes()
    async with memory_node(broker, themes, tmp_path) as live:
        await live.append("t1", "the disk is full", payload={"ticket": "T-1"})
        seq = await live.append("t2", "the queue is slow", payload={"ticket": "T-2", "closed": True})
        await live.caught_up(seq)
        kinds = EmbedTicketsReactor.kinds
        [missing] = missing_texts(live.store, WORKSPACE, themes.model_id, -1, kinds)
        assert (missing.text, missing.source_id) == (f"Ticket T-1\n{JAMS}the disk is full", "t1")
        await live.react(EmbedTicketsReactor, limits=SWIFT_CHUNKS)

        async def vectors() -> list[Any]:
            return live.store.rows(EMBEDDED)

        await until(vectors, "the vector of a ticket")
        assert await vectors() == [("T-1",)]
        await live.append("t3", "the queue is slow", payload={"ticket": "T-2"})

        async def both() -> bool:
            return await vectors() == [("T-1",), ("T-2",)]

        await until(both, "the vector of the ticket that was opened again")
        assert missing_texts(live.store, WORKSPACE, themes.model_id, -1, kinds) == []
        assert sorted(themes.asked) == [f"Ticket T-1\n{JAMS}the disk is full", f"Ticket T-2\n{JAMS}the queue is slow"]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a node with tickets answers; see ``support.tickets``."""
    folder = tmp_path_factory.mktemp("tickets")
    command = [sys.executable, "-m", "support.tickets", str(folder)]
    ended = subprocess.run(
        command, env=environment(PYTHONPATH=str(TESTS)), capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = orjson.loads((folder / ANSWERS).read_bytes())
    return said


def _tickets(answer: dict[str, Any]) -> set[str]:
    return {hit["text"]["item"] for hit in answer["hits"] if hit.get("kind") == "ticket"}


def test_recall_of_a_new_kind_finds_it_by_default_and_by_name_and_not_among_other_kinds(
    answers: dict[str, Any],
) -> None:
    assert _tickets(answers["ada"]) == _tickets(answers["tickets"]) == {"T-1", "T-2"}  # T-3 is closed
    assert answers["others"]["hits"] == []
    assert _tickets(answers["closed"]) == {"T-2"}


def test_recall_of_a_new_kind_hides_texts_of_other_agents_and_workspaces(answers: dict[str, Any]) -> None:
    assert _tickets(answers["eve of here"]) == {"T-1"}
    assert answers["ada of there"]["hits"] == []


def test_hits_of_a_new_kind_say_where_to_look_on_and_are_cited_in_receipt_and_block(answers: dict[str, Any]) -> None:
    hit = next(hit for hit in answers["tickets"]["hits"] if hit["text"]["item"] == "T-2")
    assert hit["text"] == {"item": "T-2", "owner": "a-ada", "place": "helpdesk", "label": "Ticket T-2"}
    assert (hit["summary"], hit["agent_id"]) == (f"{JAMS}Ada fed it with foil", "ada")
    shown = {(hit["kind"], hit["id"], hit["entry_id"]) for hit in answers["receipt"]["hits"]}
    assert shown == {("ticket", hit["text"]["item"], hit["entry_id"]) for hit in answers["tickets"]["hits"]}
    assert "[ticket T-2 • agent ada • " in answers["block"]["text"]
    assert "Ada fed it with foil" in answers["block"]["text"]
