"""The words that the contradiction rule knows, English and German, folded; ``contradiction.toml`` describes each list.

Invariant: data only; a changed list is a new ``VERSION`` of ``rules/contradiction``.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any, Final

_DATA: Final[dict[str, Any]] = tomllib.loads(
    resources.files("crew_journal.schemas.rules").joinpath("contradiction.toml").read_text("utf-8")
)


def _words(name: str) -> frozenset[str]:
    return frozenset(_DATA[name].split())


DROPPED: Final = _words("dropped")
NEGATIONS: Final = _words("negations")
UPDATES: Final = _words("updates")
UPDATE_PHRASES: Final[tuple[str, ...]] = tuple(_DATA["update_phrases"])
HEDGES: Final = _words("hedges")
YET: Final = _words("yet")
APPROXIMATE: Final = _words("approximate")
COPULAS: Final = _words("copulas")
PREPOSITIONS: Final = _words("prepositions")
LABELS: Final = _words("labels")
ATTRIBUTES: Final = _words("attributes")
PLACES: Final[tuple[str, ...]] = tuple(_DATA["places"])
FUNCTIONS: Final[tuple[str, ...]] = tuple(_DATA["functions"])
ENTITIES: Final = _words("entities")
STABLE: Final = _words("stable")
VOLATILE: Final = _words("volatile")
EVENTS: Final = _words("events")
HOLDING: Final = _words("holding")
SCHEDULES: Final = _words("schedules")
OPPOSITES: Final = frozenset(frozenset(pair.split("/")) for pair in _words("opposites"))
MOMENTARY: Final = _words("momentary")
MONTHS: Final = "|".join(_DATA["months"].split())
WEEKDAYS: Final = _words("weekdays")
ALIASES: Final[dict[str, str]] = _DATA["aliases"]
NUMERALS: Final = {word: int(number) for number, words in _DATA["numerals"].items() for word in words.split()}
UNITS: Final[dict[str, tuple[str, float]]] = {
    word: (measure, size)
    for measure, units in _DATA["units"].items()
    for spellings, size in units.items()
    for word in spellings.split()
}
"""Unit → the measure, and its value in the base unit of that measure."""
