"""What late interaction brings up by itself where the other arms leave room, by its floor: unrelated and related questions.

Why: ``alone_floor`` of the conversational recipes is a trade between turns that answer in other words and turns that answer
nothing. Sets: the questions about the sample journal put to our own chat, the chat's lines put to the sample journal's
turns, and questions of our own (``data/chat_paraphrases.jsonl``) that mean a line of the chat in other words.

Invariant: no vectors take part, as ``chat.*`` entries have none; only turns that this arm alone brought up are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from bench.figures import Report
from bench.quality_index import ANALYZER, K, Set, index_of, lines_of, recorded
from crew_journal.consumers.adapters.minilm_weights import ensure_static_table, install_minilm
from crew_journal.schemas.catalogue import info_of
from crew_journal.schemas.settings import Settings
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.index.vectors import Words
from crew_journal.services.recall.asking import query_of
from crew_journal.services.recall.recipes import CONVERSATIONAL, Recipe
from crew_journal.services.recall.search import search

DATA: Final = Path(__file__).parent / "data"
CHAT: Final = DATA / "everyday_chat.txt"
PARAPHRASES: Final = DATA / "chat_paraphrases.jsonl"
FLOORS: Final = (0.15, 0.2, 0.25, 0.3)
NEVER: Final = 2.0
"""A floor that no value reaches: late interaction brings nothing up."""
EVERYTHING: Final = RecallScope(ScopeKind.WORKSPACE)


def chat_records() -> list[dict[str, object]]:
    """The lines of our own chat as turns; the n-th has the id ``chat-<n>``."""
    records: list[dict[str, object]] = []
    for number, line in enumerate(CHAT.read_text("utf-8").splitlines(), 1):
        name, _, text = line.partition(": ")
        kind = "chat.agent_response" if name == "Assistant" else "chat.user_message"
        speaker = {"actor_type": "agent" if name == "Assistant" else "user", "actor_id": name}
        records.append({"id": f"chat-{number}", "entry_type": kind, "summary": text, "agent_id": "chat", **speaker})
    return records


def figures(report: Report, sample: Sequence[dict[str, object]], questions: Sequence[str]) -> None:
    """How many questions bring up a turn, at each floor.

    Args:
        report: Takes the figures.
        sample: The sample journal.
        questions: Questions about it.
    """
    cache = Settings().models_dir
    install_minilm(cache)
    table = ensure_static_table(cache)
    assert table is not None
    words = table.view(np.uint64)
    chat = chat_records()
    turns = [record for record in sample if info_of(str(record["entry_type"])).conversation]
    related = lines_of(PARAPHRASES)
    lines = [str(record["summary"]) for record in chat]
    for floor in FLOORS:
        ours = _brought_up(chat, questions, words, floor)
        line_hits = _brought_up(turns, lines, words, floor)
        prompt_hits = _brought_up(chat, [str(prompt["query"]) for prompt in related], words, floor)
        right = sum(f"chat-{prompt['line']}" in ids for prompt, ids in zip(related, prompt_hits, strict=True))
        chosen = CONVERSATIONAL.turns
        note = "the floor as it stands" if chosen is not None and chosen.alone_floor == floor else ""
        name = f"late interaction alone, floor {floor:g}"
        report.figure(
            f"{name}: the journal's questions to the chat", sum(map(bool, ours)), f"of {len(ours)}", None, note
        )
        report.figure(
            f"{name}: the chat's lines to the journal", sum(map(bool, line_hits)), f"of {len(line_hits)}", None, note
        )
        report.figure(f"{name}: paraphrases that find their line", right, f"of {len(prompt_hits)}", None, note)


def _with_floor(floor: float) -> Recipe:
    turns = CONVERSATIONAL.turns
    assert turns is not None
    return replace(CONVERSATIONAL, turns=replace(turns, alone_floor=floor))


def _brought_up(
    records: Sequence[dict[str, object]], questions: Sequence[str], words: Words, floor: float
) -> list[set[str]]:
    """Of each question the turns among the best ten that only late interaction by itself brought up."""
    events = recorded(records, "floor")
    index = index_of(Set(events, [None] * len(events), [], [], {}))
    answers = []
    for text in questions:
        query = query_of(text, ANALYZER, None, None, words)
        with_it, without = (
            {index.documents.id_of(hit.doc) for hit in search(index, EVERYTHING, query, _with_floor(floor_), K)}
            for floor_ in (floor, NEVER)
        )
        answers.append(with_it - without)
    return answers
