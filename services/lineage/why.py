"""Shows why a memory or a receipt says what it says.

Invariant: a token of role AGENT or LEAD sees the messages that it may list, the rules of its crew, and what it was given
before; other messages are counted, never named.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ...schemas.catalogue import control_payloads
from ...schemas.core.errors import InvalidQuery, NotFound
from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import Principal
from ...schemas.erasure.lineage import MENTIONS, VECTOR_OF, named_drawer, named_fact
from ...schemas.facts.events import FactAsserted
from ...schemas.learning.events import LessonRecorded, RuleLearned, RuleProposed
from ...schemas.lineage.events import MemoryGiven
from ...schemas.lineage.operations import (
    WHY,
    LineageStep,
    WhyAnswer,
    WhyHit,
    WhyMessage,
    WhyRelation,
    WhyRequest,
)
from ...schemas.lineage.rules import holder_of
from ...schemas.lineage.tables import ENDINGS, GIVEN, LINEAGE
from ...schemas.palace.events import DrawerFiled
from ...schemas.recall.events import MemorySearched
from ...schemas.recall.operations import ReceiptRequest
from ...schemas.relations.tables import RELATIONS
from ...schemas.standing.operations import Standing
from ..desk import Caller
from ..entries.filters import Visible
from ..entries.rows import ARCHIVE_SOURCE, SELECT_LIST, StoredEntry, add_marks
from ..node import Answers, Node
from ..recall.receipts import DOCUMENT, DRAWER, PREFIX, Receipts, drawers_filed_by
from .held import NOW, Writes
from .replaying import RECEIPT_HINT, ReceiptText, payload_of, replay, texts_of
from .use_cases import Trace

MOST_DECISIONS: Final = 200
MOST_RELATIONS: Final = 100
MOST_ROOTS: Final = 20
"""Roots that are named for each hit of a receipt; `why` of the hit names all."""
_ENTRIES: Final = f"SELECT {SELECT_LIST} FROM {ARCHIVE_SOURCE} WHERE workspace_id = ? AND "
_BY_ID: Final = f"{_ENTRIES} id IN (SELECT unnest(?::VARCHAR[])) ORDER BY seq"
_BY_SEQ: Final = f"{_ENTRIES} seq IN (SELECT unnest(?::UBIGINT[])) ORDER BY seq"
_ABOUT: Final = f"""SELECT DISTINCT seq FROM {LINEAGE} WHERE workspace_id = ? AND source IN (SELECT unnest(?::VARCHAR[]))
    AND how NOT IN ('link', '{VECTOR_OF}')"""
_ENDED: Final = f"""SELECT entry_id, why, by_id, seq FROM {ENDINGS}
    WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY seq"""
_RELATED: Final = f"""SELECT relation, if(src_entry_id = $id, dst_entry_id, src_entry_id), weight, state, reason
    FROM {RELATIONS} WHERE workspace_id = $workspace AND $id IN (src_entry_id, dst_entry_id) ORDER BY seq LIMIT $most"""
_READABLE: Final = f"SELECT id FROM {ARCHIVE_SOURCE} WHERE id IN (SELECT unnest(?::VARCHAR[])) AND "
_RULES_OF_CREW: Final = f"""SELECT id FROM {ARCHIVE_SOURCE} WHERE workspace_id = ? AND id IN (SELECT unnest(?::VARCHAR[]))
    AND entry_type = '{RuleLearned.ENTRY_TYPE}' AND crew_id = ?"""
_WAS_GIVEN: Final = f"""SELECT DISTINCT entry_id FROM {GIVEN}
    WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?::VARCHAR[])) AND holder = ?"""
_KINDS: Final[Mapping[str, str]] = {
    FactAsserted.ENTRY_TYPE: "fact",
    DrawerFiled.ENTRY_TYPE: "drawer",
    RuleLearned.ENTRY_TYPE: "rule",
    LessonRecorded.ENTRY_TYPE: "lesson",
    MemorySearched.ENTRY_TYPE: "receipt",
    MemoryGiven.ENTRY_TYPE: "receipt",
}


class Whys:
    """The use-case."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._receipts = node.use(Receipts)
        self._writes = Writes(node.views)

    async def why(self, caller: Caller, request: WhyRequest) -> WhyAnswer:
        """Explain a memory or a receipt.

        Raises:
            NotFound: If nothing has this name, or the token may not read it.
            InvalidQuery: If something else than the receipt of a recall is to be replayed.
        """
        name = request.name
        if name.startswith(PREFIX):
            await self._arrived(caller, name)
        answer, searched = await asyncio.to_thread(self._why, caller, name)
        if not request.replay:
            return answer
        if searched is None:
            raise InvalidQuery(f"{name[:64]} is not the receipt of a recall", hint=RECEIPT_HINT, field="name")
        replayed = await replay(self._node, caller, searched)
        return answer.model_copy(update={"replay": replayed})

    async def _arrived(self, caller: Caller, receipt: str) -> None:
        """Wait for a receipt that is on its way, as ``receipt`` does."""
        if not await asyncio.to_thread(self._entries, caller.workspace_id, _BY_ID, [receipt]):
            with contextlib.suppress(NotFound):  # the receipt of a text for a prompt is in no view of its own
                await self._receipts.show(caller, ReceiptRequest(receipt=receipt))

    # blocking

    def _why(self, caller: Caller, name: str) -> tuple[WhyAnswer, StoredEntry | None]:
        workspace_id, principal = caller.workspace_id, caller.principal
        view_seq = self._views.view_seq(*WHY.views)
        trace = Trace(self._views, workspace_id)
        ids = self._ids(trace, workspace_id, name)
        own = self._entries(workspace_id, _BY_ID, ids)
        may_read = MayRead(self._views, principal, workspace_id)
        may_read.look_at(entry.id for entry in own)
        own = [entry for entry in own if may_read(entry.id)]
        is_receipt = any(_KINDS.get(entry.record["entry_type"]) == "receipt" for entry in own)
        if is_receipt:
            own = [entry for entry in own if _is_for(entry, principal)]
        if not own:
            raise NotFound(
                f"nothing that this token may read is called {name[:64]}",
                hint="name a receipt, the id of an entry or document write, drawer:ID, fact:ID, or <owner>/<file>:<line>",
                field="name",
            )
        ids = [entry.id for entry in own]
        messages = sorted(trace.messages(ids).values(), key=lambda message: message.seq)
        up = trace.made_of(messages)
        proposals = [step.name for step in up.steps if step.name and step.what == RuleProposed.ENTRY_TYPE]
        decisions = self._decisions(trace, workspace_id, ids, proposals, {*ids, *(step.name for step in up.steps)})
        relations = [row for entry_id in ids for row in self._relations(workspace_id, entry_id)]
        may_read.look_at(
            [step.name for step in up.steps if step.name is not None]
            + [entry.id for entry in decisions]
            + [relation.other for relation in relations]
        )
        steps = _shown_steps(up.steps, ids, may_read)
        shown_decisions = [entry for entry in decisions if may_read(entry.id)]
        shown_relations = [relation for relation in relations if may_read(relation.other)]
        hidden = len(up.steps) - len(steps) + len(decisions) - len(shown_decisions)
        hidden += len(relations) - len(shown_relations)
        add_marks(self._views, own)
        record = own[-1].record
        searched, hits = None, list[WhyHit]()
        asked: dict[str, Any] | None = None
        if is_receipt:
            asked = payload_of(own[-1])
            if record["entry_type"] == MemorySearched.ENTRY_TYPE:
                searched = own[-1]
            hits = self._hits(trace, workspace_id, may_read, texts_of(record["entry_type"], asked))
        authors = [message.author for message in messages] + [step.author for step in steps if step.author]
        answer = WhyAnswer(
            name=name,
            kind=DOCUMENT if _is_place(name) else _KINDS.get(record["entry_type"], "entry"),
            messages=tuple(map(message_of, own)),
            live_priority=record["live_priority"],
            standing=None if record["standing"] is None else Standing.model_validate(record["standing"]),
            made_of=tuple(steps),
            authors=tuple(dict.fromkeys(authors)),
            decisions=tuple(map(message_of, shown_decisions)),
            relations=tuple(shown_relations),
            asked=asked,
            hits=tuple(hits),
            replay=None,
            hidden=hidden,
            truncated=up.truncated,
            view_seq=view_seq,
        )
        return answer, searched

    def _ids(self, trace: Trace, workspace_id: str, name: str) -> list[str]:
        """The entries or writes of a name: of a drawer or fact also by its bare id, of a place its writes."""
        if _is_place(name):
            document, _, line = name.rpartition(":")
            if not line.isdecimal():
                document, line = name, ""
            return list(dict.fromkeys(self._writes.of(workspace_id, document, int(line) if line else None, NOW)))
        names = [name] if ":" in name else [name, named_drawer(name), named_fact(name)]
        return [entry_id for some in trace.ids_of(names).values() for entry_id in some]

    def _entries(self, workspace_id: str, sql: str, values: Collection[Any]) -> list[StoredEntry]:
        if not values:
            return []
        return [StoredEntry.of_row(row) for row in self._views.rows(sql, [workspace_id, list(values)])]

    def _decisions(
        self,
        trace: Trace,
        workspace_id: str,
        ids: Sequence[str],
        proposals: Sequence[str],
        known: Collection[str | None],
    ) -> list[StoredEntry]:
        """The service's entries about the memory or its proposal, and those that ended it together with others."""
        about = {row[0] for row in trace.rows(_ABOUT, {*trace.names_of(ids), *proposals})}
        about |= {row[3] for row in trace.rows(_ENDED, trace.names_of(ids))}
        found = self._entries(workspace_id, _BY_SEQ, about)
        decided = [entry for entry in found if entry.id not in known and _is_decision(entry)]
        return decided[-MOST_DECISIONS:]

    def _relations(self, workspace_id: str, entry_id: str) -> list[WhyRelation]:
        rows = self._views.rows(_RELATED, {"workspace": workspace_id, "id": entry_id, "most": MOST_RELATIONS})
        return [
            WhyRelation(relation=relation, other=other, weight=weight, state=state, reason=reason)
            for relation, other, weight, state, reason in rows
        ]

    def _hits(self, trace: Trace, workspace_id: str, may_read: MayRead, texts: Sequence[ReceiptText]) -> list[WhyHit]:
        """The hits of a receipt, each with the roots that it was made of."""
        of_places = {
            text.id: self._ids(trace, workspace_id, text.id)
            for text in texts
            if text.kind == DOCUMENT and not text.made_of
        }
        made_of = [list(text.made_of) or of_places.get(text.id, []) for text in texts]
        may_read.look_at(entry_id for some in made_of for entry_id in some)
        hits = []
        drawers = drawers_filed_by(self._views, workspace_id, [text.id for text in texts if text.kind == DRAWER])
        for text, ids in zip(texts, made_of, strict=True):
            readable = [entry_id for entry_id in ids if may_read(entry_id)]
            messages = sorted(trace.messages(readable).values(), key=lambda message: message.seq)
            up = trace.made_of(messages)
            may_read.look_at(step.name for step in up.steps if step.name is not None)
            steps = _shown_steps(up.steps, readable, may_read)
            made = {step.of for step in steps if step.how not in MENTIONS}
            roots = [message for message in messages if message.entry_id not in made]
            root_names = [message.entry_id for message in roots] + [
                step.name for step in steps if step.root and step.name
            ]
            authors = [message.author for message in roots] + [
                step.author for step in steps if step.root and step.author
            ]
            own = self._entries(workspace_id, _BY_ID, readable[-1:])
            hits.append(
                WhyHit(
                    rank=text.rank,
                    kind=text.kind,
                    id=drawers.get(text.id, text.id),
                    entry_id=text.made_of[0] if text.made_of else text.id,
                    score=text.score,
                    confidence=text.confidence,
                    summary=own[0].record["summary"] if own else "",
                    gone=not messages,
                    roots=tuple(dict.fromkeys(root_names))[:MOST_ROOTS],
                    authors=tuple(dict.fromkeys(authors)),
                )
            )
        return hits


class MayRead:
    """Which messages a token may read; blocking."""

    def __init__(self, views: ViewReader, principal: Principal, workspace_id: str) -> None:
        self._views = views
        self._principal = principal
        self._workspace_id = workspace_id
        self._known: dict[str, bool] = {}

    def __call__(self, entry_id: str) -> bool:
        """Whether it may read a message that was looked at."""
        return self._known[entry_id]

    def look_at(self, entry_ids: Iterable[str]) -> None:
        """Find out about some messages; necessary before they are asked for."""
        fresh = [entry_id for entry_id in dict.fromkeys(entry_ids) if entry_id not in self._known]
        if not fresh:
            return
        principal, workspace_id = self._principal, self._workspace_id
        if principal.role.administers:
            self._known.update(dict.fromkeys(fresh, True))
            return
        condition = Visible.to(principal, workspace_id).condition()
        rows = [*self._views.rows(_READABLE + condition.sql, [fresh, *condition.params])]
        if principal.crew_id is not None:
            rows += self._views.rows(_RULES_OF_CREW, [workspace_id, fresh, principal.crew_id])
        holder = holder_of(principal.agent_id, principal.token_id)
        rows += self._views.rows(_WAS_GIVEN, [workspace_id, fresh, holder])
        self._known.update(dict.fromkeys(fresh, False))
        self._known.update((str(row[0]), True) for row in rows)


def _shown_steps(steps: Iterable[LineageStep], ids: Collection[str], may_read: MayRead) -> list[LineageStep]:
    """The steps that are reached by readable messages alone."""
    reached = set(ids)
    shown = []
    for step in steps:
        if step.of in reached and step.name is not None and may_read(step.name):
            reached.add(step.name)
            shown.append(step)
    return shown


def message_of(entry: StoredEntry) -> WhyMessage:
    """An entry or document write as a message of ``why``."""
    record = entry.record
    actor = record["actor_id"] or record["agent_id"]
    return WhyMessage(
        entry_id=entry.id,
        seq=entry.seq,
        ts=record["ts"],
        what=record["entry_type"],
        author=f"{record['actor_type']}:{actor}" if actor else record["actor_type"],
        summary=record["summary"],
        payload=payload_of(entry) if _is_control(entry) else {},
    )


def _is_control(entry: StoredEntry) -> bool:
    return entry.record["entry_type"] in control_payloads()


def _is_decision(entry: StoredEntry) -> bool:
    """Whether it is a decision of the service or a person, or replaces the memory; receipts are neither."""
    record = entry.record
    return _KINDS.get(record["entry_type"]) != "receipt" and (_is_control(entry) or bool(record["supersedes"]))


def _is_place(name: str) -> bool:
    return "/" in name and not name.startswith(("drawer:", "fact:"))


def _is_for(entry: StoredEntry, principal: Principal) -> bool:
    agent_id = entry.record["agent_id"]
    return principal.role.administers or (agent_id is not None and agent_id == principal.agent_id)


ANSWERS: Final[Answers] = ((WHY, Whys.why),)
