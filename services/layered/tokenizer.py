"""Loads the function that counts tokens, where one is configured."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Final

from ...schemas.errors import InvalidQuery
from ...schemas.rules.context.tokens import Count, estimate

ESTIMATE: Final = "estimate"
_PROBE = "Deploy 148 of the checkout service was denied."


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The function that counts tokens, and its name in answers."""

    name: str = ESTIMATE
    count: Count = estimate


def tokenizer_of(named: str | None) -> Tokenizer:
    """The tokenizer ``module:function``; the estimate if none is named.

    Raises:
        InvalidQuery: If it cannot be loaded, or does not return the number of tokens of a text.
    """
    if named is None:
        return Tokenizer()
    module, _, function = named.partition(":")
    try:
        count = getattr(import_module(module), function)
        tokens = count(_PROBE)
    except Exception as error:
        raise _refused(named, f"{type(error).__name__}: {error}") from error
    if not isinstance(tokens, int) or tokens <= 0 or count("") != 0:
        raise _refused(named, f"it returns {tokens!r} for a sentence")
    return Tokenizer(named, count)


def _refused(named: str, why: str) -> InvalidQuery:
    hint = (
        "set CREW_JOURNAL_CONTEXT_TOKENIZER to module:function, a function that returns the number of tokens of a text"
    )
    return InvalidQuery(f"the tokenizer {named!r} cannot be used: {why}", hint=hint)
