"""Writes the figures of the peers into docs/peers.md, between its marks, and draws docs/images/peers.svg.

Invariant: the words of the page are written by hand and stay; only what is between the marks is replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

NAMES: Final = {
    "crew-journal": "Crew Journal",
    "lancedb": "LanceDB, hybrid",
    "sqlite": "SQLite FTS5 and numpy",
    "mempalace": "MemPalace",
    "chroma": "Chroma",
    "mem0": "mem0, `infer=False`",
}
HEAD: Final = (
    "| memory | recall@10 | nDCG@10 | search, p50 / p95 | added a second | until found | memory | store | installed |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)
PLOTTED: Final = (("recall", "recall@10", ".3f"), ("p50_ms", "search, p50, ms", ".1f"))
"""Figure, title and format of each panel."""
WIDTH: Final = 760
LABEL: Final = 190
BAR: Final = 22
"""Pixels."""


def write_page(docs: Path, entries: int, measured: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the table of this size in ``docs/peers.md``, or add one at its end, and the plot."""
    page = docs / "peers.md"
    text, begin, end = page.read_text("utf-8"), f"<!-- figures of {entries} -->", "<!-- end -->"
    before, marker, after = text.partition(begin)
    if not marker:
        before, after = f"{text}\n## {entries:,} entries\n\n", f"{end}\n"
    rest = after.partition(end)[2]
    page.write_text(f"{before}{begin}\n\n{_table(measured)}\n{end}{rest}", "utf-8")
    (docs / "images" / "peers.svg").write_text(_svg(measured), "utf-8")


def _table(measured: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [_row(name, measured[name]) for name in NAMES if name in measured]
    load = os.getloadavg()[1]
    note = f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} shared cores, load {load:.1f} at the end."
    return f"{HEAD}{''.join(rows)}\n{note}\n"


def _row(name: str, result: Mapping[str, Any]) -> str:
    if "failed" in result:
        return f"| {NAMES[name]} | not measured: {result['failed'].replace('|', '/')} | | | | | | | |\n"
    size = f"{result['installed_mb']:.0f} MB" if "installed_mb" in result else "–"
    cells = (
        f"{NAMES[name]} {result['version']}",
        f"{result['recall']:.3f}",
        f"{result['ndcg']:.3f}",
        f"{result['p50_ms']:.1f} / {result['p95_ms']:.1f} ms",
        f"{result['added_per_s']:,.0f}",
        f"{result['fresh_ms']:.0f} ms",
        f"{result['memory_mb']:.0f} MB",
        f"{result['disk_mb']:.0f} MB",
        size,
    )
    return f"| {' | '.join(cells)} |\n"


def _svg(measured: Mapping[str, Mapping[str, Any]]) -> str:
    names = [name for name in NAMES if name in measured and "failed" not in measured[name]]
    panel = 40 + len(names) * (BAR + 6)
    height = panel * len(PLOTTED) + 10
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for at, (figure, title, form) in enumerate(PLOTTED):
        top, most = at * panel, max(measured[name][figure] for name in names)
        drawn.append(f'<text x="8" y="{top + 24}" font-weight="bold">{title}</text>')
        for row, name in enumerate(names):
            value, y = measured[name][figure], top + 36 + row * (BAR + 6)
            long = value / most * (WIDTH - LABEL - 70)
            colour = "#2563a8" if name == "crew-journal" else "#9aa7b5"
            label = escape(re.sub("`", "", NAMES[name]))
            drawn.append(f'<text x="{LABEL - 8}" y="{y + 16}" text-anchor="end">{label}</text>')
            drawn.append(f'<rect x="{LABEL}" y="{y}" width="{long:.1f}" height="{BAR}" fill="{colour}"/>')
            drawn.append(f'<text x="{LABEL + long + 6:.1f}" y="{y + 16}">{value:{form}}</text>')
    return "\n".join([*drawn, "</svg>", ""])
