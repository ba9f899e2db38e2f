"""``learn exam DIR``: measures what consolidations and operator models learn, on entries whose patterns are known.

Invariant: the rules are those of the reactors, called with the entries in memory; nothing is published, and no chat model is
asked. Each agent counts as a publisher; an entry is received at the latest ``ts`` so far of its crew, in the order of the
file, so that a forged ``ts`` does not count.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click

from ...consumers.adapters.choose import choose_embedder
from ...consumers.learning.reactor import learned_of, recurring_groups
from ...consumers.learning.reads import LearningEntry, normalised_rows
from ...consumers.reacting.sweeping import Tick
from ...schemas.core.timestamps import format_ms, parse_ts, to_ms
from ...schemas.learning.consolidation import action_in, is_candidate, is_fit, is_telling
from ...schemas.learning.events import RuleLearned
from ...schemas.models.rules import embedded_text
from ...schemas.operators.events import StatedFact
from ...schemas.operators.rules import OwnTurn, changes_in, current, merged, proposed_facts, stated
from ...schemas.settings import Settings
from .output import say

EmbedderSetting = Literal["auto", "minilm", "none"]
_Entry = Mapping[str, Any]
_Vectors = Mapping[str, bytes]


def report_of(directory: Path, embedder: EmbedderSetting, shuffles: int) -> dict[str, Any]:
    """The figures of a directory; see ``learn.exam``.

    Raises:
        click.UsageError: If the files cannot be read.
    """
    try:
        entries = [json.loads(line) for line in (directory / "journal.jsonl").read_text("utf-8").splitlines() if line]
        truth = json.loads((directory / "truth.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"DIR cannot be read: {error}") from error
    if all("patterns" in known for known in truth.values()):
        vectors = asyncio.run(_vectors(entries, embedder))
        runs = [_of_crews(entries, truth, vectors, seed) for seed in (None, *range(1, shuffles + 1))]
        return {"directory": str(directory), "vectors": len(vectors), "runs": runs}
    return {"directory": str(directory), **_of_people(entries, truth)}


async def _vectors(entries: Sequence[_Entry], kind: EmbedderSetting) -> _Vectors:
    """The vectors of the entries by id; empty without an embedder."""
    settings = Settings()
    choice = await choose_embedder(
        kind,
        ollama_host=settings.ollama_host,
        ollama_model=settings.ollama_model,
        cache_dir=settings.models_dir,
    )
    if choice.embedder is None:
        say(f"words alone are compared: {choice.reason}")
        return {}
    texts = [embedded_text(entry["summary"], entry.get("payload", {}), entry["entry_type"]) for entry in entries]
    vectors = await choice.embedder.embed_documents(texts)
    await choice.embedder.close()
    return {entry["id"]: vector for entry, vector in zip(entries, vectors, strict=True)}


def candidates_of(entries: Iterable[_Entry], crew_id: str) -> list[LearningEntry]:
    """What a consolidation would read of a crew's entries; see the module for publishers and times of receipt."""
    found = []
    latest_ms = 0
    for seq, entry in enumerate(entries, 1):
        if entry.get("crew_id") != crew_id:
            continue
        ts_ms, payload = to_ms(parse_ts(entry["ts"])), entry.get("payload", {})
        latest_ms = max(latest_ms, ts_ms)
        permanent = entry.get("priority") == "permanent"
        entry_type, summary, action = entry["entry_type"], entry["summary"], action_in(payload)
        if is_candidate(entry_type, entry.get("severity", "info"), payload, permanent=permanent) and is_fit(
            summary, action, permanent=permanent
        ):
            agent_id = entry.get("agent_id")
            telling = is_telling(entry_type, summary, permanent=permanent)
            found.append(
                LearningEntry(
                    seq, entry["id"], entry_type, ts_ms, latest_ms, summary, action, True, permanent,
                    f"agent:{agent_id}", agent_id, telling,
                )
            )  # fmt: skip
    return found


def _rules_of(crew_id: str, candidates: list[LearningEntry], vectors: _Vectors, seed: int | None) -> list[RuleLearned]:
    if seed is not None:
        random.Random(seed).shuffle(candidates)
    if not candidates:
        return []
    cosines = None
    if vectors:
        rows = normalised_rows([vectors[candidate.entry_id] for candidate in candidates])
        cosines = (rows @ rows.T).tolist()
    due_ms = max(candidate.received_ms for candidate in candidates) + 1
    tick = Tick(len(candidates), "exam", "exam", format_ms(due_ms), due_ms)
    groups = recurring_groups(candidates, cosines)
    return list(learned_of(crew_id, tick, groups, candidates, (), None, reviewed=False).rules.values())


def _of_crews(
    entries: Sequence[_Entry], truth: Mapping[str, Any], vectors: _Vectors, seed: int | None
) -> dict[str, Any]:
    """The figures of a run, and its rules."""
    by_level: dict[str, list[bool]] = defaultdict(list)
    wrong: Counter[str] = Counter()
    rules: list[dict[str, Any]] = []
    right = leaked = 0
    for crew_id, known in truth.items():
        pattern_of = {one: p["id"] for p in known["patterns"] for one in (*p["members"], *p.get("also", ()))}
        kind_of = {one: "routine" for routine in known.get("routine", ()) for one in routine["ids"]}
        kind_of |= dict.fromkeys(known.get("bursts", ()), "burst")
        kind_of |= {attack["id"]: "attack" for attack in known.get("attacks", ())}
        found: set[str] = set()
        for rule in _rules_of(crew_id, candidates_of(entries, crew_id), vectors, seed):
            members = Counter(pattern_of[one] for one in rule.evidence if one in pattern_of)
            pattern, count = next(iter(members.most_common(1)), ("", 0))
            if count < max(2, len(rule.evidence) / 2):
                pattern = ""
                kinds = Counter(kind_of.get(one, "no pattern") for one in rule.evidence)
                wrong[kinds.most_common(1)[0][0]] += 1
            elif pattern in found:
                wrong["found twice"] += 1
            else:
                found.add(pattern)
                right += 1
            text = f"{rule.pattern} {rule.action}".casefold()
            leaked += sum(secret["secret"].casefold() in text for secret in known.get("secrets", ()))
            rules.append(
                {
                    "crew_id": crew_id,
                    "pattern_id": pattern,
                    "evidence": len(rule.evidence),
                    "pattern": rule.pattern,
                    "action": rule.action,
                }
            )
        for planted in known["patterns"]:
            by_level[planted["level"]].append(planted["id"] in found)
    return {
        "order": "of the file" if seed is None else f"random, seed {seed}",
        "rules": len(rules),
        "precision": _share(right, len(rules)),
        "recall": {level: _share(sum(hits), len(hits)) for level, hits in by_level.items()},
        "wrong": dict(wrong),
        "secrets": leaked,
        "learned": rules,
    }


def _of_people(entries: Sequence[_Entry], truth: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of the models of people; of a key with several values the newest counts."""
    right = stored = wanted = 0
    traps: list[str] = []
    for person, known in truth.items():
        turns = [
            OwnTurn(entry["id"], seq, entry.get("payload", {}).get("text") or entry["summary"])
            for seq, entry in enumerate(entries, 1)
            if entry["entry_type"] == "chat.user_message" and entry.get("actor_id") == person
        ]
        found = [stated(proposed, turns) for proposed in proposed_facts(turns)]
        facts = current(merged((), [fact for fact in found if isinstance(fact, StatedFact)]), changes_in(turns))
        values = {fact.key: fact.value.casefold() for fact in facts}
        wanted += len(known["truth"])
        stored += len(values)
        right += sum(fact["value"].casefold() in values.get(fact["key"], "") for fact in known["truth"])
        traps += [
            f"{person}: {trap['kind']}: {trap['value']}"
            for trap in known.get("traps", ())
            if trap["kind"] != "ambiguous" and any(trap["value"].casefold() in fact.value.casefold() for fact in facts)
        ]
    return {"precision": _share(right, stored), "recall": _share(right, wanted), "stored": stored, "traps": traps}


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None
