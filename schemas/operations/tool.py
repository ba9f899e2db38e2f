"""The declaration of a tool for models: an operation under another name.

Invariant: a tool holds no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

NARRATION: Final = "description"
"""Argument of narrated tools: what the model is doing, in a few words. The operation does not get it."""
NARRATION_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class Tool:
    """An operation as a model sees it.

    Attributes:
        name: The tool's name.
        operation: Name of the operation.
        description: Text for the model; short, because it is sent with every prompt.
        fields: The request's fields that are offered, in order; all but those for programs if None.
        fixed: Fields that the tool sets itself.
        describe: Field → description in place of the operation's.
        narrated: Whether the tool also takes ``description``, which says what the model is doing and is recorded only.
            In these tools an empty string in an optional field means that the field is absent.
        text: Field of the answer that is the text of the result; the other fields are its structured content. If None,
            the text is the whole answer as JSON.
    """

    name: str
    operation: str
    description: str
    fields: tuple[str, ...] | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    describe: Mapping[str, str] = field(default_factory=dict)
    narrated: bool = False
    text: str | None = None
