"""What the client does, without I/O: requests, retries, answers. Both flavours run these steps.

Invariant: an entry gets its id here, before it is first sent, so a retried append counts once; only what may be done twice
is retried, with growing pauses and a bounded number of times.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from crew_journal.schemas.api import (
    AppendAnswer,
    BrokerAnswer,
    CountAnswer,
    DeadLetter,
    DeadLetterAnswer,
    DeadLettersAnswer,
    EntriesAnswer,
    EntryAnswer,
    EntryRecord,
    HealthAnswer,
    Nudge,
    NudgesAnswer,
    PriorityAnswer,
    RecallAnswer,
    Receipt,
    ReindexAnswer,
    RenderAnswer,
    SweepAnswer,
    TokenCreatedAnswer,
    TokenRecord,
    TokensAnswer,
    UsedAnswer,
    WorkspaceSettingsAnswer,
)
from crew_journal.schemas.api_relations import AgentAnswer, GraphAnswer, RelationAnswer
from crew_journal.schemas.entry import JournalEntry
from crew_journal.schemas.errors import BrokerUnavailable, CrewJournalError, Unavailable, ViewsBehind
from crew_journal.schemas.ids import mint_entry_id
from crew_journal.services.client.faults import error_of
from crew_journal.services.client.wire import Broken, Params, Pause, Reply, Request, Steps

ATTEMPTS: Final = 5
"""Tries of one request; with the pauses below about 3 seconds, a restart of the service."""
FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 2.0
_JITTER: Final = 0.25
"""Share of a pause that is random, so that clients do not come back all at once."""
_ERRORS_FROM: Final = 400

_A = TypeVar("_A", bound=BaseModel)
Entry = JournalEntry | Mapping[str, Any]
"""What may be appended: the envelope's model, or its fields (``entry_type`` and ``summary`` at least)."""


def pause_before(attempt: int) -> float:
    """Seconds before try number ``attempt`` (from 1): doubling, capped, with jitter."""
    base = min(FIRST_PAUSE_S * 2.0 ** (attempt - 1), LAST_PAUSE_S)
    return base * (1 - _JITTER + 2 * _JITTER * random.random())  # spreads load; no secret


def exchange(request: Request) -> Steps[Reply]:
    """Send a request until it is answered.

    Raises:
        CrewJournalError: What the service answered, or Unavailable if it did not.
    """
    attempts = ATTEMPTS if request.repeatable else 1
    for attempt in range(1, attempts + 1):
        outcome = yield request
        if isinstance(outcome, Reply):
            try:
                return checked(outcome)
            except (BrokerUnavailable, ViewsBehind):
                raise  # the service has waited already: five times 30 s would look like a hang
            except Unavailable:
                if attempt == attempts:
                    raise
        if attempt < attempts:
            yield Pause(pause_before(attempt))
    reason = outcome.reason if isinstance(outcome, Broken) else "no answer"
    raise Unavailable(f"the service does not answer: {reason}", hint="is `crew-journal up` running, and the URL right?")


def checked(reply: Reply) -> Reply:
    """The reply.

    Raises:
        CrewJournalError: If its status is an error.
    """
    if reply.status < _ERRORS_FROM:
        return reply
    try:
        problem = json.loads(reply.body)
    except ValueError:
        problem = {}
    raise error_of(reply.status, problem if isinstance(problem, dict) else {})


def _ask(request: Request, model: type[_A]) -> Steps[_A]:
    reply = yield from exchange(request)
    try:
        return model.model_validate_json(reply.body)
    except ValidationError:
        raise CrewJournalError(
            f"{request.method} {request.path} answered what is no {model.__name__}",
            hint="is it a Crew Journal of this version?",
        ) from None


def _ask_json(request: Request) -> Steps[dict[str, Any]]:
    reply = yield from exchange(request)
    return dict(json.loads(reply.body))


def params_of(given: Mapping[str, object]) -> Params:
    """Keyword arguments as query parameters: None is left out, a sequence is repeated."""
    found: list[tuple[str, str]] = []
    for name, value in given.items():
        if value is None:
            continue
        values = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        found.extend((name, str(one)) for one in values)
    return found


def submission(entry: Entry) -> dict[str, Any]:
    """The fields to send, with an id."""
    if isinstance(entry, JournalEntry):  # an answer of `get` knows more than an entry may say
        record = entry.model_dump(mode="json", exclude_none=True, include=set(JournalEntry.model_fields))
    else:
        record = dict(entry)
    record.pop("seq", None)  # an entry that was read back can be appended elsewhere
    if not record.get("id"):
        record["id"] = mint_entry_id()
    return record


# the journal


def append(entry: Entry) -> Steps[Receipt]:
    """POST one entry."""
    answer = yield from _ask(Request("POST", "/v1/journal", json=submission(entry)), AppendAnswer)
    return answer.entries[0]


def append_batch(entries: Iterable[Entry]) -> Steps[tuple[Receipt, ...]]:
    """POST up to 1,000 entries, all or nothing."""
    records = [submission(entry) for entry in entries]
    if not records:
        return ()
    answer = yield from _ask(Request("POST", "/v1/journal", json=records), AppendAnswer)
    return answer.entries


def list_page(given: Mapping[str, object]) -> Steps[EntriesAnswer]:
    """GET one page."""
    return (yield from _ask(Request("GET", "/v1/journal", params_of(given)), EntriesAnswer))


def count(given: Mapping[str, object]) -> Steps[CountAnswer]:
    """GET a count."""
    return (yield from _ask(Request("GET", "/v1/journal/count", params_of(given)), CountAnswer))


def get(entry_id: str, given: Mapping[str, object]) -> Steps[EntryRecord]:
    """GET one entry."""
    path = f"/v1/journal/{quote(entry_id, safe='')}"
    return (yield from _ask(Request("GET", path, params_of(given)), EntryAnswer))


def recall(query: str, given: Mapping[str, object]) -> Steps[RecallAnswer]:
    """POST a recall; it changes nothing, so it may be repeated."""
    body = {"query": query, **{name: value for name, value in given.items() if value is not None}}
    return (yield from _ask(Request("POST", "/v1/recall", json=body), RecallAnswer))


def render(query: str, given: Mapping[str, object]) -> Steps[RenderAnswer]:
    """POST a render; repeated, it may count its hits twice, which importance hardly feels."""
    body = {"query": query, **{name: value for name, value in given.items() if value is not None}}
    return (yield from _ask(Request("POST", "/v1/recall/render", json=body), RenderAnswer))


def set_priority(entry_id: str, body: Mapping[str, object], given: Mapping[str, object]) -> Steps[PriorityAnswer]:
    """POST an entry's live priority; saying it twice changes it once."""
    path = f"/v1/journal/{quote(entry_id, safe='')}/priority"
    return (yield from _ask(Request("POST", path, params_of(given), json=dict(body)), PriorityAnswer))


def sweep(given: Mapping[str, object]) -> Steps[SweepAnswer]:
    """POST a sweep that is to run now."""
    body = {name: value for name, value in given.items() if value is not None}
    return (yield from _ask(Request("POST", "/v1/admin/sweeps", json=body, repeatable=False), SweepAnswer))


def nudges(session_id: str, given: Mapping[str, object]) -> Steps[tuple[Nudge, ...]]:
    """POST for nudges; repeated after a lost answer it gives none, which is the point."""
    body = {"session_id": session_id, **{name: value for name, value in given.items() if value is not None}}
    answer = yield from _ask(Request("POST", "/v1/nudges", json=body), NudgesAnswer)
    return answer.nudges


def workspace_settings(given: Mapping[str, object]) -> Steps[WorkspaceSettingsAnswer]:
    """GET the settings of a workspace."""
    return (yield from _ask(Request("GET", "/v1/workspace/settings", params_of(given)), WorkspaceSettingsAnswer))


def configure_workspace(given: Mapping[str, object]) -> Steps[WorkspaceSettingsAnswer]:
    """PUT them, whole: doing it twice changes nothing more."""
    body = {name: value for name, value in given.items() if value is not None}
    return (yield from _ask(Request("PUT", "/v1/workspace/settings", json=body), WorkspaceSettingsAnswer))


def used(receipt: str, entry_ids: Sequence[str] | None) -> Steps[UsedAnswer]:
    """POST which hits reached a prompt; a receipt counts once, so it may be repeated."""
    body = {} if entry_ids is None else {"entry_ids": list(entry_ids)}
    return (yield from _ask(Request("POST", f"/v1/recall/{quote(receipt, safe='')}/used", json=body), UsedAnswer))


def health(given: Mapping[str, object]) -> Steps[HealthAnswer]:
    """GET the latest health snapshot."""
    return (yield from _ask(Request("GET", "/v1/memory/health", params_of(given)), HealthAnswer))


def measure_health(given: Mapping[str, object]) -> Steps[HealthAnswer]:
    """POST: measure health now; twice is as good as once."""
    return (yield from _ask(Request("POST", "/v1/memory/health", params_of(given)), HealthAnswer))


def status(given: Mapping[str, object]) -> Steps[dict[str, Any]]:
    """GET the status."""
    return (yield from _ask_json(Request("GET", "/v1/status", params_of(given))))


# relations and agents


def relate(entry_id: str, given: Mapping[str, object]) -> Steps[RelationAnswer]:
    """POST a relation."""
    request = Request("POST", f"{_entry_path(entry_id)}/relations", json=_given(given), repeatable=False)
    return (yield from _ask(request, RelationAnswer))


def unrelate(entry_id: str, given: Mapping[str, object]) -> Steps[RelationAnswer]:
    """POST that a relation does not hold any more."""
    request = Request("POST", f"{_entry_path(entry_id)}/relations/retract", json=_given(given), repeatable=False)
    return (yield from _ask(request, RelationAnswer))


def graph(entry_id: str, given: Mapping[str, object]) -> Steps[GraphAnswer]:
    """GET a neighbourhood."""
    return (yield from _ask(Request("GET", f"{_entry_path(entry_id)}/graph", params_of(given)), GraphAnswer))


def register_agent(agent_id: str, given: Mapping[str, object]) -> Steps[AgentAnswer]:
    """PUT an agent's settings."""
    return (yield from _ask(Request("PUT", _agent_path(agent_id), json=_given(given)), AgentAnswer))


def agent(agent_id: str, given: Mapping[str, object]) -> Steps[AgentAnswer]:
    """GET an agent's settings."""
    return (yield from _ask(Request("GET", _agent_path(agent_id), params_of(given)), AgentAnswer))


def _entry_path(entry_id: str) -> str:
    return f"/v1/journal/{quote(entry_id, safe='')}"


def _agent_path(agent_id: str) -> str:
    return f"/v1/agents/{quote(agent_id, safe='')}"


def _given(given: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in given.items() if value is not None}


# administration


def create_token(given: Mapping[str, object]) -> Steps[TokenCreatedAnswer]:
    """POST a new token; never repeated, as each try would make one."""
    body = {name: value for name, value in given.items() if value is not None}
    return (yield from _ask(Request("POST", "/v1/admin/tokens", json=body, repeatable=False), TokenCreatedAnswer))


def tokens(given: Mapping[str, object]) -> Steps[tuple[TokenRecord, ...]]:
    """GET every token."""
    answer = yield from _ask(Request("GET", "/v1/admin/tokens", params_of(given)), TokensAnswer)
    return answer.tokens


def revoke_token(token_id: str) -> Steps[None]:
    """DELETE a token."""
    yield from exchange(Request("DELETE", f"/v1/admin/tokens/{quote(token_id, safe='')}", repeatable=False))


def dead_letters(given: Mapping[str, object]) -> Steps[tuple[DeadLetter, ...]]:
    """GET the dead letters."""
    answer = yield from _ask(Request("GET", "/v1/admin/dlq", params_of(given)), DeadLettersAnswer)
    return answer.dead_letters


def decide_dead_letter(
    seq: int, decision: str, body: Mapping[str, object], given: Mapping[str, object]
) -> Steps[DeadLetterAnswer]:
    """POST a decision about a dead letter."""
    path = f"/v1/admin/dlq/{seq}/{decision}"
    request = Request("POST", path, params_of(given), json=dict(body), repeatable=False)
    return (yield from _ask(request, DeadLetterAnswer))


def embedder_status() -> Steps[dict[str, Any]]:
    """GET the embedder."""
    return (yield from _ask_json(Request("GET", "/v1/admin/embedder")))


def activate_model(given: Mapping[str, object]) -> Steps[dict[str, Any]]:
    """POST the model that recall is to use."""
    body = {name: value for name, value in given.items() if value is not None}
    return (yield from _ask_json(Request("POST", "/v1/admin/embeddings/activate", json=body, repeatable=False)))


def embedding_models(given: Mapping[str, object]) -> Steps[dict[str, Any]]:
    """GET the embedding models."""
    return (yield from _ask_json(Request("GET", "/v1/admin/embeddings", params_of(given))))


def add_model(model: str) -> Steps[dict[str, Any]]:
    """POST a model to fill; not repeated, as the service has tried the model for a while before it refuses."""
    return (yield from _ask_json(Request("POST", "/v1/admin/embeddings", json={"model": model}, repeatable=False)))


def drop_model(model: str, reason: str) -> Steps[dict[str, Any]]:
    """POST a model to forget."""
    body = {"model": model, "reason": reason}
    return (yield from _ask_json(Request("POST", "/v1/admin/embeddings/drop", json=body, repeatable=False)))


def sweep_embeddings(given: Mapping[str, object]) -> Steps[SweepAnswer]:
    """POST: embed what was missed; twice is as good as once."""
    return (yield from _ask(Request("POST", "/v1/admin/embeddings/sweep", params_of(given)), SweepAnswer))


def reindex(given: Mapping[str, object]) -> Steps[ReindexAnswer]:
    """POST: judge entries anew and try refused texts again."""
    body = {name: value for name, value in given.items() if value is not None}
    return (yield from _ask(Request("POST", "/v1/admin/reindex", json=body, repeatable=False), ReindexAnswer))


def broker() -> Steps[BrokerAnswer]:
    """GET how to reach the broker."""
    return (yield from _ask(Request("GET", "/v1/admin/broker"), BrokerAnswer))


def compare_request(one: str, other: str, given: Mapping[str, object]) -> Request:
    """Streams a comparison of two models."""
    body = {"one": one, "other": other, **{name: value for name, value in given.items() if value is not None}}
    return Request("POST", "/v1/admin/embeddings/compare", json=body, repeatable=False)


def rebuild_request(projections: Sequence[str] | None) -> Request:
    """Streams the rebuild."""
    body = {"projections": list(projections)} if projections else {}
    return Request("POST", "/v1/admin/rebuild", json=body, repeatable=False)


def verify_request() -> Request:
    """Streams the verification."""
    return Request("POST", "/v1/admin/verify", repeatable=False)
