"""A MemPalace store as its programs leave it: Chroma 1.x's SQLite file, the knowledge graph, and the tunnels.

The columns are those that MemPalace 3 and Chroma's migrations define; the tables that no reader needs are left out.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

_CHROMA = """
PRAGMA journal_mode=WAL;
CREATE TABLE collections (id TEXT PRIMARY KEY, name TEXT NOT NULL, dimension INTEGER, database_id TEXT NOT NULL,
    config_json_str TEXT, schema_str TEXT, UNIQUE (name, database_id));
CREATE TABLE segments (id TEXT PRIMARY KEY, type TEXT NOT NULL, scope TEXT NOT NULL,
    collection TEXT REFERENCES collections(id) NOT NULL);
CREATE TABLE embeddings (id INTEGER PRIMARY KEY, segment_id TEXT NOT NULL, embedding_id TEXT NOT NULL,
    seq_id BLOB NOT NULL, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE (segment_id, embedding_id));
CREATE TABLE embedding_metadata (id INTEGER REFERENCES embeddings(id), key TEXT NOT NULL, string_value TEXT,
    int_value INTEGER, float_value REAL, bool_value INTEGER, PRIMARY KEY (id, key));
INSERT INTO collections VALUES ('c1', 'mempalace_drawers', 384, 'd', '{}', '{}'), ('c2', 'mempalace_closets', 384, 'd',
    '{}', '{}');
INSERT INTO segments VALUES ('s1', 'urn:chroma:segment/metadata/sqlite', 'METADATA', 'c1'),
    ('s2', 'urn:chroma:segment/vector/hnsw-local-persisted', 'VECTOR', 'c1'),
    ('s3', 'urn:chroma:segment/metadata/sqlite', 'METADATA', 'c2');
"""
_KNOWLEDGE = """
CREATE TABLE entities (id TEXT PRIMARY KEY, name TEXT NOT NULL, type TEXT DEFAULT 'unknown',
    properties TEXT DEFAULT '{}', created_at TEXT DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE triples (id TEXT PRIMARY KEY, subject TEXT NOT NULL, predicate TEXT NOT NULL, object TEXT NOT NULL,
    valid_from TEXT, valid_to TEXT, confidence REAL DEFAULT 1.0, source_closet TEXT, source_file TEXT,
    source_drawer_id TEXT, adapter_name TEXT, extracted_at TEXT DEFAULT CURRENT_TIMESTAMP);
INSERT INTO entities (id, name, type) VALUES ('backend', 'Backend', 'project'), ('mongodb', 'MongoDB', 'unknown'),
    ('postgresql', 'PostgreSQL', 'tool');
INSERT INTO triples (id, subject, predicate, object, valid_from, valid_to, source_drawer_id) VALUES
    ('t1', 'backend', 'uses', 'mongodb', '2024-06-01', '2025-01-14', NULL),
    ('t2', 'backend', 'uses', 'postgresql', '2025-01-15', NULL, 'drawer_api_storage_1'),
    ('t3', 'backend', 'uses', 'mongodb', 'spring 2023', NULL, NULL);
"""
DECISION = "We decided to use PostgreSQL because MongoDB lost two writes."
MINED = {
    "source_file": "/p/a.md",
    "chunk_index": 0,
    "added_by": "mempalace",
    "source_mtime": 1.5,
    "hall": "hall_technical",
}
DRAWERS: dict[str, tuple[str, Mapping[str, object]]] = {
    "drawer_api_storage_1": (
        DECISION,
        {"wing": "api", "room": "storage", "filed_at": "2025-01-15T10:20:30.123456", **MINED},
    ),
    "drawer_web_login_2": ("The login page sends the form twice on Safari.", {"wing": "web", "room": "login", **MINED}),
    "diary_wing_ada_20250116_1": (
        "Today the importer ran for the first time.",
        {
            "wing": "wing_ada",
            "room": "diary",
            "hall": "hall_diary",
            "topic": "importer",
            "type": "diary_entry",
            "agent": "ada o'neil",
            "filed_at": "2025-01-16T08:00:00+00:00",
            "chunk_index": 0,
        },
    ),
    "drawer_web_login_3": ("line\n" * 3_000, {"wing": "web", "room": "login", **MINED}),
    "_reg_4": ("[registry] /p/b.md", {"wing": "web", "room": "_registry", "ingest_mode": "registry"}),
    "drawer_web_login_5": ("", {"wing": "web", "room": "login", **MINED}),
}
TUNNELS = [
    {
        "id": "0123456789abcdef",
        "source": {"wing": "api", "room": "storage", "drawer_id": "drawer_api_storage_1"},
        "target": {"wing": "web", "room": "login"},
        "label": "sessions are stored",
        "kind": "explicit",
        "created_at": "2025-02-01T00:00:00+00:00",
        "strength": 1.05,
    },
    {
        "id": "fedcba9876543210",
        "source": {"wing": "api", "room": "topic:Angular"},
        "target": {"wing": "web", "room": "topic:Angular"},
        "label": "shared topic: Angular",
        "kind": "topic",
        "created_at": "2025-02-01T00:00:00+00:00",
    },
]


def write_store(home: Path) -> Path:
    """A store below a home directory, as ``~/.mempalace``; its path."""
    root = home / ".mempalace"
    palace = root / "palace"
    palace.mkdir(parents=True)
    with closing(sqlite3.connect(palace / "chroma.sqlite3")) as db:
        db.executescript(_CHROMA)
        db.commit()
    for name, (text, said) in DRAWERS.items():
        put(palace, name, text, said)
    put(palace, "closet_1", "pointer|to|drawers", {"wing": "api", "room": "storage"}, segment="s3")
    with closing(sqlite3.connect(root / "knowledge_graph.sqlite3")) as db:
        db.executescript(_KNOWLEDGE)
        db.commit()
    (root / "tunnels.json").write_text(json.dumps(TUNNELS, indent=2), encoding="utf-8")
    return root


def put(palace: Path, name: str, text: str, said: Mapping[str, object], segment: str = "s1") -> None:
    """Write a drawer, or write it again, as Chroma's upsert does."""
    with closing(sqlite3.connect(palace / "chroma.sqlite3")) as db:
        db.execute(
            "DELETE FROM embedding_metadata WHERE id IN (SELECT id FROM embeddings WHERE embedding_id = ?)", [name]
        )
        db.execute("DELETE FROM embeddings WHERE embedding_id = ?", [name])
        row = db.execute("INSERT INTO embeddings (segment_id, embedding_id, seq_id) VALUES (?, ?, 1)", [segment, name])
        for key, value in {"chroma:document": text, **said}.items():
            columns = [value if isinstance(value, kind) else None for kind in (str, int, float)]
            db.execute("INSERT INTO embedding_metadata VALUES (?, ?, ?, ?, ?, NULL)", [row.lastrowid, key, *columns])
        db.commit()
