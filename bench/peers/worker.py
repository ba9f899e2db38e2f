"""Measures one other memory, in a Python that has its package installed; started by ``bench.peers``.

Usage: ``python worker.py NAME FOLDER``. ``FOLDER`` holds what ``bench.peers`` wrote (``given.json``, ``vectors.npy``) and
takes the store. Prints one JSON document.

Invariant: imports the standard library, numpy and the one package. Every peer gets the same texts and vectors, and is asked
through its own search call; nothing of it is changed but where its vectors come from.
"""

import importlib.metadata
import json
import math
import re
import sqlite3
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

K = 10
BATCH = 500
FRESH = 20
WARM = 20
RRF = 60
"""The constant of reciprocal rank fusion, of Cormack, Clarke and Büttcher (2009)."""
LANE = 100


class Sqlite:
    """FTS5 for words, one numpy product for meaning, both fused by reciprocal rank: what one writes in an afternoon."""

    package = None

    def __init__(self, folder, by_text):
        del by_text
        self.db = sqlite3.connect(folder / "memory.sqlite")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("CREATE VIRTUAL TABLE entries USING fts5(text, tokenize = 'porter unicode61')")
        self.db.execute("CREATE TABLE facts (rowid INTEGER PRIMARY KEY, id TEXT, agent TEXT, vector BLOB)")
        self.ids, self.agents, self.rows = [], [], np.empty((0, 384), np.float32)

    def add(self, ids, texts, agents, vectors):
        first = len(self.ids)
        with self.db:
            numbered = list(enumerate(zip(ids, agents, vectors, strict=True), first))
            self.db.executemany(
                "INSERT INTO facts VALUES (?, ?, ?, ?)", [(n, i, a, v.tobytes()) for n, (i, a, v) in numbered]
            )
            self.db.executemany("INSERT INTO entries(rowid, text) VALUES (?, ?)", list(enumerate(texts, first)))
        self.ids += ids
        self.agents += agents
        if len(self.ids) > len(self.rows):
            grown = np.empty((max(2 * len(self.rows), len(self.ids)), 384), np.float32)
            grown[:first] = self.rows[:first]
            self.rows = grown
        self.rows[first : len(self.ids)] = vectors

    def search(self, text, vector, agent):
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", text))
        clause = "" if agent is None else "AND facts.agent = ?"
        rows = self.db.execute(
            "SELECT facts.rowid FROM entries JOIN facts ON facts.rowid = entries.rowid "
            f"WHERE entries MATCH ? {clause} ORDER BY bm25(entries) LIMIT {LANE}",
            (words,) if agent is None else (words, agent),
        ).fetchall()
        scores = self.rows[: len(self.ids)] @ vector
        if agent is not None:
            scores[np.array(self.agents) != agent] = -2
        best = np.argpartition(scores, -min(LANE, len(scores)))[-LANE:]
        total = {}
        for lane in ([row for (row,) in rows], best[np.argsort(-scores[best])].tolist()):
            for rank, row in enumerate(lane, 1):
                total[row] = total.get(row, 0) + 1 / (RRF + rank)
        return [self.ids[row] for row in sorted(total, key=total.__getitem__, reverse=True)[:K]]


class Chroma:
    """A persistent collection, cosine; its search is by vector alone."""

    package = "chromadb"

    def __init__(self, folder, by_text):
        import chromadb

        del by_text
        settings = chromadb.Settings(anonymized_telemetry=False)
        client = chromadb.PersistentClient(str(folder / "chroma"), settings=settings)
        self.entries = client.create_collection("memory", metadata={"hnsw:space": "cosine"}, embedding_function=None)

    def add(self, ids, texts, agents, vectors):
        self.entries.add(ids=ids, documents=texts, embeddings=vectors, metadatas=[{"agent": agent} for agent in agents])

    def search(self, text, vector, agent):
        del text
        where = {} if agent is None else {"where": {"agent": agent}}
        return self.entries.query(query_embeddings=[vector], n_results=K, include=[], **where)["ids"][0]


class Lance:
    """Full text and vectors in a table, fused by LanceDB's reciprocal rank."""

    package = "lancedb"

    def __init__(self, folder, by_text):
        import lancedb
        from lancedb.rerankers import RRFReranker

        del by_text
        self.db, self.table, self.rerank = lancedb.connect(folder / "lance"), None, RRFReranker()

    def add(self, ids, texts, agents, vectors):
        rows = [
            {"id": i, "text": t, "agent": a, "vector": v}
            for i, t, a, v in zip(ids, texts, agents, vectors, strict=True)
        ]
        if self.table is None:
            self.table = self.db.create_table("memory", rows)
            self.table.create_fts_index("text")
        else:
            self.table.add(rows)
            if len(rows) > 1:
                self.table.optimize()

    def search(self, text, vector, agent):
        query = self.table.search(query_type="hybrid").vector(vector).text(re.sub(r"[^\w ]", " ", text))
        query = query.distance_type("cosine").rerank(self.rerank).limit(K)
        if agent is not None:
            query = query.where(f"agent = '{agent}'", prefilter=True)
        return [row["id"] for row in query.select(["id"]).to_list()]


class Mem0:
    """The library with its default store (Qdrant in a folder) and ``infer=False``: texts are kept as they are."""

    package = "mem0ai"

    def __init__(self, folder, by_text):
        from mem0 import Memory

        store = {
            "collection_name": "memory",
            "path": str(folder / "qdrant"),
            "embedding_model_dims": 384,
            "on_disk": True,
        }
        config = {
            "vector_store": {"provider": "qdrant", "config": store},
            "llm": {"provider": "openai", "config": {"api_key": "unused"}},
            "embedder": {"provider": "openai", "config": {"api_key": "unused", "embedding_dims": 384}},
            "history_db_path": str(folder / "history.db"),
        }
        self.memory = Memory.from_config(config)
        self.memory.embedding_model = Given(by_text)

    def add(self, ids, texts, agents, vectors):
        for i, text, agent, vector in zip(ids, texts, agents, vectors, strict=True):
            self.memory.embedding_model.by_text[text.strip()] = vector
            self.memory.add(text, user_id=agent, run_id="all", metadata={"given": i}, infer=False)

    def search(self, text, vector, agent):
        self.memory.embedding_model.by_text[text.strip()] = vector
        filters = {"run_id": "all"} if agent is None else {"user_id": agent}
        results = self.memory.search(text, filters=filters, top_k=K, threshold=0.0)["results"]
        return [hit["metadata"]["given"] for hit in results]


class MemPalace:
    """Drawers of a palace on its default backend, one wing for each conversation, searched as its MCP tool does."""

    package = "mempalace"

    def __init__(self, folder, by_text):
        from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2
        from mempalace.palace import get_collection
        from mempalace.searcher import search_memories

        def vectors_of(self, input):
            return [by_text[text.strip()] for text in input]

        ONNXMiniLM_L6_V2.__call__ = vectors_of
        self.by_text, self.find, self.place = by_text, search_memories, str(folder / "palace")
        self.drawers = get_collection(self.place, create=True)

    def add(self, ids, texts, agents, vectors):
        self.by_text.update(zip((text.strip() for text in texts), vectors, strict=True))
        about = [
            {"wing": agent, "room": "chat", "source_file": f"{i}.txt", "chunk_index": 0, "added_by": "bench"}
            for i, agent in zip(ids, agents, strict=True)
        ]
        self.drawers.upsert(ids=ids, documents=texts, metadatas=about)

    def search(self, text, vector, agent):
        self.by_text[text.strip()] = vector
        results = self.find(text, self.place, wing=agent, n_results=K)
        return [hit["source_file"].removesuffix(".txt") for hit in results["results"]]


class Given:
    """In place of an embedding model: the vectors that were made beforehand."""

    def __init__(self, by_text):
        self.by_text = by_text

    def embed(self, text, memory_action=None):
        del memory_action
        return self.by_text[text.strip()].tolist()

    def embed_batch(self, texts, memory_action=None):
        return [self.embed(text, memory_action) for text in texts]


PEERS: dict[str, Any] = {"sqlite": Sqlite, "chroma": Chroma, "lancedb": Lance, "mempalace": MemPalace, "mem0": Mem0}


def resident_mb():
    """Resident memory of this process, MB."""
    text = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) * 1024 / 1e6


def disk_mb(folder):
    """Size of all files in a folder, MB."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def scored(ranked, relevant):
    """Recall@10 and nDCG@10 of one ranking; relevance is 0 or 1."""
    hits = [hit in relevant for hit in ranked[:K]]
    gain = sum(hit / math.log2(rank + 1) for rank, hit in enumerate(hits, 1))
    return sum(hits) / len(relevant), gain / sum(
        1 / math.log2(rank + 1) for rank in range(1, min(K, len(relevant)) + 1)
    )


def add_all(peer, entries, vectors):
    """Add in batches; returns entries a second."""
    began = time.perf_counter()
    for first in range(0, len(entries), BATCH):
        part = entries[first : first + BATCH]
        peer.add(
            *([record[name] for record in part] for name in ("id", "text", "agent")), vectors[first : first + BATCH]
        )
    return len(entries) / (time.perf_counter() - began)


def measure(name, folder):
    """All figures of one peer."""
    inputs = json.loads((folder / "given.json").read_text("utf-8"))
    vectors = np.load(folder / "vectors.npy")
    turns, filler, questions = inputs["turns"], inputs["filler"], inputs["questions"]
    of_turns, of_filler, of_questions = np.split(vectors, [len(turns), len(turns) + len(filler)])
    peer_class = PEERS[name]
    (folder / "small").mkdir()
    peer = peer_class(folder / "small", known := {})
    add_all(peer, turns, of_turns)
    questions_and_vectors = list(zip(questions, of_questions, strict=True))
    scores = [scored(peer.search(q["text"], v, q["agent"]), set(q["relevant"])) for q, v in questions_and_vectors]
    del peer

    (folder / "large").mkdir()
    peer = peer_class(folder / "large", known)
    add_all(peer, filler, of_filler)
    rate = add_all(peer, turns, of_turns)
    for question, vector in questions_and_vectors[:WARM]:
        peer.search(question["text"], vector, None)
    took = []
    for question, vector in questions_and_vectors:
        began = time.perf_counter()
        peer.search(question["text"], vector, None)
        took.append(time.perf_counter() - began)
    memory = resident_mb()
    fresh = []
    for n in range(FRESH):
        text, vector = f"zq{n:04d} {filler[n]['text']}", np.roll(of_turns[n], 7)
        began = time.perf_counter()
        peer.add([f"fresh-{n}"], [text], ["fresh"], vector[None])
        while f"fresh-{n}" not in peer.search(text, vector, None):
            time.sleep(0.001)
        fresh.append(time.perf_counter() - began)
    recalls, gains = zip(*scores, strict=True)
    package = peer_class.package
    return {
        "version": sqlite3.sqlite_version if package is None else importlib.metadata.version(package),
        "recall": statistics.mean(recalls),
        "ndcg": statistics.mean(gains),
        "p50_ms": statistics.median(took) * 1e3,
        "p95_ms": sorted(took)[int(len(took) * 0.95)] * 1e3,
        "added_per_s": rate,
        "fresh_ms": statistics.median(fresh) * 1e3,
        "memory_mb": memory,
        "disk_mb": disk_mb(folder / "large"),
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
