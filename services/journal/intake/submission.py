"""Converts a client's body and token to an entry, its message and its content hash. Pure.

Invariant: workspace, crew, agent and authority come from the token (DESIGN §3). A body may repeat these values but must
not contradict them. An error names every wrong field of every entry of a batch, before anything is published. The
content hash covers the submitted fields before any default, so that a retry has the same hash at any time.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import orjson
from pydantic import ValidationError
from pydantic_core import from_json
from uuid_utils import uuid7

from ....schemas.catalogue import info_of
from ....schemas.context.nudges import strip_record
from ....schemas.core import headers as h
from ....schemas.core.entry import MAX_ENTRY_BYTES, JournalEntry, Priority, problems_of
from ....schemas.core.errors import EntryTooLarge, FieldProblem, InvalidEntry, InvalidQuery, NotAllowed
from ....schemas.core.grants import USER, actor_of, covers, is_person, speaks_for
from ....schemas.core.ids import is_service_id
from ....schemas.core.limits import DEFAULT_WORKSPACE
from ....schemas.core.payload import SERVICE_ALONE, PublisherKind
from ....schemas.core.plain_entry import PLAIN_FIELDS, known_id
from ....schemas.core.principal import Principal, Role, publisher_of
from ....schemas.core.subjects import control_subject, is_entry_type, journal_subject
from ....schemas.core.timestamps import format_ts
from ....schemas.entries.rules import AGENT_RESPONSE, USER_MESSAGE
from ..publishing import EncodedMessage

# Fast path of ``submission.accept`` for entries that are plainly valid, at a third of the cost.
#
# Most entries have only known fields, plain values, priority ``normal`` and a type that agents may publish. For these
# entries this module writes the body without building a model. Invariant: the model accepts every entry that this
# module accepts, with the same stored record, subject, headers and hash (a property test compares the two). All other
# entries go to the model, which also builds the error.


HASH_BYTES: Final = 16
"""Size of BLAKE2b-128: an attacker would need a collision between two contents of the same id."""
DEEP_BRACKETS: Final = 100
"""A body with this many opening brackets is parsed as a check, because our JSON reader stops at 200 levels and the
writer at 254.
"""


_MSG_ID: Final = f"NATS/1.0\r\n{h.MSG_ID}: "
_ENTRY_ID: Final = f"\r\n{h.ENTRY_ID}: "
_CONTENT: Final = f"\r\n{h.CONTENT_HASH}: "
_PUBLISHER: Final = f"\r\n{h.PUBLISHER}: "
_FORMAT: Final = f"\r\n{h.FORMAT}: {h.FORMAT_VERSION}\r\n"
_VOUCHED: Final = f"{h.ACTOR_VOUCHED}: {h.VOUCHED}\r\n"


@dataclass(slots=True)  # not frozen, because freezing costs 2 µs per object
class Accepted(EncodedMessage):
    """A valid submission; its body is the entry in its stored form.

    Attributes:
        workspace_id: The workspace.
        entry_id: Id of the entry, chosen by the client or random.
        identity: ``<workspace>/<id>``: the message id of the broker.
        content: Hash of what was submitted, 32 hex digits.
        given_id: Whether the client chose the id; a random id is never in use.
        publisher: The publisher; None for the service.
        vouched: Whether the token speaks for the person who is the entry's actor.
    """

    workspace_id: str
    entry_id: str
    identity: str
    content: str
    given_id: bool
    publisher: str | None = None
    vouched: bool = False

    @property
    def entry(self) -> JournalEntry:
        """The entry, read back from the body."""
        return JournalEntry.model_validate_json(self.body)


def entry_head(identity: str, entry_id: str, content: str, publisher: str | None, *, vouched: bool = False) -> bytes:
    """The header block of an entry; arguments are validated ids, a hex hash, and fields of ``Accepted``."""
    by = f"{_PUBLISHER}{publisher}" if publisher is not None else ""
    end = _VOUCHED if vouched else ""
    return f"{_MSG_ID}{identity}{_ENTRY_ID}{entry_id}{_CONTENT}{content}{by}{_FORMAT}{end}\r\n".encode()


def accept_plain(
    record: dict[str, Any],
    now: datetime,
    actor_type: str,
    actor_id: str | None,
    publisher: str,
    *,
    vouched: bool = False,
) -> Accepted | None:
    """A submission as a message, if it is plainly valid.

    Args:
        record: The fields without nulls and empty texts; the token allows their workspace, crew, agent and actor.
        now: The server's time, UTC, for an entry without ``ts``.
        actor_type: Used if the record names no actor type.
        actor_id: Used together with ``actor_type``; None means absent.
        publisher: The publisher.
        vouched: Whether the token speaks for the person who is the actor.

    Returns:
        None if the model has to decide.
    """
    try:
        for name, value in record.items():
            if not _PLAIN[name](value):
                return None
        canonical = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    except (KeyError, TypeError, ValueError):
        return None  # an unknown field, or a value that is not text or not JSON
    if len(canonical) > _PLAIN_BYTES:
        return None
    for name in _OBJECTS:
        if name not in record or _FLAT.issuperset(map(type, record[name].values())):
            continue  # plain values only: the text need not be searched
        if b"null" in canonical or canonical.count(b"{") + canonical.count(b"[") > DEEP_BRACKETS:
            return None  # null: perhaps a number that is not finite
    entry_type = record.get("entry_type")
    if entry_type is None or "summary" not in record:
        return None
    content = hashlib.blake2b(canonical, digest_size=HASH_BYTES).hexdigest()
    workspace = record["workspace_id"]
    entry_id = record.get("id")
    given_id = entry_id is not None
    filled = ""
    if entry_id is None:
        entry_id = "j_" + uuid7().hex  # like ids.mint_entry_id, at a sixth of its cost
        filled = f',"id":"{entry_id}"'
    if "ts" not in record:
        filled = f'{filled},"ts":"{format_ts(now)}"'
    if "actor_type" not in record:
        if actor_id is None or "actor_id" in record:
            filled = f'{filled},"actor_type":"{actor_type}"'
        else:
            filled = f'{filled},"actor_type":"{actor_type}","actor_id":{orjson.dumps(actor_id).decode()}'
    for name, default in _DEFAULTS:
        if name not in record:
            filled += default
    identity = f"{workspace}/{entry_id}"
    return Accepted(
        f"journal.{workspace}.{record.get('crew_id', '_')}.{record.get('agent_id', '_')}.{entry_type}",
        entry_head(identity, entry_id, content, publisher, vouched=vouched),
        canonical[:-1] + filled.encode() + b"}" if filled else canonical,
        workspace,
        entry_id,
        identity,
        content,
        given_id,
        publisher,
        vouched,
    )


@lru_cache(maxsize=4_096)
def _agents_type(entry_type: str) -> bool:
    return is_entry_type(entry_type) and info_of(entry_type).publisher is PublisherKind.AGENTS


_OBJECTS: Final = ("payload", "refs")
_FLAT: Final = frozenset({str, int, bool})
"""Types of values that are neither nested nor written as ``null``."""
_PLAIN_BYTES: Final = MAX_ENTRY_BYTES - 1_024
"""Maximum bytes of a submission; leaves room for fields that are filled in, less than 300 bytes."""
_PLAIN: Final[dict[str, Callable[[Any], Any]]] = {
    **PLAIN_FIELDS,
    **dict.fromkeys(("crew_id", "agent_id", "mission_id", "trace_id"), known_id),
    "workspace_id": lru_cache(maxsize=4_096)(lambda text: bool(re.match(r"[A-Za-z0-9-][A-Za-z0-9_-]{0,63}\Z", text))),
    "entry_type": _agents_type,
    "priority": frozenset({"normal"}).__contains__,
}
"""Field → whether a submitted value is plainly valid: stricter than what may be stored."""
_DEFAULTS: Final = (
    ("severity", ',"severity":"info"'),
    ("priority", ',"priority":"normal"'),
    ("payload", ',"payload":{}'),
    ("refs", ',"refs":{}'),
    ("schema_version", ',"schema_version":1'),
)
"""Default values that the model fills in, in their stored form."""


# Checks whether a token may publish an entry with a given type, priority and actor. Pure.


_OWNER, _ADMIN = Role.OWNER, Role.ADMIN  # looked up once: an enum's members cost 0.1 µs each time


def default_actor(principal: Principal, entry_type: object = None) -> tuple[str, str | None]:
    """Type and id of the actor of an entry that names no ``actor_type``.

    A token with ``speaks_for`` acts as the first actor named there, a token of OWNER or ADMIN as the user, an agent's
    token as the agent. An agent's answer is never attributed to a person.
    """
    if principal.speaks_for:
        kind, name = actor_of(principal.speaks_for[0])
        if kind != USER or entry_type != AGENT_RESPONSE:
            return kind, name
    role = principal.role
    if role is _OWNER or role is _ADMIN:
        return "user", None
    return "agent", principal.agent_id


def may_speak(principal: Principal, entry_type: object, actor_type: object, actor_id: object) -> bool:
    """Whether the token may publish as this actor; the values need not be valid."""
    if actor_type == "agent" and (actor_id is None or actor_id == principal.agent_id):
        return True
    role = principal.role
    if role is _OWNER or role is _ADMIN or (actor_type == "user" and entry_type == USER_MESSAGE):
        return True
    return speaks_for(principal.speaks_for, actor_type, actor_id)


def vouches(principal: Principal, actor_type: object, actor_id: object) -> bool:
    """Whether entries submitted with the token count as the actor's own words, where the actor is a named person."""
    if actor_type != "user" or not principal.speaks_for or not isinstance(actor_id, str):
        return False
    return is_person(actor_id) and speaks_for(principal.speaks_for, actor_type, actor_id)


def check_actor(principal: Principal, entry: JournalEntry, prefix: str = "") -> None:
    """Refuse an entry whose actor the token may not name.

    Raises:
        NotAllowed: Names the field: ``actor_id`` if another id of the same type is allowed, else ``actor_type``.
    """
    actor_type, actor_id = entry.actor_type.value, entry.actor_id
    if may_speak(principal, entry.entry_type, actor_type, actor_id):
        return
    allowed = (f"agent:{principal.agent_id}", *principal.speaks_for)
    wrong_id = any(actor_of(actor)[0] == actor_type for actor in allowed)
    field = "actor_id" if wrong_id else "actor_type"
    raise NotAllowed(
        f"{prefix}{field}: the token may not speak for {actor_type}{f' {actor_id}' if actor_id and wrong_id else ''}",
        hint=f"leave actor_type and actor_id out, name one of {', '.join(allowed)} (user in chat.user_message), or ask an "
        f"operator for a token with --speaks-for {actor_type} and send the entry over HTTP",
        field=f"{prefix}{field}",
    )


def needs_control(principal: Principal, entry: JournalEntry, prefix: str = "") -> bool:
    """Whether the entry records a decision and is therefore published on ``control.``.

    Raises:
        NotAllowed: If the principal has no authority for its type or priority.
    """
    publisher = info_of(entry.entry_type).publisher
    if publisher in SERVICE_ALONE:
        reserved = publisher is PublisherKind.RESERVED
        raise NotAllowed(
            f"{prefix}entry_type {entry.entry_type} is {'reserved for' if reserved else 'published by'} the service only",
            hint="choose a type that is not reserved (docs/format.md), like note.taken"
            if reserved
            else "use the command or route that decides it; it writes the entry itself",
            field=f"{prefix}entry_type",
        )
    administers = principal.role.administers
    if publisher is PublisherKind.VOUCHED and not administers and not covers(principal.may_publish, entry.entry_type):
        raise NotAllowed(
            f"{prefix}entry_type {entry.entry_type} needs a token that was granted it, or one of role OWNER or ADMIN",
            hint="use a type that agents may publish, or ask an operator for a token with "
            f"--may-publish {entry.entry_type} and send the entry over HTTP",
            field=f"{prefix}entry_type",
        )
    decides = publisher is PublisherKind.OPERATORS
    if not decides and entry.priority is Priority.NORMAL:
        return False
    if not administers:
        field = "entry_type" if decides else "priority"
        value = entry.entry_type if decides else entry.priority.value
        own_way = "use a type that agents may publish" if decides else "leave priority out"
        raise NotAllowed(
            f"{prefix}{field} {value} needs a token of role OWNER or ADMIN, this one is {principal.role.value}",
            hint=f"{own_way}, or ask an operator",
            field=f"{prefix}{field}",
        )
    return True


_NOT_NEEDED: Final = ("", None)
"""The default fields of an entry's actor."""
_REQUIRED: Final = ("entry_type", "summary")
"""Fields whose empty value is an error instead of absent."""
_ID_FIX: Final = "choose another id, or leave it out"
_WORKSPACE_FIX: Final = "use 1 to 64 of A-Z a-z 0-9 _ -, not starting with _, or leave it out"
_JSON_FIX: Final = "use JSON values: text, finite numbers below 2^64, true, false, null, lists, objects with text keys"


def accept(principal: Principal, submission: Mapping[str, Any], now: datetime, prefix: str = "") -> Accepted:
    """Convert one submission to an entry and its message.

    Args:
        principal: Who submits.
        submission: The raw fields; null or empty optional fields count as absent. An empty workspace is an error.
        now: The server's time, UTC, for an entry without ``ts``.
        prefix: Put before each field's name in errors (``entries[3].``).

    Raises:
        NotAllowed: If the submission names another workspace, crew, agent or actor, or its type or priority needs more
            authority.
        InvalidEntry: Names every invalid field.
        EntryTooLarge: If the stored entry would exceed 256 KiB.
    """
    if type(submission) is not dict and not isinstance(submission, Mapping):
        raise InvalidEntry((FieldProblem(f"{prefix}entry", "is not a JSON object", "submit an object"),))
    given = submission.items()
    record = {
        name: value for name, value in given if value or (value is not None and (value != "" or name in _REQUIRED))
    }
    if record.get("supersedes") == []:
        del record["supersedes"]
    if submission.get("workspace_id") == "":
        record["workspace_id"] = ""
    try:
        _bind(principal, record, prefix)
    except InvalidEntry as error:
        rest = _problems_beside_the_workspace(principal, record, now, prefix)
        raise InvalidEntry((*error.problems, *rest)) from None
    if is_service_id(record.get("id")):
        others = {name: value for name, value in record.items() if name != "id"}
        rest = _problems_beside_the_workspace(principal, others, now, prefix)
        reserved = FieldProblem(f"{prefix}id", "is of the form d_… that only the service derives", _ID_FIX)
        raise InvalidEntry((reserved, *rest))
    entry_type = record.get("entry_type")
    if entry_type == AGENT_RESPONSE and (answered := strip_record(record)) is not record:
        # nudges and recalled memory that a model repeats are stripped (seed 1; contract §10); the hash covers the
        # submitted text, so a retry has the same hash whatever was stripped
        return _accept_checked(principal, dict(answered), now, prefix, content_hash(record, prefix))
    by, name = record.get("actor_type"), record.get("actor_id")
    default = default_actor(principal, entry_type) if by is None else _NOT_NEEDED
    actor_type = default[0] if by is None else by
    if (by is None and name is None) or may_speak(principal, entry_type, actor_type, name):
        vouched = bool(principal.speaks_for) and vouches(
            principal, actor_type, default[1] if by is None and name is None else name
        )
        accepted = accept_plain(record, now, *default, publisher_of(principal), vouched=vouched)
        if accepted is not None:
            return accepted
    return _accept_checked(principal, record, now, prefix)


def _accept_checked(
    principal: Principal, record: dict[str, Any], now: datetime, prefix: str, content: str | None = None
) -> Accepted:
    given_id = "id" in record
    content = content or content_hash(record, prefix)
    if not given_id:
        record["id"] = "j_" + uuid7().hex  # as ids.mint_entry_id, at a sixth of its cost
    if "ts" not in record:
        record["ts"] = now
    if "actor_type" not in record:
        record["actor_type"], name = default_actor(principal, record.get("entry_type"))
        record.setdefault("actor_id", name)
    try:
        entry = JournalEntry.model_validate(record)
    except ValidationError as error:
        raise InvalidEntry(problems_of(error, prefix)) from None
    control = needs_control(principal, entry, prefix)
    check_actor(principal, entry, prefix)
    vouched = vouches(principal, entry.actor_type.value, entry.actor_id)
    return encode_entry(
        entry,
        content,
        control=control,
        given_id=given_id,
        publisher=publisher_of(principal),
        vouched=vouched,
        prefix=prefix,
    )


def _problems_beside_the_workspace(
    principal: Principal, record: Mapping[str, Any], now: datetime, prefix: str
) -> tuple[FieldProblem, ...]:
    """The other problems of a submission with an invalid workspace, so that one error names all problems."""
    try:
        _accept_checked(principal, {**record, "workspace_id": DEFAULT_WORKSPACE}, now, prefix)
    except InvalidEntry as error:
        return error.problems
    except (NotAllowed, EntryTooLarge):
        pass  # raised once the fields are valid
    return ()


def content_hash(record: Mapping[str, Any], prefix: str = "") -> str:
    """32 hex digits of the canonical JSON (sorted keys) of a submission before defaults.

    Raises:
        InvalidEntry: If a value cannot be written as JSON; names the field.
    """
    try:
        canonical = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        raise InvalidEntry(_json_problems(record, prefix)) from None
    if b"null" in canonical and (problems := _json_problems(record, prefix)):
        raise InvalidEntry(problems)
    return hashlib.blake2b(canonical, digest_size=HASH_BYTES).hexdigest()


def encode_entry(
    entry: JournalEntry,
    content: str,
    *,
    control: bool,
    given_id: bool,
    publisher: str | None,
    vouched: bool = False,
    prefix: str = "",
) -> Accepted:
    """Encode an entry as a message.

    Args:
        entry: The entry.
        content: Its content hash.
        control: Whether it is published on ``control.``, where only the service publishes.
        given_id: Whether the client chose its id.
        publisher: The publisher; None for the service.
        vouched: Whether the token speaks for the person who is its actor.
        prefix: Put before field names in errors.

    Raises:
        EntryTooLarge: If the body exceeds 256 KiB.
        InvalidEntry: If it is nested too deeply for readers.
    """
    body = orjson.dumps(entry.to_record())
    if len(body) > MAX_ENTRY_BYTES:
        raise EntryTooLarge(
            f"{prefix}entry {entry.id} has {len(body):,} bytes as stored, more than {MAX_ENTRY_BYTES:,}",
            hint="store large content elsewhere and put a reference into refs",
            field=f"{prefix}payload",
        )
    if body.count(b"{") + body.count(b"[") > DEEP_BRACKETS:
        _refuse_too_deep(body, prefix)
    workspace, entry_type = entry.workspace_id, entry.entry_type
    subject = (
        control_subject(workspace, entry_type)
        if control
        else journal_subject(workspace, entry.crew_id, entry.agent_id, entry_type)
    )
    identity = f"{workspace}/{entry.id}"
    head = entry_head(identity, entry.id, content, publisher, vouched=vouched)
    return Accepted(subject, head, body, workspace, entry.id, identity, content, given_id, publisher, vouched)


def _bind(principal: Principal, record: dict[str, Any], prefix: str) -> None:
    named = record.get("workspace_id")
    if named is None or named != principal.workspace_id:
        if named is not None and not isinstance(named, str):
            raise InvalidEntry((FieldProblem(f"{prefix}workspace_id", "must be text", _WORKSPACE_FIX),))
        try:
            record["workspace_id"] = principal.workspace(named)
        except InvalidQuery as error:
            raise InvalidEntry((FieldProblem(f"{prefix}workspace_id", error.message, error.hint),)) from None
        except NotAllowed as error:
            raise NotAllowed(error.message, hint=error.hint, field=f"{prefix}workspace_id") from None
    role = principal.role
    if role is _OWNER or role is _ADMIN:
        return
    for field, bound in (("agent_id", principal.agent_id), ("crew_id", principal.crew_id)):
        claimed = record.get(field)
        if claimed is None:
            if bound is not None:
                record[field] = bound
        elif claimed != bound:
            what = field.removesuffix("_id")
            says = f"is for {what} {bound}" if bound is not None else f"names no {what}"
            raise NotAllowed(
                f"the token {says}, the entry names another",
                hint=f"leave {field} out, or use a token of that {what}",
                field=f"{prefix}{field}",
            )


def _json_problems(record: Mapping[Any, Any], prefix: str) -> tuple[FieldProblem, ...]:
    """The fields that cannot be written as JSON; a parsed HTTP or NATS body has none."""
    problems = []
    for name, value in record.items():
        field = f"{prefix}{name if isinstance(name, str) and name.isascii() and name.isprintable() else 'entry'}"
        try:
            if b"null" in orjson.dumps({name: value}):  # orjson writes null for a number that is not finite
                json.dumps(value, allow_nan=False)
        except TypeError as error:
            problems.append(FieldProblem(field, f"cannot be written as JSON: {error}", _JSON_FIX))
        except ValueError:
            problems.append(FieldProblem(field, "holds a number that is not finite, which JSON cannot hold", _JSON_FIX))
    return tuple(problems)


def _refuse_too_deep(body: bytes, prefix: str) -> None:
    try:
        from_json(body, allow_inf_nan=False)
    except ValueError:
        fix = "flatten it; at most about 190 levels"
        raise InvalidEntry((FieldProblem(f"{prefix}payload", "is nested too deeply", fix),)) from None
