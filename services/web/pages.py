"""The content of each page: a function from a request to the values of its template.

Invariant: a page runs the same operations as HTTP with the same principal, so that it shows only data that the token
may read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from starlette.requests import Request

from ...schemas.access.operations import ACCOUNTS, SESSIONS, WORKSPACES
from ...schemas.catalogue import catalogue
from ...schemas.cluster.operations import CLUSTER
from ...schemas.core.entry import Priority, Severity
from ...schemas.core.errors import CrewJournalError
from ...schemas.core.operation import Operation
from ...schemas.core.payload import SERVICE_ALONE, PublisherKind
from ...schemas.core.principal import Principal, Role
from ...schemas.core.timestamps import parse_ts, to_ms
from ...schemas.documents.operations import DOCUMENT_DIFF, DOCUMENT_READ, DOCUMENT_VERSIONS, DOCUMENTS
from ...schemas.erasure.operations import ERASURES, FORGET
from ...schemas.facts.operations import KG_QUERY, KG_STATS, KG_TIMELINE
from ...schemas.health.events import HealthRecorded
from ...schemas.health.operations import HEALTH
from ...schemas.learning.operations import EXPLAIN_PROPOSAL, LEARNED_RULES, LESSONS, PROPOSALS
from ...schemas.lineage.operations import WHO_SAW, WHY
from ...schemas.models.operations import EMBEDDING_MODELS
from ...schemas.operate.operations import DEAD_LETTERS
from ...schemas.operators.operations import OPERATORS, SHOW_OPERATOR
from ...schemas.recall.events import MemorySearched
from ...schemas.recall.operations import RECALL
from ...schemas.relations.operations import GRAPH
from ...schemas.standing.operations import CORRECTIONS, State
from ..entries.filters import Cursor, parse_filters
from ..http.route import AppServices
from ..printable import moment_of, past_moment_of

PAGE_ENTRIES: Final = 50
RUN_ENTRIES: Final = 500
"""Most entries of one run, and the newest entries among which the list of runs looks."""
NEWEST: Final = 12
WAITING: Final = 5
"""Decisions of each kind that the first page shows; the lists show all."""
HEALTH_DAYS: Final = 60
RECALL_K: Final = 10
ENDED: Final = (State.RETRACTED, State.STALE, State.SUPERSEDED)
"""States of an entry about which nothing needs to be settled."""
LANES: Final = 24
"""Most lines of a drawn time line; the table below it has all rows."""
OF_SERVICE: Final = tuple(
    name
    for name, info in catalogue().items()
    if info.publisher in SERVICE_ALONE or info.publisher is PublisherKind.OPERATORS or name == HealthRecorded.ENTRY_TYPE
)
"""Types that the service records; the first page leaves them out of what agents did."""
FILTERS: Final = ("q", "types", "severities", "agent_id", "crew_id", "trace_id", "since", "until", "priorities")
"""Filters of the list, by the names they have in ``GET /v1/journal``."""
TIMES: Final = ("since", "until")
"""Filters for which people may write times in informal formats."""
RECALLED: Final = ("recipe", "mode", "agent_id", "crew_id", "scope", "kinds")
DOCUMENT: Final = ("tier", "key", "scope", "agent_id", "crew_id")
"""Fields that name a document."""
ERASED: Final = ("ids", "subject", "author", "source")
"""Fields of which one names what an erasure covers."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request for a page.

    Attributes:
        workspace: The workspace in the address; None if it names none.
    """

    request: Request
    services: AppServices
    principal: Principal
    workspace: str | None

    def asked(self, name: str) -> str | None:
        """A parameter of the address; None if it is absent or blank."""
        return self.request.query_params.get(name, "").strip() or None

    def given(self, names: Sequence[str]) -> dict[str, str]:
        """The parameters of these names that are not blank."""
        return {name: value for name in names if (value := self.asked(name)) is not None}

    async def run(self, operation: Operation[Any, Any], **fields: Any) -> Any:
        """Answer an operation with the visitor's principal; fields that are None are left out.

        The workspace and the moment in the address count for every operation that takes them.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        known = operation.request.model_fields
        if "workspace_id" in known and self.workspace is not None:
            given["workspace_id"] = self.workspace
        if operation.past and operation.past not in given and (moment := self.asked("as_of")) is not None:
            given[operation.past] = past_moment_of(moment)
        return await self.services.desk.run(operation, self.principal, given)

    async def run_or_none(self, operation: Operation[Any, Any], **fields: Any) -> Any:
        """As ``run``; None if the visitor may not ask for it, or it cannot be answered now."""
        try:
            return await self.run(operation, **fields)
        except CrewJournalError:
            return None


Build = Callable[[Visit], Awaitable[dict[str, Any]]]
Form = Callable[[Visit], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path, its title, its template, and how its values are found.

    Attributes:
        key: The key that opens it from every other page; empty for a page that no menu lists.
        administrators: Whether only OWNER and ADMIN may see it.
        form: The values of its form, which is also shown with an error; None if the page has no form.
        rows: Name of the value that is its list; ``format=csv`` and ``format=json`` return it.
        timeless: Whether it ignores ``as_of``, because it shows the present only.
    """

    path: str
    title: str
    template: str
    build: Build
    key: str = ""
    administrators: bool = False
    form: Form | None = None
    rows: str = ""
    timeless: bool = False


async def now(visit: Visit) -> dict[str, Any]:
    """What agents did, what waits for a decision, what was learned, and whether the node can serve."""
    exclude = [("exclude_types", entry_type) for entry_type in OF_SERVICE]
    newest = await _entries(visit, exclude, None, NEWEST)
    values = {**newest, **await status(visit), **await health(visit)}
    rules = await visit.run_or_none(LEARNED_RULES)
    values["rules"] = sorted(() if rules is None else rules.rules, key=lambda rule: rule.learned_at)[
        : -WAITING - 1 : -1
    ]
    values["waiting"] = await _waiting(visit, values["health"])
    return values


async def _waiting(visit: Visit, health: Any) -> dict[str, Any]:
    """What only a person can settle; left out of the refresh every five seconds, which does not show it."""
    if not visit.principal.role.administers or "hx-request" in visit.request.headers:
        return {"proposals": (), "contradictions": (), "letters": (), "blocked": ()}
    proposals = await visit.run_or_none(PROPOSALS, state="pending")
    letters = await visit.run_or_none(DEAD_LETTERS, state="parked")
    documents = await visit.run_or_none(DOCUMENTS)
    return {
        "proposals": () if proposals is None else proposals.proposals,
        "contradictions": await _pairs(visit, (health.review or ())[:WAITING]),
        "letters": () if letters is None else letters.dead_letters,
        "blocked": () if documents is None else [shown for shown in documents.documents if shown.quarantined],
    }


async def _pairs(visit: Visit, review: Sequence[Any]) -> list[dict[str, Any]]:
    """Proposed contradictions with what both entries say; pairs of which one is gone or no longer counts are left out."""
    pairs = []
    for pair in review:
        sides = [await _entry(visit, entry_id) for entry_id in (pair.src, pair.dst)]
        if all(side and (side["standing"] or {}).get("state") not in ENDED for side in sides):
            pairs.append({"pair": pair, "sides": sides})
    return pairs


async def _entry(visit: Visit, entry_id: str) -> Any:
    try:
        found = await visit.services.queries.get(visit.principal, entry_id, workspace=visit.workspace)
    except CrewJournalError:
        return None
    return found.entry.record


async def journal(visit: Visit) -> dict[str, Any]:
    """Entries that pass the filters of the address, newest first, a page at a time."""
    read = [
        (name, moment_of(value, name, end=name == "until") if name in TIMES else value)
        for name, value in visit.given(FILTERS).items()
    ]
    return await _entries(visit, read, visit.asked("cursor"), PAGE_ENTRIES)


def journal_form(visit: Visit) -> dict[str, Any]:
    """The filters of the address, and the severities to choose from."""
    return {"given": visit.given(FILTERS), "severities": [severity.value for severity in Severity]}


async def _entries(visit: Visit, given: list[tuple[str, str]], cursor: str | None, limit: int) -> dict[str, Any]:
    page = await visit.services.queries.list(
        visit.principal,
        parse_filters(given),
        workspace=visit.workspace,
        cursor=None if cursor is None else Cursor.parse(cursor),
        limit=limit,
    )
    return {"entries": [entry.record for entry in page.entries], "next_cursor": page.next_cursor}


async def entry(visit: Visit) -> dict[str, Any]:
    """One entry and its related entries."""
    entry_id = visit.request.path_params["entry_id"]
    stored = await visit.services.queries.get(
        visit.principal, entry_id, workspace=visit.workspace, include_archive=True
    )
    return {
        "entry": stored.entry.record,
        "graph": await visit.run(GRAPH, entry_id=entry_id),
        "priorities": [priority.value for priority in Priority],
    }


async def recall(visit: Visit) -> dict[str, Any]:
    """The hits of a question, each with its confidence, its reason, and each rule's share in its rank."""
    query = visit.asked("query")
    if query is None:
        return {"answer": None, "hits": ()}
    answer = await visit.run(RECALL, query=query, k=RECALL_K, explain=True, **visit.given(RECALLED))
    shares = [abs(share) for hit in answer.hits if hit.explain for share in hit.explain.shares.values()]
    return {"answer": answer, "hits": answer.hits, "largest_share": max(shares, default=0.0)}


async def why(visit: Visit) -> dict[str, Any]:
    """The way from a memory or a receipt back to entries and authors, and the receipt's recall run again."""
    name = visit.request.path_params["name"]
    replay = visit.asked("replay") is not None
    saw = await visit.run_or_none(WHO_SAW, name=name) if visit.principal.role.administers else None
    answer = await visit.run(WHY, name=name, replay=replay or None)
    question = {key: value for key, value in (answer.asked or {}).items() if not isinstance(value, list | tuple | dict)}
    return {"why": answer, "question": question, "saw": saw}


async def documents(visit: Visit) -> dict[str, Any]:
    """The documents that the token may read, by owner."""
    return {"documents": (await visit.run(DOCUMENTS, **visit.given(("tier", "agent_id", "crew_id")))).documents}


async def document(visit: Visit) -> dict[str, Any]:
    """One document, its versions, and what one of them changed."""
    named = visit.given(DOCUMENT)
    version = _number(visit.asked("version"))
    read = await visit.run(DOCUMENT_READ, **named, version=version)
    versions = (await visit.run(DOCUMENT_VERSIONS, **named, limit=100)).versions
    changed = None
    if version is not None:
        before = max((other.seq for other in versions if other.seq < version), default=0)
        changed = await visit.run_or_none(DOCUMENT_DIFF, **named, from_version=before, to_version=version)
    return {"document": read, "versions": versions, "version": version, "named": named, "changed": changed}


def _number(text: str | None) -> int | str | None:
    """A whole number; another text as it is, so that the operation reports it."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 20 else text


async def learned(visit: Visit) -> dict[str, Any]:
    """Rules with their evidence, lessons, and proposals."""
    crew = visit.asked("crew_id")
    proposals = await visit.run_or_none(PROPOSALS, crew_id=crew) if visit.principal.role.administers else None
    rules = await visit.run_or_none(LEARNED_RULES, crew_id=crew)
    lessons = await visit.run_or_none(LESSONS, crew_id=crew)
    return {
        "rules": () if rules is None else rules.rules,
        "lessons": () if lessons is None else lessons.lessons,
        "proposals": () if proposals is None else proposals.proposals,
    }


async def proposal(visit: Visit) -> dict[str, Any]:
    """A proposal with the entries of its evidence."""
    return {"explained": await visit.run(EXPLAIN_PROPOSAL, proposal_id=visit.request.path_params["proposal_id"])}


async def people(visit: Visit) -> dict[str, Any]:
    """The models of people, and erasures with their receipts."""
    erasures = await visit.run_or_none(ERASURES)
    return {
        "operators": (await visit.run(OPERATORS)).operators,
        "erasures": () if erasures is None else erasures.erasures,
    }


async def person(visit: Visit) -> dict[str, Any]:
    """What is known about one person, and what can be done with it."""
    user = visit.request.path_params["user"]
    return {"user": user, "operator": await visit.run(SHOW_OPERATOR, user=user)}


async def erase(visit: Visit) -> dict[str, Any]:
    """What an erasure would take, before it is confirmed."""
    named = visit.given((*ERASED, "reason"))
    if "reason" not in named or len(named) < 2:
        return {"plan": None}
    covered: dict[str, Any] = dict(named)
    if "ids" in covered:
        covered["ids"] = [part.strip() for part in covered["ids"].split(",") if part.strip()]
    return {"plan": await visit.run(FORGET, **covered, dry_run=True)}


def erase_form(visit: Visit) -> dict[str, Any]:
    """The fields of the address."""
    return {"given": visit.given((*ERASED, "reason"))}


async def facts(visit: Visit) -> dict[str, Any]:
    """Facts about an entity, or the newest of all, drawn on a time line."""
    entity = visit.asked("entity")
    known = await visit.run(KG_TIMELINE, entity=entity)
    events = known.events
    if entity is not None and not events:
        events = (await visit.run(KG_QUERY, entity=entity)).results
    return {
        "facts": events,
        "truncated": known.truncated,
        "stats": await visit.run(KG_STATS),
        "entity": entity,
        "lanes": _lanes([(fact.valid_from, fact.valid_to, fact) for fact in events if fact.valid_from]),
    }


def _lanes(spans: list[tuple[str, str | None, Any]]) -> list[dict[str, Any]]:
    """Where each span begins and how long it is, in thousandths of the whole; an open span ends at the right margin."""
    spans = spans[-LANES:]
    starts = [to_ms(parse_ts(_instant(start))) for start, _, _ in spans]
    ends = [None if end is None else to_ms(parse_ts(_instant(end))) for _, end, _ in spans]
    if not starts:
        return []
    left = min(starts)
    right = max([*starts, *(end for end in ends if end is not None)])
    whole = max(1, right - left) * 1.1
    lanes = []
    for (_, _, shown), start, end in zip(spans, starts, ends, strict=True):
        x = round((start - left) / whole * 1_000)
        width = 1_000 - x if end is None else max(4, round((end - start) / whole * 1_000))
        lanes.append({"x": x, "width": width, "open": end is None, "shown": shown})
    return lanes


def _instant(text: str) -> str:
    return f"{text[:10]}T00:00:00Z" if len(text) == 10 else text


async def receipts(visit: Visit) -> dict[str, Any]:
    """Recalls that were answered, newest first."""
    given = [("types", MemorySearched.ENTRY_TYPE), *visit.given(("agent_id", "crew_id", "trace_id")).items()]
    return await _entries(visit, given, visit.asked("cursor"), PAGE_ENTRIES)


async def runs(visit: Visit) -> dict[str, Any]:
    """The runs among the newest entries: when each began and ended, who worked in it, and its worst severity."""
    given = [("exclude_types", entry_type) for entry_type in OF_SERVICE] + list(
        visit.given(("agent_id", "crew_id")).items()
    )
    entries = (await _entries(visit, given, None, RUN_ENTRIES))["entries"]
    order = [severity.value for severity in Severity]
    by_run = sorted((one for one in entries if one["trace_id"]), key=lambda one: one["trace_id"])
    shown = []
    for run_id, of_run in groupby(by_run, key=lambda one: one["trace_id"]):
        members = sorted(of_run, key=lambda one: (one["ts"], one["seq"]))
        shown.append(
            {
                "run": run_id,
                "first": members[0]["ts"],
                "last": members[-1]["ts"],
                "entries": len(members),
                "agents": sorted({one["agent_id"] for one in members if one["agent_id"]}),
                "severity": max((str(one["severity"]) for one in members), key=order.index),
                "summary": members[-1]["summary"],
            }
        )
    return {"runs": sorted(shown, key=lambda run: str(run["last"]), reverse=True), "searched": len(entries)}


async def run(visit: Visit) -> dict[str, Any]:
    """One run: its entries in the order of time, and where each lies in it."""
    run_id = visit.request.path_params["run_id"]
    entries = (await _entries(visit, [("trace_id", run_id)], None, RUN_ENTRIES))["entries"]
    entries.sort(key=lambda one: (one["ts"], one["seq"]))
    return {
        "run": run_id,
        "entries": entries,
        "lanes": _lanes([(str(one["ts"]), str(one["ts"]), one) for one in entries]),
    }


async def health(visit: Visit) -> dict[str, Any]:
    """The latest snapshot, and the snapshots of the last weeks."""
    shown = await visit.run(HEALTH, history=HEALTH_DAYS)
    return {"health": shown, "contradictions": await _pairs(visit, shown.review or ())}


async def status(visit: Visit) -> dict[str, Any]:
    """The state of the node; its own figures only for an OWNER of all workspaces."""
    owns_the_node = visit.principal.role.administers and visit.principal.workspace_id is None
    workspace = visit.principal.workspace_or_all(visit.workspace)
    shown = await visit.services.status.status(workspace_id=workspace, node=owns_the_node)
    return {"status": shown, "owns_the_node": owns_the_node}


async def system(visit: Visit) -> dict[str, Any]:
    """The state of the node, its figures over time, and the nodes of the journal."""
    values = await status(visit)
    owns = values["owns_the_node"]
    return {
        **values,
        "long": visit.services.operations.latest if owns else None,
        "charts": visit.services.history.charts() if owns else (),
        "cluster": await visit.run_or_none(CLUSTER) if owns else None,
    }


async def letters(visit: Visit) -> dict[str, Any]:
    """Events that could not be folded."""
    return {"letters": (await visit.run(DEAD_LETTERS)).dead_letters}


async def models(visit: Visit) -> dict[str, Any]:
    """The embedding models, and how many vectors each lacks."""
    return {"models": (await visit.run(EMBEDDING_MODELS)).models}


async def corrections(visit: Visit) -> dict[str, Any]:
    """The latest corrections and what followed from each."""
    return {"corrections": (await visit.run(CORRECTIONS, limit=PAGE_ENTRIES)).corrections}


async def sign_ins(visit: Visit) -> dict[str, Any]:
    """The sessions that the visitor may end, and the accounts of people."""
    accounts = await visit.run_or_none(ACCOUNTS) if visit.principal.role.administers else None
    return {
        "sessions": (await visit.run(SESSIONS)).sessions,
        "accounts": () if accounts is None else accounts.accounts,
        "roles": [role.value for role in Role if role is not Role.OWNER or visit.principal.role is Role.OWNER],
    }


async def workspaces(visit: Visit) -> tuple[str, ...]:
    """The workspaces to choose from; empty for a token of one workspace."""
    listed = await visit.run_or_none(WORKSPACES)
    return () if listed is None else tuple(workspace.workspace_id for workspace in listed.workspaces)


SIGN_INS: Final = "/ui/sign-ins"
PAGES: Final = (
    Page("/", "Now", "now.html", now, key="n", timeless=True),
    Page("/ui/recall", "Memory", "recall.html", recall, key="r", form=lambda _: {}, rows="hits"),
    Page("/ui/documents", "Documents", "documents.html", documents, key="d", rows="documents"),
    Page("/ui/learned", "Learned", "learned.html", learned, key="l", rows="rules"),
    Page("/ui/people", "People", "people.html", people, key="p", administrators=True, rows="operators"),
    Page("/ui/facts", "Graph", "facts.html", facts, key="f", rows="facts"),
    Page("/ui/receipts", "Receipts", "receipts.html", receipts, key="c", rows="entries", timeless=True),
    Page("/ui/runs", "Runs", "runs.html", runs, key="u", rows="runs", timeless=True),
    Page("/ui/journal", "Journal", "journal.html", journal, key="j", form=journal_form, rows="entries", timeless=True),
    Page("/ui/status", "System", "status.html", system, key="s", timeless=True),
    Page("/ui/entry/{entry_id}", "Entry", "entry.html", entry, timeless=True),
    Page("/ui/why/{name:path}", "Why", "why.html", why, timeless=True),
    Page("/ui/document", "Document", "document.html", document, rows="versions", timeless=True),
    Page("/ui/proposal/{proposal_id}", "Proposal", "proposal.html", proposal, administrators=True, timeless=True),
    Page("/ui/person/{user}", "Person", "person.html", person, administrators=True),
    Page("/ui/erase", "Erase", "erase.html", erase, administrators=True, form=erase_form, timeless=True),
    Page("/ui/run/{run_id}", "Run", "run.html", run, rows="entries", timeless=True),
    Page("/ui/health", "Health", "health.html", health, timeless=True),
    Page("/ui/letters", "Dead letters", "letters.html", letters, administrators=True, rows="letters", timeless=True),
    Page(SIGN_INS, "Sign-ins", "sign_ins.html", sign_ins, rows="sessions", timeless=True),
    Page("/ui/models", "Models", "models.html", models, administrators=True, rows="models", timeless=True),
    Page("/ui/corrections", "Corrections", "corrections.html", corrections, rows="corrections", timeless=True),
)
