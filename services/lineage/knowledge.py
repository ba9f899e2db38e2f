"""What an agent, a crew or a workspace knows at a moment, by family, and the difference between two moments.

Invariants: what is known is what recall can find for the same scope and token, read from the views of one moment; the
difference, applied to what was known at the first moment, gives what was known at the second (``DiffAnswer``).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import orjson

from ...schemas.core.errors import InvalidQuery
from ...schemas.core.ports import ViewReader
from ...schemas.core.principal import Role
from ...schemas.core.table import PRESENT
from ...schemas.core.timestamps import to_ms
from ...schemas.documents.rules import TIERS, Scope, owner_of
from ...schemas.documents.tables import DOCUMENTS
from ...schemas.entries.tables import ARCHIVED
from ...schemas.erasure.tables import ERASURE_ROWS
from ...schemas.facts.tables import FACTS, KG_ENTITIES
from ...schemas.learning.tables import LESSONS, RULE_STATES
from ...schemas.lineage.operations import (
    ALL_FAMILIES,
    DIFF,
    FROM_NOTHING,
    CeasedItem,
    ChangedItem,
    DiffAnswer,
    DiffRequest,
    ErasedBetween,
    Family,
    FamilyDiff,
    KnownItem,
)
from ...schemas.lineage.tables import ENDINGS
from ...schemas.operators.rules import facts_of
from ...schemas.operators.tables import OPERATOR_PROFILES
from ...schemas.palace.tables import DRAWERS, LIVE_DRAWER
from ...schemas.relations.rules import SIMILAR, RelationState
from ...schemas.relations.tables import RELATIONS
from ...schemas.standing.operations import State
from ...schemas.text.injection import finding_in
from ..desk import Caller
from ..documents.addressing import SearchedOwners, file_scope, memory_scope
from ..documents.learned import Learned
from ..documents.search import DocumentSearch
from ..entries.rows import JOURNAL_SOURCE, SELECT_LIST, StoredEntry, add_marks
from ..index.documents import LEARNED
from ..index.scope import RecallScope, ScopeKind, resolve_scope, scope_mask
from ..node import Answers, Node, PastMoments

MOST_RULES: Final = 100_000
Items = dict[str, dict[str, Any]]
"""Key → what it says, in one family."""

_ENTRIES: Final = f"""SELECT {SELECT_LIST} FROM {JOURNAL_SOURCE}
    WHERE workspace_id = ? AND seq IN (SELECT unnest(?::UBIGINT[]))"""
_DOCUMENTS: Final = f"""SELECT owner, tier, doc_key, content, finding FROM {DOCUMENTS}
    WHERE workspace_id = $workspace AND NOT retracted AND content <> ''
    AND ($owners IS NULL OR owner IN (SELECT unnest($owners::VARCHAR[])))"""
_DRAWERS: Final = f"""SELECT drawer_id, entry_id, wing, room, content FROM {DRAWERS}
    WHERE workspace_id = $workspace AND {LIVE_DRAWER} AND ($agent IS NULL OR added_by_agent = $agent)"""
_NAME: Final = (
    f"SELECT any_value(name) FROM {KG_ENTITIES} e WHERE e.workspace_id = f.workspace_id AND {PRESENT} AND entity_id ="
)
_FACTS: Final = f"""SELECT fact_id, entry_id, coalesce(({_NAME} f.subject_id), subject_id), predicate,
        coalesce(({_NAME} f.object_id), object_id), valid_from, valid_to, confidence, text
    FROM {FACTS} f WHERE workspace_id = $workspace AND f.{PRESENT} AND (to_ms IS NULL OR to_ms > $now)
    AND ($agent IS NULL OR (asserted_by_type = 'agent' AND asserted_by = $agent))"""
_OWNERS: Final = f"SELECT DISTINCT owner FROM {LESSONS} WHERE workspace_id = ?"
_PEOPLE: Final = f"SELECT slug, agent_id, facts FROM {OPERATOR_PROFILES} WHERE workspace_id = ? AND {PRESENT}"
_RELATIONS: Final = f"""SELECT src_entry_id, relation, dst_entry_id, state, reason FROM {RELATIONS}
    WHERE workspace_id = $workspace AND relation <> '{SIMILAR}' AND state <> '{RelationState.RETRACTED}'
    AND src_seq IN (SELECT unnest($seqs::UBIGINT[])) AND dst_seq IN (SELECT unnest($seqs::UBIGINT[]))"""
_ENDED: Final = f"""SELECT entry_id, why, by_id FROM {ENDINGS} WHERE workspace_id = ? AND seq > ?
    AND entry_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY seq"""
_ENDED_BY_FAMILY: Final[Mapping[Family, str]] = {
    "entries": f"""SELECT id, 'archived' FROM {ARCHIVED}
        WHERE workspace_id = ? AND id IN (SELECT unnest(?::VARCHAR[]))""",
    "rules": f"""SELECT rule_id, state FROM {RULE_STATES} WHERE workspace_id = ?
        AND rule_id IN (SELECT unnest(?::VARCHAR[])) AND state IN ('contradicted', 'expired') ORDER BY seq""",
}
_ERASED: Final = f"""SELECT erasure_id, messages FROM {ERASURE_ROWS}
    WHERE workspace_id = ? AND seq > ? AND seq <= ? AND messages > 0 ORDER BY seq"""


@dataclass(frozen=True, slots=True)
class Knower:
    """Whose knowledge is read.

    Attributes:
        caller: The token that asks.
        scope: What recall searches for it.
        owners: Whose documents it reads.
        own: The agent whose drawers and facts are meant; None for those of the workspace.
    """

    caller: Caller
    scope: RecallScope
    owners: SearchedOwners
    own: str | None

    @classmethod
    def of(cls, caller: Caller, scope: str | None, agent_id: str | None, crew_id: str | None) -> Knower:
        """Whom a request means; scopes as in recall (``services/context/recalled_kinds``).

        Raises:
            NotAllowed: If the token may not see the scope.
            InvalidQuery: If the scope lacks an agent or crew, or has one too many.
        """
        principal = caller.principal
        kind = None if scope is None else ScopeKind(scope)
        resolved = resolve_scope(principal, kind, agent_id, crew_id)
        own = resolved.kind is ScopeKind.OWN and (kind is ScopeKind.OWN or caller.administers)
        if principal.role is Role.AGENT and not own:
            owners = file_scope(principal, "both", None, None)
        else:
            owners = memory_scope(principal, resolved.kind.value, resolved.agent_id, resolved.crew_id)[0]
        return cls(caller, resolved, owners, resolved.agent_id if own else None)

    @property
    def sees_all(self) -> bool:
        """Whether it is the whole workspace."""
        return self.scope.kind is ScopeKind.WORKSPACE


class Knowledge:
    """Reads what is known from the views of one node, of now or of a past moment."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        self._learned = Learned(node.views)

    async def of(self, knower: Knower, families: Collection[Family]) -> dict[Family, Items]:
        """What is known, by family."""
        workspace_id = knower.caller.workspace_id
        index = await self._node.recall.indexes.get(workspace_id, self._views.view_seq())
        documents = index.documents
        in_scope = scope_mask(knower.scope, documents, 0, len(documents))
        no_rules = in_scope & ((documents.flags & LEARNED) == 0)
        seqs, entry_seqs = documents.seq[in_scope].tolist(), documents.seq[no_rules].tolist()
        agent = knower.caller.principal.agent_id or knower.scope.agent_id
        memory_off = await self._node.use(DocumentSearch).off(workspace_id, agent)
        readers: Mapping[Family, Callable[[], Items]] = {
            "entries": lambda: self._entries(workspace_id, entry_seqs),
            "documents": lambda: {} if memory_off else self._documents(knower),
            "drawers": lambda: self._drawers(knower),
            "facts": lambda: self._facts(knower),
            "rules": lambda: self._rules(knower),
            "lessons": lambda: self._lessons(knower),
            "people": lambda: self._people(knower),
            "relations": lambda: self._relations(workspace_id, seqs),
        }
        return {family: await asyncio.to_thread(readers[family]) for family in ALL_FAMILIES if family in families}

    # blocking

    def _entries(self, workspace_id: str, seqs: Sequence[int]) -> Items:
        entries = [StoredEntry.of_row(row) for row in self._views.rows(_ENTRIES, [workspace_id, list(seqs)])]
        add_marks(self._views, entries)
        return {entry.id: _of_entry(entry.record) for entry in entries if _counts(entry.record)}

    def _documents(self, knower: Knower) -> Items:
        owners = None if knower.owners.owners is None else list(knower.owners.owners)
        named = {"workspace": knower.caller.workspace_id, "owners": owners}
        return {
            f"{owner}/{TIERS[tier].label_of(key) if tier in TIERS else '/'.join(filter(None, (tier, key)))}": {
                "content": content
            }
            for owner, tier, key, content, finding in self._views.rows(_DOCUMENTS, named)
            if finding is None or knower.caller.administers
        }

    def _drawers(self, knower: Knower) -> Items:
        named = {"workspace": knower.caller.workspace_id, "agent": knower.own}
        return {
            drawer_id: {"entry_id": entry_id, "wing": wing, "room": room, "content": content}
            for drawer_id, entry_id, wing, room, content in self._views.rows(_DRAWERS, named)
            if knower.caller.administers or finding_in(content) is None
        }

    def _facts(self, knower: Knower) -> Items:
        now_ms = to_ms(self._node.clock())
        named = {"workspace": knower.caller.workspace_id, "agent": knower.own, "now": now_ms}
        fields = ("entry_id", "subject", "predicate", "object", "valid_from", "valid_to", "confidence", "text")
        return {fact_id: dict(zip(fields, values, strict=True)) for fact_id, *values in self._views.rows(_FACTS, named)}

    def _rules(self, knower: Knower) -> Items:
        crew_id = knower.scope.crew_id
        if crew_id is None and not knower.sees_all:
            return {}
        rows = self._learned.rows(knower.caller.workspace_id, crew_id, limit=MOST_RULES)
        return {
            row.rule_id: {
                "crew_id": row.crew_id,
                "pattern": row.pattern,
                "action": row.action,
                "state": state,
                "promoted": promoted,
                "authors": json.loads(row.authors),
            }
            for row, promoted, state in rows
            if row.finding is None or knower.caller.administers
        }

    def _lessons(self, knower: Knower) -> Items:
        workspace_id = knower.caller.workspace_id
        if knower.sees_all:
            owners = [str(row[0]) for row in self._views.rows(_OWNERS, [workspace_id])]
        else:
            names = ((Scope.AGENT, knower.scope.agent_id), (Scope.CREW, knower.scope.crew_id))
            owners = [owner_of(scope, name) for scope, name in names if name is not None]
        return {
            f"{owner}/{lesson.lesson_id}": {
                "entry_id": lesson.entry_id,
                "kind": lesson.kind,
                "rule": lesson.rule,
                "context": lesson.context,
                "source": lesson.source,
                "author": lesson.author,
            }
            for owner in owners
            for lesson in self._learned.lessons(workspace_id, owner)
            if lesson.finding is None or knower.caller.administers
        }

    def _people(self, knower: Knower) -> Items:
        if not knower.sees_all:
            return {}
        return {
            f"{slug}/{fact.key}" if agent_id is None else f"{slug}/{fact.key} (card of {agent_id})": {
                "value": fact.value,
                "quote": fact.quote,
            }
            for slug, agent_id, facts in self._views.rows(_PEOPLE, [knower.caller.workspace_id])
            for fact in facts_of(facts)
        }

    def _relations(self, workspace_id: str, seqs: Sequence[int]) -> Items:
        rows = self._views.rows(_RELATIONS, {"workspace": workspace_id, "seqs": list(seqs)})
        return {
            f"{source} {relation} {target}": {"state": state, "reason": reason}
            for source, relation, target, state, reason in rows
        }


def _counts(record: Mapping[str, Any]) -> bool:
    return record["standing"] is None or record["standing"]["state"] == State.DISPUTED


def _of_entry(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "entry_type": record["entry_type"],
        "summary": record["summary"],
        "payload": orjson.loads(orjson.dumps(record["payload"])),
        "ts": record["ts"],
        "agent_id": record["agent_id"],
        "crew_id": record["crew_id"],
        "actor_type": record["actor_type"],
        "actor_id": record["actor_id"],
        "priority": record["live_priority"],
        "disputed_by": record["standing"] and record["standing"]["by"],
    }


class MomentComparison:
    """The use-case."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def diff(self, caller: Caller, request: DiffRequest) -> DiffAnswer:
        """Compare what somebody knows at two moments.

        Raises:
            NotAllowed: If the token may not see the scope.
            InvalidQuery: If a moment is not one of the journal's, or the second is before the first.
        """
        knower = Knower.of(caller, request.scope, request.agent_id, request.crew_id)
        families = request.kinds or ALL_FAMILIES
        past = self._node.use(PastMoments)
        async with AsyncExitStack() as stack:
            after, until_seq = self._node, self._node.views.view_seq()
            if request.until is not None:
                moment = await stack.enter_async_context(past.at(request.until, "until"))
                after, until_seq = moment.node, moment.seq
            known: dict[Family, Items] = {}
            since_seq = 0
            if request.since != FROM_NOTHING:
                since_seq = await past.sequence_of(request.since, "since")
                _check_order(since_seq, until_seq)
                before = await stack.enter_async_context(past.at(request.since, "since"))
                known = await Knowledge(before.node).of(knower, families)
            then = await Knowledge(after).of(knower, families)
            endings = _Endings(after.views, caller.workspace_id, since_seq)
            compared = [
                await asyncio.to_thread(_compared, family, known.get(family, {}), items, endings, request.limit)
                for family, items in then.items()
            ]
            erased: Sequence[tuple[Any, ...]] = ()
            if caller.administers:
                params = [caller.workspace_id, since_seq, until_seq]
                erased = await asyncio.to_thread(after.views.rows, _ERASED, params)
        return DiffAnswer(
            since_seq=since_seq,
            until_seq=until_seq,
            scope=knower.scope.kind.value,
            agent_id=knower.scope.agent_id,
            crew_id=knower.scope.crew_id,
            families=tuple(compared),
            erased=tuple(ErasedBetween(erasure_id=name, messages=count) for name, count in erased),
            truncated=any(max(family.counts.values()) > request.limit for family in compared),
        )


def _check_order(since_seq: int, until_seq: int) -> None:
    if since_seq > until_seq:
        raise InvalidQuery(
            f"since is {since_seq:,}, after until, which is {until_seq:,}",
            hint="name the earlier moment first",
            field="since",
        )


def _compared(family: Family, before: Items, after: Items, endings: _Endings, limit: int) -> FamilyDiff:
    added = [key for key in after if key not in before]
    changed = [key for key, item in after.items() if key in before and before[key] != item]
    ceased = [key for key in before if key not in after]
    shown = ceased[:limit]
    whys = endings.of(family, {key: before[key] for key in shown})
    return FamilyDiff(
        family=family,
        added=tuple(KnownItem(key=key, item=after[key]) for key in added[:limit]),
        changed=tuple(ChangedItem(key=key, before=before[key], after=after[key]) for key in changed[:limit]),
        ceased=tuple(CeasedItem(key=key, item=before[key], why=whys[key][0], by=whys[key][1]) for key in shown),
        counts={"added": len(added), "changed": len(changed), "ceased": len(ceased)},
    )


_OTHERWISE: Final[Mapping[Family, str]] = {
    "entries": "out_of_scope",
    "documents": "retracted",
    "drawers": "deleted",
    "facts": "ended",
    "rules": "retracted",
    "lessons": "retracted",
    "people": "forgotten",
    "relations": "retracted",
}
"""Why something is not known any more if no event says so."""


class _Endings:
    """Why things ceased after a sequence; blocking."""

    def __init__(self, views: ViewReader, workspace_id: str, since_seq: int) -> None:
        self._views, self._workspace_id, self._since_seq = views, workspace_id, since_seq

    def of(self, family: Family, items: Items) -> dict[str, tuple[str, str | None]]:
        """Key → why it ceased, and what replaces it."""
        whys: dict[str, tuple[str, str | None]] = dict.fromkeys(items, (_OTHERWISE[family], None))
        if not items:
            return whys
        keys = {str(item.get("entry_id", key)): key for key, item in items.items()}
        if (sql := _ENDED_BY_FAMILY.get(family)) is not None:
            for name, why in self._views.rows(sql, [self._workspace_id, list(keys)]):
                whys[keys[name]] = why, None
        for name, reason, by in self._views.rows(_ENDED, [self._workspace_id, self._since_seq, list(keys)]):
            whys[keys[name]] = reason, by
        return whys


ANSWERS: Final[Answers] = ((DIFF, MomentComparison.diff),)
