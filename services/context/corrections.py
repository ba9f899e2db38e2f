"""Corrects statements: records the new statement, retires the old one and what repeats it, lists what a person must decide.

The new statements are recorded first, under ids that are derived from the statement they replace. Then one decision,
``statement.corrected``, names everything that it retires, so that no view shows half of a correction. A crash between the
two leaves both statements current; the same request again finishes.

Invariants: a statement that the caller may not change, and one that only probably makes the same claim, is listed and not
changed. No document is rewritten unless the request asks for it. The decision holds ids alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json

from ...schemas.core.entry import MAX_SUMMARY, ActorType, Priority
from ...schemas.core.errors import CrewJournalError, EntryConflict, FieldProblem, InvalidRequest, NotAllowed
from ...schemas.core.grants import USER, speaks_for
from ...schemas.core.ids import derived_id
from ...schemas.core.payload import ControlPayload
from ...schemas.core.principal import UNRECORDED, author_shown
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import DAY_MS, format_ms, parse_ts, to_ms
from ...schemas.documents.rules import TIERS, scope_of
from ...schemas.documents.tables import DocumentRow
from ...schemas.entries.tables import ENTRIES, ENTRIES_PROJECTION
from ...schemas.facts.events import MAX_NAME, FactAsserted, FactEntity, FactType
from ...schemas.facts.names import entity_id
from ...schemas.facts.tables import FACTS_PROJECTION
from ...schemas.learning.agreement import is_shared
from ...schemas.learning.events import LessonRecorded, RuleLearned
from ...schemas.learning.lessons import rule_summary
from ...schemas.learning.tables import LEARNING_PROJECTION, LessonRow, RuleRow
from ...schemas.operators.tables import OPERATORS_PROJECTION
from ...schemas.palace.events import CONTENT_CHARS, DrawerFiled, DrawerState
from ...schemas.palace.rules import drawer_id
from ...schemas.palace.tables import DRAWERS_PROJECTION
from ...schemas.relations.judging import (
    Sameness,
    corrected_value,
    corrected_within,
    same_claim,
    words_of_claim,
)
from ...schemas.relations.rules import EVIDENCE_REF
from ...schemas.standing import operations as ops
from ...schemas.standing.events import MOST_RETIRED, Retired, StatementCorrected
from ...schemas.standing.tables import RETRACTIONS, STANDINGS_PROJECTION
from ..desk import Caller
from ..documents.addressing import check_may_write
from ..documents.drafts import Draft
from ..documents.journal_store import JournalStore
from ..entries.rows import StoredEntry
from ..facts.index import KnownFact
from ..facts.use_cases import FactReader
from ..journal.intake.secrets import storable
from ..node import Answers, Node
from ..palace.drawer_index import Drawer, DrawerReader, shown_text
from ..palace.filing import filing_id
from .claimants import Claimants, Repeated, Stated, address_of

PARENT_REF: Final = "parent_entry_id"
"""In ``refs`` of a correction: the entry that it corrects; the rules about pairs of entries leave the two alone."""
_VIEWS: Final = (
    ENTRIES_PROJECTION,
    STANDINGS_PROJECTION,
    DRAWERS_PROJECTION,
    FACTS_PROJECTION,
    LEARNING_PROJECTION,
    OPERATORS_PROJECTION,
)
_ID_NAME: Final = "correction"
_ID_VERSION: Final = 1
_ID_BYTES: Final = 16
_KEY_BYTES: Final = 64
"""Most bytes of a key of BLAKE2b."""
_KEPT_FIELDS: Final = ("entry_type", "severity", "crew_id", "agent_id", "mission_id", "trace_id", "data_subject_id")
"""Fields that a correction of an entry takes from it: where it belongs, and whose data it is."""
_MADE: Final = f"""SELECT seq, ts_ms, payload, actor_id FROM {ENTRIES} WHERE control AND workspace_id = ?
    AND entry_type = '{StatementCorrected.ENTRY_TYPE}' AND (? IS NULL OR list_contains(?, payload->>'$.retired[0].id'))
    ORDER BY seq DESC LIMIT ?"""
_EVIDENCE: Final = f"""SELECT id, coalesce(publisher, '{UNRECORDED}'), agent_id, published_ms FROM {ENTRIES} e
    WHERE workspace_id = ? AND list_contains(?, id) AND NOT EXISTS (SELECT 1 FROM {RETRACTIONS} x
        WHERE x.workspace_id = e.workspace_id AND x.kind = 'entry' AND x.target_id = e.id AND x.{PRESENT}) ORDER BY seq"""
_LEAST_EVIDENCE: Final = 2
_CORRECTED, _SAME, _DERIVED, _NAMED = "corrected", "same", "derived", "named"
_REVIEWED: Final = "a person approved the rule"
_LIKELY: Final = "probably the same claim"
_WITHIN: Final = "holds the statement among others"
_NOT_FOLLOWING: Final = "was derived from it, and what it should say does not follow"


@dataclass(slots=True)
class _Making:
    """A correction while it is made.

    Attributes:
        target: The corrected statement.
        old: What it said.
        new: What is right.
        cause: Names the correction; ids of what it records follow from it.
        retired: What is retired, in order.
        why: Why, likewise.
        review: What is listed.
        seqs: Sequences of what was recorded.
        made: What was recorded, by where it stands.
        filings: Drawer → the entry that filed it, by which the decision names it.
        sources: The entry that recorded the new statement, of whose text the others are made.
        last: The entry that was recorded last.
    """

    target: Stated
    old: str
    new: str
    cause: str
    retired: list[Retired] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    review: list[ops.StatementToReview] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    made: dict[tuple[str, ...], str] = field(default_factory=dict)
    statements: list[Stated] = field(default_factory=list)
    filings: dict[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    last: str = ""

    def retire(self, stated: Stated, by: str | None, why: str, since_ms: int | None = None) -> None:
        """Note that a statement is retired."""
        self.retired.append(
            Retired.model_validate({"kind": stated.event_kind, "id": stated.id, "by": by, "since_ms": since_ms})
        )
        self.why.append(why)
        self.statements.append(stated)
        if stated.kind == "drawer":
            self.filings[stated.id] = _recorded_as(stated)

    def by(self, stated: Stated) -> str | None:
        """What replaces a retired statement."""
        return next((one.by for one in self.retired if (one.kind, one.id) == (stated.event_kind, stated.id)), None)


class Corrections:
    """The use-cases."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._claimants = node.use(Claimants)
        self._drawers = DrawerReader(node.views)
        self._facts = FactReader(node.views)
        self._one_at_a_time = asyncio.Lock()

    async def correct(self, caller: Caller, request: ops.CorrectRequest) -> ops.CorrectAnswer:
        """Record a correction; returns once the views show it.

        Raises:
            NotFound: If there is no statement with the id, or the caller may not read it; likewise for ``also``.
            NotAllowed: If the caller may not change the statement, or one of ``also``.
            InvalidRequest: If the id names no statement, the statement does not count any more, or the text says the same.
            EntryConflict: If another correction of the statement has begun.
            BrokerUnavailable: If it could not be recorded; the same request again is safe.
        """
        text = await storable(
            self._node.journal, caller.workspace_id, request.text.strip(), "text", ops.CORRECTED_CHARS
        )
        async with self._one_at_a_time:
            target = await self._claimants.of_id(caller, request.id)
            new = _whole(target, text)
            last = await self._last(caller, target)
            gone = last is not None and not target.counts
            if last is not None and gone and await self._says(caller, target.kind, last[1].retired[0].by, new):
                return await self._again(caller, target, new, last, request)
            _check_counts(target)
            target.check_may_correct(caller)
            if words_of_claim(new) == words_of_claim(target.text):
                raise _invalid("text", "says what the statement says", "send what is right instead")
            also = [await self._claimants.of_id(caller, one) for one in dict.fromkeys(request.also) if one != target.id]
            for stated in also:
                stated.check_may_correct(caller)
            cause = f"{caller.workspace_id}/{target.kind}/{_recorded_as(target)}/{0 if last is None else last[0]}"
            plan = _Making(target, target.text, new, cause)
            replacement = await self._replace(caller, plan, target, new, _CORRECTED, _value_of(target, text))
            plan.sources = (plan.last,) if plan.last else ()
            for stated in also:
                if stated.counts:
                    await self._replace(caller, plan, stated, new, _NAMED)
            await self._spread(caller, plan)
            documents = await self._documents(caller, plan, replacement, write=request.documents)
            decided = await self._decide(caller, plan, request.reason)
        return self._answer(plan, decided.seq, replacement, documents, changed=True, visible=decided.visible)

    async def listed(self, caller: Caller, request: ops.CorrectionsRequest) -> ops.CorrectionsAnswer:
        """The corrections of a workspace, and what makes the old claim of each now."""
        view_seq = self._views.view_seq(*_VIEWS)
        shown = []
        made = await self._made(caller, None, request.limit)
        firsts = [corrected.retired[0] for _, _, corrected, _ in made]
        texts = await self._claimants.of_ids(caller, [one for it in firsts for one in (it.id, it.by) if one])
        for first, (seq, made_ms, corrected, by) in zip(firsts, made, strict=True):
            old, new = texts.get(first.id), texts.get(first.by or "")
            review: list[ops.StatementToReview] = []
            if corrected.reviews and old is not None and new is not None:
                plan = _Making(old, old.text, new.text, "")
                plan.statements.append(old)
                await self._list_for_review(caller, plan)
                review = plan.review
            shown.append(
                ops.CorrectionShown(
                    id=first.id if old is None else old.id,
                    kind=old.kind if old is not None else "drawer" if first.kind == "filing" else first.kind,
                    replaced_by=first.by if new is None else new.id,
                    old="" if old is None else old.text,
                    new="" if new is None else new.text,
                    by=by,
                    at=format_ms(made_ms),
                    reason=corrected.reason,
                    retired=tuple(one.id for one in corrected.retired[1:]),
                    review=tuple(review),
                    seq=seq,
                )
            )
        return ops.CorrectionsAnswer(corrections=tuple(shown), view_seq=view_seq)

    # what was recorded before

    async def _made(
        self, caller: Caller, target: Stated | None, limit: int
    ) -> list[tuple[int, int, StatementCorrected, str | None]]:
        ids = None if target is None else [target.id, _recorded_as(target)]
        params = [caller.workspace_id, ids, ids, limit]
        rows = await asyncio.to_thread(self._views.rows, _MADE, params)
        return [
            (seq, ts_ms, StatementCorrected.model_validate(from_json(payload)), by) for seq, ts_ms, payload, by in rows
        ]

    async def _last(self, caller: Caller, target: Stated) -> tuple[int, StatementCorrected] | None:
        made = await self._made(caller, target, 1)
        return (made[0][0], made[0][2]) if made else None

    async def _text(self, caller: Caller, statement_id: str | None) -> Stated | None:
        try:
            return None if statement_id is None else await self._claimants.of_id(caller, statement_id)
        except CrewJournalError:
            return None  # it was erased, or is one that this caller may not read

    async def _says(self, caller: Caller, kind: str, statement_id: str | None, text: str) -> bool:
        stated = await self._text(caller, statement_id)
        return stated is not None and stated.kind == kind and words_of_claim(stated.text) == words_of_claim(text)

    async def _again(
        self,
        caller: Caller,
        target: Stated,
        new: str,
        last: tuple[int, StatementCorrected],
        request: ops.CorrectRequest,
    ) -> ops.CorrectAnswer:
        """The answer to a correction that was recorded before; retires what repeats the old claim since."""
        target.check_may_correct(caller)
        seq, corrected = last
        present = await self._text(caller, corrected.retired[0].by)
        replacement = "" if present is None else present.id
        cause = f"{caller.workspace_id}/{target.kind}/{_recorded_as(target)}/{seq}/again"
        plan = _Making(target, target.text, new, cause)
        plan.retire(target, replacement or None, _CORRECTED, corrected.retired[0].since_ms)
        plan.sources = () if present is None else (_recorded_as(present),)
        if present is not None and present.kind == "drawer":
            plan.filings[present.id] = _recorded_as(present)
        where = _place(target)
        plan.made[where] = replacement
        for stated in [await self._claimants.of_id(caller, one) for one in dict.fromkeys(request.also)]:
            stated.check_may_correct(caller)
            if stated.counts:
                await self._replace(caller, plan, stated, new, _NAMED)
        await self._spread(caller, plan)
        documents = await self._documents(caller, plan, replacement, write=request.documents)
        visible = True
        if len(plan.retired) > 1:
            decided = await self._decide(caller, plan, request.reason or corrected.reason)
            seq, visible = decided.seq, decided.visible
        return self._answer(plan, seq, replacement, documents, changed=len(plan.retired) > 1, visible=visible)

    # what repeats the claim, and what was derived from it

    async def _spread(self, caller: Caller, plan: _Making) -> None:
        """Retire what is certainly the same claim or follows from it; list the rest.

        What is derived from a statement that is retired on the way is looked for, too.
        """
        seen: set[tuple[str, str]] = set()
        listed: dict[tuple[str, str], ops.StatementToReview] = {}
        while len(plan.retired) < MOST_RETIRED:
            before = len(plan.retired)
            for repeated in await self._claimants.repeating(caller, plan.old, plan.statements):
                key = repeated.stated.event_kind, repeated.stated.id
                if key in seen or len(plan.retired) == MOST_RETIRED:
                    continue
                problem, suggestion = await self._close(caller, plan, repeated)
                if problem is None:
                    seen.add(key)
                    listed.pop(key, None)
                elif problem:
                    listed[key] = _to_review(caller, repeated.stated, suggestion, problem)
            if len(plan.retired) == before:
                break
        plan.review += listed.values()

    async def _list_for_review(self, caller: Caller, plan: _Making) -> None:
        for repeated in await self._claimants.repeating(caller, plan.old, plan.statements):
            problem, suggestion = _judged(plan, repeated)
            if problem != _UNCONCERNED:
                plan.review.append(_to_review(caller, repeated.stated, suggestion, problem or _SAME))
        await self._documents(caller, plan, "", write=False)

    async def _close(self, caller: Caller, plan: _Making, repeated: Repeated) -> tuple[str | None, str | None]:
        """Retire a statement; else why it is listed (empty if it is not concerned) and what it would become."""
        stated = repeated.stated
        problem, suggestion = _judged(plan, repeated)
        if problem is not None:
            return problem, suggestion
        if stated.kind == "rule" and repeated.derived:
            return await self._lose_evidence(caller, plan, stated)
        try:
            if not (repeated.derived and _by_reactor(stated)):
                stated.check_may_correct(caller)
        except NotAllowed as refused:
            return refused.message, suggestion
        await self._replace(caller, plan, stated, suggestion, _DERIVED if repeated.derived else _SAME)
        return None, None

    async def _lose_evidence(self, caller: Caller, plan: _Making, stated: Stated) -> tuple[str | None, str | None]:
        """Derive a rule anew from the evidence that it has left, or retire it."""
        row: RuleRow = stated.row
        if row.proposal_id is not None and not caller.administers:
            return _REVIEWED, None
        gone = {one.id for one in plan.retired if one.kind == "entry"}
        evidence = [one for one in json.loads(row.evidence) if one not in gone]
        members = await asyncio.to_thread(self._views.rows, _EVIDENCE, [row.workspace_id, evidence])
        publishers = tuple(dict.fromkeys(publisher for _, publisher, _, _ in members))
        days = len({published_ms // DAY_MS for *_, published_ms in members})
        approved = row.proposal_id is not None
        if len(members) < _LEAST_EVIDENCE or not (approved or is_shared(publishers, days)):
            plan.retire(stated, None, _DERIVED)
            return None, None
        authors = tuple(dict.fromkeys(author_shown(publisher, agent) for _, publisher, agent, _ in members))
        rule = _rule(row, row.pattern, tuple(one for one, *_ in members), publishers, authors[:20], days)
        plan.retire(stated, await self._record_rule(caller, plan, stated, rule), _DERIVED)
        return None, None

    async def _documents(self, caller: Caller, plan: _Making, replacement: str, *, write: bool) -> tuple[str, ...]:
        """List the lines of documents that hold the old statement, or write the new one there; returns what was written."""
        store, written = self._node.use(JournalStore), []
        for row, derived in await self._claimants.documents(caller, plan.old, plan.statements):
            label = f"{row.owner}/{TIERS[row.tier].label_of(row.doc_key)}"
            content = corrected_within(row.content, plan.old, plan.new)
            why = _SAME
            if content is not None and write:
                try:
                    await self._write(caller, store, row, content, replacement, plan.sources)
                except CrewJournalError as error:
                    why = error.message
                else:
                    written.append(label)
                    continue
            lines = _lines(row.content, plan.old, plan.new)
            for number, line, suggestion, sure in lines:
                why_line = why if sure else _LIKELY
                plan.review.append(_line_to_review(caller, label, number, line, suggestion, why_line))
            if not lines and derived:
                plan.review.append(_line_to_review(caller, label, 1, label, None, _NOT_FOLLOWING))
        return tuple(written)

    async def _write(
        self,
        caller: Caller,
        store: JournalStore,
        row: DocumentRow,
        content: str,
        replacement: str,
        sources: tuple[str, ...],
    ) -> None:
        address = address_of(row)
        check_may_write(caller, address)
        causes, person = await asyncio.to_thread(store.reading.history.causes, address, row.base_seq, row.seq)
        draft = Draft(
            address=address,
            content=content,
            expected_seq=row.seq,
            data_subject_id=person,
            derived_from=(*causes, *sources),
            reason=f"corrected: {replacement}"[:1_000],
        )
        await store.write(caller, draft)

    # recording

    async def _replace(
        self, caller: Caller, plan: _Making, stated: Stated, text: str | None, why: str, value: _FactValue | None = None
    ) -> str:
        """Record what stands in the place of a statement, and note that the statement is retired; returns the new id."""
        since_ms: int | None = None
        by: str | None
        if stated.kind == "entry":
            by = await self._record_entry(caller, plan, stated, text or plan.new)
            valid_at, ts_ms = stated.row.record["valid_at"], stated.row.ts_ms
            since_ms = ts_ms if valid_at is None else to_ms(parse_ts(valid_at))
        elif stated.kind == "drawer":
            by = await self._record_drawer(caller, plan, stated, text or plan.new)
        elif stated.kind == "fact":
            by = await self._record_fact(caller, plan, stated, value or _derived_value(stated.row, plan))
        elif stated.kind == "lesson":
            by = await self._record_lesson(caller, plan, stated, text or plan.new)
        else:
            row: RuleRow = stated.row
            evidence, publishers, authors = (
                tuple(json.loads(it)) for it in (row.evidence, row.publishers, row.authors)
            )
            rule = _rule(row, text or plan.new, evidence, publishers, authors, row.days)
            by = await self._record_rule(caller, plan, stated, rule)
        plan.retire(stated, by, why, since_ms)
        return by or ""

    def _id(self, plan: _Making, stated: Stated) -> str:
        return derived_id(_ID_NAME, _ID_VERSION, plan.cause, f"{stated.kind}/{_recorded_as(stated)}")

    def _entry_id(self, plan: _Making, stated: Stated) -> str:
        """The id of a new entry: keyed, because an agent could take an id that it can predict."""
        cause = f"{plan.cause}/{_recorded_as(stated)}".encode()
        return f"c_{hashlib.blake2b(cause, key=self._node.subject_key[:_KEY_BYTES], digest_size=_ID_BYTES).hexdigest()}"

    async def _record_entry(self, caller: Caller, plan: _Making, stated: Stated, text: str) -> str:
        if (known := plan.made.get(_place(stated))) is not None:
            return known
        entry: StoredEntry = stated.row
        record: dict[str, Any] = {name: entry.record[name] for name in _KEPT_FIELDS if entry.record[name] is not None}
        summary = " ".join(text.split())
        said_by = entry.record["actor_type"], entry.record["actor_id"]
        own_words = said_by[0] == USER and speaks_for(caller.principal.speaks_for, *said_by)
        actor_type, actor_id = said_by if own_words else caller.acts_as
        record |= {
            "id": self._entry_id(plan, stated),
            "workspace_id": caller.workspace_id,
            "actor_type": str(actor_type),
            "actor_id": actor_id,
            "summary": summary if len(summary) <= MAX_SUMMARY else f"{summary[: MAX_SUMMARY - 1]}…",
            "refs": {PARENT_REF: stated.id},
        }
        if record["summary"] != text:
            record["payload"] = {"text": text}
        if entry.record["live_priority"] != Priority.NORMAL:
            record["priority"] = str(entry.record["live_priority"])
        try:
            appended = await self._node.journal.append_in_place(caller.principal, record)
        except EntryConflict as conflict:
            raise _begun(conflict, stated, record["id"]) from None
        plan.seqs.append(appended.seq)
        plan.last = plan.made[_place(stated)] = appended.id
        return appended.id

    async def _record_drawer(self, caller: Caller, plan: _Making, stated: Stated, text: str) -> str:
        drawer: Drawer = stated.row
        row = drawer.row
        new_id = drawer_id(row.wing, row.room, text)
        known = await self._drawers.latest(caller.workspace_id, new_id)
        if known is not None and known.live:
            plan.filings[new_id] = known.row.entry_id
            return new_id
        if (place := ("drawer", new_id)) in plan.made:
            return new_id
        filed = DrawerFiled(
            drawer_id=new_id,
            wing=row.wing,
            room=row.room,
            hall=row.hall,
            content=text,
            memory_type=row.memory_type,
            importance=row.importance,
            added_by=caller.acts_as[1],
            added_by_agent=row.added_by_agent,
            source_file=row.source_file,
            conversation=row.conversation,
            state=DrawerState.RAW if row.state == DrawerState.RAW else DrawerState.PROCESSED,
        )
        filing = filing_id(caller, filed, known)
        plan.filings[new_id] = await self._decision(caller, plan, stated, filed, filing, row.entry_id)
        plan.made[place] = new_id
        return new_id

    async def _record_fact(self, caller: Caller, plan: _Making, stated: Stated, value: _FactValue | None) -> str | None:
        if value is None:
            return None
        fact: KnownFact = stated.row
        row = fact.row
        open_facts = await self._facts.open_facts(caller.workspace_id, value.subject, row.predicate, value.object)
        known = [one for one in open_facts if (one.namespace, one.text) == (row.namespace, value.text)]
        if known:
            return known[0].fact_id
        place = ("fact", row.namespace, value.subject, row.predicate, value.object)
        if (made := plan.made.get(place)) is not None:
            return made
        sources = {(one.kind, one.id): one.by for one in plan.retired}
        asserted = FactAsserted(
            fact_id=f"t_{self._id(plan, stated).removeprefix('d_')}",
            subject=await self._entity(caller, value.subject),
            predicate=row.predicate,
            object=await self._entity(caller, value.object),
            valid_from=row.valid_from,
            valid_to=row.valid_to,
            confidence=row.confidence,
            source_drawer_id=sources.get(("drawer", row.source_drawer_id or ""), row.source_drawer_id),
            source_entry_id=sources.get(("entry", row.source_entry_id or ""), row.source_entry_id),
            namespace=row.namespace,
            text=value.text,
            fact_type=FactType(row.fact_type),
            half_life_hours=row.half_life_hours,
            single_valued=row.single_valued,
        )
        await self._decision(caller, plan, stated, asserted, self._id(plan, stated), row.entry_id)
        plan.made[place] = asserted.fact_id
        return asserted.fact_id

    async def _entity(self, caller: Caller, name: str) -> FactEntity:
        known = await self._facts.entity(caller.workspace_id, name)
        if known is None:
            return FactEntity(entity_id=entity_id(name), name=name)
        return FactEntity(entity_id=known.entity_id, name=known.name, type=known.type)

    async def _record_lesson(self, caller: Caller, plan: _Making, stated: Stated, text: str) -> str:
        row: LessonRow = stated.row
        lesson = LessonRecorded.model_validate(
            {"lesson_id": row.lesson_id, "kind": row.kind, "source": "manual", "rule": text, "context": row.context}
        )
        scope, name = scope_of(row.owner)
        crew = name if scope.value == "crew" else None
        agent = name if scope.value == "agent" else None
        return await self._decision(
            caller, plan, stated, lesson, self._id(plan, stated), row.entry_id, crew_id=crew, agent_id=agent
        )

    async def _record_rule(self, caller: Caller, plan: _Making, stated: Stated, rule: RuleLearned) -> str:
        return await self._decision(
            caller,
            plan,
            stated,
            rule,
            self._id(plan, stated),
            None,
            crew_id=rule.crew_id,
            priority=Priority.HIGH,
            refs={EVIDENCE_REF: list(rule.evidence), "derived_from": [stated.id, *plan.sources]},
        )

    async def _decision(
        self,
        caller: Caller,
        plan: _Making,
        stated: Stated,
        payload: ControlPayload,
        entry_id: str,
        source: str | None,
        **fields: Any,
    ) -> str:
        """Record a new statement; returns the id of its entry.

        Args:
            caller: Who corrects.
            plan: The correction.
            stated: What it replaces.
            payload: The new statement.
            entry_id: The id of its entry.
            source: The entry of the old statement, of which the new one keeps names or text.
            **fields: Further fields of the entry, in place of those of the caller.
        """
        fields = {**(fields or {**caller.author_fields}), **caller.actor_fields}
        if source is not None:
            fields.setdefault("refs", {"derived_from": [source, *plan.sources]})
        summary = (
            rule_summary(payload.pattern, payload.authors)
            if isinstance(payload, RuleLearned)
            else f"corrects {_recorded_as(stated)}"
        )
        try:
            decided = await self._node.decide(caller, payload, summary[:MAX_SUMMARY], entry_id=entry_id, **fields)
        except EntryConflict as conflict:
            raise _begun(conflict, stated, entry_id) from None
        plan.seqs.append(decided.seq)
        plan.last = decided.id
        return decided.id

    async def _decide(self, caller: Caller, plan: _Making, reason: str) -> Any:
        named = tuple(
            one.model_copy(update={"kind": "filing", "id": plan.filings[one.id], "by": plan.filings.get(one.by or "")})
            if one.kind == "drawer"
            else one
            for one in plan.retired
        )
        corrected = StatementCorrected(retired=named, reviews=len(plan.review), reason=reason)
        retired = "/".join(one.id for one in named)
        entry_id = derived_id(_ID_NAME, _ID_VERSION, plan.cause, f"retired/{retired}")
        others = f" and {len(plan.retired) - 1} more" if len(plan.retired) > 1 else ""
        return await self._node.decide(
            caller,
            corrected,
            f"{_recorded_as(plan.target)} is corrected{others}"[:MAX_SUMMARY],
            *_VIEWS,
            entry_id=entry_id,
            **caller.author_fields,
        )

    def _answer(
        self, plan: _Making, seq: int, replacement: str, documents: tuple[str, ...], *, changed: bool, visible: bool
    ) -> ops.CorrectAnswer:
        retired = [
            ops.RetiredStatement(kind=stated.kind, id=stated.id, replaced_by=one.by, why=why)
            for stated, one, why in zip(plan.statements, plan.retired, plan.why, strict=True)
        ]
        return ops.CorrectAnswer(
            id=plan.target.id,
            kind=plan.target.kind,
            replaced_by=replacement,
            changed=changed,
            seq=seq,
            retired=tuple(retired),
            review=tuple(plan.review),
            documents=documents,
            visible=visible,
        )


def _recorded_as(stated: Stated) -> str:
    """The entry that recorded a statement: the own id of a drawer follows from its text."""
    return str(stated.row.row.entry_id) if stated.kind in ("drawer", "fact") else stated.id


_UNCONCERNED: Final = ""
"""The answer about a statement that a correction leaves as it is."""


def _judged(plan: _Making, repeated: Repeated) -> tuple[str | None, str | None]:
    """Why a statement is listed, and what it would become; None if it can be retired, and what takes its place."""
    stated, old, new = repeated.stated, plan.old, plan.new
    if stated.kind == "rule" and repeated.derived:
        return None, None
    if same_claim(stated.text, new) is Sameness.CERTAIN:
        return _UNCONCERNED, None
    if stated.kind == "fact" and repeated.derived and not repeated.same:
        return _of_derived_fact(stated.row, plan)
    within = corrected_within(stated.text, old, new)
    if repeated.same is Sameness.CERTAIN or (within is not None and repeated.derived):
        if stated.kind == "entry" and stated.row.record["agent_id"] != _agent_of(plan.target):
            return "is in the memory of another agent", within
        return None, within
    if within is not None:
        return _WITHIN, within
    if repeated.same:
        return _LIKELY, new
    return (_NOT_FOLLOWING, None) if repeated.derived else (_UNCONCERNED, None)


def _of_derived_fact(fact: KnownFact, plan: _Making) -> tuple[str | None, str | None]:
    """A fact that has none of the words that the correction removes stays; one to which nothing was said is listed."""
    removed = set(words_of_claim(plan.old)) - set(words_of_claim(plan.new))
    if not removed:
        return _NOT_FOLLOWING, None
    if removed.isdisjoint(words_of_claim(f"{fact.subject} {fact.object} {fact.row.text or ''}")):
        return _UNCONCERNED, None
    value = _derived_value(fact, plan)
    return None, None if value is None else f"{value.subject} {fact.row.predicate} {value.object}"


@dataclass(frozen=True, slots=True)
class _FactValue:
    """What a corrected fact says: its subject, its object, and its text if it has one of its own."""

    subject: str
    object: str
    text: str | None


def _value_of(target: Stated, text: str) -> _FactValue | None:
    """What a fact says after its correction by a text; None for another kind."""
    if target.kind != "fact":
        return None
    fact: KnownFact = target.row
    if fact.row.text is not None:
        return _FactValue(fact.subject, corrected_value(fact.object, fact.row.text, text) or fact.object, text)
    head = f"{fact.subject} {fact.row.predicate}"
    words = text.split()
    size = len(head.split())
    if len(words) > size and words_of_claim(" ".join(words[:size])) == words_of_claim(head):
        text = " ".join(words[size:])
    text = text.rstrip(".")
    if len(text) > MAX_NAME:
        raise _invalid("text", f"is longer than {MAX_NAME} characters", "send the new value of the fact alone")
    return _FactValue(fact.subject, text, None)


def _derived_value(fact: KnownFact, plan: _Making) -> _FactValue | None:
    """What a fact says that was taken from the old statement, or says the same; None if it does not follow."""
    text = fact.row.text
    if text is not None and (within := corrected_within(text, plan.old, plan.new)) is not None:
        return _FactValue(fact.subject, corrected_value(fact.object, plan.old, plan.new) or fact.object, within)
    subject, object_ = (corrected_value(name, plan.old, plan.new) for name in (fact.subject, fact.object))
    if text is not None or (subject is None) == (object_ is None):
        return None
    return _FactValue(subject or fact.subject, object_ or fact.object, None)


def _whole(target: Stated, text: str) -> str:
    """What is right, as a sentence that can be compared with what the statement says."""
    value = _value_of(target, text)
    if value is None:
        limits = {"entry": ops.CORRECTED_CHARS, "drawer": CONTENT_CHARS, "rule": 600, "lesson": 2_000}
        if len(text) > limits[target.kind]:
            raise _invalid("text", f"is longer than {limits[target.kind]:,} characters", "shorten it")
        return text
    return value.text or f"{value.subject} {target.row.row.predicate} {value.object}"


def _rule(
    row: RuleRow,
    pattern: str,
    evidence: tuple[str, ...],
    publishers: tuple[str, ...],
    authors: tuple[str, ...],
    days: int,
) -> RuleLearned:
    return RuleLearned(
        crew_id=row.crew_id,
        pattern=pattern,
        action=row.action,
        evidence=evidence,
        confidence=row.confidence,
        days=days,
        proposal_id=row.proposal_id,
        publishers=publishers,
        authors=authors,
    )


def _check_counts(target: Stated) -> None:
    if target.counts:
        return
    by = f" by {target.by}" if target.by else ""
    fix = f"correct {target.by} instead" if target.by else "restore it first, or record what is right"
    raise _invalid("id", f"{target.id} does not count any more: it was replaced{by} or retracted", fix)


def _place(stated: Stated) -> tuple[str, ...]:
    """What one new statement can stand for: the entries of one memory; each other statement by itself."""
    if stated.kind == "entry":
        return "entry", stated.row.record["agent_id"] or "", stated.row.record["crew_id"] or ""
    return stated.kind, stated.id


def _agent_of(target: Stated) -> str | None:
    """The agent in whose memory the corrected statement is; None for one that a workspace shares."""
    if target.kind == "entry":
        agent_id: str | None = target.row.record["agent_id"]
        return agent_id
    return target.row.row.added_by_agent or None if target.kind == "drawer" else None


def _by_reactor(stated: Stated) -> bool:
    if stated.kind not in ("drawer", "fact"):
        return False
    row = stated.row.row
    author: str = row.author_type if stated.kind == "drawer" else row.asserted_by_type
    return author == ActorType.SYSTEM


def _lines(content: str, old: str, new: str) -> list[tuple[int, str, str, bool]]:
    """The lines of a document that make a claim: number, text, what it would become, and whether it is certain."""
    lines = []
    for number, line in enumerate(content.split("\n"), 1):
        within = corrected_within(line, old, new)
        if within is not None or same_claim(line, old):
            lines.append((number, line, new if within is None else within, within is not None))
    return lines


def _to_review(caller: Caller, stated: Stated, suggestion: str | None, why: str) -> ops.StatementToReview:
    text = shown_text(caller, stated.id, stated.text, what=stated.kind).content
    return ops.StatementToReview(kind=stated.kind, id=stated.id, text=text, suggestion=suggestion, why=why)


def _line_to_review(
    caller: Caller, label: str, number: int, line: str, suggestion: str | None, why: str
) -> ops.StatementToReview:
    text = shown_text(caller, label, line, what="document").content
    return ops.StatementToReview(kind="document", id=f"{label}:{number}", text=text, suggestion=suggestion, why=why)


def _invalid(name: str, problem: str, fix: str) -> InvalidRequest:
    return InvalidRequest((FieldProblem(name, problem, fix),))


def _begun(conflict: EntryConflict, stated: Stated, entry_id: str) -> EntryConflict:
    if conflict.erased:
        return conflict
    return EntryConflict(
        f"another correction of {stated.id} has begun, as {entry_id}",
        hint=f"repeat it with the same text, or correct {entry_id}",
        field="id",
        seq=conflict.seq,
    )


ANSWERS: Final[Answers] = (
    (ops.CORRECT, Corrections.correct),
    (ops.CORRECTIONS, Corrections.listed),
)
