"""Shows why a memory or a receipt says what it says, and runs the recall of a receipt again.

Invariants: a token of role AGENT or LEAD sees the messages that it may list, the rules of its crew, and what it was given
before; other messages are counted, never named. A replay records nothing: no receipt, no use.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, Final, NamedTuple

import orjson

from ...schemas.catalogue import control_payloads
from ...schemas.core.errors import InvalidQuery, NotFound
from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import Principal, Role
from ...schemas.erasure.lineage import VECTOR_OF, named_drawer, named_fact
from ...schemas.facts.events import FactAsserted
from ...schemas.learning.events import LessonRecorded, RuleLearned, RuleProposed
from ...schemas.lineage.events import MemoryGiven
from ...schemas.lineage.operations import (
    WHY,
    ChangedHit,
    LineageStep,
    Replayed,
    WhyAnswer,
    WhyHit,
    WhyMessage,
    WhyRelation,
    WhyRequest,
)
from ...schemas.lineage.rules import holder_of
from ...schemas.lineage.tables import ENDINGS, GIVEN, LINEAGE
from ...schemas.palace.events import DrawerFiled
from ...schemas.recall.events import AskedRecall, MemorySearched
from ...schemas.recall.operations import RecallAnswer, RecallRequest, ReceiptRequest
from ...schemas.relations.tables import RELATIONS
from ...schemas.standing.operations import Standing
from ..desk import Caller
from ..entries.filters import Visible
from ..entries.rows import ARCHIVE_SOURCE, SELECT_LIST, StoredEntry, add_marks
from ..node import Answers, Node
from ..recall.receipts import DOCUMENT, DRAWER, PREFIX, Receipts, drawers_filed_by, id_of_hit
from .held import NOW, Writes
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
_RECEIPT_HINT: Final = "name the receipt of a recall: `receipt` of its answer"


class Whys:
    """The use-case."""

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._recall = node.recall
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
            raise InvalidQuery(f"{name[:64]} is not the receipt of a recall", hint=_RECEIPT_HINT, field="name")
        return answer.model_copy(update={"replay": await self._replay(caller, searched)})

    async def _arrived(self, caller: Caller, receipt: str) -> None:
        """Wait for a receipt that is on its way, as ``receipt`` does."""
        if not await asyncio.to_thread(self._entries, caller.workspace_id, _BY_ID, [receipt]):
            with contextlib.suppress(NotFound):  # the receipt of a text for a prompt is in no view of its own
                await self._receipts.show(caller, ReceiptRequest(receipt=receipt))

    # blocking

    def _why(self, caller: Caller, name: str) -> tuple[WhyAnswer, tuple[StoredEntry, MemorySearched] | None]:
        workspace_id, principal = caller.workspace_id, caller.principal
        view_seq = self._views.view_seq(*WHY.views)
        trace = Trace(self._views, workspace_id)
        ids = self._ids(trace, workspace_id, name)
        own = self._entries(workspace_id, _BY_ID, ids)
        may_read = _MayRead(self._views, principal, workspace_id)
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
            asked = _parsed(own[-1])
            if record["entry_type"] == MemorySearched.ENTRY_TYPE:
                searched = own[-1], MemorySearched.model_validate(asked)
            hits = self._hits(trace, workspace_id, may_read, _texts_of(record["entry_type"], asked))
        authors = [message.author for message in messages] + [step.author for step in steps if step.author]
        answer = WhyAnswer(
            name=name,
            kind=DOCUMENT if _is_place(name) else _KINDS.get(record["entry_type"], "entry"),
            messages=tuple(map(_message, own)),
            live_priority=record["live_priority"],
            standing=None if record["standing"] is None else Standing.model_validate(record["standing"]),
            made_of=tuple(steps),
            authors=tuple(dict.fromkeys(authors)),
            decisions=tuple(map(_message, shown_decisions)),
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

    def _hits(self, trace: Trace, workspace_id: str, may_read: _MayRead, texts: Sequence[_ReceiptText]) -> list[WhyHit]:
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
            roots = [message for message in messages if not any(step.of == message.entry_id for step in steps)]
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

    # the replay

    async def _replay(self, caller: Caller, receipt: tuple[StoredEntry, MemorySearched]) -> Replayed:
        """Run a recall again as its asker; raises as ``RecallService.answer``."""
        entry, searched = receipt
        before = _texts_of(MemorySearched.ENTRY_TYPE, _parsed(entry))
        asked = searched.asked or _guessed(entry, searched, len(before))
        principal = _asker(caller, entry, searched, asked)
        binds = asked.scope is not None or principal.role.administers
        names = {} if searched.scope == "workspace" or not binds else _bound(searched)
        request = RecallRequest(
            query=searched.query,
            k=asked.k,
            scope=searched.scope if binds else None,
            **names,
            recipe=searched.recipe,
            walk_depth=asked.walk_depth,
            mode="inject" if searched.mode == "inject" else "search",
            asked_at=asked.asked_at,
            collect=asked.collect,
            max_tokens=asked.max_tokens,
            kinds=asked.kinds,
            workspace_id=caller.workspace_id,
        )
        answered = await self._recall.answer(principal, request, now_ms=entry.ts_ms)
        after = answered.response
        changed = await asyncio.to_thread(self._changes, caller.workspace_id, searched, before, after)
        return Replayed(
            same=not changed,
            exact=searched.asked is not None,
            recipe=after.recipe,
            model=after.model,
            model_before=searched.model,
            hits=len(after.hits),
            changed=tuple(changed),
        )

    def _changes(
        self, workspace_id: str, searched: MemorySearched, before: Sequence[_ReceiptText], after: RecallAnswer
    ) -> list[ChangedHit]:
        trace = Trace(self._views, workspace_id)
        old = {text.id: (rank, text) for rank, text in enumerate(before)}
        new = {id_of_hit(hit): (rank, hit) for rank, hit in enumerate(after.hits)}
        if list(old) == list(new):
            return []
        since = searched.view_seq
        names = {text.id: _names_of(text) for text in before}
        left = trace.messages(entry_id for text in before for entry_id in text.made_of)
        ended: dict[str, tuple[str, str | None]] = {}
        for name, why, by, seq in trace.rows(_ENDED, {name for some in names.values() for name in some}):
            if since is None or seq > since:
                ended[name] = why, by
        archived = {
            entry.id for entry in self._entries(workspace_id, _BY_ID, list(left)) if entry.record.get("archived")
        }
        model = after.model != searched.model
        newer = any(since is not None and hit.seq > since for _, hit in new.values() if id_of_hit(hit) not in old)
        changed = []
        for hit_id, (rank, text) in old.items():
            if hit_id in new:
                continue
            why, by = next((ended[name] for name in names[hit_id] if name in ended), (None, None))
            if text.made_of and not any(entry_id in left for entry_id in text.made_of):
                why, by = "erased", None
            elif why is None and any(entry_id in archived for entry_id in text.made_of):
                why = "archived"
            why = why or ("model" if model else "displaced" if newer else "ranking")
            changed.append(ChangedHit(id=hit_id, kind=text.kind, before=rank, after=None, why=why, by=by))
        gone = bool(changed)
        for hit_id, (rank, hit) in new.items():
            kind = hit.kind or "entry"
            if hit_id not in old:
                is_newer = since is not None and hit.seq > since
                why = "newer" if is_newer else "model" if model else "moved" if gone else "ranking"
                changed.append(ChangedHit(id=hit_id, kind=kind, before=None, after=rank, why=why))
        kept_before = [hit_id for hit_id in old if hit_id in new]
        kept_after = [hit_id for hit_id in new if hit_id in old]
        for hit_id, other in zip(kept_before, kept_after, strict=True):
            if hit_id != other:
                (was, text), (now, _) = old[hit_id], new[hit_id]
                changed.append(
                    ChangedHit(id=hit_id, kind=text.kind, before=was, after=now, why="model" if model else "ranking")
                )
        return changed


class _MayRead:
    """Which messages a token may read; blocking."""

    def __init__(self, views: ViewReader, principal: Principal, workspace_id: str) -> None:
        self._views = views
        self._principal = principal
        self._workspace_id = workspace_id
        self._known: dict[str, bool] = {}

    def __call__(self, entry_id: str) -> bool:
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


class _ReceiptText(NamedTuple):
    """A text that a receipt names."""

    rank: int
    kind: str
    id: str
    made_of: tuple[str, ...]
    score: float | None
    confidence: float | None


def _texts_of(entry_type: str, payload: Mapping[str, Any]) -> list[_ReceiptText]:
    """The texts of a receipt in their order."""
    if entry_type == MemoryGiven.ENTRY_TYPE:
        given = MemoryGiven.model_validate(payload)
        return [
            _ReceiptText(rank, text.kind, text.id, text.entry_ids, None, None) for rank, text in enumerate(given.texts)
        ]
    searched = MemorySearched.model_validate(payload)
    figures = zip_longest(searched.hit_ids, searched.scores, searched.confidences)
    texts = [
        _ReceiptText(0, "entry", str(entry_id), (str(entry_id),), score, confidence)
        for entry_id, score, confidence in islice(figures, len(searched.hit_ids))
    ]
    for text in sorted(searched.texts, key=lambda text: text.rank):
        made_of = () if text.entry_id is None else (text.entry_id,)
        name = text.entry_id if text.kind == DRAWER and text.entry_id is not None else text.id
        texts.insert(text.rank, _ReceiptText(0, text.kind, name, made_of, text.confidence, text.confidence))
    texts += [_ReceiptText(0, DOCUMENT, piece, (), None, None) for piece in searched.chunks]
    return [text._replace(rank=rank) for rank, text in enumerate(texts)]


def _names_of(text: _ReceiptText) -> tuple[str, ...]:
    named = {"drawer": named_drawer, "fact": named_fact}.get(text.kind)
    return (*text.made_of, text.id) if named is None else (*text.made_of, named(text.id))


def _shown_steps(steps: Iterable[LineageStep], ids: Collection[str], may_read: _MayRead) -> list[LineageStep]:
    """The steps that are reached by readable messages alone."""
    reached = set(ids)
    shown = []
    for step in steps:
        if step.of in reached and step.name is not None and may_read(step.name):
            reached.add(step.name)
            shown.append(step)
    return shown


def _parsed(entry: StoredEntry) -> dict[str, Any]:
    """The payload; empty if the archive has cut it."""
    parsed = orjson.loads(orjson.dumps(entry.record["payload"]))
    return parsed if isinstance(parsed, dict) and "truncated" not in parsed else {}


def _message(entry: StoredEntry) -> WhyMessage:
    record = entry.record
    actor = record["actor_id"] or record["agent_id"]
    return WhyMessage(
        entry_id=entry.id,
        seq=entry.seq,
        ts=record["ts"],
        what=record["entry_type"],
        author=f"{record['actor_type']}:{actor}" if actor else record["actor_type"],
        summary=record["summary"],
        payload=_parsed(entry) if _is_control(entry) else {},
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


def _guessed(entry: StoredEntry, searched: MemorySearched, hits: int) -> AskedRecall:
    """What a receipt of an older version asked for, as far as it shows that."""
    agent_id, crew_id = entry.record["agent_id"], entry.record["crew_id"]
    role = Role.OWNER
    if agent_id is not None and searched.scope != "workspace":
        role = Role.LEAD if searched.scope == "crew_shared" and crew_id is not None else Role.AGENT
    return AskedRecall(role=role, k=max(1, hits))


def _asker(caller: Caller, entry: StoredEntry, searched: MemorySearched, asked: AskedRecall) -> Principal:
    """The token that asked, bound to the workspace of the receipt; it never has more rights than the caller."""
    if not caller.administers:
        return caller.principal
    return Principal(
        token_id=searched.asked_by or caller.principal.token_id,
        role=asked.role,
        workspace_id=caller.workspace_id,
        crew_id=entry.record["crew_id"],
        agent_id=entry.record["agent_id"],
    )


def _bound(searched: MemorySearched) -> dict[str, Any]:
    return {"agent_id": searched.agent_id, "crew_id": searched.crew_id}


ANSWERS: Final[Answers] = ((WHY, Whys.why),)
