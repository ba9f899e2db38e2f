"""Looks for a text in everything that a node keeps: the stream's files, the views, logs and other files of its folder.

Each store is searched for the text in several encodings, its hashes and its vectors; the views also for the hashes of its
words, since an index of terms would betray a word without holding it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np

from ...schemas import tables
from ...schemas.core.ids import hash64
from ...schemas.core.ports import ViewReader
from ...schemas.core.table import Table
from ...schemas.text.analyzer import Analyzer

BLOCK_BYTES: Final = 4 << 20
"""Bytes of a file that are searched at once."""
SAME_COSINE: Final = 0.9999
"""Cosine from which a vector counts as that of the same text: rounding to float32 changes the sixth digit."""
VECTORS_AT_ONCE: Final = 20_000
"""Vectors that are compared at once: 30 MB at 384 dimensions."""
_WITH_VECTORS: Final = frozenset({"seq", "model", "vector"})
_TEXT: Final = "VARCHAR"
_BINARY: Final = "BLOB"
_BASE64_CUT: Final = 4
"""Characters at each end of a base64 text that depend on its neighbours."""


def encodings_of(text: str) -> dict[str, bytes]:
    """The text in each encoding that is looked for, and its hash."""
    plain = text.encode()
    forms = {
        "utf-8": plain,
        "utf-16": text.encode("utf-16-le"),
        "utf-16 big-endian": text.encode("utf-16-be"),
        "hex": plain.hex().encode(),
        "percent": quote(text, safe="").encode(),
        "json": json.dumps(text)[1:-1].encode(),
        "sha256": hashlib.sha256(plain).hexdigest().encode(),
    }
    for shift in range(3):
        encoded = base64.b64encode(b"\x00" * shift + plain)
        if len(encoded) > 3 * _BASE64_CUT:
            forms[f"base64 {shift}"] = encoded[_BASE64_CUT:-_BASE64_CUT]
    return forms


def traces_in_files(folder: Path, text: str, vectors: Mapping[str, bytes]) -> Counter[str]:
    """Files that hold the text in some encoding, or its vector → number of forms; the views' files are compressed."""
    forms = {**encodings_of(text), **{f"vector of {model}": vector for model, vector in vectors.items()}}
    overlap = max(map(len, forms.values())) - 1
    found: Counter[str] = Counter()
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        here = {name for name, form in forms.items() if form in path.name.encode()}
        here |= {name for name in forms for block in _blocks(path, overlap) if forms[name] in block}
        if here:
            found[str(path.relative_to(folder))] = len(here)
    return found


def _blocks(path: Path, overlap: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            end = b""
            while block := file.read(BLOCK_BYTES):
                yield end + block
                end = (end + block)[-overlap:]
    except FileNotFoundError:  # it was deleted meanwhile
        return


def traces_in_views(views: ViewReader, text: str, analyzer: Analyzer, vectors: Mapping[str, bytes]) -> Counter[str]:
    """``table.column`` → number of rows that hold the text, its vector, or a hash of it or one of its words; blocking."""
    words = Analyzed(analyzer, text)
    found: Counter[str] = Counter()
    for table in tables.TABLES:
        searches = list(_searches(table, text, words)) if views.rows(f"SELECT 1 FROM {table} LIMIT 1") else []
        if searches:
            counts = ", ".join(f"count(*) FILTER (WHERE {condition})" for _, condition, _ in searches)
            params = [param for *_, given in searches for param in given]
            [counted] = views.rows(f"SELECT {counts} FROM {table}", params)
            rows_of = zip(searches, counted, strict=True)
            found.update({f"{table.name}.{column}": int(rows) for (column, *_), rows in rows_of if rows})
        for model, vector in vectors.items() if {column.name for column in table.columns} >= _WITH_VECTORS else ():
            if rows := _near(views, table, model, vector):
                found[f"{table.name}.vector"] += rows
    return found


def _near(views: ViewReader, table: Table[tuple[object, ...]], model: str, vector: bytes) -> int:
    """The number of vectors of a model that are those of the text."""
    wanted, after, found = np.frombuffer(vector, "<f4"), 0, 0
    sql = (
        f"SELECT seq, vector FROM {table} WHERE model = ? AND octet_length(vector) = ? AND seq > ? ORDER BY seq LIMIT ?"
    )
    while rows := views.rows(sql, [model, len(vector), after, VECTORS_AT_ONCE]):
        stored = np.frombuffer(b"".join(bytes(row[1]) for row in rows), "<f4").reshape(len(rows), -1)
        norms = np.linalg.norm(stored, axis=1) * np.linalg.norm(wanted)
        found += int((stored @ wanted >= SAME_COSINE * np.maximum(norms, np.finfo(np.float32).tiny)).sum())
        after = int(rows[-1][0])
    return found


class Analyzed:
    """The terms of a text, as the views hold them."""

    def __init__(self, analyzer: Analyzer, text: str) -> None:
        self.terms = sorted({*analyzer.terms(text), *analyzer.further_terms(text)})
        self.packed = [term.to_bytes(8, "little").hex().upper() for term in self.terms]


def _searches(table: Table[tuple[object, ...]], text: str, words: Analyzed) -> Iterator[tuple[str, str, list[object]]]:
    for column in table.columns:
        if column.type == _TEXT:
            forms = [form.decode(errors="ignore") for name, form in encodings_of(text).items() if "16" not in name]
            condition = " OR ".join(f"contains(lower({column.name}), lower(?))" for _ in forms)
            yield column.name, condition, list(forms)
        elif column.type == _BINARY:
            patterns = [form.hex().upper() for form in encodings_of(text).values()]
            patterns += words.packed if column.name == "terms" else []
            condition = " OR ".join(f"contains(hex({column.name}), ?)" for _ in patterns)
            yield column.name, condition, list(patterns)
        elif column.name == "text_hash":
            yield column.name, f"{column.name} = ?", [hash64(text)]
        elif column.name == "term" and words.terms:
            yield column.name, f"{column.name} IN ({', '.join('?' for _ in words.terms)})", list(words.terms)


def traces(
    folder: Path, views: ViewReader, text: str, analyzer: Analyzer, vectors: Mapping[str, bytes]
) -> Mapping[str, Mapping[str, int]]:
    """Where a text is: ``files`` and ``views``, each place with how often; blocking.

    Args:
        folder: The data directory.
        views: The views.
        text: The text.
        analyzer: That of the views.
        vectors: Model → the text's vector: little-endian float32.
    """
    return {
        "files": dict(traces_in_files(folder, text, vectors)),
        "views": dict(traces_in_views(views, text, analyzer, vectors)),
    }
