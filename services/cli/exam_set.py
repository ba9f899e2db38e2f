"""A set to measure recall with: ``journal.jsonl`` and ``queries.jsonl`` of a folder, read and checked before anything runs.

Invariant: an invalid line is named with its file before anything is imported. A question that no entry can answer is
reported and takes part in no mean: recall of nothing is not 0, it has no value.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import click
from pydantic import ConfigDict, Field, ValidationError

from ...schemas.body_problems import body_problems
from ...schemas.entry import Id
from ...schemas.errors import FieldProblem, InvalidEntry
from ...schemas.limits import DEFAULT_WORKSPACE
from ...schemas.operations.recall import ASKED_UNKNOWN, RecallRequest
from .foreign_json import bounded_lines
from .importing.lines import MAX_LINE_BYTES, Line, json_object_of, read_batches

ENTRIES_FILE: Final = "journal.jsonl"
QUERIES_FILE: Final = "queries.jsonl"
SHOWN: Final = 5
"""Lines or questions named in one message; there is one mistake behind most of them."""

Label = Annotated[str, Field(coerce_numbers_to_str=True)]
Agents = dict[str, dict[str | None, str | None]]
"""Entry id → workspace → agent."""


class ExamQuestion(RecallRequest):
    """A line of ``queries.jsonl``: a recall in scope own of an agent, and the entries that answer it.

    Without ``asked_at`` relative dates are ignored, so that figures do not depend on the day they are measured.
    """

    model_config = ConfigDict(extra="ignore")

    qid: Label = ""
    agent_id: Id
    category: Label = "all"
    asked_at: str | None = ASKED_UNKNOWN
    relevant_ids: tuple[Annotated[str, Field(min_length=1)], ...]


@dataclass(frozen=True, slots=True)
class Remark:
    """A question that cannot be answered, or not wholly: its line (from 1), its id, and why."""

    line: int
    qid: str
    why: str


@dataclass(frozen=True, slots=True)
class ExamSet:
    """A set.

    Attributes:
        questions: Those that can be answered, in the order of the file.
        sessions: Workspace → entry id → session (``trace_id``).
        left_out: Questions that no entry can answer; they are in no mean.
        partly: Questions with relevant entries that cannot be recalled. These count as not found: recall's denominator
            is all that is judged relevant (as in trec_eval), whether it can be found or not.
    """

    questions: Sequence[ExamQuestion]
    sessions: Mapping[str | None, Mapping[str, str]]
    left_out: Sequence[Remark] = ()
    partly: Sequence[Remark] = ()

    def as_dict(self) -> dict[str, Any]:
        """What a report says of it: how many questions take part, and which do not or not wholly."""
        return {
            "questions": len(self.questions),
            "left_out": [asdict(question) for question in self.left_out],
            "partly_answerable": [asdict(remark) for remark in self.partly],
        }


def read_set(directory: Path, workspace: str | None = None, option: str = "DIR") -> ExamSet:
    """The set of a folder, with each question in the workspace of the entries that answer it.

    Args:
        directory: Holds both files.
        workspace: Where every entry is put, instead of where it says.
        option: What named the folder.

    Raises:
        click.BadParameter: If a file is missing, a line is not an entry or not a question, or no question can be answered.
    """
    for name in (ENTRIES_FILE, QUERIES_FILE):
        if not (directory / name).is_file():
            raise click.BadParameter(f"there is no {name} in {directory}", param_hint=option)
    agents, sessions = _read_entries(directory / ENTRIES_FILE, workspace)
    questions, left_out, partly = list[ExamQuestion](), list[Remark](), list[Remark]()
    with (directory / QUERIES_FILE).open("rb") as file:
        for number, raw in enumerate(bounded_lines(file, MAX_LINE_BYTES), 1):
            if raw is None:
                raise click.BadParameter(
                    f"line {number} is longer than {MAX_LINE_BYTES:,} bytes", param_hint=QUERIES_FILE
                )
            if not raw.strip():
                continue
            try:
                question = _read_question(number, raw)
                named = workspace or question.workspace_id
                homes = _homes(question, agents, {_home(named)} if named else None)
            except ValueError as error:
                raise click.BadParameter(
                    f"line {number} is not a valid question: {error}", param_hint=QUERIES_FILE
                ) from None
            if not homes:
                left_out.append(Remark(number, question.qid, _why_missing(question.relevant_ids, question, named)))
                continue
            (home,) = homes
            questions.append(question.model_copy(update={"workspace_id": home}))
            missing = [i for i in question.relevant_ids if agents.get(i, {}).get(home) != question.agent_id]
            if missing:
                partly.append(Remark(number, question.qid, _why_missing(missing, question, home)))
    if not questions:
        why = f"no question can be answered: {listed(left_out)}"
        if not left_out:
            example = '{"agent_id": "a", "query": "…", "relevant_ids": ["…"]}'
            why = f"{directory / QUERIES_FILE} holds no question: write one a line, as {example}"
        raise click.BadParameter(why, param_hint=QUERIES_FILE)
    return ExamSet(questions, sessions, left_out, partly)


def listed(remarks: Sequence[Remark]) -> str:
    """The first of them with their lines, and how many more there are."""
    return _first([f"line {remark.line}: {remark.why}" for remark in remarks])


def with_share_embedded(directory: Path, target: Path, share: float, seed: int) -> None:
    """A copy of the journal in which about ``share`` of the entries flagged ``refs.episodic`` keep the flag.

    So only they are embedded; types that the policy always embeds are left alone.

    Raises:
        click.BadParameter: If a line is not an entry.
    """
    draw = random.Random(seed)
    with (target / ENTRIES_FILE).open("w", encoding="utf-8") as file:
        for line in _lines(directory / ENTRIES_FILE, None):
            entry, refs = line.record, line.record.get("refs")
            if isinstance(refs, dict) and refs.get("episodic") is True and draw.random() >= share:
                entry = {**entry, "refs": {**refs, "episodic": False}}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def _first(parts: Sequence[str]) -> str:
    return "; ".join(parts[:SHOWN]) + (f"; and {len(parts) - SHOWN:,} more" if len(parts) > SHOWN else "")


def _lines(path: Path, workspace: str | None) -> Iterator[Line]:
    """The lines as the import reads them.

    Raises:
        click.BadParameter: At the first batch with a line that the import would refuse, naming its lines.
    """
    with path.open("rb") as file:
        for batch in read_batches(file, workspace=workspace):
            if batch.bad:
                problems = [f"line {line.number}: {_text(problem)}" for line in batch.bad for problem in line.problems]
                raise click.BadParameter(_first(problems), param_hint=ENTRIES_FILE)
            yield from batch.good


def _text(problem: FieldProblem) -> str:
    return str(problem) + (f" ({problem.fix})" if problem.fix else "")


def _read_entries(path: Path, workspace: str | None) -> tuple[Agents, dict[str | None, dict[str, str]]]:
    """The agent of each entry, and the sessions."""
    agents, sessions = Agents(), dict[str | None, dict[str, str]]()
    lines = dict[tuple[str | None, str], tuple[int, int]]()
    for line in _lines(path, workspace):
        entry = line.record
        home, name = workspace or _home(entry.get("workspace_id")), str(entry["id"])
        content = hash(line.raw)
        first, content_of_first = lines.setdefault((home, name), (line.number, content))
        if content != content_of_first:
            raise click.BadParameter(
                f"line {line.number}: the id {name} is that of another entry, in line {first}", param_hint=ENTRIES_FILE
            )
        agents.setdefault(name, {})[home] = entry.get("agent_id") or None
        if session := entry.get("trace_id"):
            sessions.setdefault(home, {})[name] = str(session)
    return agents, sessions


def _read_question(number: int, raw: bytes) -> ExamQuestion:
    """A line as a question.

    Raises:
        ValueError: Saying what is wrong with it.
    """
    try:
        question = ExamQuestion.model_validate(json_object_of(number, raw))
    except InvalidEntry as error:
        raise ValueError(_text(error.problems[0]).removeprefix("entry ")) from None
    except ValidationError as error:
        problem = body_problems(error, ExamQuestion)[0]
        raise ValueError(_text(problem)) from None
    once = tuple(dict.fromkeys(question.relevant_ids))
    return question.model_copy(update={"qid": question.qid or str(number), "relevant_ids": once})


def _home(name: str | None) -> str | None:
    """A workspace as it is asked for: the default one need not be named, by entries or by questions."""
    return None if name in (None, "", DEFAULT_WORKSPACE) else name


def _homes(question: ExamQuestion, agents: Agents, only: set[str | None] | None) -> set[str | None]:
    """The workspace (``only`` these, if given) in which its agent has entries that answer it; empty if there is none.

    Raises:
        ValueError: If there are several, for a question is asked in one.
    """
    homes_found = {
        home
        for name in question.relevant_ids
        for home, agent in agents.get(name, {}).items()
        if agent == question.agent_id and (only is None or home in only)
    }
    if len(homes_found) > 1:
        homes = " and ".join(sorted(home or DEFAULT_WORKSPACE for home in homes_found))
        raise ValueError(
            f"the entries of {question.agent_id} that answer it are in several workspaces ({homes}), and a question "
            "is asked in one: name it as workspace_id"
        )
    return homes_found


def _why_missing(names: Sequence[str], question: ExamQuestion, home: str | None) -> str:
    if not names:
        return "relevant_ids is empty"
    first, *more = names
    which = f"{first} and {len(more):,} more are not entries" if more else f"{first} is not an entry"
    return f"{which} of {question.agent_id} in {ENTRIES_FILE}" + (f", workspace {home}" if home else "")
