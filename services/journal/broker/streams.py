"""Declares the streams and reads them back; no other module does.

An older server silently ignores fields that it does not know, and a foreign stream of the same name may drop, expire or
refuse messages that we must keep (facts/nats.md). Invariant: after ``declare_streams``, every field that can cause data
loss has the declared value; a difference that cannot be repaired without data loss is a ``StreamMismatch``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from ....schemas.core.errors import BrokerError, BrokerUnavailable, StreamMismatch
from ....schemas.core.sequence_set import Range, normalised, ranges_of
from ....schemas.core.subjects import (
    CANARY_STREAM,
    CANARY_SUBJECT,
    DEADLETTER_STREAM,
    JOURNAL_STREAM,
    JOURNAL_SUBJECTS,
)
from ....schemas.settings import DEDUPE_WINDOW_S
from .broker import ATOMIC_BATCH_VERSION, MINIMUM_VERSION

API_TIMEOUT_S: Final = 10.0
"""Seconds for one request to JetStream; creating a stream takes about 5 ms, recovery of a large one longer."""
STREAM_NOT_FOUND: Final = 10_059
"""JetStream's err_code for a stream that does not exist."""
TOO_FEW_SERVERS: Final = frozenset({10_005, 10_074})
"""JetStream's err_codes if a stream has more copies than servers can hold."""
SUBJECTS_OVERLAP: Final = 10_065
"""JetStream's err_code if another stream has one of the subjects."""

_NS: Final = 1_000_000_000
_UNLIMITED: Final = -1
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DeclaredStreams:
    """The streams as the broker confirmed them.

    Attributes:
        atomic: Whether JOURNAL takes atomic batches.
        replicas: Replicas of JOURNAL.
        last_seq: Last sequence of JOURNAL.
        first_seq: First sequence of JOURNAL.
        made: ``made_at`` of JOURNAL.
        copies: Server of a cluster → state of its copy of JOURNAL; empty outside a cluster.
    """

    atomic: bool
    replicas: int
    first_seq: int
    last_seq: int
    made: str
    copies: Mapping[str, str] = field(default_factory=dict)


_KEPT_FOR_EVER: Final[dict[str, Any]] = {
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_msgs": _UNLIMITED,
    "max_bytes": _UNLIMITED,
    "max_age": 0,
    "max_msgs_per_subject": _UNLIMITED,
    "max_msg_size": _UNLIMITED,
    "compression": "none",  # with compressed blocks, one could not verify that erased bytes are gone
    "allow_direct": True,
    "deny_delete": False,  # an erasure deletes messages
    "deny_purge": False,
    "sealed": False,
    "no_ack": False,
}
_FIXED: Final = frozenset(_KEPT_FOR_EVER) - {"allow_direct", "deny_purge"} | {"subjects"}
"""Fields in which a different value loses data or weakens authority: a difference is a ``StreamMismatch``. All other
fields are updated.
"""


def stream_configs(*, replicas: int, atomic: bool) -> list[dict[str, Any]]:
    """The configurations of the three streams.

    Args:
        replicas: Copies of every stream in a cluster.
        atomic: Whether the server supports atomic batches.
    """
    both = {**_KEPT_FOR_EVER, "num_replicas": replicas, "duplicate_window": int(DEDUPE_WINDOW_S * _NS)}
    return [
        {
            **both,
            "name": JOURNAL_STREAM,
            "subjects": list(JOURNAL_SUBJECTS),
            **({"allow_atomic": True} if atomic else {}),
        },
        {**both, "name": DEADLETTER_STREAM, "subjects": ["deadletter.>"]},
        {
            **_KEPT_FOR_EVER,
            "num_replicas": replicas,
            "name": CANARY_STREAM,
            "subjects": [CANARY_SUBJECT],
            "max_msgs": 1,
        },
    ]


async def declare_streams(
    client: Client, *, replicas: int | None = None, atomic: bool | None = None
) -> DeclaredStreams:
    """Create missing streams, repair what can be repaired, and read everything back; safe to repeat.

    Args:
        client: A connection of the service.
        replicas: Copies in a cluster; None keeps those of existing streams, so that a start without the setting does not
            remove copies.
        atomic: False disables atomic batches; None decides by the server's version.

    Raises:
        StreamMismatch: If a stream exists with a configuration that would lose data.
        BrokerError: If the server is too old or refuses a stream.
        BrokerUnavailable: If JetStream does not answer.
    """
    version = client.connected_server_version
    if (version.major, version.minor, version.patch) < MINIMUM_VERSION:
        raise BrokerError(
            f"nats-server {version.major}.{version.minor}.{version.patch} is too old",
            hint="use nats-server 2.10 or newer; older ones ignore consumer filters silently",
        )
    wanted = atomic is not False and (version.major, version.minor, version.patch) >= ATOMIC_BATCH_VERSION
    if replicas is None:
        known = await stream_info(client, JOURNAL_STREAM)
        replicas = 1 if known is None else int(known["config"].get("num_replicas", 1))
    journal, *_ = [await _declare(client, config) for config in stream_configs(replicas=replicas, atomic=wanted)]
    return DeclaredStreams(
        atomic=atomic is not False and bool(journal["config"].get("allow_atomic")),
        replicas=int(journal["config"].get("num_replicas", 1)),
        first_seq=int(journal["state"]["first_seq"]),
        last_seq=int(journal["state"]["last_seq"]),
        made=made_at(journal),
        copies=stream_copies(journal),
    )


def made_at(info: Mapping[str, Any]) -> str:
    """The creation time of a stream in the broker's format, with nanoseconds; it identifies the stream.

    It survives restarts, updates and a copied store; a stream that was deleted and created again, or another broker's
    stream, has a different time.
    """
    return str(info["created"])


async def _declare(client: Client, wanted: Mapping[str, Any]) -> dict[str, Any]:
    name = wanted["name"]
    info = await stream_info(client, name)
    if info is None:
        _raise_refusal(name, await api_request(client, f"STREAM.CREATE.{name}", wanted))
        _log.info("stream.created", stream=name)
    elif outdated := sorted(_different(wanted, _checked(wanted, info)["config"])):
        update = {**info["config"], **{field: wanted[field] for field in outdated}}
        _raise_refusal(name, await api_request(client, f"STREAM.UPDATE.{name}", update))
        _log.info("stream.updated", stream=name, fields=outdated)
    else:
        return info
    declared = await stream_info(client, name)
    if declared is None:
        raise BrokerError(f"stream {name} was declared but does not exist", hint="is another process deleting it?")
    if ignored := sorted(_different(wanted, _checked(wanted, declared)["config"])):
        raise StreamMismatch(
            f"stream {name} did not take {', '.join(ignored)}",
            hint="the server ignores a field it should know; is it nats-server 2.10 or newer?",
        )
    return declared


def _different(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> set[str]:
    """Names of the fields with a different value; the server leaves out fields that are false or empty."""

    def differs(field: str) -> bool:
        expected, actual_value = wanted[field], actual.get(field)
        if isinstance(expected, list):
            return sorted(expected) != sorted(actual_value or ())
        return bool((actual_value or type(expected)()) != expected) and not (
            field == "compression" and not actual_value
        )

    return set(filter(differs, wanted))


def _checked(wanted: Mapping[str, Any], info: dict[str, Any]) -> dict[str, Any]:
    actual = info["config"]
    wrong = sorted(_different(wanted, actual) & _FIXED - {"max_msgs" if wanted["name"] == CANARY_STREAM else ""})
    if actual.get("mirror") or actual.get("sources"):
        wrong.append("mirror or sources")
    if not wrong:
        return info
    shown = "; ".join(f"{name} is {actual.get(name)!r}, needs {wanted.get(name)!r}" for name in wrong)
    raise StreamMismatch(
        f"stream {wanted['name']} exists with another configuration: {shown}",
        hint="it would lose or refuse entries; correct it with `nats stream edit`, or use another account or data dir",
    )


def _raise_refusal(name: str, answer: Mapping[str, Any]) -> None:
    error = answer.get("error")
    if error is None:
        return
    text = f"the broker refuses stream {name}: {error.get('description', error)}"
    if error.get("err_code") == SUBJECTS_OVERLAP:
        raise StreamMismatch(text, hint="another stream holds one of our subjects; use another account or remove it")
    if error.get("err_code") in TOO_FEW_SERVERS:
        raise BrokerError(text, hint="each of the --replicas needs a nats-server of the cluster; name fewer")
    raise BrokerError(text, hint="does the user have the rights, and the account JetStream and space?")


async def stream_figures(client: Client) -> dict[str, Any]:
    """Last and first sequence, messages and bytes of JOURNAL, and the copies in a cluster; raises as ``stream_info``."""
    info = (await stream_info(client, JOURNAL_STREAM)) or {}
    state, copies = info.get("state", {}), stream_copies(info)
    names = {"head": "last_seq", "first": "first_seq", "messages": "messages", "bytes": "bytes"}
    figures = {name: int(state.get(key, 0)) for name, key in names.items()}
    return {**figures, "copies": copies} if copies else figures


def stream_copies(info: Mapping[str, Any]) -> dict[str, str]:
    """The servers that hold a copy of a stream, with ``leads``, ``current``, ``offline`` or ``N messages behind``."""
    cluster = info.get("cluster") or {}
    if int(info.get("config", {}).get("num_replicas", 1)) == 1 or not cluster:
        return {}
    leader = {cluster["leader"]: "leads"} if cluster.get("leader") else {}
    return leader | {peer["name"]: _state_of(peer) for peer in cluster.get("replicas") or ()}


def _state_of(peer: Mapping[str, Any]) -> str:
    if peer.get("offline"):
        return "offline"
    return "current" if peer.get("current") else f"{int(peer.get('lag', 0)):,} messages behind"


@dataclass(frozen=True, slots=True)
class StreamGaps:
    """The missing sequences of JOURNAL that the broker reports.

    Attributes:
        made: ``made_at`` of the stream.
        last_seq: Last sequence of the stream.
        count: Number of missing sequences up to ``last_seq``.
        ranges: Their ranges; empty if they were not requested.
    """

    made: str
    last_seq: int
    count: int
    ranges: tuple[Range, ...]


async def stream_gaps(client: Client, *, details: bool = True) -> StreamGaps:
    """The missing sequences of JOURNAL; one request, whose answer, with ``details``, grows with every deleted message.

    Raises:
        BrokerError: If JetStream refuses, or there is no such stream.
        BrokerUnavailable: If JetStream does not answer.
    """
    info = await stream_info(client, JOURNAL_STREAM, {"deleted_details": True} if details else None)
    if info is None:
        raise BrokerError(f"there is no stream {JOURNAL_STREAM}")
    state = info["state"]
    first, last = int(state["first_seq"]), int(state["last_seq"])
    before = [(1, min(first, last + 1) - 1)] if last and first > 1 else []
    deleted = ranges_of(seq for seq in state.get("deleted") or () if 0 < seq <= last)
    return StreamGaps(made_at(info), last, last - int(state["messages"]), tuple(normalised([*before, *deleted])))


async def stream_head(client: Client) -> int:
    """Last sequence of JOURNAL; raises as ``stream_info`` does."""
    return int((await stream_figures(client))["head"])


async def stream_info(client: Client, name: str, params: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Configuration and state of a stream as JetStream reports them; None if there is no such stream.

    Raises:
        BrokerError: If JetStream refuses.
        BrokerUnavailable: If JetStream does not answer.
    """
    answer = await api_request(client, f"STREAM.INFO.{name}", params)
    error = answer.get("error")
    if error is None:
        return answer
    if error.get("err_code") == STREAM_NOT_FOUND:
        return None
    raise BrokerError(f"the broker gives no information on stream {name}: {error.get('description', error)}")


async def api_request(client: Client, call: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
    """Send a raw request to ``$JS.API``, so that fields unknown to nats-py are kept.

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
