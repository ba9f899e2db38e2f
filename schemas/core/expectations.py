"""Expectations of a workspace: what a recall must and must not return, and the rule that decides whether it does.

Invariant: texts are compared by their words, never by ids, so that an expectation holds after an import or a rebuild.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from .entry import Id
from .limits import RECALL_K_DEFAULT, RECALL_K_MAX, RECALL_QUERY_MAX_CHARS
from .operation import Moment

MOST_EXPECTATIONS: Final = 200
"""Expectations of a workspace: each is a recall of a few milliseconds before an activation."""
_Words = Annotated[str, StringConstraints(min_length=1, max_length=1_000, strip_whitespace=True)]
ExpectationName = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class Expectation(BaseModel):
    """What a recall is expected to return.

    Attributes:
        query: The question.
        scope: As in ``recall``; the agent's or crew's memories, or those of the whole workspace if absent.
        agent_id: The agent whose memories are searched.
        crew_id: The crew whose memories are searched.
        kinds: Kinds of memory; all if absent.
        mode: ``search`` or ``inject``.
        k: Number of hits.
        as_of: The moment of which the recall is asked; now if absent.
        must_contain: Each of these occurs in the text of a hit, or is the key of one (``<owner>/<file>``, a drawer's
            ``wing/room``, a fact's ``subject predicate``).
        must_not_contain: None of these does.
        must_be_silent: There is no hit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    query: str = Field(min_length=1, max_length=RECALL_QUERY_MAX_CHARS, pattern=r"\S")
    scope: Literal["own", "crew_shared", "workspace"] | None = None
    agent_id: Id | None = None
    crew_id: Id | None = None
    kinds: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=32)
    mode: Literal["search", "inject"] = "inject"
    k: int = Field(default=RECALL_K_DEFAULT, ge=1, le=RECALL_K_MAX)
    as_of: Moment | None = None
    must_contain: tuple[_Words, ...] = Field(default=(), max_length=50)
    must_not_contain: tuple[_Words, ...] = Field(default=(), max_length=50)
    must_be_silent: bool = False

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if self.must_be_silent and self.must_contain:
            raise ValueError("must_be_silent contradicts must_contain")
        if not (self.must_be_silent or self.must_contain or self.must_not_contain):
            raise ValueError("must_contain, must_not_contain or must_be_silent is missing")
        return self


def folded(text: str) -> str:
    """The words of a text as they are compared: without case, with one blank between two."""
    return " ".join(text.casefold().split())


def unmet(expectation: Expectation, hits: Sequence[str]) -> tuple[str, ...]:
    """What does not hold, one sentence each; empty if the expectation is met.

    Args:
        expectation: What is expected.
        hits: Of each hit, its text and its key.
    """
    texts = [folded(hit) for hit in hits]
    if expectation.must_be_silent and texts:
        return (f"must be silent, but there are {len(texts)} hits",)
    missing = [
        f"no hit contains {words!r}"
        for words in expectation.must_contain
        if not any(folded(words) in text for text in texts)
    ]
    present = [
        f"hit {rank} contains {words!r}"
        for words in expectation.must_not_contain
        for rank, text in enumerate(texts, 1)
        if folded(words) in text
    ]
    return (*missing, *present)
