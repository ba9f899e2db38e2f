"""Reference texts and questions, with which every embedding model is measured and confidence is fitted.

Invariant: pure; the texts were written for this purpose; no text comes from an evaluation set. A changed text is a new
``VERSION``, because constants that were fitted with it (``evidence.json``, ``calibrations.json``) no longer belong to
it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from ..text.analyzer import tokens_of
from ..text.stop_words import foreign_language

VERSION: Final = 1

MEASURED: Final = 48
"""Memories with which a model is measured: 48 texts and 96 queries take MiniLM 2 s of CPU, a small model of Ollama
some 5 s."""


@dataclass(frozen=True, slots=True)
class ReferenceMemory:
    """A remembered text and the prompts about it.

    Attributes:
        text: The text.
        question: A question that it answers, in some of its words.
        paraphrase: The same question without a content word of the text.
        situation: A request or statement to which it should be recalled.
        beside: A question about the same person or thing that the text does not answer.
    """

    text: str
    question: str
    paraphrase: str
    situation: str
    beside: str

    @property
    def foreign(self) -> bool:
        """Whether the text is in a language other than English."""
        return foreign_language(tokens_of(f"{self.text} {self.question} {self.paraphrase}")) is not None


@dataclass(frozen=True, slots=True)
class ReferenceTexts:
    """The memories, and prompts to which none of them is relevant."""

    memories: tuple[ReferenceMemory, ...]
    unrelated: tuple[str, ...]


@cache
def reference_texts() -> ReferenceTexts:
    """The texts of ``language/reference.json``; 80 % are English, 12 % German, 8 % French."""
    data = json.loads(
        resources.files("crew_journal.schemas").joinpath("text/language/reference.json").read_text("utf-8")
    )
    return ReferenceTexts(tuple(ReferenceMemory(**memory) for memory in data["memories"]), tuple(data["unrelated"]))
