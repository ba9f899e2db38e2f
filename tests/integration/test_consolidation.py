"""Consolidation over a real journal: rules are learned once, found by recall, in the block, and undone by a retraction."""

from __future__ import annotations

import random
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.erasing import erase
from support.memory_node import ADMIN, WORKSPACE, MemoryNode
from support.planted import SUBJECTS, planted

from crew_journal.consumers.learning.reactor import ConsolidateReactor
from crew_journal.schemas.access.events import WorkspaceConfigured
from crew_journal.schemas.core.errors import NotFound
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.core.sequence_set import SequenceSet
from crew_journal.schemas.core.timestamps import format_ts
from crew_journal.schemas.learning.lessons import rules_text
from crew_journal.schemas.learning.operations import ConsolidateRequest
from crew_journal.schemas.recall.events import MemorySearched
from crew_journal.schemas.recall.operations import RECALL
from crew_journal.schemas.standing.events import RetractionMade
from crew_journal.services.desk import Caller, parse
from crew_journal.services.documents.learned import Learned
from crew_journal.services.learning.use_cases import Learning
from crew_journal.services.sweeps.scheduler import Sweeps

SYLLABLES = ("ka", "lo", "mi", "ru", "te", "vo", "za", "ne", "pi", "shu", "dra", "gel")
PLANTED = tuple(f"p{n}" for n in range(5))


def sentence(draw: random.Random) -> str:
    """A sentence of made-up words, so that no two of them are about the same."""
    return " ".join("".join(draw.choices(SYLLABLES, k=3)) for _ in range(7))


async def plant(
    node: MemoryNode, extra: int = 75, *, by: tuple[str, ...] = ("kim", "lou"), received: bool = True
) -> int:
    """Five denials of one kind on five days among other escalations; returns the last sequence.

    Args:
        node: The node.
        extra: Number of other escalations.
        by: The agents that deny, in turn.
        received: Whether the broker received them on the days that they name; else all today.
    """
    draw = random.Random(7)
    seq = 0
    for n in range(extra):
        day = node.now - timedelta(days=n % 6)
        seq = await node.append(f"e{n}", sentence(draw), ts=format_ts(day))
    for n, entry_id in enumerate(PLANTED):
        day = node.now - timedelta(days=n)
        seq = await node.append(
            entry_id,
            f"Deploy of checkout build {n} denied because the rollback plan was missing",
            "keeper.decision",
            by=by[n % len(by)],
            received=day if received else None,
            payload={"decision": "denied", "reason": "attach a rollback plan"},
            ts=format_ts(day),
        )
    await node.caught_up(seq)
    return seq


FEW = "fewer than 10, and none of them is permanent"


async def started(node: MemoryNode) -> ConsolidateReactor:
    return await node.react(ConsolidateReactor)


async def run(node: MemoryNode) -> dict[str, Any]:
    node.advance(minutes=20)
    return await node.swept("consolidation", await node.tick("consolidation"))


async def test_what_recurs_becomes_a_rule_with_its_evidence_once(live: MemoryNode) -> None:
    await plant(live)
    await started(live)
    first = await run(live)
    assert first["error"] is None
    assert {name: n for name, n in first["counts"].items() if n} == {"crews": 1, "candidates": 80, "learned": 1}
    [rule] = live.entries("rule.learned")
    assert sorted(rule["evidence"]) == sorted(PLANTED)
    assert rule["days"] == 5
    assert rule["action"] == "attach a rollback plan"
    assert rule["_crew"] == "red"
    [recorded] = live.entries("memory.consolidated")
    assert (recorded["rules_count"], recorded["rules"]) == (1, [rule["_id"]])
    edges = live.store.rows("SELECT dst_entry_id FROM memory_relations WHERE relation = 'supports' ORDER BY 1")
    assert [dst for (dst,) in edges] == sorted(PLANTED)

    second = await run(live)
    assert second["counts"]["learned"] == 0
    assert len(live.entries("rule.learned")) == 1

    await live.caught_up(live.store.rows("SELECT max(seq) FROM journal_entries")[0][0])
    answer = await live.recall_service.recall(ADMIN, parse(RECALL, {"query": "checkout rollback plan denied", "k": 10}))
    assert rule["_id"] in [hit.entry_id for hit in answer.hits]


async def test_rule_that_loses_one_of_five_evidences_to_an_erasure_is_learned_again_from_four(live: MemoryNode) -> None:
    await plant(live)
    await started(live)
    await run(live)
    [rule] = live.entries("rule.learned")

    planned = await erase(live, "p2")

    assert planned["recomputed"] == {
        "rule.learned": "the next consolidation",
        "memory.consolidated": "the next consolidation",
    }
    [example] = [example for example in planned["examples"] if example["what"] == "rule.learned"]
    assert (example["id"], example["remaining_sources"]) == (rule["_id"], 4)
    assert live.entries("rule.learned") == []
    assert (await run(live))["counts"]["learned"] == 1
    [again] = live.entries("rule.learned")
    assert sorted(again["evidence"]) == ["p0", "p1", "p3", "p4"]
    assert again["_id"] != rule["_id"]
    assert (await run(live))["counts"]["learned"] == 0


async def test_a_retracted_rule_leaves_the_block_and_is_not_learned_again(live: MemoryNode) -> None:
    await plant(live)
    await started(live)
    await run(live)
    [rule] = live.entries("rule.learned")
    assert [rule.rule_id for rule in Learned(live.store).rules(WORKSPACE, "red")] == [rule["_id"]]
    retraction = RetractionMade(targets=SequenceSet(ids=(rule["_id"],)), reason="wrong")
    done = await live.journal.record(WORKSPACE, retraction, summary="retracted")
    await live.caught_up(done.seq)
    learned = Learned(live.store)
    assert learned.rules(WORKSPACE, "red") == []
    assert [rule.rule_id for rule in learned.rules(WORKSPACE, "red", done.seq - 1)] == [rule["_id"]]
    assert (await run(live))["counts"]["learned"] == 0


async def test_fewer_than_ten_entries_are_skipped_unless_one_is_permanent(live: MemoryNode) -> None:
    await plant(live, extra=2, received=False)
    await started(live)
    assert (await run(live))["counts"]["skipped"] == 1
    assert live.entries("memory.consolidated") == []
    await live.caught_up(await live.append("pinned", "Never deploy on Fridays", "note.taken", priority="permanent"))
    assert (await run(live))["counts"]["proposed"] == 1, "all were received today"


async def test_a_small_crew_is_not_skipped_for_more_than_a_day(live: MemoryNode) -> None:
    await plant(live, extra=2, received=False)
    await started(live)
    assert (await run(live))["counts"]["skipped"] == 1
    live.advance(days=1)
    counts = (await run(live))["counts"]
    assert (counts["skipped"], counts["candidates"]) == (0, 7)
    assert (await run(live))["counts"]["skipped"] == 1, "nothing is new since the last run"


async def test_a_run_on_request_says_why_it_skipped_a_crew_and_what_it_did_otherwise(live: MemoryNode) -> None:
    await plant(live, extra=2)
    await started(live)
    live.advance(minutes=20)

    async def nothing_missed(_workspace: str) -> None:
        return

    node = live.shared
    node.put(Sweeps, cast(Sweeps, SimpleNamespace(catch_up=nothing_missed)))
    learning = Learning(node, wait_s=20.0)
    few = await learning.consolidate(Caller.of(ADMIN), ConsolidateRequest(crew_id="red", since="8w"))
    assert few.finished
    assert few.skipped == f"{few.counts['candidates']} candidates within the look-back, {FEW}"
    assert 0 < few.counts["candidates"] < 10
    with pytest.raises(NotFound, match="no crew nobody"):
        await learning.consolidate(Caller.of(ADMIN), ConsolidateRequest(crew_id="nobody"))
    await live.caught_up(await live.append("idle", "Lunch is at noon", "note.taken", crew_id="idle"))
    other = await learning.consolidate(Caller.of(ADMIN), ConsolidateRequest(crew_id="idle"))
    assert other.skipped == "no crew has an entry within the look-back from which rules are learned"
    await live.caught_up(await live.append("pinned", "Never deploy on Fridays", "note.taken", priority="permanent"))
    live.advance(minutes=20)
    made = await learning.consolidate(Caller.of(ADMIN), ConsolidateRequest(crew_id="red", since="8w"))
    assert (made.finished, made.skipped, made.counts["learned"]) == (True, None, 1)


async def test_searches_that_find_a_rule_promote_it(live: MemoryNode) -> None:
    await plant(live)
    await started(live)
    await run(live)
    [rule] = live.entries("rule.learned")
    for n in range(30):
        searched = MemorySearched(
            query=f"rollback {n}", scope="own", recipe="robust", hit_ids=(rule["_id"] if n % 2 else "p1",)
        )
        await live.journal.record(WORKSPACE, searched, summary="searched")
    for n in range(5):
        seq = await live.append(
            f"again{n}",
            f"Deploy of checkout build {n} denied because the rollback plan was missing",
            "peer.escalation" if n % 2 else "eval.regression_detected",
            ts=format_ts(live.now - timedelta(days=n)),
        )
        await live.caught_up(seq)
        counts = (await run(live))["counts"]
        assert counts["learned"] == 0
        if counts["promoted"]:
            break
    [promoted] = live.entries("rule.promoted")
    assert promoted["rule_id"] == rule["_id"]
    assert promoted["score"] >= 0.8
    assert Learned(live.store).rules(WORKSPACE, "red")[0].promoted


async def test_a_rule_that_many_searches_find_is_proposed_once_as_a_skill(live: MemoryNode) -> None:
    await plant(live, extra=10)
    await started(live)
    await run(live)
    [rule] = live.entries("rule.learned")
    for n in range(30):
        searched = MemorySearched(query=f"rollback {n}", scope="own", recipe="robust", hit_ids=(rule["_id"],))
        await live.journal.record(WORKSPACE, searched, summary="searched")
    staged = 0
    for n in range(6):
        seq = await live.append(
            f"again{n}",
            f"Deploy of checkout build {n} denied because the rollback plan was missing",
            "peer.escalation",
            priority="permanent",
            ts=format_ts(live.now - timedelta(days=n)),
        )
        await live.caught_up(seq)
        staged += (await run(live))["counts"]["skills"]
    assert staged == 1
    [proposal] = live.entries("proposal.made")
    assert (proposal["skill_of"], proposal["pattern"]) == (rule["_id"], rule["pattern"])
    assert proposal["score"] >= 0.85
    assert proposal["recalls"] >= 10
    assert live.entries("rule.learned") == [rule], "a proposed skill keeps its rule from being learned again"


async def test_a_rule_changes_what_the_agents_of_its_crew_are_shown(live: MemoryNode) -> None:
    ada, bruno, lena = (
        Principal(token_id=f"t_{name}", role=role, workspace_id=WORKSPACE, agent_id=name, crew_id=crew)
        for name, role, crew in (
            ("ada", Role.AGENT, "red"),
            ("bruno", Role.AGENT, "blue"),
            ("lena", Role.LEAD, "red"),
        )
    )
    asked = parse(RECALL, {"query": "deploy of checkout denied rollback plan", "k": 5})

    async def shown(who: Principal) -> list[str]:
        return [hit.entry_id for hit in (await live.recall_service.recall(who, asked)).hits]

    await plant(live)
    for name, crew in (("ada", "red"), ("bruno", "blue"), ("lena", "red")):
        await live.append(f"hello-{name}", "Good morning", "note.taken", agent_id=name, crew_id=crew)
    said = "Deploy of checkout build 9 denied because the rollback plan was missing"
    seq = await live.append("severe", said, severity="warn")
    await live.caught_up(seq)
    assert await shown(ada) == []
    await started(live)
    await run(live)
    await live.caught_up(live.store.rows("SELECT max(seq) FROM journal_entries")[0][0])
    [rule] = live.entries("rule.learned")
    assert await shown(ada) == [rule["_id"]]
    assert await shown(bruno) == []
    for of_lead in (await shown(lena), await shown(ADMIN)):
        assert of_lead[0] == rule["_id"]
        assert set(of_lead[1:]) & set(PLANTED) or "severe" in of_lead


async def test_of_forty_planted_recurrences_most_are_learned_once_and_little_else(live: MemoryNode) -> None:
    entries = planted()
    subject_of = {entry.entry_id: entry.subject for entry in entries}
    for n, one in enumerate(entries):
        seq = await live.append(
            one.entry_id,
            one.summary,
            one.entry_type,
            by=("kim", "lou", "max")[n % 3],
            received=live.now - timedelta(days=one.days_ago // 2 % 2),
            ts=format_ts(live.now - timedelta(days=one.days_ago)),
        )
    await live.caught_up(seq)
    await started(live)
    first = await run(live)
    learned, proposed = live.entries("rule.learned"), live.entries("proposal.made")
    assert (first["counts"]["learned"], first["counts"]["proposed"]) == (len(learned), len(proposed))
    assert len(learned) > len(proposed), "most recurrences are reported by two agents on two days"
    rules = [*learned, *proposed]
    found = set()
    right = 0
    for rule in rules:
        subjects = [subject_of[entry_id] for entry_id in rule["evidence"]]
        assert len(set(rule["evidence"])) == len(subjects)
        if subjects[0] >= 0 and set(subjects) == {subjects[0]}:
            right += 1
            found.add(subjects[0])
    assert right >= 0.8 * len(rules), "precision; docs/consolidation.md has the figures"
    assert len(found) >= 0.75 * SUBJECTS, "recall"
    assert len(found) == right, "no subject is learned twice"
    again = (await run(live))["counts"]
    assert (again["learned"], again["proposed"]) == (0, 0)


async def test_what_one_agent_reports_is_proposed_and_a_second_agent_makes_it_a_rule(live: MemoryNode) -> None:
    await plant(live, by=("kim",))
    await started(live)
    counts = (await run(live))["counts"]
    assert (counts["learned"], counts["proposed"]) == (0, 1)
    [proposal] = live.entries("proposal.made")
    assert (proposal["authors"], proposal["days"]) == (["kim"], 5)
    assert Learned(live.store).rules(WORKSPACE, "red") == []
    assert [one.rule_id for one in Learned(live.store).waiting(WORKSPACE, "red")] == [proposal["_id"]]
    assert (await run(live))["counts"]["proposed"] == 0, "it waits"

    said = "Deploy of checkout build 8 denied because the rollback plan was missing"
    await live.caught_up(await live.append("second", said, by="lou"))
    counts = (await run(live))["counts"]
    assert (counts["learned"], counts["proposed"]) == (1, 0)
    [rule] = live.entries("rule.learned")
    assert (rule["settles"], rule["authors"]) == (proposal["_id"], ["kim", "lou"])
    await live.caught_up(live.store.rows("SELECT max(seq) FROM journal_entries")[0][0])
    assert [rule.authors for rule in Learned(live.store).rules(WORKSPACE, "red")] == [("kim", "lou")]
    assert Learned(live.store).waiting(WORKSPACE, "red") == []


async def test_entries_that_came_in_one_day_are_proposed_whatever_dates_they_have(live: MemoryNode) -> None:
    await plant(live, received=False)
    await started(live)
    counts = (await run(live))["counts"]
    assert (counts["learned"], counts["proposed"]) == (0, 1)
    assert [entry["days"] for entry in live.entries("proposal.made")] == [1]


async def test_rules_of_a_workspace_that_reviews_them_are_proposed_once(live: MemoryNode) -> None:
    await plant(live)
    configured = WorkspaceConfigured(settings={"review_rules": True})
    await live.caught_up((await live.journal.record(WORKSPACE, configured, summary="reviewed")).seq)
    await started(live)
    counts = (await run(live))["counts"]
    assert (counts["learned"], counts["proposed"]) == (0, 1)
    assert live.entries("rule.learned") == []
    [proposal] = live.entries("proposal.made")
    assert sorted(proposal["evidence"]) == sorted(PLANTED)
    [recorded] = live.entries("memory.consolidated")
    assert (recorded["rules_count"], recorded["proposed"]) == (0, [proposal["_id"]])
    switched = await live.journal.record(WORKSPACE, WorkspaceConfigured(), summary="not reviewed")
    await live.caught_up(switched.seq)
    counts = (await run(live))["counts"]
    assert (counts["learned"], counts["proposed"], counts["confirmed"]) == (0, 0, 0), "it waits for its decision"


async def test_rules_are_learned_from_conversations_only_where_a_workspace_allows_it(live: MemoryNode) -> None:
    said = (
        "The import of partner Osk fails because its token expired",
        "Again: the import of partner Osk fails because its token expired",
        "Import of partner Osk fails, because the token of Osk expired",
    )
    asides = ("I prefer tea because coffee keeps me awake", "Does the import fail because a token expired?")
    for n, by in enumerate(("kim", "lou", "kim")):
        day = live.now - timedelta(days=n)
        for at, text in enumerate((said[n], *asides)):
            kind = ("chat.user_message", "message.posted", "chat.agent_response")[at]
            seq = await live.append(f"c{n}{at}", text, kind, by=by, received=day, ts=format_ts(day))
    await live.caught_up(seq)
    await started(live)
    assert (await run(live))["counts"]["crews"] == 0
    allowed = WorkspaceConfigured(settings={"learn_from_chats": True})
    await live.caught_up((await live.journal.record(WORKSPACE, allowed, summary="chats")).seq)
    assert (await run(live))["counts"]["learned"] == 1
    [rule] = live.entries("rule.learned")
    assert sorted(rule["evidence"]) == ["c00", "c10", "c20"]
    assert rule["pattern"] == "The import of partner Osk fails because its token expired"


async def test_ticks_that_come_at_once_learn_a_rule_once(live: MemoryNode) -> None:
    await plant(live)
    live.advance(minutes=20)
    dues = []
    for _ in range(3):
        live.advance(minutes=20)
        dues.append(await live.tick("consolidation"))
    await started(live)
    counts = [(await live.swept("consolidation", due))["counts"] for due in dues]
    assert [count["learned"] for count in counts] == [1, 0, 0]
    assert len(live.entries("rule.learned")) == 1


async def test_a_rule_that_failed_runs_name_falls_in_rank_and_is_proposed_for_retirement(live: MemoryNode) -> None:
    await plant(live, extra=10)
    await started(live)
    await run(live)
    [rule] = live.entries("rule.learned")
    for n, who in enumerate(("kim", "lou")):
        seq = await live.append(
            f"failed{n}", f"Release {n} failed: the plan had no owner", "run.failed", by=who,
            refs={"derived_from": [rule["_id"]]}, ts=format_ts(live.now),
        )  # fmt: skip
    await live.caught_up(seq)
    assert (await run(live))["counts"]["ended"] == 1
    [change] = live.entries("rule.changed")
    assert (change["state"], change["harmed"], set(change["by"])) == ("unhelpful", 2, {"failed0", "failed1"})
    [shown] = Learned(live.store).rules(WORKSPACE, "red")
    assert shown.unhelpful
    assert "did not help" in rules_text([shown])
    retirements = []
    for _ in range(9):
        live.advance(hours=24)
        retirements.append((await run(live))["counts"]["retirements"])
    assert sum(retirements) == 1
    assert retirements.index(1) in (6, 7)
    [proposal] = live.entries("proposal.made")
    assert (proposal["skill_of"], proposal["retires"]) == (rule["_id"], True)


async def test_steps_that_three_runs_took_before_they_completed_are_proposed_once_as_a_procedure(
    live: MemoryNode,
) -> None:
    await started(live)
    steps = ("Freeze release branch {}", "Write the changelog of version {}", "Sign the build {} in the vault")
    for n, who in enumerate(("kim", "lou", "kim", "lou")):
        for at, step in enumerate(steps):
            await live.append(
                f"s{n}{at}",
                step.format(n),
                "crew.action",
                by=who,
                trace_id=f"run{n}",
                received=live.now,
                ts=format_ts(live.now),
            )
        seq = await live.append(
            f"done{n}",
            f"Release {n} is published",
            "run.completed",
            by=who,
            trace_id=f"run{n}",
            received=live.now,
            ts=format_ts(live.now),
        )
        await live.caught_up(seq)
        done = await run(live)
        assert done["counts"]["skills"] == (n == 2)
        live.advance(hours=24)
    [proposal] = live.entries("proposal.made")
    assert proposal["steps"] == [
        "Freeze release branch …", "Write the changelog of version …", "Sign the build … in the vault"
    ]  # fmt: skip
    assert (proposal["evidence"], proposal["authors"]) == (["done0", "done1", "done2"], ["kim", "lou"])
