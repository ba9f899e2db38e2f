"""A chat model in this process that answers questions about drawers, wrongly or not at all on request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crew_journal.schemas.models.chat import A, ChatBadAnswer, ChatUnavailable, Completion, Prompt, Usage

Note = dict[str, Any]


def note(ref: str, **said: Any) -> Note:
    """What the model says of one drawer."""
    plain: Note = {"memory_type": "fact", "importance": 0.8, "summary": "said", "entities": [], "triples": []}
    return {"ref": ref, **plain, **said}


@dataclass
class ScriptedChat:
    """The model.

    Attributes:
        says: What it says of a text, in place of ``note``'s values.
        contradicts: Whether two texts contradict each other.
        spoils: Whether its answer about these texts has no form.
        down: Whether it is away.
        away_for: Whether it does not answer about these texts.
        asked: The texts of each call for a classification, in order.
        compared: The texts of each call for a comparison.
    """

    says: Callable[[str], Note] = lambda _text: {}
    contradicts: Callable[[str, str], bool] = lambda _new, _old: False
    spoils: Callable[[list[str]], bool] = lambda _texts: False
    summary: str = "They say the same."
    down: bool = False
    away_for: Callable[[list[str]], bool] = lambda _texts: False
    asked: list[list[str]] = field(default_factory=list)
    compared: list[list[str]] = field(default_factory=list)

    @property
    def model_id(self) -> str:
        return "scripted"

    async def complete(self, prompt: Prompt, form: type[A]) -> Completion[A]:
        if self.down:
            raise ChatUnavailable("scripted is away", hint="wait")
        given = json.loads(prompt.user)
        if "new" in given:
            answer = self._comparison(given)
        else:
            texts = [note["text"] for note in given["notes"]]
            self.asked.append(texts)
            if self.away_for(texts):
                raise ChatUnavailable("scripted does not answer", hint="wait")
            if self.spoils(texts):
                raise ChatBadAnswer("the answer has no form", hint="try another model")
            answer = {"drawers": [note(one["ref"], **self.says(one["text"])) for one in given["notes"]]}
            answer["drawers"] = [drawer for drawer in answer["drawers"] if not drawer.get("left_out")]
        return Completion(form.model_validate(answer), Usage(11, 7, 1))

    def _comparison(self, given: dict[str, Any]) -> dict[str, Any]:
        self.compared.append([given["new"], *(one["text"] for one in given["similar"])])
        against = [one["ref"] for one in given["similar"] if self.contradicts(given["new"], one["text"])]
        return {"contradicts": against, "summary": self.summary}

    async def close(self) -> None:
        """Nothing to give back."""
