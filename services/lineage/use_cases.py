"""Shows what a memory was made of and what was made of it, and who was given it; reads the views of lineage and entries.

Invariant: the same references that an erasure follows (``schemas/erasure/lineage``) are followed here, and no others.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...schemas.core.errors import NotFound
from ...schemas.core.ports import ViewReader
from ...schemas.core.timestamps import format_ms
from ...schemas.erasure.lineage import MENTIONS
from ...schemas.lineage.operations import (
    SHOW_LINEAGE,
    WHO_SAW,
    LineageAnswer,
    LineageRequest,
    LineageStep,
    SeenPrompt,
    WhoSawAnswer,
    WhoSawRequest,
)
from ...schemas.lineage.tables import GIVEN, LINEAGE_NAMES, LINEAGE_PROJECTION, LINEAGE_SOURCE
from ..desk import Caller
from ..entries.rows import ARCHIVE_SOURCE
from ..node import Answers, Node

MOST_STEPS: Final = 1_000
MOST_PROMPTS: Final = 1_000
_MESSAGE: Final = f"""SELECT id, seq, entry_type, actor_type,
    coalesce(actor_id, CASE WHEN actor_type = 'agent' THEN agent_id END), ts_ms, data_subject_id
    FROM {ARCHIVE_SOURCE} WHERE workspace_id = ? AND """
_BY_ID: Final = f"{_MESSAGE} id IN (SELECT unnest(?::VARCHAR[]))"
_BY_SEQ: Final = f"{_MESSAGE} seq IN (SELECT unnest(?::UBIGINT[]))"
_OF_PERSON: Final = f"SELECT id FROM {ARCHIVE_SOURCE} WHERE workspace_id = ? AND data_subject_id = ?"
_BEARERS: Final = f"""SELECT name, entry_id FROM {LINEAGE_NAMES}
    WHERE workspace_id = ? AND name IN (SELECT unnest(?::VARCHAR[]))"""
_NAMES: Final = f"""SELECT entry_id, name FROM {LINEAGE_NAMES}
    WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?::VARCHAR[]))"""
_UP: Final = f"""SELECT seq, source, how FROM {LINEAGE_SOURCE}
    WHERE workspace_id = ? AND seq IN (SELECT unnest(?::UBIGINT[])) ORDER BY seq, source"""
_DOWN: Final = f"""SELECT seq, source, how FROM {LINEAGE_SOURCE}
    WHERE workspace_id = ? AND source IN (SELECT unnest(?::VARCHAR[])) ORDER BY seq, source"""
_GIVEN: Final = f"""SELECT seq, entry_id, holder, run FROM {GIVEN}
    WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY seq DESC, entry_id"""
_RECEIPTS: Final = f"""SELECT seq, id, ts_ms, agent_id, crew_id, payload FROM {ARCHIVE_SOURCE}
    WHERE workspace_id = ? AND seq IN (SELECT unnest(?::UBIGINT[]))"""


class _Message(NamedTuple):
    """An entry or document write."""

    entry_id: str
    seq: int
    what: str
    actor_type: str
    actor: str | None
    ts_ms: int
    data_subject_id: str | None

    @property
    def author(self) -> str:
        """Type and name of its actor."""
        return f"{self.actor_type}:{self.actor}" if self.actor else self.actor_type


@dataclass(slots=True)
class _Way:
    """Steps in one direction, and whether there were more than fit."""

    steps: list[LineageStep]
    truncated: bool = False


class Trace:
    """Reads one workspace; blocking."""

    def __init__(self, views: ViewReader, workspace_id: str) -> None:
        self._views = views
        self._workspace_id = workspace_id

    def rows(self, sql: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        """The rows of a query about some ids, names or sequences."""
        listed = list(values)
        return list(self._views.rows(sql, [self._workspace_id, listed])) if listed else []

    def ids_of(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Name → the entries that bear it; a name that no other message bears is itself an id."""
        listed = list(names)
        bearers: dict[str, list[str]] = defaultdict(list)
        for name, entry_id in self.rows(_BEARERS, listed):
            bearers[name].append(entry_id)
        return {name: bearers.get(name) or [name] for name in listed}

    def names_of(self, entry_ids: Iterable[str]) -> set[str]:
        """The names of some entries: their ids, and those of drawers, facts and lessons."""
        ids = set(entry_ids)
        return ids | {name for _, name in self.rows(_NAMES, ids)}

    def messages(self, entry_ids: Iterable[str]) -> dict[str, _Message]:
        """The entries with these ids that are left."""
        return {row[0]: _Message(*row) for row in self.rows(_BY_ID, entry_ids)}

    def at(self, seqs: Iterable[int]) -> dict[int, _Message]:
        """The entries at these sequences; vectors and links are none."""
        return {row[1]: _Message(*row) for row in self.rows(_BY_SEQ, seqs)}

    def of_person(self, subject: str) -> set[str]:
        """The entries of a person, and all that was made of them."""
        found = {str(row[0]) for row in self._views.rows(_OF_PERSON, [self._workspace_id, subject])}
        fresh = set(found)
        while fresh:
            rows = self.rows(_DOWN, self.names_of(fresh))
            made = self.at({seq for seq, _, how in rows if how not in MENTIONS})
            fresh = {message.entry_id for message in made.values()} - found
            found |= fresh
        return found

    def made_of(self, messages: Sequence[_Message]) -> _Way:
        """What messages were made of, the nearest first."""
        way, seen = _Way([]), {message.seq for message in messages}
        frontier = {message.seq: message.entry_id for message in messages}
        depth = 0
        while frontier and not way.truncated:
            depth += 1
            rows = self.rows(_UP, frontier)
            ids = self.ids_of(dict.fromkeys(source for _, source, _ in rows))
            known = self.messages({entry_id for some in ids.values() for entry_id in some})
            has_sources = {
                seq for seq, _, how in self.rows(_UP, {m.seq for m in known.values()}) if how not in MENTIONS
            }
            above: dict[int, str] = {}
            for seq, source, how in rows:
                for message in [known.get(entry_id) for entry_id in ids[source]]:
                    if message is not None and message.seq == seq:  # a lesson names itself
                        continue
                    is_root = message is not None and message.seq not in has_sources
                    _append(way, _step(source, message, how, frontier[seq], depth, root=is_root))
                    if message is not None and how not in MENTIONS and message.seq not in seen:
                        seen.add(message.seq)
                        above[message.seq] = message.entry_id
            frontier = above
        return way

    def made_from(self, entry_ids: Iterable[str]) -> _Way:
        """What was made of entries, the nearest first."""
        way, seen = _Way([]), set[int]()
        frontier = self.names_of(entry_ids)
        depth = 0
        while frontier and not way.truncated:
            depth += 1
            rows = self.rows(_DOWN, frontier)
            known = self.at({seq for seq, _, _ in rows})
            below: set[str] = set()
            for seq, source, how in rows:
                message = known.get(seq)
                _append(way, _step(None, message, how, source, depth, seq=seq))
                if message is not None and how not in MENTIONS and seq not in seen:
                    seen.add(seq)
                    below.add(message.entry_id)
            frontier = self.names_of(below)
        return way


def _append(way: _Way, step: LineageStep) -> None:
    if len(way.steps) < MOST_STEPS:
        way.steps.append(step)
    else:
        way.truncated = True


def _step(
    name: str | None,
    message: _Message | None,
    how: str,
    of: str,
    depth: int,
    *,
    seq: int | None = None,
    root: bool = False,
) -> LineageStep:
    is_derived = message is None and seq is not None
    return LineageStep(
        name=message.entry_id if message is not None else name,
        seq=message.seq if message is not None else seq,
        how=how,
        of=of,
        depth=depth,
        what=message.what if message is not None else "derived" if is_derived else None,
        author=None if message is None else message.author,
        ts=None if message is None else format_ms(message.ts_ms),
        data_subject_id=None if message is None else message.data_subject_id,
        root=root,
    )


class Lineages:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._views = node.views

    async def show(self, caller: Caller, request: LineageRequest) -> LineageAnswer:
        """Both ways from a memory; raises ``NotFound``."""
        return await asyncio.to_thread(self._show, caller.workspace_id, request.name)

    def _show(self, workspace_id: str, name: str) -> LineageAnswer:
        view_seq = self._views.view_seq(LINEAGE_PROJECTION)
        trace = Trace(self._views, workspace_id)
        ids = trace.ids_of([name])[name]
        messages = sorted(trace.messages(ids).values(), key=lambda message: message.seq)
        up, down = trace.made_of(messages), trace.made_from(ids)
        if not messages and not down.steps:
            raise _unknown(name, workspace_id)
        followed = [step for step in up.steps if step.how not in MENTIONS]
        authors = [message.author for message in messages] + [step.author for step in followed if step.author]
        subjects = [message.data_subject_id for message in messages] + [step.data_subject_id for step in followed]
        return LineageAnswer(
            name=name,
            seqs=tuple(message.seq for message in messages),
            made_of=tuple(up.steps),
            made_from_it=tuple(down.steps),
            authors=tuple(dict.fromkeys(authors)),
            subjects=tuple(sorted({subject for subject in subjects if subject is not None})),
            prompts=len({row[0] for row in trace.rows(_GIVEN, ids)}),
            truncated=up.truncated or down.truncated,
            view_seq=view_seq,
        )

    async def who_saw(self, caller: Caller, request: WhoSawRequest) -> WhoSawAnswer:
        """Who was given a memory, or anything of a person; raises ``NotFound``."""
        return await asyncio.to_thread(self._who_saw, caller.workspace_id, request.name, of_person=request.subject)

    def _who_saw(self, workspace_id: str, name: str, *, of_person: bool) -> WhoSawAnswer:
        view_seq = self._views.view_seq(LINEAGE_PROJECTION)
        trace = Trace(self._views, workspace_id)
        ids = trace.of_person(name) if of_person else set(trace.ids_of([name])[name])
        held: dict[tuple[int, str, str], list[str]] = defaultdict(list)
        for seq, entry_id, holder, run in trace.rows(_GIVEN, ids):
            held[seq, holder, run].append(entry_id)
        if not held and not trace.messages(ids):
            if of_person:
                hint = "the name must be exactly the `data_subject_id`; of what was erased, ask for each id"
                raise NotFound(f"nothing in workspace {workspace_id} is about {name[:64]}", hint=hint, field="name")
            raise _unknown(name, workspace_id)
        listed = list(held)[:MOST_PROMPTS]
        receipts = {row[0]: row[1:] for row in trace.rows(_RECEIPTS, {seq for seq, _, _ in listed})}
        prompts = [
            _seen(receipts[seq], holder, run, held[seq, holder, run]) for seq, holder, run in listed if seq in receipts
        ]
        return WhoSawAnswer(
            prompts=tuple(prompts),
            runs=tuple(sorted({run for _, _, run in held if run})),
            agents=tuple(sorted({holder for _, holder, _ in held})),
            total=len(held),
            view_seq=view_seq,
        )


def _seen(receipt: Sequence[Any], holder: str, run: str, memories: Sequence[str]) -> SeenPrompt:
    entry_id, ts_ms, agent_id, crew_id, payload = receipt
    try:
        said = json.loads(payload)
    except ValueError:  # cut by the archive
        said = {}
    return SeenPrompt(
        receipt=entry_id,
        ts=format_ms(ts_ms),
        prompt=str(said.get("prompt") or said.get("recipe") or ""),
        holder=holder,
        agent_id=agent_id,
        crew_id=crew_id,
        run=run or None,
        memories=tuple(memories),
    )


def _unknown(name: str, workspace_id: str) -> NotFound:
    hint = "name the id of an entry or document write, drawer:ID or fact:ID"
    return NotFound(f"nothing in workspace {workspace_id} is called {name[:64]}", hint=hint, field="name")


ANSWERS: Final[Answers] = ((SHOW_LINEAGE, Lineages.show), (WHO_SAW, Lineages.who_saw))
