"""Exchanges of the Open Memory Protocol (draft 0.1 by Cognee): objects and what became of them, read and written.

An exchange is one JSON object: a manifest, objects (each a revision with text, scope, policy and derivation), and events
that supersede, retract or delete revisions. Invariant: what its source no longer holds, forbids or cannot share here is left
out and counted; the id of an entry follows from the source and the revision alone. So another text under the same revision
is refused as a taken id, and a revision that was deleted at its source stays deleted when an older file comes later: the
deletion is an entry under that id.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from .....schemas.catalogue import info_of
from .....schemas.core.errors import InvalidFile
from .....schemas.core.payload import PublisherKind
from .....schemas.core.timestamps import format_ts
from .....schemas.text.secrets import find_secrets
from ....client.project import slug
from ...foreign_files import NAME, Shape
from ..key import import_id
from .found import Notes, Record, objects, statement, timed, values

OMP: Final = "omp"
FORMAT_VERSION: Final = "cognee-draft-0.1"
ENDED: Final = "import.ended"
"""Type of the entry that stands for a revision which its source has ended."""
OURS: Final = "crew-journal"
"""Name of the extension that keeps the fields of an entry that an object has no place for."""
_SUPERSEDE: Final = "supersede"
_NAMES: Final = ("revision_id", "role", "text", "recorded_at", "applies_from", "applies_until", "expires_at")
_OBJECT: Final[Mapping[str, Any]] = {
    **dict.fromkeys(_NAMES, NAME),
    "ref": dict.fromkeys(("authority", "namespace", "local_id"), NAME),
    "scope": dict.fromkeys(("subject", "owner", "author", "agent"), NAME),
    "policy": {},
    "derivation": {"used": [NAME]},
    "extensions": {OURS: {}},
}
_EVENT: Final[Mapping[str, Any]] = dict.fromkeys(("kind", "target", "replacement", "actor", "effective_at"), NAME)
_EXCHANGE: Final[Mapping[str, Any]] = {
    "manifest": {"source_system": NAME, "required_extensions": [NAME]},
    "objects": [_OBJECT],
    "events": [_EVENT],
}
_FILE: Final[Shape] = {**_EXCHANGE, "exchange": _EXCHANGE}


def read_omp(path: Path, notes: Notes) -> Iterator[Record]:
    """Each object that its source still holds and shares, and each end of a revision that is not in the file.

    Raises:
        InvalidFile: If it is no exchange, or requires an extension.
    """
    for value in values(path, notes, _FILE):
        exchange = (value.get("exchange") or value) if isinstance(value, dict) else {}
        if not isinstance(exchange.get("manifest"), dict):
            hint = "name a file of the Open Memory Protocol; docs/importing.md"
            raise InvalidFile(f"{notes.place.at} is not an exchange: the manifest is missing", hint=hint)
        yield from _read(exchange, notes)


def _read(exchange: Mapping[str, Any], notes: Notes) -> Iterator[Record]:
    manifest = exchange["manifest"]
    if needed := [str(name) for name in manifest.get("required_extensions") or ()]:
        raise InvalidFile(
            f"{notes.place.at} requires the extension {', '.join(needed)}, which is not known here",
            hint="export it without required extensions",
        )
    source = str(manifest.get("source_system") or "unknown")
    ended: dict[str, dict[str, Any]] = {}
    replaced: dict[str, list[str]] = {}
    for event in objects(exchange.get("events")):
        target = str(event.get("target") or "")
        if event.get("kind") != _SUPERSEDE:
            ended[target] = event
        elif event.get("replacement"):
            replaced.setdefault(str(event["replacement"]), []).append(target)
    held = objects(exchange.get("objects"))
    revisions = {str(one.get("revision_id") or "") for one in held}
    texts: dict[str, object] = {}
    for one in held:
        revision = str(one.get("revision_id") or "")
        if revision in texts:
            if texts[revision] != one.get("text"):
                notes.skip("of a revision that the file has with another text before")
            continue
        texts[revision] = one.get("text")
        reason = f"ended at their source ({ended[revision].get('kind')})" if revision in ended else _unfit(one)
        if reason is not None:
            notes.skip(reason)
            continue
        replaces = [target for target in replaced.get(revision, ()) if target in revisions]
        yield _entry(one, source, notes, replaces, revisions)
    for target, event in ended.items():
        if target not in revisions:
            text = f"{event.get('kind')} at its source: revision {target}"
            record = statement(OMP, text, notes, at=event.get("effective_at"), kind=event.get("kind"))
            yield record | {"id": _id(source, target), "entry_type": ENDED}


def _unfit(one: Mapping[str, Any]) -> str | None:
    """Why an object is left out; None if it is not."""
    text, policy = str(one.get("text") or ""), one.get("policy") or {}
    if not text.strip():
        return "without text"
    if policy.get("required") and policy.get("rules"):
        return "with a required policy, which names principals of their source"
    if find_secrets(text):
        return "with a credential"
    expires = one.get("expires_at")
    if isinstance(expires, str) and _seconds(expires) <= time.time():
        return "expired"
    return None


def _seconds(text: str) -> float:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return float("inf")
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _id(source: str, revision: str) -> str:
    return import_id(f"{OMP} {source} {revision}")


def _entry(one: Mapping[str, Any], source: str, notes: Notes, replaces: list[str], revisions: set[str]) -> Record:
    revision, scope, role = str(one.get("revision_id") or ""), one.get("scope") or {}, one.get("role")
    derivation = one.get("derivation") or None
    ours = (one.get("extensions") or {}).get(OURS) or {}
    record = statement(
        OMP,
        str(one["text"]).strip(),
        notes,
        named=revision,
        at=one.get("recorded_at"),
        role=role,
        derivation=derivation,
        context=scope.get("context") or None,
        applies_until=one.get("applies_until"),
    )
    record["id"] = _id(source, revision)
    used = [str(name) for name in (derivation or {}).get("used") or () if str(name) in revisions]
    if used:
        record["refs"] |= {"derived_from": [_id(source, name) for name in used]}
    if replaces:
        record["supersedes"] = [_id(source, name) for name in replaces]
    if scope.get("agent"):
        record["agent_id"] = slug(str(scope["agent"]))
    if scope.get("subject"):
        record["data_subject_id"] = " ".join(str(scope["subject"]).split())[:128]
    if role == "human_assertion":
        author = scope.get("author") or scope.get("owner") or scope.get("subject")
        record |= {"actor_type": "user", "actor_id": str(author or "user")[:128]}
    if isinstance(ours.get("crew_id"), str):
        record["crew_id"] = ours["crew_id"]
    valid = timed({}, one["applies_from"], notes).get("ts") if one.get("applies_from") else None
    return record | ({"valid_at": valid} if valid else {})


def write_omp(file: IO[str], entries: Iterable[Mapping[str, Any]], workspace: str) -> int:
    """Write entries of a listing as one exchange; returns how many.

    Archived entries and those that only the service writes are left out. An entry that was superseded or retracted is in it,
    with the event that ended it.
    """
    ended: dict[str, dict[str, Any]] = {}
    roles: set[str] = set()
    count = 0
    file.write('{"objects": [\n')
    for entry in entries:
        if entry.get("archived") or not _is_memory(entry):
            continue
        one = _object(entry, workspace)
        for event in _events(entry):
            ended.setdefault(event["event_id"], event)
        roles.add(one["role"])
        file.write((",\n" if count else "") + json.dumps(one, ensure_ascii=False))
        count += 1
    manifest = {
        "format_version": FORMAT_VERSION,
        "source_system": f"{OURS}/{workspace}",
        "exported_at": format_ts(datetime.now(UTC)),
        "exchange_id": uuid.uuid4().hex,
        "profiles": [],
        "object_kinds": sorted(roles),
        "scope_coverage": [f"workspace:{workspace}"],
        "complete_snapshot": False,
        "required_extensions": [],
        "transfer_intent": "copy",
        "notes": ["decisions of the service, documents and vectors are not in this exchange"],
    }
    file.write(
        f'\n],\n"events": {json.dumps([*ended.values()], ensure_ascii=False)},\n"manifest": {json.dumps(manifest)}}}\n'
    )
    return count


def _is_memory(entry: Mapping[str, Any]) -> bool:
    info = info_of(str(entry["entry_type"]))
    return info.publisher is PublisherKind.AGENTS and not info.noise


def _object(entry: Mapping[str, Any], workspace: str) -> dict[str, Any]:
    payload, refs = entry.get("payload") or {}, entry.get("refs") or {}
    text = payload.get("text") if isinstance(payload.get("text"), str) else entry["summary"]
    is_turn = info_of(str(entry["entry_type"])).conversation
    role = "transcript" if is_turn else "human_assertion" if entry.get("actor_type") == "user" else "machine_derived"
    used = [name for name in refs.get("derived_from") or () if isinstance(name, str)]
    derivation = {"activity": str(entry["entry_type"]), "used": used, "agent": entry.get("agent_id"), "at": entry["ts"]}
    context = {name: entry[f"{name}_id"] for name in ("crew", "agent") if entry.get(f"{name}_id")}
    if entry.get("trace_id"):
        context["run"] = entry["trace_id"]
    return {
        "ref": {"authority": OURS, "namespace": workspace, "local_id": entry["id"]},
        "revision_id": entry["id"],
        "predecessor": next(iter(entry.get("supersedes") or ()), None),
        "role": role,
        "text": text,
        "media": None,
        "scope": {
            "subject": entry.get("data_subject_id"),
            "owner": None,
            "author": entry.get("actor_id") if entry.get("actor_type") == "user" else None,
            "agent": entry.get("agent_id"),
            "origin_system": f"{OURS}/{workspace}",
            "context": context,
        },
        "policy": {"rules": [], "required": False},
        "derivation": derivation | {"unknown": not used} if role == "machine_derived" else None,
        "recorded_at": entry["ts"],
        "applies_from": entry.get("valid_at"),
        "applies_until": None,
        "expires_at": None,
        "extensions": {OURS: {"entry_type": entry["entry_type"], "crew_id": entry.get("crew_id")}},
    }


def _events(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What the entry supersedes, and what superseded or retracted it."""
    for target in entry.get("supersedes") or ():
        yield _event(_SUPERSEDE, target, entry.get("actor_id"), entry["ts"], None, entry["id"])
    standing = entry.get("standing") or {}
    if standing.get("state") == "superseded" and standing.get("by"):
        yield _event(_SUPERSEDE, entry["id"], None, standing.get("at"), standing.get("reason"), standing["by"])
    if standing.get("state") in ("retracted", "stale"):
        yield _event("retract", entry["id"], standing.get("by"), standing.get("at"), standing.get("reason"), None)


def _event(kind: str, target: str, actor: Any, at: Any, reason: Any, replacement: str | None) -> dict[str, Any]:
    return {
        "event_id": f"{kind}-{replacement or target}-{target}",
        "kind": kind,
        "target": target,
        "actor": actor or "unknown",
        "effective_at": at,
        "reason": reason,
        "replacement": replacement,
        "coverage": [],
    }
