"""``learn exam DIR``: measures what consolidations and operator models learn, on entries whose patterns are known.

Invariant: the rules are those of the reactors, called with the entries in memory; nothing is published. Each agent counts as
a publisher; an entry is received at the latest ``ts`` so far of its crew, in the order of the file, so that a forged ``ts``
does not count. A chat model is asked if one is named, about each crew twice: the second time it knows the rules of the
first, so that a rule that it words again must be recognised.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click

from ...consumers.adapters.chat import chat_model_of
from ...consumers.adapters.choose import choose_embedder
from ...consumers.learning.prompt import ProposedRules
from ...consumers.learning.reactor import (
    learned_of,
    question_about,
    recurring_groups,
    rule_id,
    texts_of,
    worded_groups,
)
from ...consumers.learning.reads import KnownRule, LearningEntry, normalised_rows
from ...consumers.operators.prompt import Facts, question
from ...consumers.reacting.sweeping import Tick
from ...schemas.core.ports import Embedder
from ...schemas.core.timestamps import format_ms, parse_ts, to_ms
from ...schemas.learning.consolidation import action_in, is_candidate, is_fit, is_telling
from ...schemas.learning.events import RuleLearned
from ...schemas.models.chat import ChatModel
from ...schemas.models.rules import embedded_text
from ...schemas.operators.events import StatedFact
from ...schemas.operators.rules import OwnTurn, changes_in, current, merged, proposed_facts, stated
from ...schemas.settings import Settings
from .output import say

EmbedderSetting = Literal["auto", "minilm", "none"]
_Entry = Mapping[str, Any]
_Vectors = Mapping[str, bytes]
_ASKED: Final = 2
"""How often a chat model is asked about a crew."""


def report_of(
    directory: Path, embedder: EmbedderSetting, shuffles: int, settings: Settings, model: str | None = None
) -> dict[str, Any]:
    """The figures of a directory; see ``learn.exam``.

    Args:
        directory: The entries and the truth.
        embedder: Of the vectors.
        shuffles: Further runs in random order.
        settings: Where the models are.
        model: Name of the chat model to ask; None to ask none.

    Raises:
        click.UsageError: If the files cannot be read.
        ChatError: The chat model gave no answer.
    """
    try:
        entries = [json.loads(line) for line in (directory / "journal.jsonl").read_text("utf-8").splitlines() if line]
        truth = json.loads((directory / "truth.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"DIR cannot be read: {error}") from error
    return {"directory": str(directory)} | asyncio.run(_report(entries, truth, embedder, shuffles, settings, model))


async def _report(
    entries: Sequence[_Entry],
    truth: Mapping[str, Any],
    kind: EmbedderSetting,
    shuffles: int,
    settings: Settings,
    model: str | None,
) -> dict[str, Any]:
    chat = None if model is None else chat_model_of(settings, model)
    try:
        if not all("patterns" in known for known in truth.values()):
            return await _of_people(entries, truth, chat)
        choice = await choose_embedder(
            kind, ollama_host=settings.ollama_host, ollama_model=settings.ollama_model, cache_dir=settings.models_dir
        )
        if choice.embedder is None:
            say(f"words alone are compared: {choice.reason}")
        try:
            vectors = await _vectors(entries, choice.embedder)
            learner = _Learner(vectors, choice.embedder, chat)
            runs = [await _of_crews(entries, truth, learner, seed) for seed in (None, *range(1, shuffles + 1))]
        finally:
            if choice.embedder is not None:
                await choice.embedder.close()
        return {"vectors": len(vectors), "runs": runs}
    finally:
        if chat is not None:
            await chat.close()


async def _vectors(entries: Sequence[_Entry], embedder: Embedder | None) -> _Vectors:
    """The vectors of the entries by id; empty without an embedder."""
    if embedder is None:
        return {}
    texts = [embedded_text(entry["summary"], entry.get("payload", {}), entry["entry_type"]) for entry in entries]
    vectors = await embedder.embed_documents(texts)
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


@dataclass(frozen=True, slots=True)
class _Learner:
    """What learns: the vectors of the entries, and the models."""

    vectors: _Vectors
    embedder: Embedder | None
    chat: ChatModel | None

    async def rules_of(self, crew_id: str, candidates: list[LearningEntry], seed: int | None) -> list[RuleLearned]:
        """The rules that the candidates of a crew suggest, in a random order if there is a seed."""
        if seed is not None:
            random.Random(seed).shuffle(candidates)
        if not candidates:
            return []
        rows = None
        if self.vectors:
            rows = normalised_rows([self.vectors[candidate.entry_id] for candidate in candidates])
        due_ms = max(candidate.received_ms for candidate in candidates) + 1
        if self.chat is None:
            groups = recurring_groups(candidates, None if rows is None else (rows @ rows.T).tolist())
            tick = Tick(len(candidates), "exam", "exam", format_ms(due_ms), due_ms)
            return list(learned_of(crew_id, tick, groups, candidates, (), None, reviewed=False).rules.values())
        rules: list[RuleLearned] = []
        known: list[KnownRule] = []
        for turn in range(_ASKED):
            tick = Tick(len(candidates) + turn, "exam", f"exam_{turn}", format_ms(due_ms), due_ms)
            answer = (await self.chat.complete(question_about(candidates, known), ProposedRules)).answer
            texts = texts_of(answer, candidates, known)
            worded = None if self.embedder is None or not texts else await self.embedder.embed_documents(texts)
            groups = worded_groups(answer, candidates, known, rows, None if worded is None else normalised_rows(worded))
            found = learned_of(crew_id, tick, groups, candidates, known, self.chat.model_id, reviewed=False).rules
            rules += found.values()
            known += [
                KnownRule(
                    rule_id(tick, crew_id, name), rule.pattern, rule.action, rule.confidence, rule.evidence, rule.days,
                    due_ms, tick.seq, 1, False, False, rule.publishers,
                )
                for name, rule in found.items()
            ]  # fmt: skip
        return rules


async def _of_crews(
    entries: Sequence[_Entry], truth: Mapping[str, Any], learner: _Learner, seed: int | None
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
        for rule in await learner.rules_of(crew_id, candidates_of(entries, crew_id), seed):
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


async def _of_people(entries: Sequence[_Entry], truth: Mapping[str, Any], chat: ChatModel | None) -> dict[str, Any]:
    """The figures of the models of people; of a key with several values the newest counts."""
    right = stored = wanted = 0
    traps: list[str] = []
    for person, known in truth.items():
        turns = [
            OwnTurn(entry["id"], seq, entry.get("payload", {}).get("text") or entry["summary"])
            for seq, entry in enumerate(entries, 1)
            if entry["entry_type"] == "chat.user_message" and entry.get("actor_id") == person
        ]
        proposals = (
            proposed_facts(turns) if chat is None else (await chat.complete(question(turns), Facts)).answer.proposed()
        )
        found = [stated(proposed, turns) for proposed in proposals]
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
