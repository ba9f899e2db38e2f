"""Links each newly embedded entry to its nearest earlier ones, and proposes which of them it contradicts or retires.

Invariants: all links of an entry are in the journal before its vector's fact is acked; a link's id follows from its two
entries, its relation and our version, so running twice publishes once; an entry that fails is put off alone, and nothing
that happens here touches the embedding. Facts of a model that is not the workspace's active one make no links.

Durable: that of ``ViewsReactor``; order does not matter, because only entries before a fact count for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic_core import from_json

from ...schemas.catalogue import info_of
from ...schemas.core.derived import encode_link
from ...schemas.core.entry import Priority
from ...schemas.core.envelope import LinkDerived, VectorDerived
from ...schemas.core.errors import BrokerError, FoldError, Unavailable
from ...schemas.core.payload import PublisherKind
from ...schemas.core.ports import ENTRY_KIND, Finder, NearQuery, NearText, ViewReader
from ...schemas.core.subjects import DerivedKind, Family, parse_subject
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import DAY_MS
from ...schemas.decode import decode
from ...schemas.entries.rules import author_of, is_user, speaks_for
from ...schemas.entries.tables import ENTRIES
from ...schemas.models.chat import ChatModel, ChatUnavailable
from ...schemas.models.rules import embedded_text
from ...schemas.models.tables import VECTORS_PROJECTION
from ...schemas.relations.judging import judge
from ...schemas.relations.rules import CONTRADICTS, SIMILAR, SUPERSEDES, Consequence, Sphere, Statement, Verdict
from ...schemas.relations.updates import UNRELATED_COSINE, OlderStatement, chosen, elaborates
from ...schemas.settings import CONTRADICTION_CANDIDATES, JUDGE_TIMEOUT_S, SIMILAR_EDGES, UPDATE_CANDIDATES
from ...schemas.standing.tables import LIVE_PRIORITIES
from ..feed.jetstream import LINK_ACK_PENDING
from ..feed.messages import position_of
from ..reacting.pull import deliveries, doubled
from ..reacting.pull_reactor import ViewsLimits, ViewsReactor
from ..reactor import ReactorContext, ReactorStatus
from .judge import LINK, ChatJudge, Judge, confirmed

# Finds the links of a newly embedded entry: its nearest earlier entries, those it contradicts, and the one it retires.


PARENT_REF: Final = "parent_entry_id"
_TEXTS: Final = f"""SELECT seq, id, summary, payload, refs, entry_type, agent_id, actor_type, actor_id,
        coalesce(valid_ms, ts_ms), coalesce(live.priority, entry.priority), mission_id, data_subject_id, trace_id
    FROM (SELECT unnest($1::UBIGINT[]) AS wanted) JOIN {ENTRIES} AS entry ON seq = wanted
    LEFT JOIN (SELECT entry_id, priority FROM {LIVE_PRIORITIES} WHERE workspace_id = $2 AND {PRESENT}) AS live
        ON live.entry_id = entry.id
    WHERE workspace_id = $2"""
_NEXT: Final = f"""SELECT seq FROM {ENTRIES}
    WHERE workspace_id = $1 AND trace_id = $2 AND actor_id = $3 AND seq > $4 AND seq <= $5 ORDER BY seq LIMIT 1"""
"""The next entry of an actor in a conversation."""
NEXT_WITHIN: Final = 1_000
"""Entries of the journal within which it is searched: a turn that speaks of the one before follows it within minutes."""
_STATED_IN: Final = frozenset(["memory", "communication"])
"""Groups of entry types that state what is so; others report what happened."""
_KEPT: Final = frozenset([Priority.PIN, Priority.PERMANENT])
_NOTES: Final = frozenset(["note.written"])


@dataclass(frozen=True, slots=True)
class _EntryText:
    """What an entry says."""

    entry_id: str
    seq: int
    text: str
    corrects: Any
    entry_type: str
    agent_id: str | None
    author: str
    actor_id: str | None
    holds_ms: int
    priority: str
    sphere: Sphere

    @property
    def order(self) -> tuple[int, int]:
        """Orders entries by the time from which they hold."""
        return self.holds_ms, self.seq

    @property
    def statement(self) -> Statement:
        """The text as the rule of updates takes it."""
        return Statement(self.text, self.holds_ms // DAY_MS, self.actor_id, self.is_turn)

    @property
    def is_turn(self) -> bool:
        """Whether the entry is a turn of a conversation."""
        return info_of(self.entry_type).conversation

    @property
    def states(self) -> bool:
        """Whether the entry is one of those that state what is so."""
        info = info_of(self.entry_type)
        return self.entry_type in _NOTES or (
            info.group in _STATED_IN and info.publisher is PublisherKind.AGENTS and not info.noise
        )


@dataclass(frozen=True, slots=True)
class _Judged:
    """A verdict of the rules about two entries."""

    newer: _EntryText
    older: _EntryText
    verdict: Verdict


class LinkFinder:
    """Finds links.

    Args:
        views: The views, for the texts.
        finder: Finds the nearest entries.
        threshold: Least cosine of a link.
        judge: Asked about borderline contradictions; None if absent.
    """

    def __init__(self, views: ViewReader, finder: Finder, *, threshold: float, judge: Judge | None = None) -> None:
        self._views = views
        self._finder = finder
        self._threshold = threshold
        self._judge = judge

    async def find(self, fact: VectorDerived, reactor: str) -> list[LinkDerived]:
        """The links of the entry whose vector ``fact`` is.

        Raises:
            ViewsBehind: If the views do not pass the fact in time.
        """
        query = NearQuery(
            ENTRY_KIND,
            fact.workspace_id,
            fact.model,
            max(UPDATE_CANDIDATES, CONTRADICTION_CANDIDATES),
            min(UNRELATED_COSINE, self._threshold),
            vectors=[fact.vector],
            entry_seq=fact.entry_seq,
            before=fact.seq,
        )
        [related] = await self._finder.nearest(query)
        if not related:
            return []
        near = [other for other in related if other.cosine >= self._threshold][:CONTRADICTION_CANDIDATES]
        links = [_similar(fact, other, reactor) for other in near[:SIMILAR_EDGES]]
        for rule, others in ((self._contradicted, near), (self._retired, related)):
            for judged in await asyncio.to_thread(rule, fact, others):
                newer, older = judged.newer, judged.older
                verdict = await confirmed(self._judge, fact.workspace_id, judged.verdict, newer.text, older.text)
                if verdict is not None:
                    links.append(_link(fact, newer, older, verdict, reactor))
        return links

    def _retired(self, fact: VectorDerived, related: Sequence[NearText]) -> list[_Judged]:
        """The entry that this one retires, and those that hold from a later time and retire this one; blocking."""
        texts = self._texts(fact, related)
        new_text = texts.get(fact.entry_seq)
        if new_text is None or not new_text.states:
            return []
        older: dict[tuple[int, int], _EntryText] = {}
        candidates: list[OlderStatement] = []
        retired: list[_Judged] = []
        for other in related:
            old_text = texts.get(other.seq)
            if old_text is None or not old_text.states or not new_text.sphere.meets(old_text.sphere):
                continue
            pair = (new_text, old_text) if new_text.order > old_text.order else (old_text, new_text)
            if not speaks_for(pair[0].agent_id, pair[1].agent_id) or not _may_retire(*pair):
                continue
            alike = pair[0].author == pair[1].author
            verdict = judge(pair[0].statement, pair[1].statement, SUPERSEDES, cosine=other.cosine, same_speaker=alike)
            if verdict is None:
                continue
            if pair[0] is new_text:
                older[old_text.order] = old_text
                candidates.append(OlderStatement(old_text.statement, verdict, old_text.order))
            elif verdict.retires:
                retired.append(_Judged(old_text, new_text, verdict))

        def may_retire(newer: OlderStatement, earlier: OlderStatement) -> bool:
            return _may_retire(older[newer.order], older[earlier.order])

        retired += [_Judged(new_text, older[best.order], best.update) for best in chosen(candidates, may_retire)]
        return [*retired, *self._elaborations(fact, retired)]

    def _elaborations(self, fact: VectorDerived, retired: Sequence[_Judged]) -> list[_Judged]:
        """The turns that only speak of retired ones: what somebody likes of something that they do not like any more."""
        elaborations = []
        for retired_ in retired:
            older, trace_id = retired_.older, retired_.older.sphere.trace_id
            if not (retired_.verdict.of_attitude and older.is_turn and trace_id and older.actor_id):
                continue
            params = [fact.workspace_id, trace_id, older.actor_id, older.seq, older.seq + NEXT_WITHIN]
            seqs = [int(row[0]) for row in self._views.rows(_NEXT, params)]
            for text in self._texts_of(fact.workspace_id, seqs).values():
                known = any(text.entry_id in (other.newer.entry_id, other.older.entry_id) for other in retired)
                allowed = text.is_turn and text.agent_id == older.agent_id and _may_retire(retired_.newer, text)
                if allowed and not known and text.order < retired_.newer.order and elaborates(text.statement):
                    reason = f"{retired_.verdict.reason}; speaks of what {older.entry_id} says"
                    elaborations.append(_Judged(retired_.newer, text, replace(retired_.verdict, reason=reason)))
        return elaborations

    def _contradicted(self, fact: VectorDerived, near: Sequence[NearText]) -> list[_Judged]:
        """The nearest entries that the rule finds contradicted; blocking: hostile text may take milliseconds."""
        texts = self._texts(fact, near)
        own_text = texts.get(fact.entry_seq)
        seen = []
        for other in near:
            other_text = texts.get(other.seq)
            if own_text is None or other_text is None:
                continue  # erased meanwhile
            if not own_text.sphere.meets(other_text.sphere):
                continue
            newer, older = (own_text, other_text) if own_text.seq > other_text.seq else (other_text, own_text)
            if newer.corrects == older.entry_id or older.corrects == newer.entry_id or _is_upheld(older, newer):
                continue
            if (verdict := judge(newer.statement, older.statement, CONTRADICTS)) is not None:
                seen.append(_Judged(newer, older, verdict))
        return seen

    def _texts(self, fact: VectorDerived, near: Sequence[NearText]) -> dict[int, _EntryText]:
        return self._texts_of(fact.workspace_id, [fact.entry_seq, *(other.seq for other in near)])

    def _texts_of(self, workspace_id: str, seqs: Sequence[int]) -> dict[int, _EntryText]:
        """The entries at these sequences that are still there."""
        rows = self._views.rows(_TEXTS, [list(seqs), workspace_id]) if seqs else []
        return {
            int(seq): _EntryText(
                entry_id,
                int(seq),
                embedded_text(summary, from_json(payload)),
                from_json(refs).get(PARENT_REF),
                entry_type,
                agent_id,
                author_of(actor_type, actor_id),
                actor_id,
                holds_ms,
                priority,
                Sphere(*sphere),
            )
            for seq, entry_id, summary, payload, refs, entry_type, agent_id, actor_type, actor_id, *rest in rows
            for holds_ms, priority, *sphere in [rest]
        }


def _may_retire(newer: _EntryText, older: _EntryText) -> bool:
    """Whether a newer entry may retire an older one of its agent by what it says.

    Corrections name what they replace. A turn of a conversation retires nothing that is pinned or permanent, and an agent's
    turn retires nothing at all. Another entry of an agent retires what is pinned, permanent or a correction only if that
    agent wrote it.
    """
    if newer.corrects == older.entry_id or older.corrects == newer.entry_id or _is_upheld(older, newer):
        return False
    is_kept = older.priority in _KEPT
    if newer.is_turn:
        return is_user(newer.author) and not is_kept
    return not is_kept or is_user(newer.author) or newer.author == older.author


def _is_upheld(older: _EntryText, newer: _EntryText) -> bool:
    """Whether an older entry is a correction that a newer one by another agent must not undo."""
    return older.corrects is not None and not is_user(newer.author) and newer.author != older.author


def _link(fact: VectorDerived, newer: _EntryText, older: _EntryText, verdict: Verdict, reactor: str) -> LinkDerived:
    """The row of a verdict about two texts."""
    relation = CONTRADICTS if verdict.effect is Consequence.CONTRADICTS else SUPERSEDES
    since_ms = None if verdict.since_day is None else verdict.since_day * DAY_MS
    ends = (newer.entry_id, newer.seq, older.entry_id, older.seq)
    confidence, reason = verdict.confidence, verdict.reason
    return LinkDerived(0, fact.workspace_id, *ends, relation, confidence, 0, reactor, fact.crew_id, reason, since_ms)


def _similar(fact: VectorDerived, other: NearText, reactor: str) -> LinkDerived:
    ends = sorted([(fact.entry_seq, fact.entry_id), (other.seq, other.item)], reverse=True)
    (src_seq, src), (dst_seq, dst) = ends
    ids = (src, src_seq, dst, dst_seq)
    return LinkDerived(0, fact.workspace_id, *ids, SIMILAR, other.cosine, 0, reactor, fact.crew_id, "")


_AWAY: Final = (BrokerError, Unavailable, NatsError)
"""The broker or the views are unavailable: no entry is at fault."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LinkLimits(ViewsLimits):
    """Times of the link reactor.

    Attributes:
        retry_first_s: Seconds until an entry that failed alone comes again; doubled with each delivery.
        retry_last_s: Seconds of the longest such delay.
    """

    retry_first_s: float = 5.0
    retry_last_s: float = 600.0


class LinkReactor(ViewsReactor):
    """The reactor; ``chat`` judges borderline contradictions."""

    name: ClassVar[str] = "link"
    version: ClassVar[int] = 1
    waits_for: ClassVar[tuple[type[Exception], ...]] = _AWAY
    filter_subjects = (f"{Family.DERIVED.value}.*.{DerivedKind.VECTOR.value}",)
    description = "vectors whose entries are to be linked"
    needs = (VECTORS_PROJECTION,)
    counted = ("proposed", "written", "contradictions", "updates", "repeated", "skipped", "failed")
    sparse = False
    batch = 32
    max_ack_pending = LINK_ACK_PENDING
    default_limits = LinkLimits()
    _limits: LinkLimits
    _judge_trouble: str | None = None

    @classmethod
    def create(cls, context: ReactorContext) -> Self | None:
        """The reactor of a node, or None in a process without views; a node starts without its judge."""
        if context.views is None:
            return None
        chat, trouble = _judge_of(context)
        reactor = cls(context, context.views, chat=chat)
        reactor._judge_trouble = trouble
        return reactor

    def prepare(self) -> None:
        """Make what finds the links."""
        assert self._context.finder is not None
        judge = None if self._chat is None else ChatJudge(self._chat, LINK)
        threshold = self._context.settings.similar_threshold
        self._links = LinkFinder(self._views, self._context.finder, threshold=threshold, judge=judge)

    async def status(self) -> ReactorStatus:
        """The status, or why there is no judge although one is configured."""
        status = await super().status()
        return replace(status, last_error=status.last_error or self._judge_trouble)

    async def caught_up(self, seq: int = 0) -> None:
        """Return at once: the finder waits for the views."""

    async def handle(self, workspace_id: str, messages: Sequence[Msg]) -> None:
        """Link the entries of a batch of vectors; one that fails is put off alone."""
        outcomes = await asyncio.gather(*map(self._link, messages), return_exceptions=True)
        failed = [(message, error) for message, error in zip(messages, outcomes, strict=True) if error is not None]
        for _, error in failed:
            if isinstance(error, _AWAY) or not isinstance(error, Exception):
                raise error
        for message, error in failed:
            await self._put_off(message, error)

    async def _link(self, message: Msg) -> None:
        """Publish every link of an entry, then ack its vector."""
        fact = _fact_of(message)
        if fact is None:
            self._counts["skipped"] += 1
            return
        if deliveries(message) == 1:
            self._counts["proposed"] += 1
        links = await self._links.find(fact, self.identity)
        results = await asyncio.gather(*(self.publish(encode_link(link, self.version)) for link in links))
        for link, result in zip(links, results, strict=True):
            self._counts["repeated" if result.duplicate else "written"] += 1
            self._counts["contradictions"] += link.relation == CONTRADICTS and not result.duplicate
            self._counts["updates"] += link.relation == SUPERSEDES and not result.duplicate
        await self._leases.ack(message)

    async def _put_off(self, message: Msg, error: BaseException) -> None:
        self._counts["failed"] += 1
        _log.error("link.put_off", seq=position_of(message.reply).seq, error=type(error).__name__)
        times = deliveries(message) - 1
        await self._leases.put_off(message, doubled(self._limits.retry_first_s, self._limits.retry_last_s, times))


def _fact_of(message: Msg) -> VectorDerived | None:
    """The vector of a message; None for anything else, tombstones and what the projections park included."""
    place = position_of(message.reply)
    try:
        subject = parse_subject(message.subject)
        if subject.family is not Family.DERIVED or subject.kind != DerivedKind.VECTOR:
            return None
        fact = decode(place.seq, message.subject, message.headers, message.data, place.published_ms)
    except FoldError:
        return None
    return fact if isinstance(fact, VectorDerived) and fact.dim else None


def _judge_of(context: ReactorContext) -> tuple[ChatModel | None, str | None]:
    """The judge's model, or why there is none although one is set."""
    settings = context.settings
    if not settings.judge_model:
        return None, None
    from ..adapters.chat import chat_model_of  # the HTTP client is imported where it is used

    try:
        return chat_model_of(settings, settings.judge_model, timeout_s=JUDGE_TIMEOUT_S), None
    except ChatUnavailable as error:
        _log.warning("link.no_judge", model=settings.judge_model, error=error.message, hint=error.hint)
        return None, f"no judge of contradictions: {error.message}; {error.hint}"


REACTORS: Final = {"link": LinkReactor.create}
