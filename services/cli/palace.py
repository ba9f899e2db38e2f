"""The groups ``palace`` and ``layered``, whose commands are those of the operations, and how people see drawers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import typer

from .output import listing, print_table, print_text
from .palace_import.command import palace_import

layered = typer.Typer(help="Layered memory: facts, procedures and episodes.", no_args_is_help=True)
palace = typer.Typer(help="Drawers of the palace: texts filed under wing and room.", no_args_is_help=True)
palace.command("import")(palace_import)
_EMPTY: Final = "no drawer was found: `crew-journal palace add` files one"


def print_drawer_hits(answer: Mapping[str, Any]) -> None:
    """A table of drawers that are similar to a text."""
    hits = answer.get("results", answer.get("duplicates", ()))
    rows = [(f"{hit['similarity']:.2f}", hit["id"], hit["memory_type"], hit["content"]) for hit in hits]
    print_table(("similarity", "drawer", "type", "text"), rows, right=("similarity",), empty=_EMPTY)


print_drawers = listing(
    "drawers",
    ("drawer", "wing", "room", "type", "text"),
    lambda one: (one["id"], one["wing"], one["room"], one["memory_type"], one["content"]),
    empty=_EMPTY,
)
print_diary = listing(
    "entries",
    ("filed", "text"),
    lambda one: (one["filed_at"][:19] + "Z", one["content"]),
    empty="the diary is empty: `crew-journal palace diary-write` writes into it",
)
print_drawer_counts = listing(
    "rooms",
    ("drawers", "wing", "room"),
    lambda one: (one["count"], one["wing"], one["room"]),
    right=("drawers",),
    empty=_EMPTY,
)


def print_layer(answer: Mapping[str, Any]) -> None:
    """The text of a layer."""
    print_text(answer["text"])
