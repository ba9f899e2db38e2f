"""``demo``: demonstrates the journal's guarantees in a temporary data directory.

Invariant: each step runs the code of the real commands and really kills the process.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from ...schemas.core.errors import CrewJournalError, Unavailable
from ..client.find import located
from ..client.isolation import CLI_MODULE, isolated_python
from ..data_dir import write_private
from .configuration import environment_elsewhere
from .connection import Target, owner_token, sync_client
from .embeddings import wait_for_vectors
from .operate import follow
from .options import Embedder, Json
from .output import emit, plain, say
from .recall import print_recall

# The sample journal: a few weeks of a fictional crew, so that a new journal has something to recall.


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
    place = _place_option(there.data_dir)
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


def _place_option(data_dir: Path | None) -> str:
    """The option that names a data directory; empty if commands find it without."""
    try:
        found = located().data_dir
    except CrewJournalError:
        found = None
    if data_dir is None or (found is not None and found.absolute() == data_dir.absolute()):
        return ""
    return f"--data-dir {shlex.quote(str(data_dir))} "


STOP_TIMEOUT_S: Final = 30.0


def demo(embedder: Embedder = None, json_output: Json = False) -> None:
    """Walk through publish, recall, kill -9, rebuild and verify, in a throw-away data directory."""
    steps: list[dict[str, Any]] = []
    story, question = sample_entries(), sample_questions()[0]["query"]

    def step(title: str, **facts: Any) -> None:
        steps.append({"step": title, **facts})
        if not json_output:
            shown = ", ".join(f"{name} {value}" for name, value in facts.items())
            print(f"{len(steps)}. {title}{': ' + shown if shown else ''}", flush=True)

    with tempfile.TemporaryDirectory(prefix="crew-journal-demo-") as folder:
        data_dir = Path(folder)
        with _service(data_dir, embedder) as (process, there):
            step("Started a journal", url=there.url)
            with sync_client(there) as journal:
                acks = [plain(ack) for ack in journal.append_batch(story)]
                last_seq = acks[-1]["seq"]
                step("Published what a crew did; each entry is acked with its place in the stream", last_seq=last_seq)
                answer = plain(journal.recall(question, k=3, min_seq=last_seq))
                step(f"Asked “{question}”", hits=len(answer["hits"]), recipe=answer["recipe"])
                if not json_output:
                    print_recall(answer)
            process.kill()
            process.wait(STOP_TIMEOUT_S)
            step("Killed the process with SIGKILL")
        with _service(data_dir, embedder) as (_, there), sync_client(there) as journal:
            # entries that the service records about searches and sweeps do not count
            types = sorted({entry["entry_type"] for entry in story})
            kept = plain(journal.count(min_seq=last_seq, types=types))["count"]
            step("Started it again: every acked entry is there", entries=kept)
            again = [plain(ack) for ack in journal.append_batch(story)]
            step("Published the same again: counted once", repeated=sum(bool(a["duplicate"]) for a in again))
            rebuilt = follow("rebuild", journal.rebuild(None))
            step("Rebuilt every view from the journal", seq=rebuilt["seq"], parked=rebuilt.get("parked", 0))
            same = bool(follow("verify", journal.verify())["equal"])
            step("Compared the views with a fresh rebuild", same=same)
        step("Stopped it; its data is thrown away")
    if json_output:
        emit({"steps": steps})
    if kept < len(story) or not same:
        say("error: the demonstration failed")
        raise click.exceptions.Exit(1)


@contextmanager
def _service(data_dir: Path, embedder: str | None) -> Iterator[tuple[subprocess.Popen[bytes], Target]]:
    """``up`` as a separate process, ended at the end of the block."""
    command = [*isolated_python(), "-m", CLI_MODULE, "up", "--json"]
    command += ["--data-dir", str(data_dir), "--http", "127.0.0.1:0", "--durability", "interval"]
    command += ["--embedder", embedder] if embedder else []
    environment = {name: value for name, value in environment_elsewhere().items() if name != "CREW_JOURNAL_NATS"}
    with (
        (data_dir / "up.log").open("ab") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=data_dir, start_new_session=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # one document when it is ready, nothing if it ends before
            if not line:
                end = (data_dir / "up.log").read_text("utf-8", errors="replace").strip().splitlines()[-3:]
                raise Unavailable(f"`up` did not start: {' / '.join(end)}", hint="run `crew-journal doctor`")
            yield process, Target(json.loads(line)["http"], owner_token(data_dir), data_dir)
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
