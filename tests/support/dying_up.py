"""``crew-journal up`` that kills itself with SIGKILL when a reactor of the palace comes to a step that is named.

Arguments: a step (tests/e2e/test_crash_palace.py; an empty one kills nothing), a file for the calls of the chat model, then
those of ``crew-journal``. Each answer of the model is a line ``kind<TAB>texts`` of the file.

The real service runs; only the chat model is a scripted one in this process. The broker gives what a killed process had in
hand to the next one after ``ACK_WAIT_S`` instead of a minute, and every day counts as a Sunday.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

from support.scripted_chat import Note, ScriptedChat

from crew_journal.consumers.feed import jetstream

ACK_WAIT_S = 5.0
jetstream.REACTOR_ACK_WAIT_S = ACK_WAIT_S  # type: ignore[misc]  # before the reactors read it

from crew_journal.consumers.adapters import chat as adapter
from crew_journal.consumers.palace import (
    ingest_reactor as palace_ingest,
)
from crew_journal.consumers.palace import upkeep_reactor as palace_maintain
from crew_journal.consumers.palace.exchange_filing import Filing
from crew_journal.consumers.reacting.pull import Leases
from crew_journal.consumers.reacting.pull_reactor import PullReactor
from crew_journal.services.cli.entry import main


def note_of(text: str) -> Note:
    """What the model says of a drawer: old ones hardly matter, and each names an entity."""
    importance = 0.05 if text.startswith("Old") else 0.8
    return {"importance": importance, "triples": [{"subject": text[:40], "predicate": "is in", "object": "journal"}]}


def contradict(new: str, old: str) -> bool:
    """Whether two texts name different days."""
    days = ("Tuesday", "Thursday")
    return any(a in new and b in old for a, b in (days, days[::-1]))


def die_at(step: str, calls: Path) -> None:
    """Have this process killed at a step, and write down the model's calls."""

    def reached(name: str) -> None:
        if step and name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def after(owner: Any, name: str, what: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def patched(*args: Any, **given: Any) -> Any:
            done = original(*args, **given)
            reached(what)
            return done

        setattr(owner, name, patched)

    def around(owner: Any, name: str, of: Callable[..., tuple[str, str]]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        async def patched(*args: Any, **given: Any) -> Any:
            before, behind = of(*args)
            reached(before)
            done = await original(*args, **given)
            reached(behind)
            return done

        setattr(owner, name, patched)

    def published(_reactor: Any, fact: Any) -> tuple[str, str]:
        kind = fact.subject.split(".", 2)[2]
        return f"before {kind}", f"after {kind}"

    class Model(ScriptedChat):
        async def complete(self, prompt: Any, form: Any) -> Any:
            asked = len(self.asked)
            done = await super().complete(prompt, form)
            kind, texts = ("drawers", self.asked[-1]) if len(self.asked) > asked else ("comparison", self.compared[-1])
            with calls.open("a", encoding="utf-8") as file:
                file.write(f"{kind}\t{' | '.join(texts)}\n")
            return done

    def kind_of(_model: Any, prompt: Any, _form: Any) -> tuple[str, str]:
        kind = "comparison" if '"new"' in prompt.user else "drawers"
        return f"before {kind}", f"after {kind}"

    after(palace_ingest, "turns_around", "turns read")
    after(Filing, "_pieces", "exchange built")
    around(Filing, "_embed", lambda *_: ("", "embedded"))
    around(PullReactor, "publish", published)
    around(Model, "complete", kind_of)
    around(Leases, "ack", lambda leases, _message: (f"ack {leases._name}", ""))
    model = Model(says=note_of, contradicts=contradict)
    adapter.chat_model_of = lambda _settings: model  # type: ignore[assignment,return-value]
    palace_maintain._SUNDAY = ANY  # type: ignore[misc]


if __name__ == "__main__":
    die_at(sys.argv[1], Path(sys.argv[2]))
    sys.argv = ["crew-journal", *sys.argv[3:]]
    sys.exit(main())
