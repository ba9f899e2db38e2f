"""What a typing error in a question costs the lexical arm, and how much of it recall gets back.

Each question of the development conversations gets one error, drawn by a seed, in its longest word: a letter left out, one
more, another one, or two swapped, never the first. ``../shared/data/locomo_dev`` is said plainly when absent.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.figures import Report, say
from bench.quality import LOCOMO, PROJECT
from bench.quality_index import ANALYZER, Asked, K, Set, index_of, lines_of, own, rankings, recorded
from crew_journal.schemas.text.analyzer import STOP_WORDS
from crew_journal.schemas.text.word_forms import PLAIN
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.recall.asking import Query, query_of
from crew_journal.services.recall.recipes import LEXICAL

SEED: Final = 7
_WORD: Final = re.compile(r"[A-Za-z]{5,}")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


async def run(quick: bool, folder: Path) -> Report:
    """All of it."""
    report = Report("typos", quick, {"seed": SEED})
    path = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data")) / LOCOMO
    if not path.exists():
        say(f"{path} is absent")
        return report
    events = recorded(lines_of(path / "journal.jsonl"), "typos")
    questions = [
        Asked(q["query"], own(q["agent_id"]), q["agent_id"], q["category"], frozenset(q["relevant_ids"]))
        for q in lines_of(path / "queries.jsonl")
    ]
    journal = Set(events, [None] * len(events), questions, [], {})
    index = index_of(journal)
    chance = random.Random(SEED)
    plain = [query_of(question.text, ANALYZER, None, None, None) for question in questions]
    wrong = [query_of(mistyped(question.text, chance), ANALYZER, None, None, None) for question in questions]
    exact = [replace(query, wording=PLAIN) for query in wrong]
    report.baseline("lexical, no typing errors", _recall(index, journal, plain), "recall@10")
    report.baseline("lexical, one typing error, exact words only", _recall(index, journal, exact), "recall@10")
    report.figure("lexical, one typing error", _recall(index, journal, wrong), "recall@10")
    return report


def mistyped(question: str, chance: random.Random) -> str:
    """The question with an error in its longest word that counts; unchanged if none has five letters."""
    words = [match for match in _WORD.finditer(question) if match[0].lower() not in STOP_WORDS]
    if not words:
        return question
    word = max(words, key=lambda match: len(match[0]))
    return question[: word.start()] + _with_error(word[0], chance) + question[word.end() :]


def _with_error(word: str, chance: random.Random) -> str:
    kind = chance.choice(("left out", "swapped", "another", "one more"))
    at = chance.randrange(1, len(word) - (kind == "swapped"))
    head, tail, letter = word[:at], word[at:], chance.choice(_LETTERS)
    return (
        head
        + {
            "left out": tail[1:],
            "swapped": tail[1:2] + tail[:1] + tail[2:],
            "another": letter + tail[1:],
            "one more": letter + tail,
        }[kind]
    )


def _recall(index: HotIndex, journal: Set, queries: Sequence[Query]) -> float:
    ranked = rankings(index, replace(journal, queries=queries), LEXICAL)
    return sum(len(question.relevant & set(question.ranked[:K])) / len(question.relevant) for question in ranked) / len(
        ranked
    )
