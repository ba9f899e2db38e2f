"""Looks for a text in everything that a node keeps: the stream's files, the views, logs and other files of its folder.

Each store is searched for the text in several encodings; the views also for the hashes of its words, since an index of
terms would betray a word without holding it.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ...schemas import tables
from ...schemas.core.ports import ViewReader
from ...schemas.core.table import Table
from ...schemas.text.analyzer import Analyzer

BLOCK_BYTES: Final = 4 << 20
"""Bytes of a file that are searched at once."""
_TEXT: Final = "VARCHAR"
_BINARY: Final = "BLOB"
_BASE64_CUT: Final = 4
"""Characters at each end of a base64 text that depend on its neighbours."""


def encodings_of(text: str) -> dict[str, bytes]:
    """The text in each encoding that is looked for."""
    plain = text.encode()
    forms = {
        "utf-8": plain,
        "utf-16": text.encode("utf-16-le"),
        "utf-16 big-endian": text.encode("utf-16-be"),
        "hex": plain.hex().encode(),
        "percent": quote(text, safe="").encode(),
        "json": json.dumps(text)[1:-1].encode(),
    }
    for shift in range(3):
        encoded = base64.b64encode(b"\x00" * shift + plain)
        if len(encoded) > 3 * _BASE64_CUT:
            forms[f"base64 {shift}"] = encoded[_BASE64_CUT:-_BASE64_CUT]
    return forms


def traces_in_files(folder: Path, text: str) -> Counter[str]:
    """Files that hold the text in some encoding → number of encodings; of the views' files nothing, they are compressed."""
    forms = encodings_of(text)
    overlap = max(map(len, forms.values())) - 1
    found: Counter[str] = Counter()
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        here = {name for name in forms for block in _blocks(path, overlap) if forms[name] in block}
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


def traces_in_views(views: ViewReader, text: str, analyzer: Analyzer) -> Counter[str]:
    """``table.column`` → number of rows that hold the text, or a hash of one of its words; blocking."""
    words = Analyzed(analyzer, text)
    found: Counter[str] = Counter()
    for table in tables.TABLES:
        for column, condition, params in _searches(table, text, words):
            [(rows,)] = views.rows(f"SELECT count(*) FROM {table} WHERE {condition}", params)
            if rows:
                found[f"{table.name}.{column}"] = int(rows)
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
        elif column.name == "term" and words.terms:
            yield column.name, f"{column.name} IN ({', '.join('?' for _ in words.terms)})", list(words.terms)


def traces(folder: Path, views: ViewReader, text: str, analyzer: Analyzer) -> Mapping[str, Mapping[str, int]]:
    """Where a text is: ``files`` and ``views``, each place with how often; blocking."""
    return {
        "files": dict(traces_in_files(folder, text)),
        "views": dict(traces_in_views(views, text, analyzer)),
    }
