"""The one place that declares streams, and reads them back.

Why: an older server silently ignores fields it does not know, and somebody else's stream of the same name may drop,
expire or refuse what we must keep (facts/nats.md). Invariant: after ``declare_streams`` each stream is what this module
says, in every field that can lose data; what cannot be mended without losing data is a ``StreamMismatch``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from ....schemas.errors import BrokerError, BrokerUnavailable, StreamMismatch
from ....schemas.sequence_set import Range, normalised, ranges_of
from ....schemas.settings import DEDUPE_WINDOW_S
from ....schemas.subjects import (
    CANARY_STREAM,
    CANARY_SUBJECT,
    DEADLETTER_STREAM,
    JOURNAL_STREAM,
    JOURNAL_SUBJECTS,
)

API_TIMEOUT_S: Final = 10.0
"""Seconds for one request to JetStream; creating a stream takes about 5 ms, recovery of a large one longer."""
STREAM_NOT_FOUND: Final = 10_059
"""JetStream's err_code for a stream that does not exist."""
SUBJECTS_OVERLAP: Final = 10_065
"""JetStream's err_code where another stream holds one of the subjects."""
ATOMIC_SINCE: Final = (2, 12)
"""First server version with ``allow_atomic`` (facts/nats.md, measured)."""
MINIMUM: Final = (2, 10)

_NS: Final = 1_000_000_000
_UNLIMITED: Final = -1
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What a stream must be.

    Attributes:
        name: Its name.
        config: The configuration it is created with.
        fixed: Fields whose other value loses data or authority: a difference is a ``StreamMismatch``.
        upgradable: Fields that are set on an existing stream without asking.
    """

    name: str
    config: Mapping[str, Any]
    fixed: tuple[str, ...]
    upgradable: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class DeclaredStreams:
    """What the broker confirmed.

    Attributes:
        atomic: Whether JOURNAL takes atomic batches.
        replicas: Replicas of JOURNAL.
        last_seq: Last sequence of JOURNAL.
        first_seq: First sequence of JOURNAL.
        made: ``made_at`` of JOURNAL.
    """

    atomic: bool
    replicas: int
    first_seq: int
    last_seq: int
    made: str


_KEPT_FOR_EVER: Final[dict[str, Any]] = {
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_consumers": _UNLIMITED,
    "max_msgs": _UNLIMITED,
    "max_bytes": _UNLIMITED,
    "max_age": 0,
    "max_msgs_per_subject": _UNLIMITED,
    "max_msg_size": _UNLIMITED,
    "compression": "none",  # compressed blocks could not be shown to be free of erased bytes
    "allow_direct": True,
    "deny_delete": False,  # erasure deletes
    "deny_purge": False,
    "sealed": False,
    "no_ack": False,
}
_FIXED: Final = (
    "subjects",
    "retention",
    "storage",
    "discard",
    "max_msgs",
    "max_bytes",
    "max_age",
    "max_msgs_per_subject",
    "max_msg_size",
    "compression",
    "deny_delete",
    "sealed",
    "no_ack",
)


def stream_plans(*, replicas: int, atomic: bool) -> tuple[StreamPlan, ...]:
    """The three streams.

    Args:
        replicas: Copies of JOURNAL and DEADLETTER in a cluster.
        atomic: Whether the server knows atomic batches.
    """
    window = int(DEDUPE_WINDOW_S * _NS)
    journal = {
        **_KEPT_FOR_EVER,
        "name": JOURNAL_STREAM,
        "description": "Every event; all views are folded from it",
        "subjects": list(JOURNAL_SUBJECTS),
        "num_replicas": replicas,
        "duplicate_window": window,
    }
    upgradable: tuple[str, ...] = ("allow_direct", "duplicate_window", "num_replicas", "deny_purge")
    if atomic:
        journal["allow_atomic"] = True
        upgradable = (*upgradable, "allow_atomic")
    dead = {
        **_KEPT_FOR_EVER,
        "name": DEADLETTER_STREAM,
        "description": "What could not be folded, with the reason",
        "subjects": ["deadletter.>"],
        "num_replicas": replicas,
        "duplicate_window": window,
    }
    canary = {
        **_KEPT_FOR_EVER,
        "name": CANARY_STREAM,
        "description": "Write probes: one message",
        "subjects": [CANARY_SUBJECT],
        "num_replicas": replicas,
        "max_msgs": 1,
    }
    return (
        StreamPlan(JOURNAL_STREAM, journal, _FIXED, upgradable),
        StreamPlan(DEADLETTER_STREAM, dead, _FIXED, ("allow_direct", "duplicate_window", "num_replicas")),
        StreamPlan(CANARY_STREAM, canary, ("subjects", "storage", "no_ack", "sealed"), ("max_msgs", "num_replicas")),
    )


async def declare_streams(client: Client, *, replicas: int = 1, atomic: bool | None = None) -> DeclaredStreams:
    """Create what is missing, mend what can be mended, and read everything back; safe to repeat.

    Args:
        client: A connection of the service.
        replicas: Copies in a cluster.
        atomic: False keeps atomic batches off; None asks the server's version.

    Raises:
        StreamMismatch: If a stream exists with a configuration that loses data for us.
        BrokerError: If the server is too old or refuses.
        BrokerUnavailable: If it does not answer.
    """
    version = client.connected_server_version
    if (version.major, version.minor) < MINIMUM:
        raise BrokerError(
            f"nats-server {version.major}.{version.minor}.{version.patch} is too old",
            hint="use nats-server 2.10 or newer; older ones ignore consumer filters silently",
        )
    can_atomic = (version.major, version.minor) >= ATOMIC_SINCE
    wanted = can_atomic if atomic is None else atomic and can_atomic
    confirmed: dict[str, dict[str, Any]] = {}
    for plan in stream_plans(replicas=replicas, atomic=wanted):
        confirmed[plan.name] = await _declare(client, plan)
    journal = confirmed[JOURNAL_STREAM]
    return DeclaredStreams(
        atomic=atomic is not False and bool(journal["config"].get("allow_atomic")),
        replicas=int(journal["config"].get("num_replicas", 1)),
        first_seq=int(journal["state"]["first_seq"]),
        last_seq=int(journal["state"]["last_seq"]),
        made=made_at(journal),
    )


def made_at(info: Mapping[str, Any]) -> str:
    """When a stream was made, to the nanosecond as the broker writes it: its identity.

    It survives restarts, updates and a copied store; a stream that is deleted and made again, or another broker's, has
    another one.
    """
    return str(info["created"])


async def _declare(client: Client, plan: StreamPlan) -> dict[str, Any]:
    found = await stream_info(client, plan.name)
    if found is None:
        created = await api_request(client, f"STREAM.CREATE.{plan.name}", dict(plan.config))
        _refuse(plan, created)
        _log.info("stream.created", stream=plan.name)
        found = await stream_info(client, plan.name)
        if found is None:
            raise BrokerError(
                f"stream {plan.name} was created and is not there", hint="is another process deleting it?"
            )
    _check(plan, found["config"])
    outdated = {name: plan.config[name] for name in plan.upgradable if _differs(plan, found["config"], name)}
    if not outdated:
        return found
    _refuse(plan, await api_request(client, f"STREAM.UPDATE.{plan.name}", {**found["config"], **outdated}))
    _log.info("stream.updated", stream=plan.name, fields=sorted(outdated))
    mended = await stream_info(client, plan.name)
    still = [name for name in outdated if mended is None or _differs(plan, mended["config"], name)]
    if mended is None or still:
        raise StreamMismatch(
            f"stream {plan.name} did not take {', '.join(still) or 'its update'}",
            hint="the server ignores a field it should know; is it nats-server 2.10 or newer?",
        )
    return mended


def _differs(plan: StreamPlan, actual: Mapping[str, Any], name: str) -> bool:
    wanted: object = plan.config[name]
    found: Any = actual.get(name)
    if isinstance(wanted, list):
        return sorted(wanted) != sorted(found or ())
    if name == "compression":
        return bool((found or "none") != wanted)
    if isinstance(wanted, bool):
        return bool(found) is not wanted
    return bool(found != wanted)


def _check(plan: StreamPlan, actual: Mapping[str, Any]) -> None:
    wrong = [name for name in plan.fixed if _differs(plan, actual, name)]
    if actual.get("mirror") or actual.get("sources"):
        wrong.append("mirror or sources")
    if not wrong:
        return
    shown = "; ".join(f"{name} is {actual.get(name)!r}, needs {plan.config.get(name)!r}" for name in wrong)
    raise StreamMismatch(
        f"stream {plan.name} exists with another configuration: {shown}",
        hint="it would lose or refuse entries; correct it with `nats stream edit`, or use another account or data dir",
    )


def _refuse(plan: StreamPlan, answer: Mapping[str, Any]) -> None:
    error = answer.get("error")
    if error is None:
        return
    text = f"the broker refuses stream {plan.name}: {error.get('description', error)}"
    if error.get("err_code") == SUBJECTS_OVERLAP:
        raise StreamMismatch(text, hint="another stream holds one of our subjects; use another account or remove it")
    raise BrokerError(text, hint="does the user have the rights, and the account JetStream and space?")


async def stream_figures(client: Client) -> dict[str, int]:
    """Head, first sequence, messages and bytes of JOURNAL, for ``status``; raises as ``stream_info`` does."""
    state = ((await stream_info(client, JOURNAL_STREAM)) or {}).get("state", {})
    names = {"head": "last_seq", "first": "first_seq", "messages": "messages", "bytes": "bytes"}
    return {name: int(state.get(key, 0)) for name, key in names.items()}


@dataclass(frozen=True, slots=True)
class StreamGaps:
    """What the broker knows to be missing from JOURNAL.

    Attributes:
        made: ``made_at`` of the stream.
        last_seq: Its last sequence.
        count: Sequences missing up to it.
        ranges: Which; empty if they were not asked for.
    """

    made: str
    last_seq: int
    count: int
    ranges: tuple[Range, ...]


async def stream_gaps(client: Client, *, details: bool = True) -> StreamGaps:
    """What is missing from JOURNAL, one request; with ``details`` its answer grows with every deleted message.

    Raises:
        BrokerError: If JetStream refuses, or there is no such stream.
        BrokerUnavailable: If it does not answer.
    """
    info = await api_request(client, f"STREAM.INFO.{JOURNAL_STREAM}", {"deleted_details": True} if details else None)
    if (error := info.get("error")) is not None:
        raise BrokerError(f"the broker does not tell about stream {JOURNAL_STREAM}: {error.get('description', error)}")
    state = info["state"]
    first, last = int(state["first_seq"]), int(state["last_seq"])
    before = [(1, min(first, last + 1) - 1)] if last and first > 1 else []
    deleted = ranges_of(seq for seq in state.get("deleted") or () if 0 < seq <= last)
    return StreamGaps(made_at(info), last, last - int(state["messages"]), tuple(normalised([*before, *deleted])))


async def stream_head(client: Client) -> int:
    """Last sequence of JOURNAL; raises as ``stream_info`` does."""
    return (await stream_figures(client))["head"]


async def stream_info(client: Client, name: str) -> dict[str, Any] | None:
    """Configuration and state of a stream as JetStream tells them; None if there is no such stream.

    Raises:
        BrokerError: If JetStream refuses.
        BrokerUnavailable: If it does not answer.
    """
    answer = await api_request(client, f"STREAM.INFO.{name}", None)
    error = answer.get("error")
    if error is None:
        return answer
    if error.get("err_code") == STREAM_NOT_FOUND:
        return None
    raise BrokerError(f"the broker does not tell about stream {name}: {error.get('description', error)}")


async def api_request(client: Client, call: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
    """One request to ``$JS.API``: raw, so that no field is lost that nats-py does not know.

    Raises:
        BrokerUnavailable: If JetStream does not answer in time.
    """
    payload = b"" if body is None else orjson.dumps(body)
    try:
        answer = await client.request(f"$JS.API.{call}", payload, timeout=API_TIMEOUT_S)
    except (NatsError, TimeoutError) as error:
        raise BrokerUnavailable(
            f"JetStream does not answer {call}: {error}", hint="is JetStream enabled for this account?"
        ) from None
    read: dict[str, Any] = orjson.loads(answer.data)
    return read
