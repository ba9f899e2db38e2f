"""What prompts hold after each changed fact was corrected, against a plain append of the new statement, on a real node.

Set: ``own/updates_dev`` (``shared/data``, evaluation only), without the later statements of facts that one statement
replaces. The new statement is appended as another memory, or given to ``correct`` with the id of the old one. The
questions about now are then asked: an old statement counts where it is not marked as replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from support.minilm import minilm_cache
from support.running import running_node

from bench.answers import SHARED
from bench.figures import Report, at_least, at_most, say
from bench.quality_index import lines_of
from crew_journal.services.client import AsyncCrewJournal

_POLL_S: Final = 0.2
_KEPT: Final = (
    "id",
    "agent_id",
    "crew_id",
    "entry_type",
    "actor_type",
    "actor_id",
    "trace_id",
    "ts",
    "summary",
    "refs",
)
TOKENS: Final = 500


async def run(quick: bool, folder: Path) -> Report:
    """All facts; ``quick`` takes one journal of four."""
    report = Report("corrections", quick)
    at = SHARED / "own" / "updates_dev"
    if not at.is_dir():
        say(f"{at} is absent: nothing is measured")
        return report
    records = {record["id"]: record for record in lines_of(at / "journal.jsonl")}
    facts = [fact for fact in lines_of(at / "facts.jsonl") if not quick or fact["agent_id"] == "choir"]
    questions = {q["qid"].removesuffix("_now"): q for q in lines_of(at / "queries.jsonl") if q["kind"] == "now"}
    changes = [
        (fact, before, after)
        for fact in facts
        for before, after in [fact["statements"][:2]]
        if after["effect"] == "replaces" and after["replaces"] == [before["id"]] and len(fact["statements"]) == 2
    ]
    later = {statement["id"] for fact in facts for statement in fact["statements"][1:]}
    agents = {fact["agent_id"] for fact in facts}
    kept = [record for record in records.values() if record["id"] not in later and record["agent_id"] in agents]
    async with (
        running_node(folder / "node", embedder="minilm", models_dir=minilm_cache()) as node,
        AsyncCrewJournal(node.http_url, node.owner_token) as owner,
    ):
        for how in ("appended", "corrected"):
            for begin in range(0, len(kept), 100):
                await owner.append_batch([_entry(record, how) for record in kept[begin : begin + 100]])
            await _embedded(owner, how)
            for _, before, after in changes:
                text = records[after["id"]]["summary"]
                if how == "corrected":
                    done = await owner.correct(before["id"], text, workspace_id=how)
                    assert done.changed
                else:
                    said = {
                        **records[before["id"]],
                        "id": after["id"],
                        "summary": text,
                        "ts": records[after["id"]]["ts"],
                    }
                    await owner.append(_entry(said, how))
            await _embedded(owner, how)
            await _ask(report, owner, how, changes, records, questions)
    return report


async def _ask(
    report: Report,
    owner: AsyncCrewJournal,
    how: str,
    changes: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]],
    records: Mapping[str, Mapping[str, Any]],
    questions: Mapping[str, Mapping[str, Any]],
) -> None:
    counts = dict.fromkeys(("new in recall", "old in recall", "new first", "new in context", "old in context"), 0)
    for fact, before, after in changes:
        question = questions[fact["fact"]]["query"]
        old, new = records[before["id"]]["summary"], records[after["id"]]["summary"]
        where = {"agent_id": fact["agent_id"], "workspace_id": how}
        answer = await owner.recall(question, mode="inject", k=5, **where)
        current = [hit.summary for hit in answer.hits if hit.standing is None]
        counts["new in recall"] += new in current
        counts["old in recall"] += old in current
        ranked = [hit.summary for hit in (await owner.recall(question, k=50, **where)).hits]
        counts["new first"] += new in ranked and (old not in ranked or ranked.index(new) < ranked.index(old))
        context = (await owner.context_assemble(question, budget_tokens=TOKENS, record=False, **where)).memory
        lines = [line for line in context.split("\n") if "(until" not in line and "contradicted" not in line]
        counts["new in context"] += any(new in line for line in lines)
        counts["old in context"] += any(old in line for line in lines)
    for name, count in counts.items():
        target = None
        if how == "corrected":
            target = at_most(0.0) if name.startswith("old") else at_least(0.9) if name == "new first" else None
        report.figure(f"{how}: {name}", count / len(changes), f"of {len(changes)} changed facts", target)


def _entry(record: Mapping[str, Any], workspace: str) -> dict[str, Any]:
    return {name: record[name] for name in _KEPT if name in record} | {"workspace_id": workspace}


async def _embedded(owner: AsyncCrewJournal, workspace: str) -> None:
    """Wait until every entry has a vector and the reactors have judged it."""
    while (await owner.recall("anything", k=1, workspace_id=workspace)).awaiting_vectors != 0:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
    while any(reactor["pending"] for reactor in (await owner.status()).get("reactors") or ()):  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
