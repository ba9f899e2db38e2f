"""How well recall finds on every set at hand, beside simpler ways to search: a table that others can repeat.

    python -m bench.evaluations [FOLDER ...] [--ways default,robust,…] [--json]

A set is a folder with ``journal.jsonl`` and ``queries.jsonl`` (docs/cli.md, ``eval``). Without one, those of
``../shared/data`` are read; nothing is fetched, and a set that is absent is said to be. Texts are stored as they are, and no
language model takes part. Beyond the fields of ``eval``, a question has ``asked_at``, ``before``, the id of the entry before
which it is asked, so that only earlier ones are stored; ``relevant_traces``, the sessions that answer it.

Invariant: every way is measured in the same run, on the same entries and questions, with the same vectors.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
import uvloop

from bench.evidence_data import SHARED, record_of
from bench.figures import Report, say
from bench.quality_index import ANALYZER, Asked, Set, embedded_set, growing, lines_of, own, recorded
from crew_journal.schemas.core.limits import COLLECTED_MOST
from crew_journal.schemas.core.timestamps import DAY_MS, parse_ts, to_ms
from crew_journal.schemas.recall.operations import INJECT, Mode
from crew_journal.services.cli.exam import Interval, cluster_bootstrap, recall_at, session_recall_at
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.recall.asking import Query
from crew_journal.services.recall.calibration import known_calibration
from crew_journal.services.recall.evidence import judged, names_in
from crew_journal.services.recall.kinds import line_chars
from crew_journal.services.recall.recipes import RECIPES, Recipe, default_recipe
from crew_journal.services.recall.search import search, searched

SETS: Final = (
    "locomo_dev",
    "lifebench_dev",
    "lifebench_zh_dev",
    "realmem_dev",
    "vehicle_dev",
    "beam_dev",
    "realtalk_dev",
    "own/everyday_dev",
    "own/updates_dev",
)
"""Folders of ``../shared/data`` that are measured where they are present."""
ASKED_AT: Final = {"lifebench_dev": "2025-12-31T23:00:00Z", "lifebench_zh_dev": "2025-12-31T23:00:00Z"}
"""When the questions of a set are asked, if they do not say so themselves."""
DEFAULT: Final = "default"
FTS5: Final = "fts5"
WAYS: Final = (FTS5, "lexical", "dense", "robust", "conversational", DEFAULT)
"""SQLite's full-text search (porter stems, any word), recipes, and what recall does without a recipe, evidence included."""
K: Final = 10
SHALLOW: Final = 5
IN_PROMPT: Final = 5
"""Hits of a prompt."""
DEEP: Final = 50
TOKENS: Final = 4_000
"""Budget within which many entries answer together."""
CHARS: Final = 4
"""Characters of a token; of a script without spaces, about one."""
_WORD: Final = re.compile(r"\w+")
_SPACELESS: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")


@dataclass(frozen=True, slots=True)
class Answered:
    """What one way found for a question.

    Attributes:
        ranked: Ids, best first, at least ``DEEP`` if so many were found.
        injected: Those that a prompt gets; None if that was not measured.
        collected: Those of a collection, best first; None if that is ``ranked``.
    """

    ranked: Sequence[str]
    injected: Sequence[str] | None = None
    collected: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A set, and what each way found.

    Attributes:
        name: Of the folder.
        journal: The set.
        answers: Way → one for each question.
        texts: Entry id → its text.
    """

    name: str
    journal: Set
    answers: Mapping[str, Sequence[Answered]]
    texts: Mapping[str, str]

    def values(self, way: str, of: Callable[[Asked, Answered], float | None]) -> list[float | None]:
        """A value for each question; None where it has none."""
        return [
            of(question, answer) for question, answer in zip(self.journal.questions, self.answers[way], strict=True)
        ]


async def run(quick: bool, folder: Path) -> Report:
    """Every set at hand; ``quick`` measures the notes alone."""
    del folder  # nothing is written
    report = Report("evaluations", quick)
    for path in present([SHARED / name for name in SETS[-2:]] if quick else []):
        measured = await measure(path)
        for way in WAYS:
            for name, value, note in figures(measured, way):
                add = report.figure if way == DEFAULT else report.baseline
                add(f"{measured.name}: {way}", value, name, note=note)
    return report


def present(paths: Sequence[Path]) -> list[Path]:
    """The folders that hold a set; those of ``../shared/data`` if none is named."""
    held = []
    for path in paths or [SHARED / name for name in SETS]:
        if (path / "queries.jsonl").is_file():
            held.append(path)
        else:
            say(f"{path} is absent: left out")
    return held


async def load(path: Path) -> Set:
    """A set with all its vectors."""
    records, rows = lines_of(path / "journal.jsonl"), lines_of(path / "queries.jsonl")
    rows = [row for row in rows if row["relevant_ids"] or "why_silent" in row]
    place = {record["id"]: at for at, record in enumerate(records)}
    asked_at = ASKED_AT.get(path.name)
    questions = []
    for row in rows:
        before = place.get(row.get("before", ""))
        at = row.get("asked_at", asked_at) if before is None else records[before]["ts"]
        day = None if at is None else to_ms(parse_ts(at)) // DAY_MS
        relevant = frozenset(row["relevant_ids"])
        questions.append(
            Asked(row["query"], own(row["agent_id"]), row["agent_id"], row["category"], relevant, day, before)
        )
    return await embedded_set(recorded(records, path.name), questions)


async def measure(path: Path, ways: Sequence[str] = WAYS, *, injects: bool = True) -> Measured:
    """Ask every question of a set in every way."""
    journal = await load(path)
    texts = {event.entry.id: event.entry.summary for event in journal.events}
    answers: dict[str, list[Answered]] = {way: [Answered(())] * len(journal.questions) for way in ways}
    asks_words = full_text(journal) if FTS5 in ways else None
    for index, at in growing(journal):
        question, query = journal.questions[at], journal.queries[at]
        for way in ways:
            if way == FTS5:
                assert asks_words is not None
                answers[way][at] = Answered(asks_words(question))
            elif way == DEFAULT:
                injected = returned(index, journal, question, query, INJECT, IN_PROMPT) if injects else None
                ranked = returned(index, journal, question, query, "search", DEEP)
                gathered = returned(index, journal, question, query, "search", COLLECTED_MOST)
                answers[way][at] = Answered(ranked, injected, gathered)
            else:
                hits = search(index, question.scope, query, RECIPES[way], DEEP)
                answers[way][at] = Answered([index.documents.id_of(hit.doc) for hit in hits])
    return Measured(path.name, journal, answers, texts)


def returned(index: HotIndex, journal: Set, question: Asked, query: Query, mode: Mode, k: int) -> list[str]:
    """Ids of what recall returns without a recipe: the hits that have evidence."""
    found = searched(index, question.scope, query, chosen_recipe(index, question), k)
    records = [record_of(journal.events[hit.doc]) for hit in found.hits]
    names = names_in(query, [record.payload for record in records], ANALYZER)
    kept = judged(index, query, found, records, names, known_calibration(index.model), None, mode).kept
    return [records[place].entry_id for place in kept]


def chosen_recipe(index: HotIndex, question: Asked) -> Recipe:
    """The recipe that recall chooses."""
    return default_recipe(index.scoped(question.scope).turn_count)


def full_text(journal: Set) -> Callable[[Asked], list[str]]:
    """Asks SQLite's FTS5, any word of the question, within the agent's entries."""
    file = sqlite3.connect(":memory:")
    file.execute("CREATE VIRTUAL TABLE texts USING fts5(text, agent UNINDEXED, tokenize='porter unicode61')")
    rows = [(at, _spaced(event.entry.summary), event.entry.agent_id) for at, event in enumerate(journal.events)]
    file.executemany("INSERT INTO texts (rowid, text, agent) VALUES (?, ?, ?)", rows)

    def ask(question: Asked) -> list[str]:
        words = dict.fromkeys(_WORD.findall(_spaced(question.text).lower()))
        matched = " OR ".join(f'"{word}"' for word in words)
        before = len(journal.events) if question.before is None else question.before
        sql = f"SELECT rowid FROM texts WHERE texts MATCH ? AND agent = ? AND rowid < ? ORDER BY rank LIMIT {DEEP}"
        found = file.execute(sql, (matched, question.scope.agent_id, before)) if matched else ()
        return [journal.events[at].entry.id for (at,) in found]

    return ask


def _spaced(text: str) -> str:
    """A text with a space around each sign of a script without spaces, as FTS5 has no words of it otherwise."""
    return _SPACELESS.sub(lambda sign: f" {sign[0]} ", text)


def tokens_of_text(text: str) -> float:
    """Tokens of a text, estimated."""
    signs = len(_SPACELESS.findall(text))
    return signs + (len(text) - signs) / CHARS


def within(texts: Mapping[str, str], ranked: Iterable[str]) -> Iterator[str]:
    """The first hits that fit into ``TOKENS`` as lines of a collection."""
    used = 0.0
    for place, name in enumerate(ranked):
        used += tokens_of_text(texts[name][: line_chars(place)])
        if used > TOKENS:
            return
        yield name


MANY: Final = 4
"""Relevant entries from which a question needs a collection."""


def figures(measured: Measured, way: str) -> Iterator[tuple[str, float, str]]:
    """Name, value and note of each figure of one way."""
    journal = measured.journal
    clusters = _clusters(journal)

    recalls = measured.values(way, _at_k)
    interval = _interval(recalls, clusters)
    note = "" if interval is None else f"95 % [{interval.low:.3f}, {interval.high:.3f}]"
    yield f"recall@{K}", _mean(recalls), note
    for name, of in _FIGURES.items():
        value = _mean(measured.values(way, of))
        if not np.isnan(value):
            yield name, value, ""
    sessions = measured.values(way, lambda question, answer: _of_sessions(journal, question, answer))
    yield f"sessions@{SHALLOW}", _mean(sessions), ""
    collected = measured.values(way, lambda question, answer: _collected(measured.texts, question, answer))
    if any(value is not None for value in collected):
        yield "collected", _mean(collected), f"of {sum(value is not None for value in collected)} questions"


def _of_sessions(journal: Set, question: Asked, answer: Answered) -> float | None:
    if not question.relevant:
        return None
    return session_recall_at(answer.ranked, question.relevant, journal.sessions, SHALLOW)


def _collected(texts: Mapping[str, str], question: Asked, answer: Answered) -> float | None:
    if len(question.relevant) < MANY:
        return None
    found = answer.ranked if answer.collected is None else answer.collected
    return recall_at(list(within(texts, found)), question.relevant, COLLECTED_MOST)


def _clusters(journal: Set) -> list[str]:
    """By agent; by question where there are fewer than three agents."""
    agents = [question.cluster for question in journal.questions]
    return agents if len(set(agents)) > 2 else [str(at) for at in range(len(agents))]


def _interval(values: Sequence[float | None], clusters: Sequence[str]) -> Interval | None:
    pairs = [(value, cluster) for value, cluster in zip(values, clusters, strict=True) if value is not None]
    return cluster_bootstrap([value for value, _ in pairs], [cluster for _, cluster in pairs])


def gain(measured: Measured, way: str, over: str, k: int = K) -> Interval | None:
    """The paired gain in recall@k of one way over another."""
    pairs = zip(measured.journal.questions, measured.answers[way], measured.answers[over], strict=True)
    gains = [
        recall_at(new.ranked, q.relevant, k) - recall_at(old.ranked, q.relevant, k) if q.relevant else None
        for q, new, old in pairs
    ]
    return _interval(gains, _clusters(measured.journal))


def _mean(values: Sequence[float | None]) -> float:
    counted = [value for value in values if value is not None]
    return fmean(counted) if counted else float("nan")


def _in_prompt(question: Asked, answer: Answered) -> float | None:
    if answer.injected is None or not question.relevant:
        return None
    return recall_at(answer.injected, question.relevant, IN_PROMPT)


def _precise(question: Asked, answer: Answered) -> float | None:
    if not answer.injected or not question.relevant:
        return None
    return len(question.relevant.intersection(answer.injected)) / len(answer.injected)


def _silent(question: Asked, answer: Answered) -> float | None:
    return None if answer.injected is None or question.relevant else float(not answer.injected)


_FIGURES: Final[Mapping[str, Callable[[Asked, Answered], float | None]]] = {
    f"recall@{SHALLOW}": lambda q, a: recall_at(a.ranked, q.relevant, SHALLOW) if q.relevant else None,
    f"any@{SHALLOW}": lambda q, a: float(not q.relevant.isdisjoint(a.ranked[:SHALLOW])) if q.relevant else None,
    "inject recall": _in_prompt,
    "inject precision": _precise,
    "silent": _silent,
}
_COLUMNS: Final = (f"recall@{K}", *_FIGURES, "sessions@5", "collected")


def table(measured: Measured, ways: Sequence[str]) -> list[str]:
    """Lines of a table in Markdown."""
    lines = []
    best = max(
        (way for way in ways if way != DEFAULT), key=lambda way: _mean(measured.values(way, _at_k)), default=None
    )
    for way in ways:
        values = {name: (value, note) for name, value, note in figures(measured, way)}
        cells = [f"{values[name][0]:.3f}".lstrip("0") if name in values else "" for name in _COLUMNS]
        cells[0] += " " + values[_COLUMNS[0]][1].removeprefix("95 % ")
        if way == DEFAULT and best is not None and (more := gain(measured, way, best)) is not None:
            cells.append(f"{more.mean:+.3f} [{more.low:+.3f}, {more.high:+.3f}] over {best}")
        lines.append(f"| {measured.name} | {way} | " + " | ".join(cells) + " |")
    return lines


def _at_k(question: Asked, answer: Answered) -> float | None:
    return recall_at(answer.ranked, question.relevant, K) if question.relevant else None


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--json", action="store_true", help="the figures of each question, one a line")
    chosen = parser.parse_args()
    ways = [way for way in chosen.ways.split(",") if way]

    async def all_sets() -> None:
        if not chosen.json:
            print("| set | way | " + " | ".join((*_COLUMNS, "gain")) + " |")
            print("|---" * (len(_COLUMNS) + 3) + "|")
        for path in present(chosen.folders):
            measured = await measure(path, ways)
            if chosen.json:
                print(json.dumps(_per_question(measured)), flush=True)
            else:
                print("\n".join(table(measured, ways)), flush=True)

    uvloop.run(all_sets())


def _per_question(measured: Measured) -> dict[str, Any]:
    return {
        "set": measured.name,
        "ways": {
            way: [
                {"category": q.category, "query": q.text, "ranked": list(a.ranked), "relevant": sorted(q.relevant)}
                for q, a in zip(measured.journal.questions, answers, strict=True)
            ]
            for way, answers in measured.answers.items()
        },
    }


if __name__ == "__main__":
    main()
