"""How people see the answers of operations; an answer without a printer here is printed field by field.

Invariant: text of agents is printed through ``safe``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...schemas.errors import Unavailable
from ...schemas.timestamps import format_ms
from . import layered
from .knowledge import print_change, print_facts
from .learning import print_explanation, print_proposal_diff, print_proposals, print_rules
from .operators import print_operator, print_operators
from .output import counted, flat, print_pairs, print_table, print_text, safe, say, say_warnings, who_of

_BODY_CHARS: Final = 300
"""Characters of a dead letter's body on a screen; --json has 2,000."""
Printer = Callable[[Mapping[str, Any]], None]


def print_fields(answer: Mapping[str, Any]) -> None:
    """Each field on a line, those of nested objects with dotted names."""
    print_pairs((name, (", ".join(map(str, it)) or None) if isinstance(it, list) else it) for name, it in flat(answer))


def _remembered(answer: Mapping[str, Any]) -> None:
    print(safe("{entry_id}  seq {seq}".format_map(answer)))
    say_warnings(answer)


def _priority(answer: Mapping[str, Any]) -> None:
    before, now = answer["previous_priority"], answer["priority"]
    print(f"{safe(answer['entry_id'])}: {f'{before} -> {now}' if answer['changed'] else f'was {now} already'}")


def _retraction(answer: Mapping[str, Any]) -> None:
    state = "is retracted" if answer["retracted"] else "counts"
    print(f"{safe(answer['entry_id'])} {state}{'' if answer['changed'] else ' already'}")


def _dead_letters(answer: Mapping[str, Any]) -> None:
    columns = ("seq", "projection", "state", "workspace_id", "reason")
    rows = [[letter[name] for name in columns] for letter in answer["dead_letters"]]
    if rows:
        print_table(columns, rows, right=("seq",))
        for letter in answer["dead_letters"]:
            if letter.get("body"):
                cut = letter["body"] if len(letter["body"]) <= _BODY_CHARS else f"{letter['body'][:_BODY_CHARS]}…"
                print(safe(f"{letter['seq']}  {letter['subject']}"))
                print(f"    {safe(cut)}")
    else:
        say("there are no dead letters")


def _graph(answer: Mapping[str, Any]) -> None:
    nodes = [
        (one["depth"], one["id"], one["entry_type"], who_of(one), one["ts"][:10], one["summary"])
        for one in answer["nodes"]
    ]
    print_table(("hops", "entry", "type", "who", "day", "summary"), nodes, right=("hops",))
    if answer["edges"]:
        edges = [
            (one["src"], one["relation"], one["dst"], f"{one['weight']:.2f}", one["state"], one["reason"] or "-")
            for one in answer["edges"]
        ]
        print_table(("from", "relation", "to", "weight", "state", "reason"), edges, right=("weight",))
    else:
        say("the entry has no relations")
    if answer["truncated"]:
        say("there are more entries: raise --limit")


def print_registered(answer: Mapping[str, Any]) -> None:
    """What is registered of an agent or a crew."""
    print_fields({**answer, "settings": json.dumps(answer["settings"], ensure_ascii=False)})


def _agents(answer: Mapping[str, Any]) -> None:
    columns = ("agent_id", "name", "role", "crew_id", "memory")
    rows = [
        (*(one[name] for name in columns[:4]), "on" if one["memory_enabled"] else "off") for one in answer["agents"]
    ]
    print_table(columns, [[value or "-" for value in row] for row in rows])


def _crews(answer: Mapping[str, Any]) -> None:
    rows = [(one["crew_id"], one["name"] or "-", ", ".join(one["agents"]) or "-") for one in answer["crews"]]
    print_table(("crew_id", "name", "agents"), rows)


def _relation(answer: Mapping[str, Any]) -> None:
    print(safe("{src_entry_id} {relation} {dst_entry_id}: {state}".format_map(answer)))


def _sweep_embeddings(answer: Mapping[str, Any]) -> None:
    print(", ".join(f"{safe(name)} {count}" for name, count in answer["counts"].items()))
    if answer["error"]:
        raise Unavailable(f"the sweep failed: {answer['error']}", hint="`crew-journal embedder status` says more")


def _reindex(answer: Mapping[str, Any]) -> None:
    again = counted(answer["refused"], "refused text")
    without = counted(answer["missing"], "entry", "entries")
    print(
        f"reindex by policy {answer['policy']} recorded at {answer['seq']}: {again} to be tried again, {without} without a "
        "vector (crew-journal status shows how far it is)"
    )


def _models(answer: Mapping[str, Any]) -> None:
    if not answer["models"]:
        say("there are no models: start `up` with an embedder, or `embeddings add MODEL`")
        return
    columns = ("model", "state", "active", "vectors", "missing", "refused", "dim", "last call")
    print_table(columns, [_model_row(model) for model in answer["models"]], right=columns[3:7])


def _model_row(model: Mapping[str, Any]) -> tuple[object, ...]:
    active = "yes" if model["active"] else ""
    if (where := model.get("active_in")) is not None:
        active = ", ".join("default" if name == "_system" else name for name in where)
    outcome = model["outcome"] or {}
    last_call = outcome.get("message") or ("ok" if outcome.get("last_success") else "-")
    counts = (model["vectors"], model["missing"], model["refused"], model["dim"])
    return (model["model"], model["state"], active, *counts, last_call)


def _activated(answer: Mapping[str, Any]) -> None:
    say(f"recall uses {safe(answer['model'])} from here on" if answer["changed"] else "it was active already")
    if answer["missing"]:
        say(
            f"warning: {counted(answer['missing'], 'entry', 'entries')} of {answer['embeddable']:,} without a vector of it"
        )


_ALWAYS: Final = 3
"""Columns of tokens that are always printed; the others if a token has something there."""


def _tokens(answer: Mapping[str, Any]) -> None:
    columns = (
        "token",
        "role",
        "workspace",
        "crew",
        "agent",
        "nats",
        "created",
        "expires",
        "revoked",
        "grants",
        "label",
    )
    rows = []
    for token in answer["tokens"]:
        created, expires, revoked = (minute(token[name]) for name in ("created_ms", "expires_ms", "revoked_ms"))
        bound = (token["workspace_id"] or "all", token["crew_id"], token["agent_id"], "yes" if token["nats"] else "-")
        grants = " ".join((*token["may_publish"], *(f"as {actor}" for actor in token["speaks_for"]))) or "-"
        times = (created[:10], expires, revoked[:10])
        rows.append((token["token_id"], token["role"], *bound, *times, grants, token["label"]))
    if not rows:
        say("there are no tokens but the owner's, in the file admin.token of the data directory")
        return
    used = [at for at in range(len(columns)) if at < _ALWAYS or any(row[at] not in (None, "-", "") for row in rows)]
    print_table([columns[at] for at in used], [[row[at] for at in used] for row in rows])


def minute(unix_ms: int | None) -> str:
    """A time to the minute, UTC; a hyphen for None."""
    return format_ms(unix_ms)[:16] + "Z" if unix_ms else "-"


def _workspaces(answer: Mapping[str, Any]) -> None:
    columns = ("workspace", "entries", "agents", "crews", "last entry")
    rows = [list(workspace.values()) for workspace in answer["workspaces"]]
    print_table(columns, [[*row[:4], row[4] or "-"] for row in rows], right=columns[1:4])


def _nudges(answer: Mapping[str, Any]) -> None:
    for nudge in answer["nudges"]:
        print(safe(nudge["text"]))
    if not answer["nudges"]:
        say("no nudge is due, or it was already offered to this session")


def _receipt(answer: Mapping[str, Any]) -> None:
    print_pairs((name, value) for name, value in answer.items() if name != "hits")
    columns = ("entry_id", "score", "confidence", "used")
    if answer["hits"]:
        print_table(columns, [[hit[name] for name in columns] for hit in answer["hits"]])


def _used(answer: Mapping[str, Any]) -> None:
    already = "; the use of this receipt was recorded before" if answer["already"] else ""
    print(f"{counted(answer['counted'], 'entry', 'entries')} recorded as used{already}")


def _calibration(answer: Mapping[str, Any]) -> None:
    columns = ("floor", "hits", "used_kept", "used_share", "silent")
    print_table(columns, [[_rounded(one[name]) for name in columns] for one in answer["floors"]], right=columns)
    say(
        f"{counted(answer['receipts'], 'receipt')}, {counted(answer['used'], 'hit')} reported as used, "
        f"{counted(answer['rendered'], 'hit')} only rendered"
    )
    if answer["floor"] is None:
        say("no proposal: fewer than 20 hits are known to have been used (report them: `crew-journal used RECEIPT`)")
    else:
        say(f"proposed: `crew-journal workspace settings --evidence-floor {answer['floor']}`")


def _rounded(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _document(answer: Mapping[str, Any]) -> None:
    print_text(answer["content"])
    held = answer["usage"] or f"{answer['bytes']} bytes"
    unwritten = "rendered from entries" if answer["content"] else "never written"
    state = "retracted" if answer["retracted"] else f"version {answer['seq']}" if answer["seq"] else unwritten
    say(safe(f"{answer['id']} of {answer['owner']}: {state}, {held}"))
    if (found := answer["quarantined"]) is not None:
        say(safe(f"warning: blocked for agents, {found['category']}/{found['pattern']}"))


def print_written(answer: Mapping[str, Any]) -> None:
    """What was written of a document."""
    again = ", written before" if answer["duplicate"] else ""
    print(safe(f"{answer['id']}  version {answer['seq']}  {answer['bytes']} of {answer['cap_bytes']} bytes{again}"))
    if answer["warning"]:
        say(f"warning: {safe(answer['warning'])}")


def print_memory_block(answer: Mapping[str, Any]) -> None:
    """The text of a memory block."""
    if not answer["memory_enabled"]:
        say("the agent's memory is off: turn it on with `crew-journal agent update AGENT --memory`")
        return
    print_text(answer["text"])
    usage = answer["usage"]
    say(f"{usage['total']} of {usage['budget']} characters")


def _file(answer: Mapping[str, Any]) -> None:
    print_text(answer["text"])
    if answer["warning"] is not None:
        say(safe(f"warning: {answer['warning']}"))


def _documents(answer: Mapping[str, Any]) -> None:
    columns = ("owner", "document", "bytes", "of", "writes", "version", "written", "state")
    rows = []
    for one in answer["documents"]:
        state = "blocked" if one["quarantined"] else "retracted" if one["retracted"] else ""
        numbers = (one["bytes"], one["cap_bytes"], one["writes"], one["seq"])
        rows.append((one["owner"], one["id"], *numbers, one["updated_at"][:16] + "Z", state))
    if rows:
        print_table(columns, rows, right=columns[2:6])
    say(f"{counted(len(rows), 'document')}, {counted(answer['bytes'], 'byte')}")


def _stats(answer: Mapping[str, Any]) -> None:
    columns = ("owner", "tier", "documents", "retracted", "blocked", "bytes", "versions", "swept", "version_bytes")
    if answer["tiers"]:
        print_table(columns, [[one[name] for name in columns] for one in answer["tiers"]], right=columns[2:])
    say(
        f"{counted(answer['documents'], 'document')}, {answer['bytes']} bytes; {counted(answer['versions'], 'version')}"
    )


def _versions(answer: Mapping[str, Any]) -> None:
    columns = ("version", "written", "action", "bytes", "by", "source", "text", "reason")
    rows = [
        (
            one["seq"],
            one["at"][:19] + "Z",
            one["action"],
            one["bytes"],
            one["actor_id"] or one["actor_type"],
            one["source"],
            "swept" if one["gone"] else "kept",
            one["reason"],
        )
        for one in answer["versions"]
    ]
    if rows:
        print_table(columns, rows, right=("version", "bytes"))
    else:
        say(f"{safe(answer['id'])} was never written")


def _diff(answer: Mapping[str, Any]) -> None:
    print_text(answer["diff"])
    if not answer["diff"]:
        say("nothing changed")


def _drawer_hits(answer: Mapping[str, Any]) -> None:
    hits = answer.get("results", answer.get("duplicates", ()))
    if hits:
        rows = [(f"{hit['similarity']:.2f}", hit["id"], hit["memory_type"], hit["content"]) for hit in hits]
        print_table(("similarity", "drawer", "type", "text"), rows, right=("similarity",))
    else:
        say("no drawer was found")


def _drawers(answer: Mapping[str, Any]) -> None:
    rows = [(one["id"], one["wing"], one["room"], one["memory_type"], one["content"]) for one in answer["drawers"]]
    print_table(("drawer", "wing", "room", "type", "text"), rows)


def _diary(answer: Mapping[str, Any]) -> None:
    print_table(("filed", "text"), [(one["filed_at"][:19] + "Z", one["content"]) for one in answer["entries"]])


def _drawer_counts(answer: Mapping[str, Any]) -> None:
    rows = [(one["count"], one["wing"], one["room"]) for one in answer["rooms"]]
    print_table(("drawers", "wing", "room"), rows, right=("drawers",))


def _layer(answer: Mapping[str, Any]) -> None:
    print_text(answer["text"])


PRINTERS: Final[Mapping[str, Printer]] = {
    "calibrate": _calibration,
    "context_assemble": layered.print_context,
    "fact_conflicts": layered.print_conflicts,
    "fact_request_verification": layered.print_verified,
    "fact_verify": layered.print_verified,
    "layered_query": layered.print_found,
    "layered_read": layered.print_read,
    "layered_write": layered.print_written,
    "palace_search": _drawer_hits,
    "check_duplicate": _drawer_hits,
    "drawers": _drawers,
    "diary_read": _diary,
    "palace_status": _drawer_counts,
    "palace_rooms": _drawer_counts,
    "wake_up": _layer,
    "palace_recall": _layer,
    "palace_render": _layer,
    "remember": _remembered,
    "set_priority": _priority,
    "receipt": _receipt,
    "used": _used,
    "document_read": _document,
    "memory_stats": _stats,
    "append_daily": print_written,
    "documents": _documents,
    "document_versions": _versions,
    "document_diff": _diff,
    "document_restore": print_written,
    "document_retract": print_written,
    "memory_file": _file,
    "retract": _retraction,
    "restore": _retraction,
    "dead_letters": _dead_letters,
    "relate": _relation,
    "unrelate": _relation,
    "graph": _graph,
    "agent": print_registered,
    "agents": _agents,
    "crew": print_registered,
    "crews": _crews,
    "sweep": lambda it: print(safe("{sweep} of {workspace_id}, due {due}, at sequence {seq}".format_map(it))),
    "sweep_embeddings": _sweep_embeddings,
    "reindex": _reindex,
    "embedding_models": _models,
    "activate_model": _activated,
    "drop_model": lambda it: say(f"{safe(it['model'])} {'is dropped' if it['changed'] else 'was dropped before'}"),
    "tokens": _tokens,
    "revoke_token": lambda it: say(f"token {safe(it['token_id'])} is revoked"),
    "nudges": _nudges,
    "workspaces": _workspaces,
    "kg_add": print_change,
    "kg_invalidate": print_change,
    "kg_query": print_facts,
    "learned_rules": print_rules,
    "proposals": print_proposals,
    "explain_proposal": print_explanation,
    "diff_proposal": print_proposal_diff,
    "show_operator": print_operator,
    "operators": print_operators,
    "kg_timeline": print_facts,
}
"""By the name of the operation."""
