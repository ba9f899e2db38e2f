"""Finds the payload class of every control entry that the service publishes.

Invariant: a class is found by its location alone: a module of ``schemas`` that is called ``events`` or lies in a folder
of that name. There is no list of classes.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

from .. import schemas
from .core.payload import ControlPayload


@cache
def control_payloads() -> dict[str, type[ControlPayload]]:
    """Entry type → its payload class, in the order of the types."""
    root = Path(schemas.__path__[0])
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if "events" in parts and parts[-1] != "__init__":
            importlib.import_module(".".join((schemas.__name__, *parts)))
    own = (model for model in ControlPayload.__subclasses__() if model.__module__.startswith(schemas.__name__))
    return {model.ENTRY_TYPE: model for model in sorted(own, key=lambda model: model.ENTRY_TYPE)}
