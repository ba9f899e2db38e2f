"""The sample journal: a believable crew's few weeks, so that the first start has something to remember.

Invariant: it is loaded once per data directory (recorded in ``sample.json``); its entries have ids, so one that is published
again counts once.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from ..data_dir import write_private
from .connection import Target, sync_client
from .options import FALLBACK_DATA_DIR
from .output import plain, say
from .recall import print_recall
from .vectors import wait_for_vectors

LOADED_FILE: Final = "sample.json"
SAMPLE: Final = Path(__file__).parent / "sample"
VECTORS_PATIENCE_S: Final = 10.0
"""Seconds without a further vector until the question is asked anyway: the first vector takes MiniLM 0.2 s."""


def load_sample(there: Target) -> int | None:
    """Publish the sample unless that was done before.

    Returns:
        The last sequence, None if it was loaded before.
    """
    assert there.data_dir is not None
    mark = there.data_dir / LOADED_FILE
    if mark.exists():
        return None
    with sync_client(there) as journal:
        acks = journal.append_batch(sample_entries())
    last_seq = max(ack.seq for ack in acks)
    write_private(mark, json.dumps({"entries": len(acks), "last_seq": last_seq}))
    say(f"sample       {len(acks)} entries loaded")
    return last_seq


def sample_entries() -> list[dict[str, Any]]:
    """The entries of the sample."""
    return [json.loads(line) for line in (SAMPLE / "journal.jsonl").read_text("utf-8").splitlines()]


def sample_questions() -> list[dict[str, Any]]:
    """The questions that come with the sample."""
    questions: list[dict[str, Any]] = json.loads((SAMPLE / "questions.json").read_text("utf-8"))
    return questions


def show_worked_recall(there: Target, after_seq: int | None) -> None:
    """Ask the first question and print the answer, then what to try next; ``after_seq`` is from :func:`load_sample`."""
    question = sample_questions()[0]["query"]
    with sync_client(there) as journal:
        wait_for_vectors(journal, after_seq or 0, VECTORS_PATIENCE_S)
        answer = plain(journal.recall(question, k=5))
    called = Path(sys.argv[0])
    command = called.name if shutil.which(called.name) else str(called)
    say(f'\n{command} recall "{question}"')
    print_recall(answer)
    place = f"--data-dir {there.data_dir} " if there.data_dir != FALLBACK_DATA_DIR else ""
    say("\ntry next, in another terminal:")
    for line in (
        f'{command} recall {place}"on which day must we not release anything?" --explain',
        f"{command} list {place}--type approval.denied",
        f"{command} graph {place}note-mail-contract",
        f"{command} tail {place}",
        f'{command} publish {place}--type peer.escalation --severity warn "the queue is stuck"',
        f"{command} status {place}",
        f"{there.url}/ in a browser",
    ):
        say(f"  {line.rstrip()}")
    say("Ctrl-C stops everything; the data stays.")
