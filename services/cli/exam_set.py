"""A set to measure recall with: ``journal.jsonl`` and ``queries.jsonl`` of a folder, read and checked before anything runs.

Invariant: a line that is wrong is named with its file before anything is imported, and a question that no entry can answer
is told and takes part in no mean: recall of nothing is not 0, it is no figure.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from .exam_question import Question, read_question

if TYPE_CHECKING:
    from .importing.lines import BadLine, Line

ENTRIES_FILE: Final = "journal.jsonl"
QUERIES_FILE: Final = "queries.jsonl"
SHOWN: Final = 5
"""Lines or questions named in one message; there is one mistake behind most of them."""


@dataclass(frozen=True, slots=True)
class Remark:
    """What is to be known of a question: its line (from 1), its id, and why."""

    line: int
    qid: str
    why: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"line": self.line, "qid": self.qid, "why": self.why}


@dataclass(frozen=True, slots=True)
class ExamSet:
    """A set.

    Attributes:
        questions: Those that can be answered, in the order of the file.
        sessions: Workspace → entry id → session (``trace_id``).
        left_out: Questions that no entry can answer; they are in no mean.
        partly: Questions of which only some entries can be recalled. The others count as not found: recall's denominator
            is all that is judged relevant (as in trec_eval), whether it can be found or not.
    """

    questions: Sequence[Question]
    sessions: Mapping[str | None, Mapping[str, str]]
    left_out: Sequence[Remark] = ()
    partly: Sequence[Remark] = ()

    def as_dict(self) -> dict[str, Any]:
        """What a report says of it: how many questions take part, and which do not or not wholly."""
        return {
            "questions": len(self.questions),
            "left_out": [one.as_dict() for one in self.left_out],
            "partly_answerable": [one.as_dict() for one in self.partly],
        }


@dataclass(slots=True)
class _Held:
    """What ``journal.jsonl`` holds: entry id → workspace → agent, and the sessions."""

    agents: dict[str, dict[str | None, str | None]] = field(default_factory=dict)
    sessions: dict[str | None, dict[str, str]] = field(default_factory=dict)


def check_set(directory: Path, option: str) -> None:
    """That a folder holds a set: entries and questions.

    Raises:
        typer.BadParameter: If a file is missing, naming the option that named the folder.
    """
    for name in (ENTRIES_FILE, QUERIES_FILE):
        if not (directory / name).is_file():
            raise typer.BadParameter(f"there is no {name} in {directory}", param_hint=option)


def read_set(directory: Path, workspace: str | None = None) -> ExamSet:
    """The set of a folder, with each question in the workspace of the entries that answer it.

    Args:
        directory: Holds both files.
        workspace: Where every entry is put, instead of where it says.

    Raises:
        typer.BadParameter: At a line that is no entry or no question; and if no question can be answered.
    """
    held = _held(directory / ENTRIES_FILE, workspace)
    questions, left_out, partly = list[Question](), list[Remark](), list[Remark]()
    with (directory / QUERIES_FILE).open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            try:
                asked, named = read_question(number, raw)
                only: set[str | None] | None = {workspace} if workspace else {_home(named)} if named else None
                homes = _homes(asked, held, only)
            except ValueError as error:
                raise typer.BadParameter(
                    f"line {number} is not a valid question: {error}", param_hint=QUERIES_FILE
                ) from None
            if not homes:
                left_out.append(Remark(number, asked.qid, _not_held(asked.relevant_ids, asked, workspace or named)))
                continue
            (home,) = homes
            questions.append(replace(asked, workspace_id=home))
            agents = [held.agents.get(name, {}).get(home) for name in asked.relevant_ids]
            if missing := [i for i, by in zip(asked.relevant_ids, agents, strict=True) if by != asked.agent_id]:
                partly.append(Remark(number, asked.qid, _not_held(missing, asked, home)))
    if not questions:
        if left_out:
            raise typer.BadParameter(f"no question can be answered: {told(left_out)}", param_hint=QUERIES_FILE)
        raise typer.BadParameter(
            f'{directory / QUERIES_FILE} holds no question: write one a line, as {{"agent_id": "a", "query": "…", '
            '"relevant_ids": ["…"]}',
            param_hint=QUERIES_FILE,
        )
    return ExamSet(questions, held.sessions, left_out, partly)


def told(remarks: Sequence[Remark]) -> str:
    """The first of them with their lines, and how many more there are."""
    more = f"; and {len(remarks) - SHOWN:,} more" if len(remarks) > SHOWN else ""
    return "; ".join(f"line {one.line}: {one.why}" for one in remarks[:SHOWN]) + more


def with_share_embedded(directory: Path, target: Path, share: float, seed: int) -> None:
    """A copy of the journal in which about ``share`` of the entries flagged ``refs.episodic`` keep the flag.

    So only they are embedded; types that the policy always embeds are left alone.

    Raises:
        typer.BadParameter: At a line that is no entry.
    """
    draw = random.Random(seed)
    with (target / ENTRIES_FILE).open("w", encoding="utf-8") as file:
        for line in _entries(directory / ENTRIES_FILE, None):
            entry, refs = line.record, line.record.get("refs")
            if isinstance(refs, dict) and refs.get("episodic") is True and draw.random() >= share:
                entry = {**entry, "refs": {**refs, "episodic": False}}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def _entries(path: Path, workspace: str | None) -> Iterator[Line]:
    """The lines as the import reads them.

    Raises:
        typer.BadParameter: At the first batch with a line that the import would refuse, naming its lines.
    """
    from .importing.lines import read_batches

    with path.open("rb") as file:
        for batch in read_batches(file, workspace=workspace):
            if batch.bad:
                raise typer.BadParameter(_named(batch.bad), param_hint=ENTRIES_FILE)
            yield from batch.good


def _named(bad: Sequence[BadLine]) -> str:
    said = [
        f"line {line.number}: {one.field} {one.problem}" + (f" ({one.fix})" if one.fix else "")
        for line in bad
        for one in line.problems
    ]
    return "; ".join(said[:SHOWN]) + (f"; and {len(said) - SHOWN:,} more" if len(said) > SHOWN else "")


def _held(path: Path, workspace: str | None) -> _Held:
    held, lines = _Held(), dict[tuple[str | None, str], tuple[int, int]]()
    for line in _entries(path, workspace):
        entry = line.record
        home, name = workspace or _home(entry.get("workspace_id")), str(entry["id"])
        content = hash(line.raw)
        first, its_content = lines.setdefault((home, name), (line.number, content))
        if content != its_content:
            raise typer.BadParameter(
                f"line {line.number}: the id {name} is that of another entry, in line {first}", param_hint=ENTRIES_FILE
            )
        held.agents.setdefault(name, {})[home] = entry.get("agent_id") or None
        if session := entry.get("trace_id"):
            held.sessions.setdefault(home, {})[name] = str(session)
    return held


def _home(name: str | None) -> str | None:
    """A workspace as it is asked for: the default one need not be named, by entries or by questions."""
    from ...schemas.settings import DEFAULT_WORKSPACE

    return None if name in (None, "", DEFAULT_WORKSPACE) else name


def _homes(asked: Question, held: _Held, only: set[str | None] | None) -> set[str | None]:
    """The workspace (``only`` these, if given) in which its agent has entries that answer it; none if there is none.

    Raises:
        ValueError: If there are several, for a question is asked in one.
    """
    from ...schemas.settings import DEFAULT_WORKSPACE

    found = {
        home
        for name in asked.relevant_ids
        for home, agent in held.agents.get(name, {}).items()
        if agent == asked.agent_id and (only is None or home in only)
    }
    if len(found) > 1:
        homes = " and ".join(sorted(home or DEFAULT_WORKSPACE for home in found))
        raise ValueError(
            f"the entries of {asked.agent_id} that answer it are in several workspaces ({homes}), and a question is asked "
            "in one: name it as workspace_id"
        )
    return found


def _not_held(names: Sequence[str], asked: Question, home: str | None) -> str:
    if not names:
        return "relevant_ids is empty"
    first, *more = names
    some = f"{first} and {len(more):,} more are not entries" if more else f"{first} is not an entry"
    return f"{some} of {asked.agent_id} in {ENTRIES_FILE}" + (f", workspace {home}" if home else "")
