"""Runs recalls of the past again: as they were asked, or with something changed.

Invariant: a replay records nothing: no receipt, no use. As of its own moment, an unchanged recall gives the hits of its
receipt, except what was erased since.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, Final, NamedTuple

import orjson

from ...schemas.core.errors import InvalidQuery, NotFound, Unavailable
from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import Principal, Role
from ...schemas.entries.tables import ARCHIVED
from ...schemas.erasure.lineage import named_drawer, named_fact
from ...schemas.erasure.tables import ERASURE_ROWS
from ...schemas.lineage.events import MemoryGiven
from ...schemas.lineage.operations import (
    REPLAY,
    ChangedHit,
    CounterfactualHit,
    ReplayAnswer,
    Replayed,
    ReplayedReceipt,
    ReplayRequest,
)
from ...schemas.lineage.tables import ENDINGS
from ...schemas.recall.events import AskedRecall, MemorySearched
from ...schemas.recall.operations import RecallAnswer, RecallHit, RecallRequest, ReceiptRequest
from ..desk import Caller
from ..entries.rows import ARCHIVE_SOURCE, JOURNAL_SOURCE, SELECT_LIST, StoredEntry
from ..node import Answers, Node, PastMoments
from ..recall.model_search import model_on_trial
from ..recall.receipts import DOCUMENT, DRAWER, PREFIX, Receipts, id_of_hit
from ..recall.recipes import recipe_named
from .use_cases import Trace

RECEIPT_HINT: Final = "name the receipt of a recall: `receipt` of its answer"
_BY_ID: Final = f"""SELECT {SELECT_LIST} FROM {ARCHIVE_SOURCE}
    WHERE workspace_id = ? AND id IN (SELECT unnest(?::VARCHAR[]))"""
_LATEST: Final = f"""SELECT {SELECT_LIST} FROM {JOURNAL_SOURCE}
    WHERE workspace_id = $workspace AND entry_type = '{MemorySearched.ENTRY_TYPE}'
    AND ($agent IS NULL OR agent_id = $agent) AND ($crew IS NULL OR crew_id = $crew)
    AND json_exists(payload, '$.asked') ORDER BY seq DESC LIMIT $latest"""
_ENDED: Final = f"""SELECT entry_id, why, by_id, seq FROM {ENDINGS}
    WHERE workspace_id = ? AND entry_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY seq"""
_ERASED: Final = (
    f"SELECT erasure_id FROM {ERASURE_ROWS} WHERE workspace_id = ? AND seq > ? AND messages > 0 ORDER BY seq"
)
_ARCHIVED: Final = f"SELECT id FROM {ARCHIVED} WHERE workspace_id = ? AND id IN (SELECT unnest(?::VARCHAR[]))"


@dataclass(frozen=True, slots=True)
class PastRecall:
    """A recall that can be run again.

    Attributes:
        entry: Its receipt.
        searched: What the receipt says.
        principal: The token that asked; it never has more rights than the caller.
        request: What it asked.
    """

    entry: StoredEntry
    searched: MemorySearched
    principal: Principal
    request: RecallRequest

    @classmethod
    def of(cls, caller: Caller, entry: StoredEntry) -> PastRecall:
        """The recall of a receipt."""
        searched = MemorySearched.model_validate(payload_of(entry))
        asked = searched.asked or _guessed(entry, searched, len(texts_of(MemorySearched.ENTRY_TYPE, payload_of(entry))))
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
            crew_only=asked.crew_only,
            kinds=asked.kinds,
            workspace_id=caller.workspace_id,
        )
        return cls(entry, searched, principal, request)

    @property
    def seq(self) -> int:
        """The sequence of the views that answered it."""
        return self.entry.seq - 1 if self.searched.view_seq is None else self.searched.view_seq

    @property
    def texts(self) -> list[ReceiptText]:
        """The hits of its receipt."""
        return texts_of(MemorySearched.ENTRY_TYPE, payload_of(self.entry))

    async def answer(
        self, node: Node, *, seq: int | None = None, trial: str | None = None, **changed: Any
    ) -> RecallAnswer:
        """Ask it again, by the views of ``node``; raises as ``RecallService.answer``.

        Args:
            node: The node.
            seq: The sequence of its own moment; it is then asked with the model that embedded it, or without one.
            trial: Another embedding model.
            **changed: Other values of the request.
        """
        request = self.request.model_copy(update={"min_seq": seq, **changed})
        vectors, model = True, self.searched.model
        if seq is not None:
            vectors = model is not None or not recipe_named(self.searched.recipe).uses_vectors
            if model != node.recall.indexes.active_model(self.request.workspace_id or ""):
                trial = trial or model  # the models were being switched
        answered = await node.recall.answer(
            self.principal, request, now_ms=self.entry.ts_ms, trial=trial, vectors=vectors
        )
        return answered.response


async def replay(node: Node, caller: Caller, entry: StoredEntry) -> Replayed:
    """Run a recall again by the views of now; raises as ``RecallService.answer``."""
    recall = PastRecall.of(caller, entry)
    after = await recall.answer(node)
    changed = await asyncio.to_thread(
        changes, node.views, caller.workspace_id, recall.texts, recall.searched.view_seq, recall.searched.model, after
    )
    return Replayed(
        same=not changed,
        exact=recall.searched.asked is not None,
        recipe=after.recipe,
        model=after.model,
        model_before=recall.searched.model,
        hits=len(after.hits),
        changed=tuple(changed),
    )


def changes(
    views: ViewReader,
    workspace_id: str,
    before: Sequence[ReceiptText],
    since: int | None,
    model_before: str | None,
    answer: RecallAnswer,
    *,
    then: bool = False,
) -> list[ChangedHit]:
    """The hits that differ between a receipt and a later answer, each with its reason; blocking.

    With ``then``, the answer is as of the receipt's own moment: what nothing else explains is due to what was erased since,
    such as a vector that was in one message with an erased one.
    """
    trace = Trace(views, workspace_id)
    old = {text.id: (rank, text) for rank, text in enumerate(before)}
    new = {id_of_hit(hit): (rank, hit) for rank, hit in enumerate(answer.hits)}
    if list(old) == list(new):
        return []
    names = {text.id: names_of_text(text) for text in before}
    left = trace.messages(entry_id for text in before for entry_id in text.made_of)
    ended: dict[str, tuple[str, str | None]] = {}
    for name, why, by, seq in trace.rows(_ENDED, {name for some in names.values() for name in some}):
        if since is None or seq > since:
            ended[name] = why, by
    archived = {row[0] for row in trace.rows(_ARCHIVED, left)}
    model = answer.model != model_before
    unexplained: tuple[str, str | None] = ("ranking", None)
    if then and since is not None and (erasures := views.rows(_ERASED, [workspace_id, since])):
        unexplained = "erased", erasures[0][0]
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
        if why is None:
            why, by = ("model", None) if model else ("displaced", None) if newer else unexplained
        changed.append(ChangedHit(id=hit_id, kind=text.kind, before=rank, after=None, why=why, by=by))
    gone = bool(changed)
    for hit_id, (rank, hit) in new.items():
        kind = hit.kind or "entry"
        if hit_id not in old:
            is_newer = since is not None and hit.seq > since
            short = "newer" if is_newer else "model" if model else "moved" if gone else None
            why, by = unexplained if short is None else (short, None)
            changed.append(ChangedHit(id=hit_id, kind=kind, before=None, after=rank, why=why, by=by))
    kept_before = [hit_id for hit_id in old if hit_id in new]
    kept_after = [hit_id for hit_id in new if hit_id in old]
    for hit_id, other in zip(kept_before, kept_after, strict=True):
        if hit_id != other:
            (was, text), (now, _) = old[hit_id], new[hit_id]
            why, by = ("model", None) if model else unexplained
            changed.append(ChangedHit(id=hit_id, kind=text.kind, before=was, after=now, why=why, by=by))
    return changed


def overlap_of(before: Sequence[str], after: Sequence[str]) -> float:
    """The mean over d of the share of common hits among the first d, 0 to 1 (average overlap; Webber et al. 2010, §2)."""
    depth = max(len(before), len(after))
    if not depth:
        return 1.0
    shares = (len(set(before[:d]) & set(after[:d])) / max(len(before[:d]), len(after[:d])) for d in range(1, depth + 1))
    return sum(shares) / depth


class Counterfactuals:
    """The use-case: recalls of the past, run again with something changed."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._receipts = node.use(Receipts)

    async def replay(self, caller: Caller, request: ReplayRequest) -> ReplayAnswer:
        """Run recalls again, each as of its own moment, unchanged and with the change.

        Raises:
            NotFound: If a receipt or a message to be left out is not there, or there are no vectors of the model.
            Unavailable: If the model does not embed a query.
            InvalidQuery: If the recipe is not known, a receipt is not that of a recall, or ``model`` is combined with
                ``without``.
        """
        if request.recipe is not None:
            recipe_named(request.recipe)
        if request.model is not None and request.without:
            raise InvalidQuery(
                "model is asked from the views of now, without from those of then",
                hint="ask for one after the other",
                field="model",
            )
        recalls = [PastRecall.of(caller, entry) for entry in await self._entries(caller, request)]
        await asyncio.to_thread(self._check_names, caller.workspace_id, request.without)
        asked = {"recipe": request.recipe, "mode": request.policy}
        changed: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        replayed, left_out = [], 0
        if request.model is not None:
            model = await model_on_trial(self._node, caller.workspace_id, request.model)
            for recall in recalls:
                base = await recall.answer(self._node)
                variant = await recall.answer(self._node, trial=model, **changed)
                if variant.model is None and variant.degraded is not None:
                    raise Unavailable(f"{model} did not embed a query", hint="`crew-journal status` says why")
                replayed.append(await self._compared(caller, recall, base, variant, then=False))
        else:
            past = self._node.use(PastMoments)
            async with AsyncExitStack() as stack:
                walk = await stack.enter_async_context(past.walk("", ()))
                other = walk
                if request.without:
                    other = await stack.enter_async_context(past.walk(caller.workspace_id, request.without))
                for recall in sorted(recalls, key=lambda recall: recall.seq):
                    then = await walk.to(recall.seq)
                    base = variant = await recall.answer(then, seq=recall.seq)
                    if changed or request.without:
                        without = await other.to(recall.seq)
                        variant = base.model_copy(update={"hits": ()})
                        with contextlib.suppress(NotFound):  # the agent or crew is known by what was left out alone
                            variant = await recall.answer(without, seq=recall.seq, **changed)
                    replayed.append(await self._compared(caller, recall, base, variant, then=True))
                left_out = other.left_out
            replayed.sort(key=lambda one: one.ts, reverse=True)
        count = len(replayed)
        return ReplayAnswer(
            receipts=tuple(replayed),
            asked=request.model_dump(include={"without", "recipe", "model", "policy"}, exclude_none=True, mode="json"),
            views="then" if request.model is None else "now",
            total=count,
            reproduced=sum(one.reproduced for one in replayed),
            changed=sum(bool(one.changed) for one in replayed),
            overlap=sum(one.overlap for one in replayed) / count if count else 1.0,
            left_out=left_out,
        )

    async def _entries(self, caller: Caller, request: ReplayRequest) -> list[StoredEntry]:
        """The receipts, the newest first."""
        workspace_id = caller.workspace_id
        if not request.receipts:
            named = {"workspace": workspace_id, "agent": request.agent_id, "crew": request.crew_id}
            rows = await asyncio.to_thread(self._views.rows, _LATEST, {**named, "latest": request.latest})
            return [StoredEntry.of_row(row) for row in rows]
        for receipt in request.receipts:
            if receipt.startswith(PREFIX):
                await self._receipts.show(caller, ReceiptRequest(receipt=receipt))  # waits for one that is on its way
        rows = await asyncio.to_thread(self._views.rows, _BY_ID, [workspace_id, list(request.receipts)])
        entries = {entry.id: entry for entry in map(StoredEntry.of_row, rows)}
        for receipt in request.receipts:
            if receipt not in entries:
                raise NotFound(f"there is no receipt {receipt}", hint=RECEIPT_HINT, field="receipts")
            if entries[receipt].record["entry_type"] != MemorySearched.ENTRY_TYPE:
                raise InvalidQuery(f"{receipt} is not the receipt of a recall", hint=RECEIPT_HINT, field="receipts")
        return sorted(entries.values(), key=lambda entry: -entry.seq)

    def _check_names(self, workspace_id: str, names: Sequence[str]) -> None:
        """Refuse names of nothing: who mistypes an id must not believe that it makes no difference."""
        trace = Trace(self._views, workspace_id)
        ids = trace.ids_of(names)
        known = trace.messages(entry_id for some in ids.values() for entry_id in some)
        for name, some in ids.items():
            if not any(entry_id in known for entry_id in some):
                raise NotFound(
                    f"no message of workspace {workspace_id} is called {name[:64]}",
                    hint="name entries and writes of documents by their ids, a drawer as drawer:ID, a fact as fact:ID",
                    field="without",
                )

    async def _compared(
        self, caller: Caller, recall: PastRecall, base: RecallAnswer, variant: RecallAnswer, *, then: bool
    ) -> ReplayedReceipt:
        searched = recall.searched
        differences = await asyncio.to_thread(
            changes,
            self._views,
            caller.workspace_id,
            recall.texts,
            searched.view_seq,
            searched.model,
            base,
            then=then,
        )
        before, after = _by_id(base.hits), _by_id(variant.hits)
        return ReplayedReceipt(
            receipt=recall.entry.id,
            ts=recall.entry.record["ts"],
            query=searched.query,
            agent_id=recall.entry.record["agent_id"],
            exact=searched.asked is not None,
            reproduced=not differences,
            differences=tuple(differences),
            hits_before=len(before),
            hits_after=len(after),
            changed=tuple(_compared_hits(before, after)),
            overlap=overlap_of(list(before), list(after)),
        )


def _by_id(hits: Sequence[RecallHit]) -> dict[str, tuple[int, RecallHit]]:
    return {id_of_hit(hit): (rank, hit) for rank, hit in enumerate(hits)}


def _compared_hits(
    before: Mapping[str, tuple[int, RecallHit]], after: Mapping[str, tuple[int, RecallHit]]
) -> list[CounterfactualHit]:
    """The hits that were lost, those that were gained, and those whose order changed."""
    kept_before, kept_after = [name for name in before if name in after], [name for name in after if name in before]
    moved = [name for name, other in zip(kept_before, kept_after, strict=True) if name != other]
    lost, gained = [name for name in before if name not in after], [name for name in after if name not in before]
    return [
        CounterfactualHit(
            id=name,
            kind=hit.kind or "entry",
            before=None if name not in before else before[name][0],
            after=None if name not in after else after[name][0],
            summary=hit.summary,
        )
        for name in (*lost, *gained, *moved)
        for _, hit in [before.get(name) or after[name]]
    ]


class ReceiptText(NamedTuple):
    """A text that a receipt names."""

    rank: int
    kind: str
    id: str
    made_of: tuple[str, ...]
    score: float | None
    confidence: float | None


def texts_of(entry_type: str, payload: Mapping[str, Any]) -> list[ReceiptText]:
    """The texts of a receipt in their order."""
    if entry_type == MemoryGiven.ENTRY_TYPE:
        given = MemoryGiven.model_validate(payload)
        return [
            ReceiptText(rank, text.kind, text.id, text.entry_ids, None, None) for rank, text in enumerate(given.texts)
        ]
    searched = MemorySearched.model_validate(payload)
    figures = zip_longest(searched.hit_ids, searched.scores, searched.confidences)
    texts = [
        ReceiptText(0, "entry", str(entry_id), (str(entry_id),), score, confidence)
        for entry_id, score, confidence in islice(figures, len(searched.hit_ids))
    ]
    for text in sorted(searched.texts, key=lambda text: text.rank):
        made_of = () if text.entry_id is None else (text.entry_id,)
        name = text.entry_id if text.kind == DRAWER and text.entry_id is not None else text.id
        texts.insert(text.rank, ReceiptText(0, text.kind, name, made_of, text.confidence, text.confidence))
    texts += [ReceiptText(0, DOCUMENT, piece, (), None, None) for piece in searched.chunks]
    return [text._replace(rank=rank) for rank, text in enumerate(texts)]


def names_of_text(text: ReceiptText) -> tuple[str, ...]:
    """The names under which endings refer to a text."""
    named = {"drawer": named_drawer, "fact": named_fact}.get(text.kind)
    return (*text.made_of, text.id) if named is None else (*text.made_of, named(text.id))


def payload_of(entry: StoredEntry) -> dict[str, Any]:
    """The payload; empty if the archive has cut it."""
    parsed = orjson.loads(orjson.dumps(entry.record["payload"]))
    return parsed if isinstance(parsed, dict) and "truncated" not in parsed else {}


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


ANSWERS: Final[Answers] = ((REPLAY, Counterfactuals.replay),)
