"""A journal that an earlier commit writes and folds, folded by this version: are the rows of its views the same?

    .venv/bin/python -m bench.old_folds [COMMIT] [--entries 80000]    # exit code 1 if a difference is not on purpose
    .venv/bin/python -m bench.old_folds [COMMIT] --turns 12           # CPU of both versions in turns, and the ratios
    .venv/bin/python -m bench.old_folds [COMMIT] --recall 200         # the same of recall in process, with a control

The commit's own code makes the messages and folds them, in a worktree of it. This file runs under both versions, so it
imports only what has the same name in both. The journal has entries of the corpus, vectors, drawers and facts with all that
happens to them, documents, recalls, and messages that the strategies of the contract tests of that commit draw.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
COMMIT: Final = "73f15d4c"
BATCH: Final = 1_000
WORKSPACE: Final = "bench-00"
DAY_MS: Final = 86_400_000
START_MS: Final = 1_767_600_000_000
"""Early in 2026, a day after the corpus begins."""
ON_PURPOSE: Final = {
    "checkpoint": "the versions of views",
    "drawers": "since then, what an OWNER filed is not replaced by what an agent filed",
    "drawer_upkeep": "the same drawers",
    "kg_facts": "since then, what a reactor asserted from a drawer ends with the drawer",
    "journal_entries": "since then, chats are embedded unless a workspace says otherwise",
}
"""Table → why its rows are others in workspaces that the drawn streams fill; those of ``WORKSPACE`` are equal, because its
drawers are filed by agents, nobody but agents asserts its facts, and it says that chats are embedded."""
OTHER_COLUMNS: Final = {"conversation_turns": ("flags", "days"), "embed_policies": ("policy",)}
"""Columns that are others on purpose: "during May" is a time since then, and the embed policy has version 3."""
LIVE: Final = "until_seq IS NULL AND superseded_by IS NULL AND state <> 'merged'"
_WORDS, _LINES = "text_hash, terms, counts", "number, first_line, last_line"
_HERE: Final = f"workspace_id = '{WORKSPACE}'"
MOVED: Final = {
    "texts of drawers": (
        f"SELECT key, drawer_id, entry_id, content, {_WORDS} FROM old.drawers WHERE {LIVE} AND {_HERE}",
        f"SELECT key, item, source_id, text, {_WORDS} FROM new.drawer_texts WHERE {_HERE}",
    ),
    "texts of documents": (
        f"SELECT key, owner, coalesce(doc_key, ''), {_LINES}, breadcrumb, text, {_WORDS} FROM old.memory_chunks",
        f"SELECT key, owner, item, {_LINES}, label, text, {_WORDS} FROM new.chunk_texts",
    ),
    "texts of facts": (
        "SELECT key, fact_id, entry_id, text_hash, namespace FROM old.kg_facts WHERE until_seq IS NULL",
        "SELECT key, item, source_id, text_hash, place FROM new.fact_texts",
    ),
    "postings": tuple(f"SELECT * FROM (FROM {v}.postings UNION ALL FROM {v}.postings_tail)" for v in ("old", "new")),
}
"""Rows that are in other tables now."""


def _messages(entries: int) -> Iterator[Any]:
    """Messages of every kind, in random order, apart from what must come after what it names."""
    import numpy as np
    from support.events import chunk_vector, control, document, link, token_bits

    from bench.corpus import Corpus
    from bench.journals import MODEL, ready_made, vector_messages

    chance = random.Random(30)
    corpus = Corpus(entries)
    rest = entries // 16
    drawers: list[str] = []
    facts: list[str] = []
    documents: list[str] = []
    days, is_due = 0, False
    units = np.random.default_rng(5)

    def text(n: int, words: int) -> str:
        return " ".join(corpus.words[rank] for rank in corpus.ranks(n % entries).tolist()[:words])

    def some(known: list[str], most: int) -> list[str]:
        return [chance.choice(known) for _ in range(chance.randint(1, most))]

    def entity() -> dict[str, str]:
        n = int(chance.paretovariate(0.4)) % (rest // 4)
        return {
            "entity_id": f"e_{n}",
            "name": f"{corpus.words[n]} {n}",
            "type": chance.choice(["entity", "entity", "tool"]),
        }

    def made(payload: dict[str, Any], entry_type: str, n: int, actor: str = "system") -> Any:
        payload = {name: value for name, value in payload.items() if value is not None}
        moment = START_MS + days * DAY_MS + n
        return control(payload, f"c{n}", entry_type=entry_type, workspace=WORKSPACE, actor_type=actor, ts_ms=moment)

    def of_drawer(n: int) -> Any:
        nonlocal days, is_due
        if is_due:
            is_due = False
            due = time.strftime("%Y-%m-%dT03:00:00Z", time.gmtime(START_MS / 1000 + days * DAY_MS / 1000))
            return made({"sweep": "decay", "due": due}, "sweep.ticked", n)
        if chance.random() < 0.05:
            days, is_due = days + chance.randrange(3), True
        if is_due or chance.random() < 0.4 or len(drawers) < 50:
            wing, room = f"w{n % 12}", f"r{n % 60}"
            again = drawers and not is_due and chance.random() < 0.1
            name = chance.choice(drawers) if again else f"drawer_{wing}_{room}_{n:016x}"
            drawers.append(name)
            filed = {"drawer_id": name, "wing": wing, "room": room, "content": text(n, 30), "importance": n % 6 / 1.0}
            age = 0 if is_due else chance.randrange(90)  # in a workspace without a new drawer nothing decays since then
            filed |= {"filed_ms": START_MS + (days - age) * DAY_MS, "state": chance.choice(["raw", "processed"])}
            return made(
                {**filed, "memory_type": chance.choice(["general", "diary", "decision"])}, "drawer.filed", n, "agent"
            )
        one = {"drawer_id": chance.choice(drawers)}
        answer = {"memory_type": "fact", "importance": n % 5 / 2.0, "pipeline_tier": "llm", "summary": text(n, 5)}
        payloads: dict[str, Any] = {
            "classified": {**one, **answer},
            "updated": {**one, "wing": chance.choice([None, f"w{n % 12}"]), "importance": chance.choice([None, 2.5])},
            "linked": {**one, "entity_count": n % 4, "triple_count": n % 3},
            "reinforced": {"added": one["drawer_id"], "drawer_ids": some(drawers, 12), "boost": 0.5},
            "answer_rejected": {"drawer_ids": some(drawers, 5), "alone": chance.random() < 0.5},
            "merged": {"into": one["drawer_id"], "drawer_ids": some(drawers, 4), "summary": chance.choice(["", text(n, 4)])},
            "superseded": {**one, "superseded_by": chance.choice(drawers)},
            "pruned": {"drawer_ids": some(drawers, 4)},
            "deleted": one,
            "restored": one,
        }  # fmt: skip
        kind = chance.choice([*payloads, "reinforced", "restored"])
        return made(payloads[kind], f"drawer.{kind}", n, chance.choice(["system", "user"]))

    def of_fact(n: int) -> Any:
        if chance.random() < 0.6 or len(facts) < 50:
            facts.append(f"t_{n}")
            asserted = {"fact_id": facts[-1], "subject": entity(), "predicate": f"p{n % 20}", "object": entity()}
            source = chance.choice([None, chance.choice(drawers)]) if drawers else None
            words = {"text": chance.choice([None, text(n, 9)]), "confidence": round(chance.random(), 3)}
            return made(
                {**asserted, **words, "source_drawer_id": source, "single_valued": n % 7 == 0},
                "fact.asserted",
                n,
                "agent",
            )
        kind = chance.choice(["ended", "ended", "verified", "verification_requested", "named"])
        if kind == "named":
            aliases = {"aliases": [entity()], "dropped_aliases": chance.choice([[], [entity()]])}
            renamed = {**entity(), "name": f"{text(n, 2)} {n % 50}"}
            return made({"entity": renamed, **aliases}, "kg.entity_named", n)
        payloads: dict[str, dict[str, Any]] = {
            "ended": {"fact_ids": some(facts, 3), "ended": "2026-02-01", "reason": "moved"},
            "verified": {"fact_id": chance.choice(facts), "confidence": chance.choice([None, 0.25])},
            "verification_requested": {"fact_ids": some(facts, 5), "cause": "stale"},
        }
        return made(payloads[kind], f"fact.{kind}", n)

    def of_document(n: int) -> Any:
        documents.append(f"w_{n}")
        tier, key = chance.choice(
            [("AGENT", None), ("daily", f"2026-01-{n % 28 + 1:02d}"), ("topics", f"a/{n % 40}.md")]
        )
        action = chance.choice(["replace", "append", "append", "append", "retract", "restore"])
        lines = "".join(f"- {text(n + i, 12)}\n" for i in range(chance.randint(1, 8)))
        content = "" if action == "retract" else f"## {text(n, 2)}\n{lines}"
        return document(
            documents[-1],
            workspace=WORKSPACE,
            owner=f"a-agent-{n % 12:02d}",
            tier=tier,
            key=key,
            action=action,
            content=content,
        )

    def of_recall(n: int) -> Any:
        named = [corpus.entry_id(chance.randrange(entries)) for _ in range(5)] + [f"c{chance.randrange(max(n, 1))}"]
        crew = {"crew_id": f"crew-{n % 3}", "agent_id": f"agent-{n % 12:02d}"}
        if chance.random() < 0.5:
            rendered = chance.choice([None, named[-3:]])
            searched = {
                "query": text(n, 3),
                "scope": "own",
                "recipe": "default",
                "hit_ids": named,
                "rendered": rendered,
            }
            return made({**searched, **crew}, "memory.searched", n)
        return made({"entries": [{"entry_id": one, "count": 1 + n % 3} for one in named]}, "memory.referenced", n)

    def of_text(n: int) -> Any:
        vector = units.standard_normal(384).astype("float32")
        return chunk_vector(
            text(n, 30), (vector / np.linalg.norm(vector)).tolist(), model=MODEL, workspace=WORKSPACE, write_id=f"c{n}"
        )

    def of_entry(n: int) -> Any:
        src, dst = chance.randrange(1, entries), chance.randrange(1, entries)
        if chance.random() < 0.3:
            return token_bits(corpus.entry_id(src), entry_seq=src + 2, model=MODEL, tokens=8, workspace=WORKSPACE)
        ends: dict[str, Any] = {
            "src_seq": src + 2,
            "dst_seq": dst + 2,
            "relation": chance.choice(["similar", "contradicts", "supports"]),
        }
        return link(corpus.entry_id(src), corpus.entry_id(dst), workspace=WORKSPACE, crew="crew-1", **ends)

    chats = {"settings": {"embed_chat": True}}
    yield made(chats, "workspace.configured", entries, "user")
    for first in range(0, entries, 5_000):
        yield from ready_made(corpus, first, min(entries, first + 5_000))
    chosen = {n: n + 2 for n in range(entries) if corpus.is_embedded(n)}
    yield from vector_messages(corpus, dict(list(chosen.items())[:rest]), MODEL, 384)
    kinds = [of_drawer] * 6 + [of_fact] * 6 + [of_document] * 3 + [of_recall] * 2 + [of_text] * 3 + [of_entry]
    for n in range(rest * 5):
        yield chance.choice(kinds)(n)
    yield from _drawn(entries // 200)


def _drawn(streams: int) -> Iterator[Any]:
    """Streams as the contract tests draw them."""
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from support.strategies import journals

    found: list[Any] = []

    @seed(30)
    @settings(
        max_examples=streams,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(journals(40))
    def collect(stream: list[Any]) -> None:
        found.extend(stream)

    collect()
    yield from found


def write(entries: int, path: Path) -> None:
    """Write the journal: sequence, subject, headers, body and time of each message."""
    rows = []
    for n, one in enumerate(_messages(entries), 1):
        body = one.data if hasattr(one, "data") else one.body
        rows.append((n, one.subject, one.headers or None, bytes(body), START_MS + 100 * n))
    path.write_bytes(pickle.dumps(rows))


async def fold(rows: Sequence[Any], views: Path) -> None:
    """Fold the journal with every projection of the version that runs."""
    from crew_journal.consumers.discovery import discover_projections
    from crew_journal.consumers.feed.messages import RawMessage
    from crew_journal.consumers.host.host import Host
    from crew_journal.consumers.host.store import ViewStore

    parked: list[tuple[str, int]] = []

    async def park(refused: Any) -> None:
        parked.append((refused.projection, refused.message.seq))

    messages = [RawMessage(*row) for row in rows]
    store = ViewStore.open(views, memory_mb=512)
    host = Host(store, discover_projections(), park=park, housekeeping=False)
    await host.open()
    began = time.process_time()
    for first in range(0, len(messages), BATCH):
        await host.fold(messages[first : first + BATCH])
    seconds = time.process_time() - began
    if host.laggards:
        raise RuntimeError(f"suspended: {host.status()}")
    await host.close()
    store.close()
    views.with_suffix(".parked").write_bytes(pickle.dumps(sorted(parked)))
    print(f"{len(messages):,} messages, {seconds / len(messages) * 1e6:.0f} µs of CPU each, {len(parked)} parked")


def compare(old: Path, new: Path) -> int:
    """Print each table of both files whose rows differ; 1 if one differs without a reason."""
    import duckdb

    con = duckdb.connect()
    con.execute(f"ATTACH '{old}' AS old (READ_ONLY)")
    con.execute(f"ATTACH '{new}' AS new (READ_ONLY)")
    columns: dict[str, dict[str, list[str]]] = {"old": {}, "new": {}}
    for version, table, column in con.execute(
        "SELECT database_name, table_name, column_name FROM duckdb_columns() WHERE database_name IN ('old', 'new')"
    ).fetchall():
        columns[version].setdefault(table, []).append(column)

    def count(query: str) -> int:
        return int(con.execute(f"SELECT count(*) FROM ({query})").fetchall()[0][0])

    failed, equal, rows = 0, 0, 0
    pairs = dict(MOVED)
    for table in sorted(columns["old"].keys() & columns["new"].keys() - {"postings", "postings_tail", "postings_runs"}):
        names = ", ".join(
            f'"{name}"'
            for name in columns["old"][table]
            if name in columns["new"][table] and name not in OTHER_COLUMNS.get(table, ())
        )
        pairs[table] = (f"SELECT {names} FROM old.{table}", f"SELECT {names} FROM new.{table}")
        if dropped := [name for name in columns["old"][table] if name not in columns["new"][table]]:
            print(f"{table}: columns {', '.join(dropped)} are in other tables or gone")
    for name, (before, after) in pairs.items():
        lost, more, all_ = count(f"{before} EXCEPT ALL {after}"), count(f"{after} EXCEPT ALL {before}"), count(before)
        rows += all_
        equal += not (lost or more)
        if lost or more:
            here = "" if name == "checkpoint" else f" WHERE workspace_id = '{WORKSPACE}'"
            wrong = name not in ON_PURPOSE or (
                here
                and count(f"{before}{here} EXCEPT ALL {after}{here}")
                + count(f"{after}{here} EXCEPT ALL {before}{here}")
            )
            failed |= bool(wrong)
            why = f"NOT EXPECTED, {wrong}" if wrong else ON_PURPOSE[name]
            print(f"{name}: {lost} of {all_} rows only in the old views, {more} only in the new: {why}")
    print(f"{equal} of {len(pairs)} tables are equal; {rows:,} rows in the old views")
    for version, other in (("old", "new"), ("new", "old")):
        print(f"only in the {version} views: {', '.join(sorted(columns[version].keys() - columns[other].keys()))}")
    parked = [set(pickle.loads(path.with_suffix(".parked").read_bytes())) for path in (old, new)]
    if parked[0] != parked[1]:
        print(
            f"parked only by the old: {sorted(parked[0] - parked[1])}; only by the new: {sorted(parked[1] - parked[0])}"
        )
    return failed


def _turns(corpus: Any, turns: int) -> dict[str, list[list[list[Any]]]]:
    """Figure → for each turn the commits, each a list of messages; what they name was folded before, by earlier figures."""
    from support.events import chunk_vector, control

    from bench.corpus import Corpus, random_units
    from bench.journals import MODEL, ready_made, vector_messages

    def made(n: int, entry_type: str, **payload: Any) -> Any:
        return control(payload, f"{entry_type.replace('.', '-')}-{n}", entry_type=entry_type, workspace=WORKSPACE)

    def text(n: int) -> str:
        return " ".join(corpus.words[rank] for rank in corpus.ranks(n % corpus.entries).tolist())

    def entity(n: int) -> dict[str, str]:
        return {"entity_id": f"e_{n}", "name": f"{corpus.words[n]} {n}"}

    def fact(n: int) -> Any:
        ends = {"subject": entity(n % 900), "object": entity(900 + n % 2_000)}
        return made(n, "fact.asserted", fact_id=f"t_{n}", predicate=f"p{n // 900}", text=text(n)[:200], **ends)

    def drawer(n: int) -> list[Any]:
        place = {"wing": f"w{n % 12}", "room": f"r{n % 60}", "memory_type": "general", "state": "processed"}
        filed = made(n, "drawer.filed", drawer_id=f"drawer_{n}", content=text(n), importance=n % 6 / 1.0, **place)
        return [filed, chunk_vector(text(n), units[n % len(units)].tolist(), model=MODEL, workspace=WORKSPACE)]

    def ended(n: int) -> Any:
        return made(n, "fact.ended", fact_ids=[f"t_{n}"], ended="2026-02-01")

    def reinforced(n: int) -> Any:
        ids = [f"drawer_{(n * 31 + i * 7) % (500 * turns)}" for i in range(20)]
        return made(n, "drawer.reinforced", added=ids[0], drawer_ids=ids, boost=0.5)

    def referenced(n: int) -> Any:
        named = [{"entry_id": f"drawer-filed-{(n * 31 + i) % (500 * turns)}", "count": 1} for i in range(10)]
        return made(n, "memory.referenced", entries=named)

    units = random_units(2_000, 384, 5)
    entries = ready_made(corpus, 0, corpus.entries)
    seqs = {n: n + 1 for n in range(corpus.entries) if n % 2 == 0}
    vectors = list(vector_messages(corpus, seqs, MODEL, 384))
    more = ready_made(Corpus(40 * turns, seed=2, prefix="g"), 0, 40 * turns)

    def alone(make: Callable[[int], Any], count: int) -> list[list[list[Any]]]:
        return [[[make(turn * count + i)] for i in range(count)] for turn in range(turns)]

    return {
        "fold of 1,000 entries": [[entries[turn * 1_000 : turn * 1_000 + 1_000]] for turn in range(turns)],
        "fold of 500 vectors": [[vectors[turn * 500 : turn * 500 + 450]] for turn in range(turns)],
        "commits of 1 entry": alone(lambda n: more[n], 20),
        "commits of 1 vector": alone(lambda n: vectors[n // 20 * 500 + 450 + n % 20], 20),
        "fold of 500 drawers with vectors": [
            [[one for n in range(turn * 500, turn * 500 + 500) for one in drawer(n)]] for turn in range(turns)
        ],
        "fold of 500 facts": [[[fact(turn * 500 + i) for i in range(500)]] for turn in range(turns)],
        "commits that end 1 fact": alone(ended, 5),
        "commits that reinforce 20 drawers": alone(reinforced, 3),
        "commits of 10 references": alone(referenced, 3),
    }


async def fold_on_demand(turns: int, views: Path) -> None:
    """Fold one turn of a figure for each line of stdin, and print its CPU seconds."""
    from bench.corpus import Corpus
    from crew_journal.consumers.discovery import discover_projections
    from crew_journal.consumers.feed.messages import RawMessage
    from crew_journal.consumers.host.host import Host
    from crew_journal.consumers.host.store import ViewStore

    async def park(refused: Any) -> None:
        sys.exit(f"{refused.projection}: {refused.reason}")

    plan = _turns(Corpus(1_000 * turns), turns)
    store = ViewStore.open(views, memory_mb=512)
    host = Host(store, discover_projections(), park=park, housekeeping=False)
    await host.open()
    seq = 0
    print("; ".join(plan), flush=True)
    for line in sys.stdin:
        name, turn = line.rstrip("\n").rsplit(" ", 1)
        commits = []
        for commit in plan[name][int(turn)]:
            rows = enumerate(commit, seq + 1)
            commits.append(
                [RawMessage(at, one.subject, one.headers or None, one.body, START_MS + at) for at, one in rows]
            )
            seq += len(commit)
        began = time.process_time()
        for messages in commits:
            await host.fold(messages)
        print((time.process_time() - began) / len(commits), flush=True)


def take_turns(trees: Sequence[Path], turns: int) -> None:
    """Print for each figure the medians of both versions and of the pairs' ratios."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        both = [
            _started(stack, tree, "turns", str(turns), str(folder / f"{number}.duckdb"))
            for number, tree in enumerate(trees)
        ]
        *_, names = [one.stdout.readline().rstrip("\n").split("; ") for one in both]

        def ask(one: Any, line: str) -> float:
            print(line, file=one.stdin, flush=True)
            return float(one.stdout.readline())

        for name in names:
            pairs = [[ask(one, f"{name} {turn}") for one in both] for turn in range(turns)]
            low, middle, high = quantiles([new / old for old, new in pairs], n=4)
            old, new = (median(pair[i] for pair in pairs) * 1_000 for i in range(2))
            print(f"{name}: {old:.2f} ms, {new:.2f} ms, ratio {middle:.2f} [{low:.2f}, {high:.2f}]", flush=True)
        for one in both:
            one.stdin.close()


RECALLED_ENTRIES: Final = 100_000
RECALLED_VECTORS: Final = 10_000
RECIPES: Final = ("lexical", "robust", "", "dense", "rrf", "conversational")
""""" is the default."""
ROUNDS: Final = 9
"""Times that each query is asked in each process; the least CPU time counts, since other programs only add to it."""


async def recall_on_demand(folder: Path, entries: int = RECALLED_ENTRIES, vectors: int = RECALLED_VECTORS) -> None:
    """Answer one query for each line of stdin (recipe, number of the query), and print CPU seconds and the answer's hash."""
    import bench.recall

    recall: Any = bench.recall  # with the names that both trees have there
    corpus = recall.Corpus(entries)
    moment = recall.datetime(2026, 6, 1, tzinfo=recall.UTC)
    embedder = recall.ReadyEmbedder()
    async with recall._views(folder / "views.duckdb", corpus, vectors) as (store, _):  # noqa: SLF001 - 73f15d4 has it under this name
        service = recall.RecallService(
            store,
            lambda _: embedder,
            analyzer=recall.Analyzer(recall.Stemmer.Stemmer),
            budget_bytes=512 << 20,
            clock=lambda: moment,
        )
        queries = corpus.queries(1_000, seed=6)
        print("ready", flush=True)
        for line in sys.stdin:
            recipe, number = line.rstrip("\n").split(" ")
            request = recall.RecallRequest(
                query=queries[int(number)], k=recall.K, workspace_id=corpus.workspace(0), recipe=recipe or None
            )
            began = time.process_time()
            answer = await service.recall(recall.OWNER, request)
            took = time.process_time() - began
            print(took, hashlib.sha256(answer.model_dump_json().encode()).hexdigest(), flush=True)
        service.close()


def take_turns_of_recall(trees: Sequence[Path], query_count: int) -> None:
    """Print for each recipe the mean of the queries' least CPU times in each process, and ratios to the first [95 %]."""
    from crew_journal.services.cli.exam import cluster_bootstrap  # here: the earlier commit has it elsewhere

    with ExitStack() as stack:
        children = [
            _started(stack, tree, "recall", stack.enter_context(tempfile.TemporaryDirectory())) for tree in trees
        ]
        for child in children:
            while child.stdout.readline() != "ready\n":
                if child.poll() is not None:
                    raise RuntimeError("a process ended before it was ready")

        def ask(child: Any, line: str) -> tuple[float, str]:
            print(line, file=child.stdin, flush=True)
            took, answer = child.stdout.readline().split()
            return float(took), answer

        chance = random.Random(7)
        queries = [str(number) for number in range(query_count)]
        for recipe in RECIPES:
            least = [[float("inf")] * len(children) for _ in range(query_count)]
            equal = 0
            for number in range(query_count):
                answers = {}
                for _ in range(ROUNDS):
                    for at in chance.sample(range(len(children)), len(children)):
                        took, answers[at] = ask(children[at], f"{recipe} {number}")
                        least[number][at] = min(least[number][at], took)
                equal += len({answers[at] for at in range(1, len(children))}) == 1
            figures = []
            for at in range(len(children)):
                ratio = cluster_bootstrap([times[at] / times[0] for times in least], queries)
                assert ratio is not None
                mean = fmean(times[at] for times in least) * 1_000
                figures.append(f"{mean:.2f} ms {ratio.mean:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]")
            print(f"{recipe or 'default'}: {'; '.join(figures)}; the later processes agree on {equal}", flush=True)
        for child in children:
            child.stdin.close()


def _started(stack: ExitStack, tree: Path, *arguments: str) -> Any:
    """A process of this file with the code of a checkout, asked by its stdin and ended with the stack."""
    env = stack.enter_context(_code_of(tree))
    process = subprocess.Popen(
        _command(*arguments), env=env, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return stack.enter_context(process)


@contextmanager
def _code_of(tree: Path) -> Iterator[dict[str, str]]:
    """The environment in which ``crew_journal``, ``bench`` and ``support`` are those of a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "crew_journal").symlink_to(tree)
        path = [folder, str(tree), str(tree / "tests"), os.environ.get("PYTHONPATH", "")]
        yield {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", str(Path(__file__).resolve()), *arguments]


def _run(tree: Path, *arguments: str) -> None:
    """This file under the code of a checkout."""
    with _code_of(tree) as env:
        subprocess.run(_command(*arguments), env=env, cwd=tree, check=True)


def main() -> int:
    """Write, fold with both, compare; or take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default=COMMIT)
    parser.add_argument("--entries", type=int, default=80_000, help="of the corpus; 40 %% more messages come with them")
    parser.add_argument("--turns", type=int, help="compare CPU times instead, in this number of turns")
    parser.add_argument(
        "--recall", type=int, help="compare the CPU of recall in process instead, over this many queries"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crew-journal-old-folds-") as temporary:
        folder = Path(temporary)
        tree, journal, old, new = folder / "tree", folder / "journal", folder / "old.duckdb", folder / "new.duckdb"
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), chosen.commit], cwd=ROOT, check=True)
        try:
            if chosen.turns:
                take_turns((tree, ROOT), chosen.turns)
                return 0
            if chosen.recall:
                take_turns_of_recall((tree, ROOT, ROOT), chosen.recall)
                return 0
            _run(tree, "write", str(chosen.entries), str(journal))
            _run(tree, "fold", str(journal), str(old))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
        _run(ROOT, "fold", str(journal), str(new))
        return compare(old, new)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(int(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[1:2] == ["fold"]:
        asyncio.run(fold(pickle.loads(Path(sys.argv[2]).read_bytes()), Path(sys.argv[3])))
    elif sys.argv[1:2] == ["turns"]:
        asyncio.run(fold_on_demand(int(sys.argv[2]), Path(sys.argv[3])))
    elif sys.argv[1:2] == ["recall"]:
        asyncio.run(recall_on_demand(Path(sys.argv[2])))
    else:
        sys.exit(main())
