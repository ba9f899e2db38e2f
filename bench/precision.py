"""How precise recall is: silence where nothing answers, confidence that holds, statements, and beliefs that must not come.

Sets (``../shared/data``, evaluation only; said plainly when absent): ``locomo_dev`` with its own questions and those of the
other conversations, speakers' names exchanged; ``vehicle_dev``, situations written as statements; ``precision_dev``
(PrecisionMemBench). Each conversation is judged by constants fitted on the two others; beliefs by those of the product,
which were not fitted on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.evidence_data import LOCOMO, SHARED, VEHICLE, cases, conversations, record_of, situations
from bench.evidence_fit import KINDS, SILENCED, Held, floor_of, gate_of, left_out, recall_kept
from bench.figures import Report, at_least, at_most, say
from bench.precision_beliefs import beliefs
from bench.quality_index import ANALYZER, Asked, K, Set, embedded_set, index_of, lines_of, own, recorded
from crew_journal.schemas.core.timestamps import DAY_MS
from crew_journal.schemas.models.rules import REMEMBERED
from crew_journal.schemas.recall.operations import INJECT, Mode
from crew_journal.schemas.recall.questions import QueryKind
from crew_journal.services.cli.exam import cluster_bootstrap, recall_at
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.recall.asking import Query
from crew_journal.services.recall.calibration import known_calibration
from crew_journal.services.recall.evidence import judged, names_in
from crew_journal.services.recall.recipes import CONVERSATIONAL, ROBUST, Recipe, default_recipe
from crew_journal.services.recall.search import search, searched

PRECISION: Final = SHARED / "precision_dev"
EVERYDAY: Final = SHARED / "own" / "everyday_dev"
FORTY_NOTES: Final = Path(__file__).parent / "data" / "forty_notes.jsonl"
"""A line for each of five persons: about forty notes, and prompts in natural words. The formula's form and floor were chosen
with them in view; its constants were not fitted on them."""
IN_PROMPT: Final = 5
"""Hits that a prompt gets of the everyday journals."""
WANTED: Final = {
    "question": (0.90, 1.00),
    "question_paraphrase": (0.45, 0.70),
    "situation": (0.40, None),
}
"""Kind → recall that is wanted in ``inject`` and, of the first five, in ``search``."""
DEEP: Final = 50
SHARES: Final = (0.01, 0.02, 0.03, 0.04, SILENCED, 0.06, 0.1)
PUBLISHED: Final = {
    "the benchmark's vendor": (1.00, 1.00),
    "files read by a model": (0.47, 0.91),
    "supermemory": (0.22, 0.71),
    "agentmemory": (0.17, 0.97),
    "zep": (0.09, 0.95),
    "plain vectors": (0.09, 1.00),
    "mem0": (0.06, 0.99),
}
"""Mean precision and recall, as published with the benchmark."""


async def run(quick: bool, folder: Path) -> Report:
    """All of it; ``quick`` leaves out the two sets that take minutes to embed."""
    del folder  # nothing is written
    report = Report("precision", quick)
    if quick:
        say("quick: locomo_dev and vehicle_dev are left out")
    if not quick and _present(LOCOMO):
        _silence(report, left_out(KINDS[0], cases(await conversations(), CONVERSATIONAL)))
    if not quick and _present(VEHICLE):
        await _situations(report)
    if _present(PRECISION):
        await _beliefs(report)
    if _present(EVERYDAY):
        await _everyday(report)
    await _forty_notes(report)
    return report


def _present(path: Path) -> bool:
    if not path.is_dir():
        say(f"{path.name} is absent: left out")
    return path.is_dir()


def _silence(report: Report, held: Sequence[Held]) -> None:
    foreign = np.array([item.best for item in held if not item.case.own])
    for share in SHARES:
        note = f"{share:.0%} of the own questions that recall answers get nothing; gate by the conversation left out"
        target = at_least(0.72) if share == SILENCED else None
        report.figure(
            f"foreign questions that get nothing, at {share:.0%}",
            (foreign < gate_of(held, share)).mean(),
            "share",
            target,
            note,
        )
    gate = gate_of(held)
    for hits, least in ((3, 0.74), (4, 0.79)):
        value = recall_kept(held, gate, floor_of(held, gate, hits))
        report.figure(
            f"recall in {hits} hits a question in the mean", value, "recall", at_least(least), "inject, left out"
        )
    confidences = np.concatenate([item.confidence for item in held if item.case.own])
    right = np.concatenate([item.case.relevant for item in held if item.case.own])[~np.isnan(confidences)]
    confidences = confidences[~np.isnan(confidences)]
    for low in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        chosen = (confidences >= low - 0.05) & (confidences < low + 0.05)
        target = at_least(0.7) if low == 0.8 else None
        report.figure(f"hits said to be {low:.1f} sure", right[chosen].mean(), "right", target, f"{chosen.sum()} hits")


async def _situations(report: Report) -> None:
    journal_and_beside = await situations()
    own_count = sum(bool(question.relevant) for question in journal_and_beside.questions)
    journal = replace(
        journal_and_beside,
        questions=journal_and_beside.questions[:own_count],
        queries=journal_and_beside.queries[:own_count],
    )
    questions = journal.questions
    index = index_of(journal)
    day = {event.entry.id: event.ts_ms // DAY_MS for event in journal.events}
    as_questions = replace(journal, queries=[_as_question(journal, at) for at in range(len(questions))])
    for recipe in (CONVERSATIONAL, ROBUST):
        before, after = (_ranked(index, journal_, recipe) for journal_ in (as_questions, journal))
        gains = [
            recall_at(new, q.relevant, K) - recall_at(old, q.relevant, K)
            for q, old, new in zip(questions, before, after, strict=True)
        ]
        interval = cluster_bootstrap(gains, [q.cluster for q in questions])
        assert interval is not None
        for name, ranked in (("asked as questions", before), ("as statements", after)):
            value = np.mean([recall_at(ids, q.relevant, K) for q, ids in zip(questions, ranked, strict=True)])
            report.figure(f"situations, {recipe.name}, {name}", float(value), "recall@10")
            newest = [_newest_first(q, ids, day) for q, ids in zip(questions, ranked, strict=True)]
            judged = [row for row in newest if row is not None]
            note = f"of {len(judged)} whose relevant lines are of several days"
            report.figure(
                f"situations, {recipe.name}, {name}", float(np.mean(judged)), "newest above older", None, note
            )
        note = f"95 % over six histories [{interval.low:+.3f}, {interval.high:+.3f}]"
        target = at_least(0.0) if recipe is CONVERSATIONAL else None
        report.figure(f"situations, {recipe.name}, gain", interval.mean, "recall@10", target, note)


def _as_question(journal: Set, at: int) -> Query:
    query = journal.queries[at]
    late = None if query.late is None else replace(query.late, emphasis=())
    return replace(query, told=QueryKind.ASKS, late=late)


def _ranked(index: HotIndex, journal: Set, recipe: Recipe) -> list[list[str]]:
    return [
        [index.documents.id_of(hit.doc) for hit in search(index, question.scope, query, recipe, DEEP)]
        for question, query in zip(journal.questions, journal.queries, strict=True)
    ]


def _newest_first(question: Asked, ranked: Sequence[str], day: dict[str, int]) -> bool | None:
    """Whether the newest relevant line stands above the older ones; None where all are of one day."""
    last = max(day[name] for name in question.relevant)
    place = {name: at for at, name in enumerate(ranked)}
    new = min(place.get(name, DEEP) for name in question.relevant if day[name] == last)
    old = min((place.get(name, DEEP) for name in question.relevant if day[name] != last), default=None)
    return None if old is None else new < old


async def _beliefs(report: Report) -> None:
    for name, (precision, recall) in PUBLISHED.items():
        report.baseline(f"beliefs, {name}", precision, "precision", f"recall {recall:.2f}, as published")
    for entry_type, recipe in (("peer.conversation", CONVERSATIONAL), ("memory.remembered", ROBUST)):
        journal, belief_cases = await beliefs(PRECISION, entry_type)
        index = index_of(journal)
        replaced = {name for event in journal.events for name in event.entry.supersedes}
        for mode in (INJECT, "search"):
            precisions, recalls, silent, wrong = [], [], [], 0
            for case in belief_cases:
                returned = {name for at in case.asked for name in _returned(index, journal, at, recipe, mode)}
                returned -= case.neutral | (replaced if mode == INJECT else set())
                wrong += len(returned & case.wrong)
                if case.wanted:
                    precisions.append(len(returned & case.wanted) / len(returned) if returned else 0.0)
                    recalls.append(len(returned & case.wanted) / len(case.wanted))
                else:
                    silent.append(not returned)
            figure_name = f"beliefs as {entry_type}, {mode}"
            strict = mode == INJECT
            note = f"{len(recalls)} cases with a belief to find; pinned beliefs and open questions are not counted"
            report.figure(
                figure_name, float(np.mean(precisions)), "precision", at_least(0.70) if strict else None, note
            )
            report.figure(figure_name, float(np.mean(recalls)), "recall", at_least(0.90) if strict else None, note)
            note = f"of {len(silent)} cases with no belief to find and a text to ask"
            report.figure(figure_name, float(np.mean(silent)), "silent", at_least(0.80) if strict else None, note)
            note = "superseded, or of another user"
            report.figure(figure_name, float(wrong), "wrong beliefs", at_most(0) if strict else None, note)


def _returned(index: HotIndex, journal: Set, at: int, recipe: Recipe, mode: Mode, k: int = K) -> list[str]:
    question, query = journal.questions[at], journal.queries[at]
    found = searched(index, question.scope, query, recipe, k)
    records = [record_of(journal.events[hit.doc]) for hit in found.hits]
    names = names_in(query, [record.payload for record in records], ANALYZER)
    kept = judged(index, query, found, records, names, known_calibration(index.model), None, mode).kept
    return [index.documents.id_of(found.hits[place].doc) for place in kept]


async def _everyday(report: Report) -> None:
    """Six journals of notes; the constants were fitted on none of them."""
    questions = lines_of(EVERYDAY / "queries.jsonl")
    everyday_questions = [
        Asked(
            q["query"], own(q["agent_id"]), q["agent_id"], q.get("why_silent", q["kind"]), frozenset(q["relevant_ids"])
        )
        for q in questions
    ]
    journal = await embedded_set(recorded(lines_of(EVERYDAY / "journal.jsonl"), "everyday"), everyday_questions)
    index = index_of(journal)
    ids_by_mode: dict[Mode, list[list[str]]] = {INJECT: [], "search": []}
    for mode, answers in ids_by_mode.items():
        for at, question in enumerate(everyday_questions):
            recipe = default_recipe(index.scoped(question.scope).turn_count)
            answers.append(_returned(index, journal, at, recipe, mode, IN_PROMPT))
    for kind, wanted in WANTED.items():
        for mode, least in zip(ids_by_mode, wanted, strict=True):
            pairs = [
                (question.relevant, ids)
                for question, ids in zip(everyday_questions, ids_by_mode[mode], strict=True)
                if question.category == kind
            ]
            value = np.mean([len(relevant.intersection(ids)) / len(relevant) for relevant, ids in pairs])
            target = None if least is None else at_least(least)
            report.figure(f"everyday, {kind}, {mode}", float(value), "recall@5", target, f"{len(pairs)} prompts")
    own_hits = [
        (question.relevant, ids)
        for question, ids in zip(everyday_questions, ids_by_mode[INJECT], strict=True)
        if question.relevant
    ]
    right = sum(len(relevant.intersection(ids)) for relevant, ids in own_hits)
    report.figure("everyday, inject", right / sum(len(ids) for _, ids in own_hits), "precision", at_least(0.6))
    silent = [
        (question, not ids)
        for question, ids in zip(everyday_questions, ids_by_mode[INJECT], strict=True)
        if not question.relevant
    ]
    report.figure("everyday, nothing helps", float(np.mean([quiet for _, quiet in silent])), "silent", at_least(0.88))
    for category in dict.fromkeys(question.category for question, _ in silent):
        value = np.mean([quiet for question, quiet in silent if question.category == category])
        target = at_least(0.7) if category == "near_topic" else None
        report.figure(f"everyday, {category}", float(value), "silent", target)
    for cluster in dict.fromkeys(question.cluster for question in everyday_questions):
        value = np.mean([quiet for question, quiet in silent if question.cluster == cluster])
        pairs = [
            (o.relevant, ids)
            for o, ids in zip(everyday_questions, ids_by_mode[INJECT], strict=True)
            if o.relevant and o.cluster == cluster
        ]
        kept = np.mean([len(relevant.intersection(ids)) / len(relevant) for relevant, ids in pairs])
        report.figure(f"everyday, journal {cluster}", float(kept), "recall in inject", None, f"silent {value:.2f}")


async def _forty_notes(report: Report) -> None:
    """What a person with forty notes gets into a prompt."""
    records, prompts = list[dict[str, Any]](), list[Asked]()
    for person in lines_of(FORTY_NOTES):
        name = person["name"]
        records += [
            {"id": f"{name}-{at}", "agent_id": name, "entry_type": REMEMBERED, "summary": note}
            for at, note in enumerate(person["notes"])
        ]
        prompts += [
            Asked(prompt["text"], own(name), name, "notes", frozenset(f"{name}-{at}" for at in prompt["answers"]))
            for prompt in person["prompts"]
        ]
    journal = await embedded_set(recorded(records, "forty"), prompts)
    index = index_of(journal)
    answers = [_returned(index, journal, at, ROBUST, INJECT, IN_PROMPT) for at in range(len(prompts))]
    for name in dict.fromkeys(prompt.cluster for prompt in prompts):
        of_person = [(p.relevant, ids) for p, ids in zip(prompts, answers, strict=True) if p.cluster == name]
        kept = [len(relevant.intersection(ids)) / len(relevant) for relevant, ids in of_person if relevant]
        right = sum(len(relevant.intersection(ids)) for relevant, ids in of_person if relevant)
        given = sum(len(ids) for relevant, ids in of_person if relevant)
        quiet = np.mean([not ids for relevant, ids in of_person if not relevant])
        note = f"precision {right / max(1, given):.2f}, silent {quiet:.2f}"
        report.figure(f"forty notes, {name}", float(np.mean(kept)), "recall in inject", None, note)
