"""How people see the answers of operations; an answer without a printer here is printed field by field.

Invariant: text of agents is printed through ``safe``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...schemas.errors import Unavailable
from ...schemas.timestamps import format_ms
from . import documents, layered, palace
from .knowledge import print_change, print_facts
from .learning import print_consolidation, print_explanation, print_proposal_diff, print_proposals, print_rules
from .operators import print_operator, print_operators
from .output import counted, flat, listing, print_pairs, print_table, safe, say, say_warnings, who_of

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
    print_table(columns, rows, right=("seq",), empty="there are no dead letters: every event was folded")
    for letter in answer["dead_letters"]:
        if letter.get("body"):
            cut = letter["body"] if len(letter["body"]) <= _BODY_CHARS else f"{letter['body'][:_BODY_CHARS]}…"
            print(safe(f"{letter['seq']}  {letter['subject']}"))
            print(f"    {safe(cut)}")


def _graph(answer: Mapping[str, Any]) -> None:
    nodes = [
        (node["depth"], node["id"], node["entry_type"], who_of(node), node["ts"][:10], node["summary"])
        for node in answer["nodes"]
    ]
    print_table(("hops", "entry", "type", "who", "day", "summary"), nodes, right=("hops",))
    edges = [
        (edge["src"], edge["relation"], edge["dst"], f"{edge['weight']:.2f}", edge["state"], edge["reason"] or "-")
        for edge in answer["edges"]
    ]
    columns = ("from", "relation", "to", "weight", "state", "reason")
    print_table(columns, edges, right=("weight",), empty="the entry has no relations: `crew-journal relate` adds one")
    if answer["truncated"]:
        say("there are more entries: raise --limit")


def print_registered(answer: Mapping[str, Any]) -> None:
    """What is registered of an agent or a crew."""
    print_fields({**answer, "settings": json.dumps(answer["settings"], ensure_ascii=False)})


_agents = listing(
    "agents",
    ("agent_id", "name", "role", "crew_id", "memory"),
    lambda agent: (
        *(agent[name] or "-" for name in ("agent_id", "name", "role", "crew_id")),
        "on" if agent["memory_enabled"] else "off",
    ),
    empty="there are no registered agents: `crew-journal agent create AGENT` registers one",
)
_crews = listing(
    "crews",
    ("crew_id", "name", "agents"),
    lambda agent: (agent["crew_id"], agent["name"] or "-", ", ".join(agent["agents"]) or "-"),
    empty="there are no registered crews: `crew-journal crew create CREW` registers one",
)
_workspaces = listing(
    "workspaces",
    ("workspace", "entries", "agents", "crews", "last entry"),
    lambda row: list(row.values())[:5],
    right=("entries", "agents", "crews"),
    empty="there are no workspaces: a first entry or token makes one",
)


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
    columns = ("model", "state", "active", "vectors", "missing", "refused", "dim", "last call")
    rows = [_model_row(model) for model in answer["models"]]
    empty = "there are no models: start `up` with an embedder, or `crew-journal embeddings add MODEL`"
    print_table(columns, rows, right=columns[3:7], empty=empty)


def _model_row(model: Mapping[str, Any]) -> tuple[object, ...]:
    active = "yes" if model["active"] else ""
    if (where := model.get("active_in")) is not None:
        active = ", ".join("default" if name == "_system" else name for name in where)
    outcome = model["outcome"] or {}
    last_call = outcome.get("message") or ("ok" if outcome.get("last_success") else "-")
    counts = (model["vectors"], model["missing"], model["refused"], model["dim"])
    return (model["model"], model["state"], active, *counts, last_call)


def _activated(answer: Mapping[str, Any]) -> None:
    say(f"recall uses {safe(answer['model'])} now" if answer["changed"] else "the model was active already")
    if answer["missing"]:
        say(
            f"warning: {counted(answer['missing'], 'entry', 'entries')} of {answer['embeddable']:,} without a vector of it"
        )


_turns = listing(
    "turns",
    ("score", "when", "session", "speaker", "text"),
    lambda agent: (
        f"{agent['score']:.2f}",
        f"{agent['ts'][:16]}Z",
        agent["session"] or "-",
        agent["speaker"],
        agent["text"],
    ),
    right=("score",),
    empty="no turn of a conversation was found",
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
    used = [at for at in range(len(columns)) if at < _ALWAYS or any(row[at] not in (None, "-", "") for row in rows)]
    empty = "there are no tokens but the owner's, in the file admin.token of the data directory"
    print_table([columns[at] for at in used], [[row[at] for at in used] for row in rows], empty=empty)


def minute(unix_ms: int | None) -> str:
    """A time to the minute, UTC; a hyphen for None."""
    return format_ms(unix_ms)[:16] + "Z" if unix_ms else "-"


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
    print_table(columns, [[_rounded(floor[name]) for name in columns] for floor in answer["floors"]], right=columns)
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


PRINTERS: Final[Mapping[str, Printer]] = {
    "calibrate": _calibration,
    "conversation_search": _turns,
    "context_assemble": layered.print_context,
    "fact_conflicts": layered.print_conflicts,
    "fact_request_verification": layered.print_verified,
    "fact_verify": layered.print_verified,
    "layered_query": layered.print_found,
    "layered_read": layered.print_read,
    "layered_write": layered.print_written,
    "palace_search": palace.print_drawer_hits,
    "check_duplicate": palace.print_drawer_hits,
    "drawers": palace.print_drawers,
    "diary_read": palace.print_diary,
    "palace_status": palace.print_drawer_counts,
    "palace_wings": palace.print_wings,
    "palace_taxonomy": palace.print_taxonomy,
    "palace_graph": palace.print_graph,
    "find_tunnels": palace.print_tunnels,
    "traverse": palace.print_reached,
    "create_tunnel": palace.print_tunnel,
    "list_tunnels": palace.print_explicit_tunnels,
    "follow_tunnels": palace.print_connections,
    "palace_rooms": palace.print_drawer_counts,
    "wake_up": palace.print_layer,
    "palace_recall": palace.print_layer,
    "palace_render": palace.print_layer,
    "remember": _remembered,
    "set_priority": _priority,
    "receipt": _receipt,
    "used": _used,
    "document_read": documents.print_document,
    "memory_stats": documents.print_stats,
    "append_daily": documents.print_written,
    "documents": documents.print_documents,
    "document_versions": documents.print_versions,
    "document_diff": documents.print_diff,
    "document_restore": documents.print_written,
    "document_retract": documents.print_written,
    "memory_file": documents.print_file,
    "retract": _retraction,
    "restore": _retraction,
    "dead_letters": _dead_letters,
    "relate": _relation,
    "unrelate": _relation,
    "graph": _graph,
    "agent": print_registered,
    "update_agent": print_registered,
    "agents": _agents,
    "crew": print_registered,
    "update_crew": print_registered,
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
    "consolidate": print_consolidation,
    "learned_rules": print_rules,
    "proposals": print_proposals,
    "explain_proposal": print_explanation,
    "diff_proposal": print_proposal_diff,
    "show_operator": print_operator,
    "operators": print_operators,
    "kg_timeline": print_facts,
}
"""By the name of the operation."""
