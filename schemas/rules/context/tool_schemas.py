"""Fits the schemas of tools into a budget: whole, compressed, or only the first ones.

Invariant: pure; all schemas are whole, or all that stay are compressed; lower-ranked ones are dropped first. Names,
types, enums and required fields stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .tokens import Count

_LEFT_OUT: Final = frozenset({"description", "title", "examples", "example", "default", "$comment"})
"""Keywords of a parameter's schema that a compressed one lacks."""
_SENTENCE: Final = re.compile(r".*?[.!?](?=\s|\Z)", re.DOTALL)
_MAPS: Final = frozenset({"properties", "$defs"})
"""Keywords whose keys are names."""


@dataclass(frozen=True, slots=True)
class ToolsFitted:
    """The schemas that fit: their number, their tokens, whether they were compressed."""

    shown: tuple[dict[str, Any], ...]
    tokens: int
    compressed: bool


def fitted(tools: Sequence[Mapping[str, Any]], room: int, count: Count) -> ToolsFitted:
    """The tools, best first, within ``room`` tokens: whole if all fit, else compressed and as many as fit."""
    whole = [dict(tool) for tool in tools]
    sizes = [tokens_of(tool, count) for tool in whole]
    if sum(sizes) <= room:
        return ToolsFitted(tuple(whole), sum(sizes), False)
    schemas, used = [], 0
    for tool in whole:
        short = compressed(tool)
        size = tokens_of(short, count)
        if used + size > room:
            break
        schemas.append(short)
        used += size
    return ToolsFitted(tuple(schemas), used, True)


def tokens_of(tool: Mapping[str, Any], count: Count) -> int:
    """Tokens of a schema as compact JSON with the line break behind it."""
    return count(json.dumps(tool, ensure_ascii=False, separators=(",", ":")) + "\n")


def compressed(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The tool with the first sentence of its description, and its parameters without descriptions, titles and examples."""
    short: dict[str, Any] = {}
    for name, value in tool.items():
        if name == "description" and isinstance(value, str):
            short[name] = _first_sentence(value)
        else:
            short[name] = compressed(value) if name == "function" and isinstance(value, Mapping) else _plain(value)
    return short


def _plain(schema: Any, *, names: bool = False) -> Any:
    if isinstance(schema, Mapping):
        kept = {name: value for name, value in schema.items() if names or name not in _LEFT_OUT}
        return {name: _plain(value, names=not names and name in _MAPS) for name, value in kept.items()}
    return [_plain(part) for part in schema] if isinstance(schema, (list, tuple)) else schema


def _first_sentence(text: str) -> str:
    match = _SENTENCE.match(text)
    return match.group() if match else text
