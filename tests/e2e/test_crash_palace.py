"""kill -9 of the service at the steps of both paths of the palace: nothing is stranded, lost or filed twice.

Each next process takes up what the one before had in hand, and dies one step later.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.processes import PROJECT, Stack, wait_for

DIES_S = 240.0
HOT = (
    "turns read",
    "exchange built",
    "embedded",
    *(f"{when} chunk_vector" for when in ("before", "after")),
    *(f"{when} drawer.filed" for when in ("before", "after")),
    "ack palace-ingest-v1",
)
COLD = (
    "before drawers",  # the call of the model
    "after drawers",
    *(f"{when} {entry_type}" for entry_type in ("fact.asserted", "drawer.linked") for when in ("before", "after")),
    *(f"{when} drawer.classified" for when in ("before", "after")),
    "before comparison",
    "after comparison",
    *(f"{when} drawer.superseded" for when in ("before", "after")),
)
MERGE = (*(f"{when} drawer.merged" for when in ("before", "after")), "ack palace-classify-v1")
NIGHT = (
    *(
        f"{when} {entry_type}"
        for entry_type in ("drawer.pruned", "drawer.centroid_computed")
        for when in ("before", "after")
    ),
    "ack palace-maintain-v1",
)
TURNS = (
    "The importer of the night shift reads the files of the harbour office.",
    "Grandmother's recipe for plum cake asks for a pound of butter.",
    "Our violin teacher moved to Lisbon with her two dogs.",
)
PAIR = (
    "The weekly deployment of the billing service is on Tuesday.",
    "We deploy the billing service every Thursday now.",
)
CLUSTER = (
    "The observatory on the hill opens its dome at eight o'clock.",
    "The observatory on the hill opens its big dome at eight o'clock.",
    "The old observatory on the hill opens its big dome at eight o'clock.",
)
OLD_DRAWERS = 104


class Dying(Stack):
    """A service that dies at a step."""

    popen = subprocess.Popen

    def __init__(self, folder: Path) -> None:
        path = f"{PROJECT / 'tests'}"
        options = ("--embedder", "minilm", "--durability", "interval")
        super().__init__(folder / "data", options, {"PYTHONPATH": path, "CREW_JOURNAL_LLM_MODEL": "scripted"})
        self.calls = folder / "calls"
        self.calls.touch()

    def begin(self, step: str = "") -> None:
        """Start the service that dies at a step."""
        self.program = (sys.executable, "-m", "support.dying_up", step, str(self.calls))
        self.start()

    def die(self, steps: Sequence[str], cause: Callable[[], object]) -> None:
        """Let it die at each step in turn; ``cause`` is done once it is ready for the first time."""
        for at, step in enumerate(steps):
            self.begin(step)
            if not at:
                self.wait_ready()
                with contextlib.suppress(httpx.HTTPError):  # it dies before it answers
                    cause()
            assert self.process is not None
            try:
                code = self.process.wait(DIES_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"it did not come to {step!r}:\n{self.log_tail()}") from None
            assert code == -signal.SIGKILL, f"{step}: {code}\n{self.log_tail()}"

    def ask(self, method: str, path: str, **given: Any) -> Any:
        """The answer of the service."""
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.request(method, f"{self.url}{path}", headers=headers, timeout=60, trust_env=False, **given)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def add(self, *texts: str) -> None:
        """File texts."""
        for text in texts:
            self.ask("POST", "/v1/palace/drawers", json={"wing": "team", "room": "plans", "content": text})

    def drawers(self) -> list[dict[str, Any]]:
        """The live drawers."""
        found: list[dict[str, Any]] = self.ask("GET", "/v1/palace/drawers?limit=200")["drawers"]
        return found

    def settle(self) -> None:
        """Wait until no drawer waits."""

        def settled() -> bool:
            reactors = {reactor["name"]: reactor for reactor in self.ask("GET", "/v1/status")["reactors"]}
            concerned = [reactors[f"{name}@1"] for name in ("palace_classify", "embed_chunks", "palace_maintain")]
            idle = all(one["state"] == "running" and not one["pending"] for one in concerned)
            return idle and all(drawer["state"] == "processed" for drawer in self.drawers())

        wait_for(settled, "every drawer to be done", DIES_S, 0.1)
        mark = {"entry_type": "summary.generated", "agent_id": "ada", "summary": "Every drawer is done"}
        seq = self.ask("POST", "/v1/journal", json=mark)["entries"][0]["seq"]
        for path in ("palace/drawers", "journal"):  # the views have what was recorded before the messages were acked
            self.ask("GET", f"/v1/{path}?limit=1&min_seq={seq}")

    def events(self, entry_type: str) -> list[dict[str, Any]]:
        """The payloads of all events of a type."""
        found = self.ask("GET", f"/v1/journal?types={entry_type}&limit=500")["entries"]
        return [one["payload"] for one in found]

    def asked(self, kind: str) -> Counter[str]:
        """How often the model was asked about each text."""
        lines = [line.split("\t") for line in self.calls.read_text("utf-8").splitlines()]
        return Counter(text for said, texts in lines if said == kind for text in texts.split(" | "))


def converse(stack: Dying) -> None:
    """Two exchanges, and the beginning of a third that ends the second."""
    stack.ask("PUT", "/v1/workspace/settings", json={"palace_ingest": True})
    said = [
        {"id": f"u{n}", "entry_type": "chat.user_message", "summary": text, "agent_id": "ada", "trace_id": "s1"}
        for n, text in enumerate(TURNS)
    ]
    stack.ask("POST", "/v1/journal", json=said)


def import_old(stack: Dying) -> None:
    """Drawers of 40 days ago about nothing in common."""
    pieces = resources.files("crew_journal.schemas.text").joinpath("word_pieces.txt").read_text("utf-8").split()
    words = random.Random(7).sample([one for one in pieces if one.isalpha() and len(one) > 6], 6 * OLD_DRAWERS)
    filed_at = (datetime.now(UTC) - timedelta(days=40)).isoformat()
    drawers = [
        {
            "drawer_id": f"old-{n}",
            "wing": "old",
            "room": "notes",
            "content": f"Old: {' '.join(words[6 * n : 6 * n + 6])}",
            "filed_at": filed_at,
        }
        for n in range(OLD_DRAWERS)
    ]
    stack.ask("POST", "/v1/palace/import", json={"drawers": drawers, "imported_from": "test"})


def check(stack: Dying, hot: Sequence[str], cold: Sequence[str], merge: Sequence[str]) -> None:
    """What was said and filed is there once, and the model was not asked again about what is recorded."""
    filed = [event["content"] for event in stack.events("drawer.filed")]
    assert len(filed) == len(set(filed))
    if hot:
        assert {f"User: {text}" for text in TURNS[:2]} <= set(filed)
    live = {drawer["content"] for drawer in stack.drawers()}
    unrecorded = [step for step in cold if step.partition(" ")[2] not in ("comparison", "drawer.superseded")]
    if cold:
        assert live & set(PAIR) == {PAIR[1]}
        assert len(stack.events("drawer.superseded")) == 1
    if merge:
        assert len(live & set(CLUSTER)) == 1
        assert len(stack.events("drawer.merged")) == 1
        assert {stack.asked("drawers")[text] for text in CLUSTER} == {1}
    assert all(count <= 1 + len(unrecorded) for count in stack.asked("drawers").values())
    verified = stack.run("verify", "--json")
    assert verified.code == 0, f"{verified.out}\n{stack.log_tail()}"


def test_kill_9_at_steps_of_filing_and_of_classifying_loses_and_repeats_nothing(tmp_path: Path) -> None:
    hot, merge = ("after drawer.filed",), ("before drawer.merged",)
    with Dying(tmp_path) as stack:
        stack.die(hot, lambda: converse(stack))
        stack.die(merge, lambda: stack.add(*CLUSTER))
        stack.begin()
        stack.wait_ready()
        stack.settle()
        check(stack, hot, (), merge)


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_kill_9_at_every_step_of_the_palace_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with Dying(tmp_path) as stack:
        stack.die(HOT, lambda: converse(stack))
        stack.die(COLD, lambda: stack.add(*PAIR))
        stack.die(MERGE, lambda: stack.add(*CLUSTER))
        stack.begin()
        stack.wait_ready()
        import_old(stack)
        stack.settle()
        assert stack.terminate() == 0
        stack.die(NIGHT, lambda: stack.run("sweep", "decay"))
        stack.begin()
        stack.wait_ready()
        stack.settle()
        check(stack, HOT, COLD, MERGE)
        assert len(stack.drawers()) == 100
        pruned = [name for event in stack.events("drawer.pruned") for name in event["drawer_ids"]]
        assert len(pruned) == len(set(pruned)) > 0
        assert [event["memory_type"] for event in stack.events("drawer.centroid_computed")] == ["fact"]
