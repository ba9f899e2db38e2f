"""What a typing error in a question costs the lexical arm, and another form of a name every arm; what recall gets back.

Each question of the development conversations gets one error, drawn by a seed, in its longest word: a letter left out, one
more, another one, or two swapped, never the first. Then the speakers' names are misspelt, cut to their first half, or
replaced by a name that one turn states to be theirs. ``../shared/data/locomo_dev`` is said plainly when absent.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Final

from bench.evaluations import returned
from bench.evidence_data import record_of
from bench.figures import Report, say
from bench.quality import LOCOMO, PROJECT
from bench.quality_index import ANALYZER, Asked, K, Set, embedded_set, index_of, lines_of, own, rankings, recorded
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.text.analyzer import STOP_WORDS
from crew_journal.schemas.text.names import LEAST_MISSPELT, LEAST_SHORTENED, LEAST_TWICE
from crew_journal.schemas.text.word_forms import PLAIN
from crew_journal.services.cli.exam import cluster_bootstrap, recall_at
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.recall.asking import Query, query_of
from crew_journal.services.recall.naming import NamedQuery, unknown_names, with_known_names
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
    if not quick:
        for name, form in FORMS.items():
            await _with_names(report, path, questions, name, form)
    return report


OTHER_NAMES: Final = ("Tazu", "Wendolo", "Pikka", "Odrun", "Vexa", "Kirbo")
STATED: Final = (
    "{other} is what everybody calls {name}.",
    "Everybody calls {name} {other}.",
    "{name} goes by {other}.",
)
Form = Callable[[str, random.Random], str]
FORMS: Final[Mapping[str, Form | None]] = {
    "one letter wrong": lambda name, chance: _with_error(name, chance) if len(name) >= LEAST_MISSPELT else name,
    "two letters wrong": lambda name, chance: (
        _with_error(_with_error(name, chance), chance) if len(name) >= LEAST_TWICE else name
    ),
    "first half": lambda name, _: name[: max(LEAST_SHORTENED, len(name) // 2)],
    "another name, stated once": None,
}
"""What takes the place of a speaker's name; None for one that a turn states."""


async def _with_names(report: Report, path: Path, questions: Sequence[Asked], name: str, form: Form | None) -> None:
    """Recall by default with names in another form, as asked and with the names that the memory has."""
    records, chance = lines_of(path / "journal.jsonl"), random.Random(SEED)
    others: dict[str, str] = {}
    for record in [*records]:
        speaker = str(record["actor_id"])
        if speaker not in others:
            at = len(others)
            others[speaker] = OTHER_NAMES[at % len(OTHER_NAMES)]
            text = STATED[at % len(STATED)].format(name=speaker, other=others[speaker])
            stated = {**record, "id": f"stated-{at}", "actor_id": "guest", "trace_id": "stated", "summary": text}
            records = records if form else [stated, *records]

    def renamed(match: re.Match[str]) -> str:
        return others[match[0]] if form is None else form(match[0], chance)

    speakers = re.compile(rf"\b(?:{'|'.join(others)})\b")
    texts = [speakers.sub(renamed, question.text) for question in questions]
    events = recorded(records, "names")
    index = index_of(await embedded_set(events, []))
    called = [_called(index, events, question, text) for question, text in zip(questions, texts, strict=True)]
    recalls = []
    for asked in (texts, [query.text for query in called]):
        asking = [replace(question, text=text) for question, text in zip(questions, asked, strict=True)]
        journal = await embedded_set(events, asking)
        ids = [
            returned(index, journal, question, query, "search", K)
            for question, query in zip(asking, journal.queries, strict=True)
        ]
        recalls.append([recall_at(found, question.relevant, K) for found, question in zip(ids, asking, strict=True)])
    gains = [after - before for before, after in zip(*recalls, strict=True)]
    interval = cluster_bootstrap(gains, [str(at) for at in range(len(gains))])
    assert interval is not None
    report.baseline(f"names, {name}, as asked", fmean(recalls[0]), "recall@10")
    note = f"gain {interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
    report.figure(f"names, {name}", fmean(recalls[1]), "recall@10", None, note)


def _called(index: HotIndex, events: Sequence[EntryRecorded], question: Asked, text: str) -> NamedQuery:
    scoped = index.scoped(question.scope)
    names = unknown_names(index, scoped, text, ANALYZER)
    stating = {doc: record_of(events[doc]) for name in names for doc in name.stating}
    return with_known_names(index, scoped, text, names, stating, {}, ANALYZER)


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
