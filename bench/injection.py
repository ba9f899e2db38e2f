"""What the injection scanners find and what they take for an attack by mistake, per scanner and per rule.

Sets: ``../shared/data/injection_dev`` (public rows, English and German; evaluation only, said plainly when absent), and four
of our own beside this file: ``injection_own`` (written before the rules were refined on it), ``injection_heldout``
(written afterwards; harmless rows are meant as traps), ``injection_operations`` (harmless sentences of people at work, each
close to the wording of an attack; the rules were refined on it) and ``injection_operations_heldout`` (more of them, written
after that refinement). Ordinary texts: the journals of the shared data, all harmless but the attacks planted in some.
Baseline: a plain list of words, on the same rows.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.figures import Report, at_least, at_most, say
from crew_journal.schemas.text.injection import findings, scan

PROJECT: Final = Path(__file__).resolve().parents[1]
DEV: Final = "injection_dev"
RECALL_PERCENT: Final = 35.0
FALSE_ALARM_PERCENT: Final = 2.0
"""Targets of all scanners together on ``injection_dev``."""
WORDS: Final = re.compile(
    r"\b(?:ignore|disregard|forget|jailbreak|pretend|system prompt|prompt|instructions)\b", re.IGNORECASE
)
"""The baseline: a list of obvious words."""


@dataclass(frozen=True, slots=True)
class Row:
    """A text and whether it is an attack."""

    text: str
    attack: bool


def paths() -> dict[str, Path]:
    """Name of each set → where it is, or would be."""
    shared = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data"))
    own = Path(__file__).parent / "data"
    return {
        DEV: shared / DEV / "rows.jsonl",
        "injection_own": own / "injection_own.jsonl",
        "injection_heldout": own / "injection_heldout.jsonl",
        "injection_operations": own / "injection_operations.jsonl",
        "injection_operations_heldout": own / "injection_operations_heldout.jsonl",
    }


ORDINARY: Final = (
    "own/everyday_dev",
    "own/palace_dev",
    "own/updates_dev",
    "own/operators_dev",
    "own/learning_dev",
    "locomo_dev",
    "vehicle_dev",
    "memora_dev",
    "realmem_dev",
    "lifebench_dev",
)
"""Folders of the shared data whose journals are ordinary texts."""


def ordinary_texts(path: Path) -> list[str]:
    """The summaries of a journal and the texts of its payloads, as rows without a label."""
    texts: list[str] = []
    for line in path.read_text("utf-8").splitlines():
        entry = json.loads(line)
        payload = entry.get("payload") or {}
        texts += [text for text in (entry.get("summary"), *payload.values()) if isinstance(text, str) and text]
    return texts


def rows_of(path: Path) -> list[Row]:
    """The rows of a set."""
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    return [Row(record["text"], record["label"] == 1) for record in records]


def _judged(report: Report, name: str, rows: Sequence[Row], alarms: Sequence[bool], *, asked: bool = False) -> None:
    attacks = sum(row.attack for row in rows)
    caught = sum(row.attack and alarm for row, alarm in zip(rows, alarms, strict=True))
    mistaken = sum(not row.attack and alarm for row, alarm in zip(rows, alarms, strict=True))
    note = f"{caught} of {attacks} attacks, {mistaken} of {len(rows) - attacks} harmless rows"
    recall, mistakes = 100 * caught / max(1, attacks), 100 * mistaken / max(1, len(rows) - attacks)
    if attacks:
        report.figure(f"{name}, recall", recall, "%", at_least(RECALL_PERCENT) if asked else None, note)
    report.figure(f"{name}, false alarms", mistakes, "%", at_most(FALSE_ALARM_PERCENT) if asked else None, note)
    if attacks:
        report.figure(f"{name}, precision", 100 * caught / max(1, caught + mistaken), "%", None, note)


def _measure(report: Report, name: str, rows: Sequence[Row]) -> None:
    began = time.process_time()
    found_by_row = [list(findings(row.text)) for row in rows]
    spent = time.process_time() - began
    blocked = [[finding for finding in row_findings if finding.blocks] for row_findings in found_by_row]
    _judged(report, f"{name}: all scanners", rows, [bool(row_findings) for row_findings in blocked], asked=name == DEV)
    for scanner in ("memory", "recall", "technique"):
        alarms = [any(finding.scanner == scanner for finding in row_findings) for row_findings in blocked]
        _judged(report, f"{name}: scanner {scanner}", rows, alarms)
    hits: dict[tuple[str, bool], Counter[bool]] = {}
    for row, row_findings in zip(rows, found_by_row, strict=True):
        for rule in {(f"{f.scanner}/{f.category}/{f.pattern}", f.blocks) for f in row_findings}:
            hits.setdefault(rule, Counter())[row.attack] += 1
    for (name_of_rule, blocks), count in sorted(hits.items(), key=lambda item: (-item[1][True], item[0])):
        total = count[True] + count[False]
        kind = "blocks" if blocks else "records only"
        note = f"{count[True]} attacks, {count[False]} harmless rows; {kind}"
        report.figure(f"{name}: rule {name_of_rule}, precision", 100 * count[True] / total, "%", None, note)
    report.figure(f"{name}: time a text", 1_000 * spent / max(1, len(rows)), "ms", None, "CPU, all scanners")
    _baseline(report, name, rows, lambda text: WORDS.search(text) is not None)


def _baseline(report: Report, name: str, rows: Sequence[Row], alarm: Callable[[str], bool]) -> None:
    attacks = [row for row in rows if row.attack]
    harmless = [row for row in rows if not row.attack]
    found, mistaken = sum(alarm(row.text) for row in attacks), sum(alarm(row.text) for row in harmless)
    report.baseline(f"{name}: list of words, recall", 100 * found / max(1, len(attacks)), "%")
    report.baseline(f"{name}: list of words, false alarms", 100 * mistaken / max(1, len(harmless)), "%")


async def run(quick: bool, folder: Path) -> Report:
    """All sets; there is nothing to reduce."""
    report = Report("injection", quick)
    for name, path in paths().items():
        if not path.is_file():
            say(f"injection: {name} is ABSENT, nothing is said of it (CREW_JOURNAL_SHARED_DATA names another folder)")
            report.sizes[name] = 0
            continue
        rows = rows_of(path)
        report.sizes[name] = len(rows)
        _measure(report, name, rows)
    shared = paths()[DEV].parents[1]
    for name in ORDINARY:
        path = shared / name / "journal.jsonl"
        if not path.is_file():
            say(f"injection: {name} is ABSENT, nothing is said of it")
            continue
        texts = ordinary_texts(path)
        blocked = sum(scan(text) is not None for text in texts)
        report.sizes[name] = len(texts)
        report.figure(
            f"{name}: blocked", 100 * blocked / len(texts), "%", None, f"{blocked} of {len(texts)} ordinary texts"
        )
    return report
