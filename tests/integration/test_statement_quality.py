"""What statements call to mind, with MiniLM: sets of statements on which no constant was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.evidence_data import VEHICLE, situations
from bench.quality_index import Asked, K, Set, embedded_set, index_of, lines_of, own, recorded
from crew_journal.schemas.recall.questions import QueryKind
from crew_journal.services.cli.exam import recall_at
from crew_journal.services.recall.recipes import CONVERSATIONAL
from crew_journal.services.recall.search import search

pytestmark = pytest.mark.nightly

DATA = Path(__file__).resolve().parents[2] / "bench" / "data"
AGENT = "home"
SESSION = 10


def recall_of(journal: Set) -> float:
    """Recall@10 of ``conversational`` over the questions that something is relevant to."""
    index = index_of(journal)
    found: list[float] = []
    for question, query in zip(journal.questions, journal.queries, strict=True):
        if question.relevant:
            hits = search(index, question.scope, query, CONVERSATIONAL, K)
            found.append(recall_at([index.documents.id_of(hit.doc) for hit in hits], question.relevant, K))
    return sum(found) / len(found)


def as_questions(journal: Set) -> Set:
    """The same queries ranked as if they asked."""
    return replace(journal, queries=[replace(query, told=QueryKind.ASKS) for query in journal.queries])


async def statements() -> Set:
    """Lines of chat, and statements that share no word with the line that they should call to mind."""
    told = lines_of(DATA / "statements_heldout.jsonl")
    others = [row["memory"] for row in lines_of(DATA / "statements.jsonl")]
    chat = [line for line in (DATA / "everyday_chat.txt").read_text("utf-8").splitlines() if line.strip()]
    records = _turns([*chat[:30], *others, *(row["memory"] for row in told), *chat[30:]])
    id_of = {record["summary"]: record["id"] for record in records}
    asked = [
        Asked(row["statement"], own(AGENT), AGENT, "statement", frozenset({id_of[row["memory"].partition(": ")[2]]}))
        for row in told
    ]
    return await embedded_set(recorded(records, "statements"), asked)


def _turns(lines: Sequence[str]) -> list[dict[str, str]]:
    return [
        {
            "id": f"t{at:04d}",
            "entry_type": "peer.conversation",
            "actor_type": "user",
            "actor_id": line.partition(": ")[0],
            "agent_id": AGENT,
            "trace_id": f"s{at // SESSION}",
            "summary": line.partition(": ")[2],
        }
        for at, line in enumerate(lines)
    ]


async def test_statements_without_a_common_word_bring_up_their_line():
    journal = await statements()
    assert recall_of(journal) >= 0.45
    assert recall_of(journal) > recall_of(as_questions(journal))


@pytest.mark.skipif(not VEHICLE.is_dir(), reason="vehicle_dev is evaluation data beside the repository")
async def test_situations_as_statements_bring_up_more_than_as_questions():
    journal = await situations()
    assert recall_of(journal) >= 0.58
    assert recall_of(journal) > recall_of(as_questions(journal))
