"""CPU of the service for every page and list, on a journal of 100,000 entries with something of every kind to show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
from support.processes import Stack

from bench.corpus import Corpus
from bench.figures import MS, Report, at_most
from bench.journals import prepare
from bench.watching import cpu_seconds, wait_folded, wait_idle
from crew_journal.services.client import CrewJournal
from crew_journal.services.web.pages import PAGES
from crew_journal.services.web.sessions import rest_of

TARGET_MS: Final = 150.0
WORKSPACE: Final = "bench-00"
MODEL: Final = "all-MiniLM-L6-v2"
VISITS: Final = 8
"""Visits of a page that are averaged: the kernel counts the CPU of a process in steps of 10 ms."""
NOTE: Final = f"mean of {VISITS}, all threads of `up` and nats-server"
PAIRS: Final = 20
OLDEST: Final = "2026-01-01"


def _enrich(journal: CrewJournal, corpus: Corpus, many: int) -> dict[str, str]:
    """Add what the corpus lacks: documents, facts, lessons, people, corrections, contradictions, receipts.

    Args:
        journal: The journal.
        corpus: Its entries.
        many: How many of the kinds that a year of use makes many of.

    Returns:
        Parameter of a page's path → a value.
    """
    place: dict[str, Any] = {"workspace_id": WORKSPACE}
    journal.register_agent("agent-00", crew_id="crew-0", memory_enabled=True, **place)
    for n in range(many):
        text = " ".join(corpus.words[(7 * n + k) % 5_000] for k in range(30))
        journal.kg_add(f"entity {n % 100}", "depends on", f"entity {n}", valid_from=OLDEST, **place)
        journal.document_write("topics", "replace", text, key=f"topic-{n}", scope="crew", crew_id="crew-0", **place)
        journal.document_write("AGENT", "replace", text, agent_id="agent-00", **place)
        journal.add_lesson(text[:200], crew_id=f"crew-{n % 3}", **place)
        journal.consent(f"person-{n}", "granted", **place)
        receipt = journal.recall(" ".join(text.split()[:4]), **place).receipt
    for n in range(PAIRS):
        one, other = corpus.entry_id(4 * n), corpus.entry_id(4 * n + 1)
        journal.relate(one, other, "contradicts", **place)
        journal.correct(corpus.entry_id(4 * n + 2), f"corrected text {n}", reason="bench", **place)
    last = journal.measure_health(**place)
    journal.count(min_seq=last.view_seq, **place)
    submitted = corpus.submission(corpus.entries // 2)
    return {
        "entry_id": submitted["id"],
        "name": str(receipt),
        "run_id": submitted["trace_id"],
        "user": "person-0",
    }


def _addresses(values: dict[str, str], corpus: Corpus) -> Iterator[tuple[str, str]]:
    """Title and address of every page, of its list as CSV, and of pages with a question."""
    question = quote(corpus.queries(1)[0])
    extra = {
        "/ui/recall": f"query={question}",
        "/ui/document": "tier=AGENT&agent_id=agent-00",
        "/ui/journal": f"q={quote(corpus.words[300])}",
        "/ui/erase": "subject=person-0&reason=bench",
        "/ui/facts": "entity=entity%201",
    }
    for page in PAGES:
        path = page.path.replace("{name:path}", "{name}")
        names = [part.partition("}")[0] for part in path.split("{")[1:]]
        if any(name not in values for name in names):
            continue  # a proposal is made by a sweep over weeks
        path = path.format(**values)
        options = {"": page.title, **({extra[page.path]: f"{page.title}, asked"} if page.path in extra else {})}
        for option, title in options.items():
            if page.path == "/ui/document" and not option:
                continue
            here = f"{rest_of(path)}?{option}"
            yield title, here
            if page.rows:
                yield f"{title}, CSV", f"{here}&format=csv"


def _visits(report: Report, stack: Stack, addresses: list[tuple[str, str]]) -> None:
    with httpx.Client(base_url=stack.url, timeout=60, trust_env=False) as browser:
        answer = browser.post("/ui/login", data={"token": stack.token, "next": "/"})
        browser.base_url = httpx.URL(stack.url + answer.headers["location"])
        for title, address in addresses:
            whole = f"{address}&workspace_id={WORKSPACE}"
            first = browser.get(whole)  # makes what is kept: templates, indexes
            if first.status_code != httpx.codes.OK:
                raise RuntimeError(f"{whole}: {first.status_code}: {first.text[:2_000]}")
            wait_idle(stack)
            before = cpu_seconds(stack)
            for _ in range(VISITS):
                browser.get(whole).raise_for_status()
            spent = (cpu_seconds(stack) - before) / VISITS
            report.figure(title, spent * MS, "ms CPU", at_most(TARGET_MS), f"{NOTE}; {len(first.content):,} bytes")


def _measure(report: Report, folder: Path, corpus: Corpus, last_seq: int, many: int) -> None:
    with Stack(folder, ("--embedder", "none")) as stack:
        stack.up()
        wait_folded(stack, last_seq)
        wait_idle(stack, deadline_s=600)
        with CrewJournal(stack.url, stack.token) as journal:
            values = _enrich(journal, corpus, many)
        wait_idle(stack, deadline_s=600)
        _visits(report, stack, list(_addresses(values, corpus)))


async def run(quick: bool, folder: Path) -> Report:
    """Run the benchmark."""
    entries, many = (2_000, 20) if quick else (100_000, 300)
    corpus = Corpus(entries)
    vectors = sum(corpus.is_embedded(n) for n in range(entries))
    report = Report("pages", quick, {"entries": entries, "vectors": vectors, "of every other kind": many})
    filled = await prepare(folder / "journal", corpus, vectors, model=MODEL)
    await asyncio.to_thread(_measure, report, folder / "journal", corpus, filled.last_seq, many)
    return report
