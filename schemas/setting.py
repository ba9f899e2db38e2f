"""A setting: a field of a model, from which its variables, validation, default and documentation follow.

Invariant: nothing is read at import; this module imports nothing else of ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

PREFIX: Final = "CREW_JOURNAL_"


@dataclass(frozen=True, slots=True)
class Env:
    """Annotates a setting that is read from the environment.

    Attributes:
        also: Further variables, which are read if the setting's own one is absent.
        default: The default in words, where the value does not say it.
    """

    also: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as its model declares it.

    Attributes:
        name: Name of the field.
        help: What it is, in Markdown: the text below the field.
        secret: Whether its value is never printed (``repr=False``).
        variables: Names of its variables, its own first; empty if it is not read from the environment.
        default: The default in Markdown.
    """

    name: str
    help: str
    secret: bool
    variables: tuple[str, ...]
    default: str


def settings_of(model: type[BaseModel], also: str | None = None) -> tuple[Setting, ...]:
    """The settings of a model of variables; ``also`` is a second prefix under which each is read."""
    found = []
    for name, field in model.model_fields.items():
        env = next((mark for mark in field.metadata if isinstance(mark, Env)), Env())
        others = env.also if also is None else (f"{also}{name.upper()}",)
        words = env.default or default_text(field.default)
        default = ", else ".join((*(f"`{other}`" for other in env.also), words))
        text = " ".join((field.description or "").split())
        found.append(Setting(name, text, not field.repr, (f"{PREFIX}{name.upper()}", *others), default))
    return tuple(found)


def default_text(value: object) -> str:
    """A default in Markdown."""
    if value is None:
        return "none"
    if value == "":
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def environment_of(settings: Iterable[Setting]) -> dict[str, Any]:
    """The values that the environment gives to settings; the case of a name and an empty further variable do not count."""
    there = {name.upper(): value for name, value in os.environ.items()}
    found: dict[str, Any] = {}
    for setting in settings:
        own, *others = setting.variables
        values = [there[own]] if own in there else [there[name] for name in others if there.get(name)]
        if values:
            found[setting.name] = values[0]
    return found
