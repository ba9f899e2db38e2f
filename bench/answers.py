"""What an assembled context holds of what answers a question, against plain recall of the same size.

Sets (``shared/data``, evaluation only): ``own/everyday_dev``, ``own/updates_dev``, ``own/palace_dev`` as messages and with a
filled palace (each message that is worth storing as a drawer, each value of its timeline as a fact), ``locomo_dev``. All are
folded into one store and embedded with MiniLM.

A text is held if the whole of it is in the text of the memories. "Newest first": the relevant texts of a question about
now stand above every text that does not hold any more. Plain recall is the hits of the mode ``search``, as many as recall
gives (50), a line with date and speaker each, as many as fit into the size; rendered recall is the same in the lines of
``render``.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any, Final

import numpy as np
import Stemmer

from bench.context import layered_over
from bench.figures import Report, at_least, say
from bench.journals import DIM, OWNER, entry_message, raw
from bench.quality import PROJECT
from bench.quality_index import lines_of, recorded
from bench.recall import fold_all
from crew_journal.consumers.adapters.minilm import MiniLmEmbedder
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID, ensure_static_table, install_minilm
from crew_journal.consumers.discovery import discover_projections
from crew_journal.consumers.host.host import Host
from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.context.operations import ContextAnswer, ContextRequest
from crew_journal.schemas.core.derived import OutgoingMessage, encode_vector
from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.envelope import ChunkVectorDerived, TokenBitsDerived, VectorDerived
from crew_journal.schemas.core.ids import SYSTEM_WORKSPACE, hash64
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.timestamps import format_ts, parse_ts
from crew_journal.schemas.facts.events import FactAsserted, FactEntity
from crew_journal.schemas.facts.names import entity_id
from crew_journal.schemas.models.events import EmbeddingsActivated, encode_chunk_vector, encode_token_bits
from crew_journal.schemas.models.rules import embedded_text
from crew_journal.schemas.palace.events import DrawerFiled
from crew_journal.schemas.palace.rules import exchange
from crew_journal.schemas.prompt.assembler import estimate, one_line
from crew_journal.schemas.recall.operations import RecallHit, RecallRequest
from crew_journal.schemas.recall.render import PromptHit as RenderedMemory
from crew_journal.schemas.recall.render import line_of
from crew_journal.schemas.settings import Settings
from crew_journal.schemas.text.analyzer import Analyzer
from crew_journal.services.context.use_cases import Assembling
from crew_journal.services.desk import Caller
from crew_journal.services.documents.owned import PromptDocuments
from crew_journal.services.entries.queries import JournalQueries
from crew_journal.services.recall.recall import RecallService

SHARED: Final = Path(os.environ.get("CREW_JOURNAL_SHARED_DATA", PROJECT.parent / "shared" / "data"))
USED: Final = 0.8
SIZES: Final = (2_000, 500, 8_000)
K: Final = 50
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a set.

    Attributes:
        text: As it is asked.
        kind: ``now``, ``then`` or the set's own.
        agent_id: Whose memory is asked.
        now: When.
        relevant: Texts that answer it; one of them is enough, except for ``whole``.
        outdated: Texts that do not hold at that time.
        values: What the answer must contain, and what it must not.
    """

    text: str
    kind: str
    agent_id: str
    now: str
    relevant: tuple[str, ...]
    outdated: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


@dataclass(frozen=True, slots=True)
class Source:
    """A set: a workspace of the store, and its questions.

    Attributes:
        name: As it is reported.
        workspace: Where it is folded.
        records: Its journal.
        questions: Its questions.
        drawers: Payloads of drawers with their times and ids.
        facts: Payloads of facts.
    """

    name: str
    workspace: str
    records: Sequence[Mapping[str, Any]]
    questions: Sequence[Question]
    drawers: Sequence[tuple[DrawerFiled, datetime]] = ()
    facts: Sequence[tuple[FactAsserted, datetime]] = ()


@dataclass(slots=True)
class Scores:
    """What was measured for the questions of one kind, in one size."""

    share: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    rendered: list[float] = field(default_factory=list)
    same: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    named: list[float] = field(default_factory=list)
    lines: list[float] = field(default_factory=list)


def sources(folder: Path = SHARED) -> list[Source]:
    """The sets that are there."""
    sources_ = []
    for name in ("everyday_dev", "updates_dev", "palace_dev"):
        at = folder / "own" / name
        if not at.is_dir():
            say(f"{at} is absent: left out")
            continue
        records, questions = lines_of(at / "journal.jsonl"), _questions(at)
        sources_.append(Source(f"own/{name}", name.replace("_", "-"), records, questions))
        if name == "updates_dev":
            known = _with_changes(records, lines_of(at / "facts.jsonl"))
            sources_.append(Source("own/updates_dev, changes known", "updates-known", known, questions))
        if name == "palace_dev":
            drawers, facts = _palace(at, records)
            sources_.append(Source("own/palace_dev, palace filled", "palace-full", records, questions, drawers, facts))
    if (at := folder / "locomo_dev").is_dir():
        records = lines_of(at / "journal.jsonl")
        last: dict[str, datetime] = {}
        for record in records:
            last[record["agent_id"]] = max(
                parse_ts(record["ts"]), last.get(record["agent_id"], _START.replace(year=1970))
            )
        texts = {record["id"]: record["summary"] for record in records}
        locomo_questions = [
            Question(
                q["query"],
                q["category"],
                q["agent_id"],
                format_ts(last[q["agent_id"]] + timedelta(hours=1)),
                tuple(texts[entry_id] for entry_id in q["relevant_ids"]),
            )
            for q in lines_of(at / "queries.jsonl")
            if q["relevant_ids"]
        ]
        sources_.append(Source("locomo_dev", "locomo-dev", records, locomo_questions))
    return sources_


def _questions(at: Path) -> list[Question]:
    texts = {record["id"]: record["summary"] for record in lines_of(at / "journal.jsonl")}
    return [
        Question(
            q["query"],
            q["kind"],
            q["agent_id"],
            q["asked_at"],
            tuple(texts[entry_id] for entry_id in q["relevant_ids"]),
            tuple(texts[entry_id] for entry_id in (*q.get("old_ids", ()), *q.get("later_ids", ()))),
            (tuple(q.get("must_contain", ())), tuple(q.get("must_not_contain", ()))),
        )
        for q in lines_of(at / "queries.jsonl")
        if q["relevant_ids"]
    ]


def _with_changes(records: Sequence[Mapping[str, Any]], facts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The journal with ``supersedes`` where a statement replaces or withdraws another."""
    replaces = {
        statement["id"]: [*statement["replaces"]]
        for fact in facts
        for statement in fact["statements"]
        if statement["replaces"] and statement["effect"] != "amends"
    }
    one_author = {"actor_type": "user", "actor_id": "author"}
    return [
        {**record, **one_author, **({"supersedes": replaces[record["id"]]} if record["id"] in replaces else {})}
        for record in records
    ]


def _palace(
    at: Path, records: Sequence[Mapping[str, Any]]
) -> tuple[list[tuple[DrawerFiled, datetime]], list[tuple[FactAsserted, datetime]]]:
    """Each message worth storing as the palace files an exchange, and each value of the timeline as a fact."""
    labels = {label["id"]: label for label in lines_of(at / "labels.jsonl")}
    times = {record["id"]: parse_ts(record["ts"]) for record in records}
    drawers = []
    for record in records:
        label, text = labels[record["id"]], exchange(record["summary"], [])
        if label["store"] and text is not None:
            filed = DrawerFiled(
                drawer_id=f"drawer_conversations_{label['type']}_{hash64(text):016x}",
                wing="conversations",
                room=label["type"],
                content=text,
                memory_type=label["type"],
            )
            drawers.append((filed, times[record["id"]]))
    facts = []
    for topic, known in json.loads((at / "timeline.json").read_text("utf-8")).items():
        subject, values = known["subject"], known["values"]
        for n, value in enumerate(values):
            until = (
                None if n + 1 == len(values) else parse_ts(values[n + 1]["since"] + "T00:00:00Z") - timedelta(days=1)
            )
            fact = FactAsserted(
                fact_id=f"t_{topic}_{n}",
                subject=FactEntity(entity_id=entity_id(subject), name=subject),
                predicate="is",
                object=FactEntity(entity_id=entity_id(value["value"]), name=value["value"]),
                valid_from=value["since"],
                valid_to=None if until is None else until.date().isoformat(),
                single_valued=True,
            )
            facts.append((fact, times[value["id"]]))
    return drawers, facts


@dataclass(frozen=True, slots=True)
class Node:
    """What answers the questions."""

    recall: RecallService
    assembling: Assembling


@asynccontextmanager
async def answering(folder: Path, sets: Sequence[Source]) -> AsyncIterator[Node]:
    """A store with the sets, embedded."""
    cache = Settings().models_dir
    install_minilm(cache)
    table = ensure_static_table(cache)
    embedder = MiniLmEmbedder(cache)
    store = ViewStore.open(folder / "answers.duckdb", memory_mb=Settings().duckdb_memory_mb)
    host = Host(store, discover_projections(), park=_never)
    await host.open()
    on = EmbeddingsActivated(model=MODEL_ID, embedder="minilm", dim=DIM, reason="bench")
    await host.fold(raw([_control(on, "activation", SYSTEM_WORKSPACE, _START)], 1))
    for source in sets:
        events = recorded(source.records, source.workspace, host.checkpoint + 1)
        texts = [embedded_text(event.entry.summary, event.entry.payload) for event in events]
        vectors_and_tokens = await embedder.embed_documents_tokens(texts)
        await fold_all(host, [entry_message(event.entry, f"{event.seq:032x}") for event in events])
        derived: list[OutgoingMessage] = []
        for event, (vector, tokens) in zip(events, vectors_and_tokens, strict=True):
            entry = event.entry
            fact = VectorDerived(
                0, source.workspace, entry.id, event.seq, MODEL_ID, DIM, vector, f"{event.seq:032x}", entry.entry_type,
                entry.severity.value, entry.priority.value, entry.crew_id, entry.agent_id, event.ts_ms, 0, "embed@1",
            )  # fmt: skip
            derived.append(encode_vector(fact, 1))
            if tokens is not None and tokens.bits:
                bits = TokenBitsDerived(
                    0, source.workspace, entry.id, event.seq, MODEL_ID, tokens.quantiser, tokens.dim, tokens.bits,
                    tokens.first_passage, 0, "embed@1",
                )  # fmt: skip
                derived.append(encode_token_bits(bits, 1))
        kept: list[tuple[str, DrawerFiled | FactAsserted, datetime]] = []
        kept += [(f"d{n}", drawer, ts) for n, (drawer, ts) in enumerate(source.drawers)]
        kept += [(f"f{n}", fact, ts) for n, (fact, ts) in enumerate(source.facts)]
        texts = [_text_of(payload) for _, payload, _ in kept]
        for text, vector in zip(texts, await embedder.embed_documents(texts), strict=True) if texts else ():
            chunk = ChunkVectorDerived(
                0, source.workspace, MODEL_ID, hash64(text), len(vector) // 4, vector, "bench", 0, "bench@1"
            )
            derived.append(encode_chunk_vector(chunk, 1))
        derived += [_control(payload, name, source.workspace, ts) for name, payload, ts in kept]
        await fold_all(host, derived)
        say(f"answers: {source.name}: {len(events)} entries, {len(kept)} drawers and facts")
    recall = RecallService(
        store,
        lambda _: embedder,
        analyzer=Analyzer(Stemmer.Stemmer),
        budget_bytes=Settings().hot_index_mb << 20,
        clock=lambda: datetime.now(UTC),
        embed_timeout_s=30.0,
        static_table=lambda: None if table is None else table.view(np.uint64),
    )
    queries, owned = JournalQueries(store), PromptDocuments(store)
    yield Node(recall, layered_over(store, recall, queries, owned, lambda: datetime.now(UTC)).use(Assembling))
    queries.close()
    for part in (owned, recall):
        part.close()
    await host.close()
    store.close()
    await embedder.close()


def _text_of(payload: DrawerFiled | FactAsserted) -> str:
    if isinstance(payload, DrawerFiled):
        return payload.content
    return payload.text or f"{payload.subject.name} {payload.predicate} {payload.object.name}"


def _control(payload: ControlPayload, name: str, workspace: str, ts: datetime) -> OutgoingMessage:
    entry = JournalEntry(
        id=f"{workspace}-{name}" if workspace != SYSTEM_WORKSPACE else name,
        workspace_id=workspace,
        ts=ts,
        entry_type=payload.ENTRY_TYPE,
        summary=name,
        payload=payload.model_dump(mode="json"),
    )
    return entry_message(entry, "0" * 32, control=True)


async def _never(parked: Any) -> None:
    raise RuntimeError(f"{parked.projection} parked {parked.message.seq}: {parked.reason}")


async def measured(node: Node, source: Source, size: int) -> dict[str, Scores]:
    """The scores by kind of question, and of all under ``all``."""
    caller = Caller.of(OWNER, source.workspace)
    by_kind: dict[str, Scores] = {}
    for question in source.questions:
        request = ContextRequest(
            prompt=question.text,
            agent_id=question.agent_id,
            now=question.now,
            record=False,
            workspace_id=source.workspace,
            budget_tokens=size,
        )
        context = await node.assembling.assemble(caller, request)
        recall_request = RecallRequest(
            query=question.text,
            k=K,
            asked_at=question.now,
            agent_id=question.agent_id,
            workspace_id=source.workspace,
        )
        hits = (await node.recall.answer(OWNER, recall_request)).response.hits
        for kind in (question.kind, "all"):
            _score(by_kind.setdefault(kind, Scores()), question, context, hits, size)
    return by_kind


def _score(into: Scores, question: Question, context: ContextAnswer, hits: Sequence[RecallHit], size: int) -> None:
    memory = context.memory
    relevant = [_plain_text(text) for text in question.relevant]
    into.share.append(_held(memory, relevant))
    into.plain.append(_held(_within(hits, size), relevant))
    into.rendered.append(_held(_rendered(hits, size), relevant))
    into.same.append(_held(_within(hits, context.tokens["memory"]), relevant))
    into.used.append(context.tokens["total"] / size)
    if any(drop.part == "memory" and drop.reason.startswith("no room") for drop in context.drops):
        into.full.append(context.tokens["total"] / size)
    into.lines.append(len(context.items))
    outdated = [_plain_text(text) for text in question.outdated]
    if question.kind == "now":
        places = [at for text in relevant if (at := memory.find(text)) >= 0]
        old = [at for text in outdated if (at := memory.find(text)) >= 0]
        into.first.append(float(len(places) == len(relevant) and all(max(places) < at for at in old)))
        right, wrong = question.values
        named = [at for text in right if (at := memory.casefold().find(text.casefold())) >= 0]
        stale = [at for text in wrong if (at := memory.casefold().find(text.casefold())) >= 0]
        into.named.append(float(bool(named) and len(named) == len(right) and all(min(named) < at for at in stale)))


def _plain_text(text: str) -> str:
    return one_line(text)


def _held(memory: str, texts: Sequence[str]) -> float:
    return sum(text in memory for text in texts) / len(texts)


def _within(hits: Sequence[RecallHit], tokens: int) -> str:
    lines = ""
    for hit in hits:
        line = f"- {hit.ts[:10]} {hit.agent_id or hit.actor_id}: {one_line(hit.summary)}\n"
        if estimate(lines) + estimate(line) > tokens:
            break
        lines += line
    return lines


def _rendered(hits: Sequence[RecallHit], tokens: int) -> str:
    """The lines of a rendered recall, the best first, as many as fit; without the lines around them."""
    lines = ""
    for place, hit in enumerate(hits):
        memory = RenderedMemory(
            hit.entry_type, hit.summary, hit.age_seconds, hit.score, hit.agent_id, hit.actor_type, hit.actor_id,
            date=hit.ts[:10], confidence=hit.confidence,
        )  # fmt: skip
        line = f"{line_of(place, memory).text}\n"
        if estimate(lines) + estimate(line) > tokens:
            break
        lines += line
    return unescape(lines)


def _figures(report: Report, source: Source, size: int, by_kind: Mapping[str, Scores]) -> None:
    for kind, scores in by_kind.items():
        name = f"{source.name}, {kind} ({len(scores.share)}), {size:,} tokens"
        report.figure(
            f"{name}: context", _mean(scores.share), "of the relevant texts", at_least(_mean(scores.rendered))
        )
        report.baseline(f"{name}: plain recall", _mean(scores.plain), "of the relevant texts")
        report.baseline(f"{name}: rendered recall", _mean(scores.rendered), "of the relevant texts")
        report.baseline(f"{name}: plain recall as long as the context", _mean(scores.same), "of the relevant texts")
        if kind == "all":
            report.figure(f"{name}: used", _mean(scores.used), "of the budget")
            report.figure(f"{name}: contexts into which not everything fits", len(scores.full), "contexts")
            if scores.full:
                report.figure(f"{name}: used by these", _mean(scores.full), "of the budget", at_least(USED))
                report.figure(f"{name}: least used by these", min(scores.full), "of the budget")
            report.figure(f"{name}: memories", _mean(scores.lines), "memories")
        if scores.first:
            report.figure(f"{name}: newest text first", _mean(scores.first), "of the questions")
            report.figure(f"{name}: newest value first", _mean(scores.named), "of the questions")


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


async def run(quick: bool, folder: Path) -> Report:
    """All sets and sizes; ``quick`` leaves ``locomo_dev`` and the other sizes out."""
    report = Report("answers", quick)
    sets = [source for source in sources() if not quick or source.name != "locomo_dev"]
    async with answering(folder, sets) as node:
        for size in SIZES[:1] if quick else SIZES:
            for source in sets:
                _figures(report, source, size, await measured(node, source, size))
    return report
