"""How well the recipes recall: the development conversations, with all vectors and a tenth of them, and a mixed journal.

Sets: ``../shared/data/locomo_dev`` (evaluation only; said plainly when absent), and the sample journal with 110 questions
of our own about its escalations, summaries, decisions and runs (``data/mixed_questions.jsonl``), asked of the whole
workspace, its chat included, alone and with the development conversations poured into the same workspace. And 40 long
messages of our own between a user and an assistant, with 56 questions as the user would ask them (``data/long_*.jsonl``).

Leave one conversation out: of a small grid around the recipe's constants, the best on the other conversations is scored on
the one left out. Where that is not better than the present constants, the constants stand on a plateau.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from bench import floor
from bench.figures import Report, Target, at_least, say
from bench.quality_index import Asked, K, Set, embedded_set, index_of, lines_of, own, rankings, recorded
from crew_journal.schemas.catalogue import info_of
from crew_journal.schemas.models.rules import is_embedded
from crew_journal.services.cli.exam import OVERALL, Ranking, cluster_bootstrap, evaluate, recall_at
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.recall.recipes import (
    CONVERSATIONAL,
    CONVERSATIONAL_STATIC,
    RECIPES,
    ROBUST,
    Fusion,
    Recipe,
)

PROJECT: Final = Path(__file__).resolve().parents[1]
LOCOMO: Final = "locomo_dev"
SAMPLE: Final = PROJECT / "services" / "cli" / "sample" / "journal.jsonl"
QUESTIONS: Final = Path(__file__).parent / "data" / "mixed_questions.jsonl"
LONG_CHATS: Final = QUESTIONS.with_name("long_chats.jsonl")
LONG_QUESTIONS: Final = QUESTIONS.with_name("long_questions.jsonl")
COMPANION: Final = "companion"
"""The agent whose memory the long chats are."""
SHARE: Final = 0.1
SEEDS: Final = (1, 2, 3)
PLAIN: Final = Recipe("plain z-fusion", Fusion.Z_SCORE, lane_min=100, lane_factor=2, dense_weight=0.6)
TARGETS: Final[dict[str, tuple[Target | None, Target | None, Target | None]]] = {
    "conversational": (at_least(0.85), at_least(0.78), at_least(0.90)),
    "conversational-static": (at_least(0.85), at_least(0.77), None),
}
"""Targets of recall@10, recall@5 and session recall@5."""


async def run(quick: bool, folder: Path) -> Report:
    """All of it; ``quick`` leaves the development conversations out."""
    del folder  # nothing is written
    report = Report("quality", quick)
    sample = lines_of(SAMPLE)
    path = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data")) / LOCOMO
    turns: list[dict[str, object]] = []
    if quick:
        say("quick: the development conversations are left out")
    elif not path.is_dir():
        say(f"{path} is absent: the development conversations are left out")
    else:
        turns = lines_of(path / "journal.jsonl")
        await _conversations(report, path, turns, sample)
    floor.figures(report, sample, [str(q["query"]) for q in lines_of(QUESTIONS)])
    await _mixed(report, "sample journal", sample)
    await _long(report, sample)
    if turns:
        await _mixed(report, "sample journal and conversations", [*sample, *turns])
    return report


async def _conversations(
    report: Report, path: Path, turns: Sequence[dict[str, object]], sample: Sequence[dict[str, object]]
) -> None:
    questions = [
        Asked(q["query"], own(q["agent_id"]), q["agent_id"], q["category"], frozenset(q["relevant_ids"]))
        for q in lines_of(path / "queries.jsonl")
    ]
    journal = await embedded_set(recorded(turns, "quality"), questions)
    index = index_of(journal)
    by_recipe = {name: rankings(index, journal, recipe) for name, recipe in RECIPES.items()}
    for name, ranked in by_recipe.items():
        _figures(report, f"{LOCOMO}: {name}", journal, ranked, by_recipe[ROBUST.name], TARGETS.get(name, (None,) * 3))
    shared = np.random.default_rng
    for recipe in (CONVERSATIONAL, CONVERSATIONAL_STATIC, ROBUST):
        drawn = [
            _recall(rankings(index_of(journal, shared(seed).random(len(turns)) < SHARE), journal, recipe))
            for seed in SEEDS
        ]
        target = at_least(0.80) if recipe is CONVERSATIONAL else None
        note = f"draws {', '.join(f'{value:.3f}' for value in drawn)}"
        report.figure(
            f"{LOCOMO}: {recipe.name}, a tenth of the vectors", sum(drawn) / len(drawn), "recall@10", target, note
        )
    amid = _amid(journal, sample)
    among = index_of(amid)
    for recipe in (ROBUST, CONVERSATIONAL, CONVERSATIONAL_STATIC):
        value = _recall(rankings(among, amid, recipe))
        note = "the sample journal's other entries in every agent's scope, without vectors"
        report.figure(f"{LOCOMO} amid other work: {recipe.name}", value, "recall@10", None, note)
    for recipe in (CONVERSATIONAL, CONVERSATIONAL_STATIC):
        _left_out(report, journal, recipe, by_recipe[recipe.name])


def _amid(journal: Set, sample: Sequence[dict[str, object]]) -> Set:
    """The conversations with everything of the sample journal other than turns in the scope of every question."""
    others = [
        {**record, "id": f"{agent}-{record['id']}"[:64], "agent_id": agent}
        for agent in sorted({question.cluster for question in journal.questions})
        for record in sample
        if not info_of(str(record["entry_type"])).conversation
    ]
    events = [*journal.events, *recorded(others, journal.events[0].entry.workspace_id, len(journal.events) + 1)]
    return replace(journal, events=events, made=[*journal.made, *[None] * len(others)])


def _figures(
    report: Report,
    name: str,
    journal: Set,
    ranked: Sequence[Ranking],
    baseline: Sequence[Ranking],
    targets: Sequence[Target | None],
) -> None:
    figures = evaluate(ranked, journal.sessions)
    overall = figures[OVERALL]
    clusters = [question.cluster for question in journal.questions]
    recalls, before = [[recall_at(r.ranked, r.relevant, K) for r in ranked_] for ranked_ in (ranked, baseline)]
    interval = cluster_bootstrap(recalls, clusters)
    gain = cluster_bootstrap([recall - former for recall, former in zip(recalls, before, strict=True)], clusters)
    note = ", ".join(
        f"{category} {figure.recall[K]:.3f}" for category, figure in sorted(figures.items()) if category != OVERALL
    )
    if interval is not None and gain is not None:
        note += f"; 95 % over {interval.clusters} conversations [{interval.low:.3f}, {interval.high:.3f}]"
        note += f"; over robust {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    report.figure(name, overall.recall[K], "recall@10", targets[0], note)
    report.figure(name, overall.recall[5], "recall@5", targets[1])
    report.figure(name, overall.session_recall, "session recall@5", targets[2])


def _variants(recipe: Recipe) -> list[Recipe]:
    """The recipe and a grid around its constants: weight of the late arm, all that turns show, all that they lend."""
    turns = recipe.turns
    assert turns is not None
    grid = []
    for late in (0.8, 1.0, 1.2):
        for shown in (0.7, 1.0, 1.3):
            for lent in (0.6, 1.0, 1.4):
                names = ("speaker", "user", "day", "interval", "first_person", "question")
                scaled = {name: shown * getattr(turns, name) for name in names}
                scaled |= {name: lent * getattr(turns, name) for name in ("previous", "following", "answer", "session")}
                grid.append(replace(recipe, turns=replace(turns, late=late * turns.late, **scaled)))
    return grid


def _left_out(report: Report, journal: Set, recipe: Recipe, as_it_stands: Sequence[Ranking]) -> None:
    index = index_of(journal)
    tried = [
        [recall_at(r.ranked, r.relevant, K) for r in rankings(index, journal, variant)] for variant in _variants(recipe)
    ]
    recalls = np.array(tried)
    stands = np.array([recall_at(r.ranked, r.relevant, K) for r in as_it_stands])
    clusters = np.array([question.cluster for question in journal.questions])
    chosen = np.zeros(len(clusters))
    for cluster in np.unique(clusters).tolist():
        is_left_out = clusters == cluster
        best = int(recalls[:, ~is_left_out].mean(axis=1).argmax())
        chosen[is_left_out] = recalls[best, is_left_out]
        highest = recalls[:, is_left_out].mean(axis=1).max()
        note = f"constants chosen on the others {recalls[best, is_left_out].mean():.3f}, best of the grid here {highest:.3f}"
        report.figure(
            f"{LOCOMO}: {recipe.name}, {cluster} left out", float(stands[is_left_out].mean()), "recall@10", None, note
        )
    lowest = recalls.mean(axis=1).min()
    note = f"{len(tried)} variants; the constants as they stand {stands.mean():.3f}, worst of the grid {lowest:.3f}"
    report.figure(
        f"{LOCOMO}: {recipe.name}, constants chosen on the others", float(chosen.mean()), "recall@10", None, note
    )


async def _mixed(report: Report, name: str, records: Sequence[dict[str, object]]) -> None:
    everything = RecallScope(ScopeKind.WORKSPACE)
    rows = lines_of(QUESTIONS)
    questions = [Asked(q["query"], everything, name, "mixed", frozenset(q["relevant_ids"])) for q in rows]
    events = recorded(records, "mixed")
    wanted = [is_embedded(e.entry.entry_type, e.entry.severity.value, e.entry.payload, e.entry.refs) for e in events]
    journal = await embedded_set(events, questions, wanted)
    index = index_of(journal)
    turns = sum(info_of(event.entry.entry_type).conversation for event in events)
    for recipe in (PLAIN, ROBUST):
        figures = evaluate(rankings(index, journal, recipe), journal.sessions)[OVERALL]
        note = (
            f"recall@5 {figures.recall[5]:.4f}, MRR {figures.mrr:.4f}; {len(events)} entries, {turns} of them turns; "
        )
        note += f"{len(questions)} questions, none about a turn"
        report.baseline(f"{name}: {recipe.name}", figures.recall[K], "recall@10", note)
    for recipe in (CONVERSATIONAL, CONVERSATIONAL_STATIC):
        ours = evaluate(rankings(index, journal, recipe), journal.sessions)[OVERALL]
        note = f"recall@5 {ours.recall[5]:.4f}, MRR {ours.mrr:.4f}"
        report.figure(
            f"{name}: {recipe.name}", ours.recall[K], "recall@10", at_least(round(figures.recall[K], 6)), note
        )


async def _long(report: Report, sample: Sequence[dict[str, object]]) -> None:
    """A user's long messages with an assistant, amid the sample journal: embedded, and as ``chat.*``, which never is."""
    questions = [
        Asked(q["query"], own(COMPANION), COMPANION, q["category"], frozenset(q["relevant_ids"]))
        for q in lines_of(LONG_QUESTIONS)
    ]
    turns_ = lines_of(LONG_CHATS)
    around = [{**record, "id": f"other-{record['id']}"[:64], "agent_id": COMPANION} for record in sample]
    for name, types in (
        ("embedded", {"user": "peer.conversation", "assistant": "peer.conversation"}),
        ("no vectors", {"user": "chat.user_message", "assistant": "chat.agent_response"}),
    ):
        turns = [
            {**turn, "agent_id": COMPANION, "actor_type": "user", "entry_type": types[str(turn["actor_id"])]}
            for turn in turns_
        ]
        events = recorded([*turns, *around], "long")
        wanted = [name == "embedded" and at < len(turns) for at in range(len(events))]
        journal = await embedded_set(events, questions, wanted)
        index = index_of(journal)
        for recipe in (ROBUST, CONVERSATIONAL, CONVERSATIONAL_STATIC):
            figures = evaluate(rankings(index, journal, recipe), journal.sessions)
            overall = figures.pop(OVERALL)
            note = ", ".join(f"{category} {figure.mrr:.3f}" for category, figure in sorted(figures.items()))
            note = f"recall@5 {overall.recall[5]:.3f}, @10 {overall.recall[K]:.3f}; MRR by category {note}"
            report.figure(f"long messages of our own, {name}: {recipe.name}", overall.mrr, "MRR", None, note)


def _recall(ranked: Sequence[Ranking]) -> float:
    return sum(recall_at(question.ranked, question.relevant, K) for question in ranked) / len(ranked)
