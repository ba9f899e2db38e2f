"""Prints the answers of operations for people, and groups their commands; other answers are printed field by field.

Invariant: text of agents is printed through ``safe``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import unified_diff
from typing import Annotated, Any, Final

from ...schemas.core.errors import Unavailable
from ...schemas.core.operation import Operation
from ...schemas.core.timestamps import format_ms
from ...schemas.health.operations import HEALTH
from ..printable import safe
from .commands import Command, CommandGroup, Option
from .connection import client
from .options import Fields, Json, Where, is_argument
from .output import (
    counted,
    flat,
    listing,
    print_folded,
    print_pairs,
    print_table,
    print_text,
    say,
    say_warnings,
    show,
    who_of,
)
from .palace_import import palace_import

# How people see facts, procedures and episodes of layered memory, and assembled contexts.


_Answer = Mapping[str, Any]


def print_found(answer: _Answer) -> None:
    """Facts, episodes or procedures."""
    if answer["facts"]:
        _facts(answer["facts"])
    elif answer["episodes"]:
        _episodes(answer["episodes"])
    elif answer["procedures"]:
        for procedure in answer["procedures"]:
            _procedure(procedure)
    else:
        say(f"no {answer['kind']} was found")
    if answer["truncated"]:
        say("there are more: raise --limit")


def print_read(answer: _Answer) -> None:
    """A fact, a procedure, or the working memory of a run."""
    if answer["fact"] is not None:
        _fact(answer["fact"])
    elif answer["procedure"] is not None:
        _procedure(answer["procedure"])
    elif answer["working"]:
        _episodes(answer["working"])
    else:
        say("the run has ended" if answer["run_ended"] else "the run has recorded nothing")


def print_written(answer: _Answer) -> None:
    """Print the written fact, and facts that contradict it."""
    known = "" if answer["added"] else ", known and verified again"
    print(safe(f"{answer['id']}  seq {answer['seq']}{known}"))
    _warn_of(answer["conflicts"])


def print_conflicts(answer: _Answer) -> None:
    """Facts that contradict each other, and facts to be verified."""
    for conflict in answer["conflicts"]:
        for fact_id, text in zip(conflict["fact_ids"], conflict["texts"], strict=True):
            print(safe(f"{fact_id}  {text}"))
        print()
    if answer["wanted"]:
        say("to be verified:")
        _facts(answer["wanted"])
    say(f"{counted(len(answer['conflicts']), 'conflict')}, {counted(len(answer['wanted']), 'fact')} to be verified")


def print_verified(answer: _Answer) -> None:
    """A fact after its verification, or after a request for one."""
    _fact(answer["fact"])


def print_context(answer: _Answer) -> None:
    """The text of an assembled context; then its tokens, what was left out, and doubts."""
    print_text("\n".join(part for part in (answer["system"], answer["memory"], answer["prompt"]) if part))
    for drop in answer["drops"]:
        say(
            safe(
                f"{drop['action']}: {drop['part']} {drop['name']}, {counted(drop['tokens'], 'token')}: {drop['reason']}"
            )
        )
    _warn_of(answer["conflicts"])
    if answer["stale"]:
        say(safe(f"warning: not fresh: {', '.join(answer['stale'])}"))
    tokens = answer["tokens"]
    say(f"{tokens['total']} of {tokens['budget']} tokens ({safe(answer['tokenizer'])})")
    if answer["tools"] or answer["conversation"]:
        say(f"{len(answer['tools'])} tools and {len(answer['conversation'])} messages are shown by --json")


def _warn_of(conflicts: Iterable[_Answer]) -> None:
    for answer in conflicts:
        say(safe(f"warning: these contradict each other: {' / '.join(answer['texts'])}"))


def _facts(facts: Iterable[_Answer]) -> None:
    rows = [
        (
            "-" if answer["salience"] is None else f"{answer['salience']:.2f}",
            answer["id"],
            answer["state"],
            answer["namespace"],
            answer["text"],
        )
        for answer in facts
    ]
    print_table(("salience", "fact", "state", "namespace", "text"), rows, right=("salience",))


def _fact(answer: _Answer) -> None:
    print_pairs((name, value) for name, value in answer.items() if name not in ("salience", "parts"))


def _episodes(episodes: Iterable[_Answer]) -> None:
    rows = [
        (answer["ts"][:19] + "Z", answer["entry_id"], answer["entry_type"], answer["summary"]) for answer in episodes
    ]
    print_table(("time", "entry", "type", "summary"), rows)


def _procedure(answer: _Answer) -> None:
    print_text(answer["content"])
    say(safe(f"{answer['name']} of {answer['owner']}: version {answer['seq']}"))


# Groups of the commands about what crews learn, and how people see answers; the commands are made from the operations.


consolidate = CommandGroup(help="Rules that are learned from recurring entries.")
proposals = CommandGroup(help="Proposed rules that wait for a person.")
lessons = CommandGroup(help="Lessons of crews and agents.")


def _text_of(rule: Mapping[str, Any]) -> str:
    text = f"{rule['pattern']} → {rule['action']}" if rule["action"] else str(rule["pattern"])
    return f"[from {', '.join(rule['authors'])}] {text}" if rule["authors"] else text


print_rules = listing(
    "rules",
    ("rule", "crew", "proven", "evidence", "days", "confidence", "text"),
    lambda rule: (
        rule["rule_id"],
        rule["crew_id"],
        "yes" if rule["promoted"] else "no",
        len(rule["evidence"]),
        rule["days"],
        f"{rule['confidence']:.2f}",
        _text_of(rule),
    ),
    right=("evidence", "days", "confidence"),
    empty="there are no learned rules: `crew-journal consolidate run` looks for recurring entries, and"
    " `crew-journal proposal list` shows what waits for your review",
)
print_lessons = listing(
    "lessons",
    ("lesson", "owner", "kind", "author", "day", "text"),
    lambda lesson: (
        lesson["lesson_id"],
        lesson["owner"],
        lesson["kind"],
        lesson["author"],
        lesson["captured_at"][:10],
        lesson["rule"],
    ),
    empty="there are no lessons: `crew-journal lesson add` records one",
)
print_proposals = listing(
    "proposals",
    ("proposal", "crew", "kind", "state", "evidence", "text"),
    lambda rule: (
        rule["proposal_id"],
        rule["crew_id"],
        rule["kind"],
        rule["state"],
        len(rule["evidence"]),
        _text_of(rule),
    ),
    right=("evidence",),
    empty="there are no proposals: `crew-journal consolidate run` makes them of recurring entries",
)


def print_consolidation(answer: Mapping[str, Any]) -> None:
    """Print the results of a run, and why it left out crews."""
    recorded = {name: answer[name] for name in ("due", "since", "seq")}
    print_pairs((recorded | {name: count for name, count in answer["counts"].items() if count}).items())
    if not answer["finished"]:
        say("the run continues: `crew-journal status` shows its counts when it has finished")
    if answer["counts"].get("proposed"):
        say("`crew-journal proposal list --state pending` shows what waits for your review")
    if answer["skipped"]:
        say(f"skipped: {answer['skipped']}; a longer --since looks further back")


def print_explanation(answer: Mapping[str, Any]) -> None:
    """The proposal without the ids of its evidence, then the entries of its evidence."""
    print_pairs((name, value) for name, value in answer["proposal"].items() if name != "evidence")
    print_table(
        ("entry", "type", "author", "day", "received", "summary"),
        [
            (
                entry["entry_id"],
                entry["entry_type"],
                entry["author"],
                entry["ts"][:10],
                entry["received_at"][:10],
                entry["summary"],
            )
            for entry in answer["entries"]
        ],
    )
    if answer["gone"]:
        say(
            f"{counted(answer['gone'], 'entry', 'entries')} of the evidence {'is' if answer['gone'] == 1 else 'are'} gone"
        )


def print_proposal_diff(answer: Mapping[str, Any]) -> None:
    """The unified diff."""
    print_text(answer["diff"])
    if not answer["diff"]:
        say("an approval changes nothing")


# ``operator``: models of people, and how people see them; the commands are made from the operations.


operators = CommandGroup(help="What people said of themselves: models and peer cards.")


_STATES: Final = {
    None: "the person has not consented: nothing is learned of them (`crew-journal operator consent`)",
    "granted": "nothing is known of this person",
    "withdrawn": "the person opted out",
}


def print_operator(answer: Mapping[str, Any]) -> None:
    """A table of facts: where they are kept, and the words they rest on."""
    profiles = [profile for profile in (answer["model"], *answer["cards"]) if profile is not None]
    rows = [
        [profile["agent_id"] or "all agents", fact["key"], fact["value"], fact["quote"], fact["entry_id"]]
        for profile in profiles
        for fact in profile["facts"]
    ]
    state = _STATES[answer["consent"]]
    print_table(("for", "key", "value", "quote", "entry"), rows, empty=state)


print_operators = listing(
    "operators",
    ("slug", "crew", "updated", "keys"),
    lambda operator: (operator["slug"], operator["crew_id"], operator["updated_at"], ", ".join(operator["keys"])),
    empty="there are no operator models: reactors make them of what people say in conversations (docs/operator-models.md)",
)


# ``kg``: the knowledge graph, and how people see its facts.


knowledge = CommandGroup(help="Facts about entities, and when they hold.")


def print_facts(answer: Mapping[str, Any]) -> None:
    """A table of facts, of one entity or of a timeline."""
    facts: Sequence[Mapping[str, Any]] = answer.get("results", answer.get("events", ()))
    if answer.get("found_by") == "meaning":
        say(f"no entity has this name; {safe(answer['entity'])} is meant (similarity {answer['similarity']:.2f})")
    columns = ("subject", "predicate", "object", "valid_from", "valid_to", "asserted_by")
    rows = [[fact[name] or "-" for name in columns] for fact in facts]
    print_table(columns, rows, empty="there are no such facts: `crew-journal fact add` records one")
    if answer["truncated"]:
        say(f"only {answer['count']} facts are shown")


def print_change(answer: Mapping[str, Any]) -> None:
    """Print the changes by an addition or an end."""
    print(safe(f"{answer['triple_id']}: {answer['info']}" if "triple_id" in answer else answer["info"]))


# The groups ``palace`` and ``layered``, whose commands are made from operations, and the output of drawers.


layered = CommandGroup(help="Layered memory: facts, procedures and episodes.")
palace = CommandGroup(help="Drawers of the palace: texts filed under wing and room.")
palace.command("import")(palace_import)
_EMPTY: Final = "no drawer was found: `crew-journal palace add` files one"


def print_drawer_hits(answer: Mapping[str, Any]) -> None:
    """A table of drawers that are similar to a text."""
    hits = answer.get("results", answer.get("duplicates", ()))
    rows = [(f"{hit['similarity']:.2f}", hit["id"], hit["memory_type"], hit["author"], hit["content"]) for hit in hits]
    print_table(("similarity", "drawer", "type", "author", "text"), rows, right=("similarity",), empty=_EMPTY)


print_drawers = listing(
    "drawers",
    ("drawer", "wing", "room", "type", "author", "text"),
    lambda drawer: (
        drawer["id"],
        drawer["wing"],
        drawer["room"],
        drawer["memory_type"],
        drawer["author"],
        drawer["content"],
    ),
    empty=_EMPTY,
)
print_diary = listing(
    "entries",
    ("filed", "author", "text"),
    lambda entry: (entry["filed_at"][:19] + "Z", entry["author"], entry["content"]),
    empty="the diary is empty: `crew-journal palace diary-write` writes into it",
)
print_drawer_counts = listing(
    "rooms",
    ("drawers", "wing", "room"),
    lambda place: (place["count"], place["wing"], place["room"]),
    right=("drawers",),
    empty=_EMPTY,
)


print_wings = listing(
    "wings", ("drawers", "wing"), lambda place: (place["count"], place["wing"]), right=("drawers",), empty=_EMPTY
)
_NO_TUNNELS: Final = "there are no created tunnels: `crew-journal palace tunnel-create` makes one"
print_explicit_tunnels = listing(
    "tunnels",
    ("tunnel", "strength", "from", "to", "label"),
    lambda tunnel: (
        tunnel["id"],
        f"{tunnel['strength']:.2f}",
        f"{tunnel['source_wing']}/{tunnel['source_room']}",
        f"{tunnel['target_wing']}/{tunnel['target_room']}",
        tunnel["label"] or "-",
    ),
    right=("strength",),
    empty=_NO_TUNNELS,
)
print_connections = listing(
    "connections",
    ("tunnel", "strength", "room", "drawers", "label", "text"),
    lambda tunnel: (
        tunnel["tunnel_id"],
        f"{tunnel['strength']:.2f}",
        f"{tunnel['wing']}/{tunnel['room']}",
        tunnel["drawers"],
        tunnel["label"] or "-",
        tunnel["preview"],
    ),
    right=("strength", "drawers"),
    empty="the room has no created tunnels: `crew-journal palace tunnel-create` makes one",
)
print_reached = listing(
    "rooms",
    ("hops", "drawers", "room", "wings", "through"),
    lambda tunnel: (
        tunnel["hop"],
        tunnel["count"],
        tunnel["room"],
        ", ".join(tunnel["wings"]),
        ", ".join(tunnel["connected_via"]) or "-",
    ),
    right=("hops", "drawers"),
    empty=_EMPTY,
)


def print_taxonomy(answer: Mapping[str, Any]) -> None:
    """A table of the rooms of each wing."""
    rooms = [
        (count, wing, room) for wing, inside in answer["taxonomy"].items() for room, count in inside["rooms"].items()
    ]
    print_table(("drawers", "wing", "room"), rooms, right=("drawers",), empty=_EMPTY)


def print_tunnels(answer: Mapping[str, Any]) -> None:
    """The rooms in several wings, and the created tunnels if there are any."""
    _print_shared(answer["tunnels"], "no room is in several wings")
    if answer["explicit"]:
        print()
        print_explicit_tunnels({"tunnels": answer["explicit"]})


def print_tunnel(answer: Mapping[str, Any]) -> None:
    """Print a tunnel that was created or already existed."""
    print_explicit_tunnels({"tunnels": [answer["tunnel"]]})
    if not answer["created"]:
        say("there was a tunnel between these rooms already")


def print_graph(answer: Mapping[str, Any]) -> None:
    """The figures of the graph, the rooms of each wing, and the rooms in most wings."""
    figures = {"rooms": "total_rooms", "rooms in several wings": "tunnel_rooms", "edges": "total_edges"}
    print_pairs((label, answer[name]) for label, name in figures.items())
    if answer["rooms_per_wing"]:
        print()
        rows = [(count, wing) for wing, count in answer["rooms_per_wing"].items()]
        print_table(("rooms", "wing"), rows, right=("rooms",))
    if answer["top_tunnels"]:
        print()
        _print_shared(answer["top_tunnels"], "")


def _print_shared(rooms: Sequence[Mapping[str, Any]], empty: str) -> None:
    rows = [(room["count"], room["room"], ", ".join(room["wings"])) for room in rooms]
    print_table(("drawers", "room", "wings"), rows, right=("drawers",), empty=empty)


def print_layer(answer: Mapping[str, Any]) -> None:
    """The text of a layer."""
    print_text(answer["text"])


# How people see memory documents: texts and tables on stdout, state and warnings on stderr.


def print_document(answer: Mapping[str, Any]) -> None:
    """The text; its state, size and warning on stderr."""
    print_text(answer["content"])
    held = answer["usage"] or f"{answer['bytes']} bytes"
    unwritten = "rendered from entries" if answer["content"] else "never written"
    state = "retracted" if answer["retracted"] else f"version {answer['seq']}" if answer["seq"] else unwritten
    say(safe(f"{answer['id']} of {answer['owner']}: {state}, {held}"))
    if (finding := answer["quarantined"]) is not None:
        say(safe(f"warning: blocked for agents, {finding['category']}/{finding['pattern']}"))


def documents_print_written(answer: Mapping[str, Any]) -> None:
    """Print the result of a document write."""
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


def print_file(answer: Mapping[str, Any]) -> None:
    """The text of a file."""
    print_text(answer["text"])
    if answer["warning"] is not None:
        say(safe(f"warning: {answer['warning']}"))


def print_documents(answer: Mapping[str, Any]) -> None:
    """A table of documents, then their sums."""
    columns = ("owner", "document", "bytes", "of", "writes", "version", "written", "state")
    rows = []
    for document in answer["documents"]:
        state = "blocked" if document["quarantined"] else "retracted" if document["retracted"] else ""
        numbers = (document["bytes"], document["cap_bytes"], document["writes"], document["seq"])
        rows.append((document["owner"], document["id"], *numbers, document["updated_at"][:16] + "Z", state))
    if rows:
        print_table(columns, rows, right=columns[2:6])
    say(f"{counted(len(rows), 'document')}, {counted(answer['bytes'], 'byte')}")


def print_stats(answer: Mapping[str, Any]) -> None:
    """A table of tiers, then their sums."""
    columns = ("owner", "tier", "documents", "retracted", "blocked", "bytes", "versions", "swept", "version_bytes")
    if answer["tiers"]:
        print_table(columns, [[tier[name] for name in columns] for tier in answer["tiers"]], right=columns[2:])
    say(
        f"{counted(answer['documents'], 'document')}, {answer['bytes']} bytes; {counted(answer['versions'], 'version')}"
    )


def print_versions(answer: Mapping[str, Any]) -> None:
    """A table of the versions of a document."""
    columns = ("version", "written", "action", "bytes", "by", "source", "text", "reason")
    rows = [
        (
            version["seq"],
            version["at"][:19] + "Z",
            version["action"],
            version["bytes"],
            version["actor_id"] or version["actor_type"],
            version["source"],
            "swept" if version["gone"] else "kept",
            version["reason"],
        )
        for version in answer["versions"]
    ]
    print_table(columns, rows, right=("version", "bytes"), empty=f"{safe(answer['id'])} was never written")


def print_diff(answer: Mapping[str, Any]) -> None:
    """The unified diff."""
    print_text(answer["diff"])
    if not answer["diff"]:
        say("nothing changed")


_BODY_CHARS: Final = 300
"""Characters of a dead letter's body on a screen; --json has 2,000."""
Printer = Callable[[Mapping[str, Any]], None]


def print_fields(answer: Mapping[str, Any]) -> None:
    """Print each field on a line; fields of nested objects have dotted names."""
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


def _correction(answer: Mapping[str, Any]) -> None:
    already = "" if answer["changed"] else " already"
    print(safe(f"{answer['id']} is corrected{already}: {answer['replaced_by']} replaces it"))
    for one in answer["retired"][1:]:
        by = f", replaced by {one['replaced_by']}" if one["replaced_by"] else ""
        print(safe(f"  {one['kind']} {one['id']} is retired ({one['why']}){by}"))
    for document in answer["documents"]:
        print(safe(f"  document {document} is rewritten"))
    _print_reviews(answer["review"])
    if answer["review"]:
        say(
            "what says the same is retired by the same command with `--also ID …`, lines of documents with `--documents`"
        )


def _corrections(answer: Mapping[str, Any]) -> None:
    for one in answer["corrections"]:
        print(safe(f"{one['at'][:10]}  {one['id']} -> {one['replaced_by']}  by {one['by'] or '-'}"))
        for text in (one["old"], one["new"]):
            print_folded(text, "    ")
        _print_reviews(one["review"])
    if not answer["corrections"]:
        say("nothing was corrected: `crew-journal correct ID TEXT` corrects a statement")


def _print_reviews(reviews: Sequence[Mapping[str, Any]]) -> None:
    for one in reviews:
        print(safe(f"  to review: {one['kind']} {one['id']} ({one['why']})"))
        print_folded(one["text"], "    ")
        if one["suggestion"]:
            print_folded(one["suggestion"], "    -> ")


def _dead_letters(answer: Mapping[str, Any]) -> None:
    columns = ("seq", "projection", "state", "workspace_id", "reason")
    rows = [[letter[name] for name in columns] for letter in answer["dead_letters"]]
    print_table(columns, rows, right=("seq",), empty="there are no dead letters: every event was folded")
    for letter in answer["dead_letters"]:
        if letter.get("body"):
            cut = letter["body"] if len(letter["body"]) <= _BODY_CHARS else f"{letter['body'][:_BODY_CHARS]}…"
            print(safe(f"{letter['seq']}  {letter['subject']}"))
            print(f"    {safe(cut)}")


def _nodes(answer: Mapping[str, Any]) -> None:
    columns = ("name", "slots", "lag", "heard_s", "version", "http")
    rows = [["-" if node.get(column) is None else node[column] for column in columns] for node in answer["nodes"]]
    for row, node in zip(rows, answer["nodes"], strict=True):
        row[1] = f"{row[1]} (drained)" if node["drained"] else row[1]
    print_table(columns, rows, right=columns[1:4], empty="the node runs alone")
    if answer["owner"] is not None:
        print(safe(f"slot {answer['slot']} belongs to {answer['owner']}"))


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
    """Print the registration of an agent or a crew."""
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
        raise Unavailable(f"the sweep failed: {answer['error']}", hint="`crew-journal model status` says more")


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
    empty = "there are no models: start `up` with an embedder, or `crew-journal model add MODEL`"
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
_PROGRAM: Final = 60
"""Most characters of a browser's name in a table."""
"""Columns of tokens that are always printed; other columns are printed if a token has a value."""


def _erasures(answer: Mapping[str, Any]) -> None:
    columns = ("erasure", "state", "requested", "completed", "messages", "reason")
    rows = [
        (
            row["erasure_id"],
            row["state"],
            row["requested_at"],
            row["completed_at"] or "",
            row["messages"],
            row["reason"],
        )
        for row in answer["erasures"]
    ]
    print_table(columns, rows, empty="there are no erasures")


def _lineage(answer: Mapping[str, Any]) -> None:
    for heading, steps in (("made of", answer["made_of"]), ("made from it", answer["made_from_it"])):
        print(f"{heading}:" if steps else f"{heading}: nothing")
        _steps(steps)
    print_pairs(
        [
            ("authors", ", ".join(answer["authors"])),
            ("people", ", ".join(answer["subjects"])),
            ("prompts", answer["prompts"]),
        ]
    )


def _steps(steps: Sequence[Mapping[str, Any]]) -> None:
    """A line for each message and what it is of; a message often names another in several fields."""
    hows: dict[tuple[Any, ...], list[str]] = {}
    for step in steps:
        hows.setdefault((step["name"], step["seq"], step["of"]), []).append(step["how"])
    for step in steps:
        if (ways := hows.pop((step["name"], step["seq"], step["of"]), None)) is None:
            continue  # printed with the first field
        shown = "  " * step["depth"] + (step["name"] or f"message {step['seq']}")
        known = (step["what"], step["author"], step["ts"], "root" if step["root"] else None)
        print(safe(" ".join((f"{shown}  {', '.join(ways)} of {step['of']}", *filter(None, known)))))


def _why(answer: Mapping[str, Any]) -> None:
    """A memory or receipt, then what it was made of, the decisions about it, hits, and the replay."""
    for message in answer["messages"]:
        print(
            safe(f"{answer['kind']} {message['entry_id']}  {message['ts']}  {message['what']} by {message['author']}")
        )
        print(safe(f"  {message['summary']}"))
    if answer["kind"] == "receipt":
        asked = answer["asked"] or {}
        names = ("query", "scope", "agent_id", "crew_id", "recipe", "model", "mode", "floor", "prompt", "view_seq")
        print_pairs((name, asked[name]) for name in names if asked.get(name) is not None)
        columns = ("kind", "id", "score", "confidence", "made of", "authors", "text")
        rows = [
            (
                hit["kind"],
                hit["id"],
                _rounded(hit["score"]),
                _rounded(hit["confidence"]),
                "nothing left" if hit["gone"] else ", ".join(hit["roots"]),
                ", ".join(hit["authors"]),
                hit["summary"],
            )
            for hit in answer["hits"]
        ]
        print_table(columns, rows, right=("score", "confidence"), empty="it has no hits")
    else:
        print_pairs([("priority", answer["live_priority"])])
        if (standing := answer["standing"]) is not None:
            print_pairs([("standing", standing["state"])])
    _steps(answer["made_of"])
    for decision in answer["decisions"]:
        print(safe(f"decided {decision['ts']}  {decision['what']} by {decision['author']}: {decision['summary']}"))
    for relation in answer["relations"]:
        print(safe(f"{relation['relation']} {relation['other']}  {relation['weight']:.2f}  {relation['state']}"))
    if answer["authors"]:
        print_pairs([("authors", ", ".join(answer["authors"]))])
    if answer["hidden"]:
        say(f"{counted(answer['hidden'], 'message')} that this token may not read")
    if (replay := answer["replay"]) is not None:
        print("replay: same" if replay["same"] else f"replay: {counted(len(replay['changed']), 'hit')} changed")
        for change in replay["changed"]:
            by = f" by {change['by']}" if change["by"] else ""
            ranks = f"{_place(change['before'])} → {_place(change['after'])}"
            print(safe(f"  {change['kind']} {change['id']}  {ranks}  {change['why']}{by}"))
        if not replay["exact"]:
            say("the receipt is older than this version: k and kinds are not recorded in it")


def _place(rank: int | None) -> str:
    return "-" if rank is None else str(rank + 1)


_SIGNS: Final = (("added", "+"), ("changed", "~"), ("ceased", "-"))
_SHOWN_OF_ITEM: Final = ("summary", "content", "pattern", "rule", "value", "text")
"""Fields of an item that say what it is, in this order."""


def _diff(answer: Mapping[str, Any]) -> None:
    """A line for each item: `+` for what was added, `~` for what changed, `-` for what ceased and why."""
    for family in answer["families"]:
        for part, sign in _SIGNS:
            for item in family[part]:
                print(safe(f"{sign} {family['family']} {item['key']}  {_changed_text(item)}".rstrip()))
    counts = [f"{family['family']} {'/'.join(map(str, family['counts'].values()))}" for family in answer["families"]]
    of = " ".join(filter(None, (answer["scope"], answer["agent_id"], answer["crew_id"])))
    say(f"{of}, {answer['since_seq']} to {answer['until_seq']}: added/changed/ceased: {', '.join(counts)}")
    for erasure in answer["erased"]:
        say(
            f"{counted(erasure['messages'], 'message')} erased between, shown at neither moment: {erasure['erasure_id']}"
        )
    if answer["truncated"]:
        say("there are more: raise --limit, or name --kinds")


def _changed_text(item: Mapping[str, Any]) -> str:
    if "before" not in item:
        by = f" by {item['by']}" if item.get("by") else ""
        why = f"[{item['why']}{by}] " if "why" in item else ""
        return why + _item_text(item["item"])
    before, after = item["before"], item["after"]
    names = [name for name in after if before.get(name) != after[name]]
    if names == ["content"]:
        old, new = before["content"].splitlines(), after["content"].splitlines()
        lines = [line for line in unified_diff(old, new, lineterm="", n=0) if not line.startswith(("---", "+++", "@@"))]
        return "; ".join(lines)
    return "; ".join(f"{name}: {before.get(name)} → {after[name]}" for name in names)


def _item_text(item: Mapping[str, Any]) -> str:
    if "predicate" in item:
        return f"{item['subject']} {item['predicate']} {item['object']}"
    text = next((str(item[name]) for name in _SHOWN_OF_ITEM if item.get(name)), str(item.get("reason") or ""))
    return f"{text} → {item['action']}" if item.get("action") else " ".join(text.split())


def _bisect(answer: Mapping[str, Any]) -> None:
    """The event, its author, and why it matters."""
    if (event := answer["event"]) is not None:
        named = event["entry_id"] or (f"of {event['of']}" if event["of"] else "")
        by = f" by {event['author']}" if event["author"] else ""
        print(safe(f"{event['seq']}  {event['ts'] or ''}  {event['what']} {named}{by}"))
        print(safe(f"  {event['summary']}"))
    by = f" ({answer['by']})" if answer["by"] else ""
    print(safe(f"{answer['why']}: {answer['because']}{by}"))
    ranks = f"{_place(answer['rank_before'])} → {_place(answer['rank_after'])}"
    say(
        f"rank {ranks}; {counted(answer['past_views'], 'past view')} between {answer['since_seq']} and {answer['until_seq']}"
    )


def _replay(answer: Mapping[str, Any]) -> None:
    """The recalls whose hits differ, with the hits; then the counts."""
    for receipt in answer["receipts"]:
        for change in receipt["differences"]:
            by = f" by {change['by']}" if change["by"] else ""
            print(safe(f"{receipt['receipt']} not as recorded: {change['kind']} {change['id']}  {change['why']}{by}"))
        if receipt["changed"]:
            print(safe(f"{receipt['receipt']}  {receipt['ts']}  overlap {receipt['overlap']:.2f}  {receipt['query']}"))
        for hit in receipt["changed"]:
            sign = "-" if hit["after"] is None else "+" if hit["before"] is None else "~"
            ranks = f"{_place(hit['before'])} → {_place(hit['after'])}"
            print(safe(f"  {sign} {hit['kind']} {hit['id']}  {ranks}  {hit['summary']}"))
    total = counted(answer["total"], "recall")
    say(f"{total} as of {answer['views']}: {answer['reproduced']} the same as recorded, {answer['changed']} changed")
    if answer["asked"].get("without"):
        say(f"{counted(answer['left_out'], 'message')} left out")
    if answer["changed"]:
        say(f"mean overlap {answer['overlap']:.3f}")


def _proof(answer: Mapping[str, Any]) -> None:
    """The parts of a proof; path and checkpoint line by line, as a verifier takes them."""
    of_lines = {"path": answer["path"], "checkpoint": answer["checkpoint"].splitlines()}
    print_pairs((name, value) for name, value in answer.items() if name not in of_lines)
    for name, lines in of_lines.items():
        print(f"{name}:")
        print(safe("\n".join(lines), keep="\n"))


def _who_saw(answer: Mapping[str, Any]) -> None:
    columns = ("receipt", "time", "prompt", "holder", "run", "memories")
    rows = [
        (
            row["receipt"],
            row["ts"],
            row["prompt"],
            row["holder"],
            row["run"] or "",
            ", ".join(row["memories"]),
        )
        for row in answer["prompts"]
    ]
    print_table(columns, rows, empty="no recorded prompt held it")
    counts = (answer["total"], "prompt"), (len(answer["runs"]), "run"), (len(answer["agents"]), "agent")
    say(", ".join(counted(number, name) for number, name in counts))


def _notices(answer: Mapping[str, Any]) -> None:
    rows = [(row["id"], row["why"], row["by"] or "", row["near"] or "") for row in answer["notices"]]
    print_table(("memory", "why", "by", "near"), rows, empty="there are no notices")


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


def _accounts(answer: Mapping[str, Any]) -> None:
    rows = [
        (
            one["person"],
            one["role"],
            one["workspace_id"] or "all",
            one["agent_id"],
            "has a password" if one["joined"] else "invited",
            minute(one["link_expires_ms"]),
        )
        for one in answer["accounts"]
    ]
    columns = ("name", "role", "workspace", "agent", "state", "link until")
    print_table(columns, rows, empty="nobody was invited yet: `crew-journal invite NAME`")


def _sessions(answer: Mapping[str, Any]) -> None:
    rows = [
        (
            one["session_id"],
            one["person"] or one["token_id"],
            one["role"],
            minute(one["began_ms"]),
            minute(one["used_ms"]),
            one["program"][:_PROGRAM],
        )
        for one in answer["sessions"]
    ]
    print_table(("session", "who", "role", "began", "used", "browser"), rows, empty="there are no sessions")


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


def _retention(answer: Mapping[str, Any]) -> None:
    policy = [(f"keep {rule}", f"{days} days") for rule, days in answer["retention"].items()]
    if answer["retention_days"] is not None:
        policy.append(("keep other entries", f"{answer['retention_days']} days"))
    print_pairs([*policy, *((f"past {rule}", count) for rule, count in answer["past"].items())])
    say(f"{answer['held']:,} stay: something pinned or permanent needs them; {answer['left']:,} wait for the next run")
    erasure = answer["erasure"]
    if erasure is None:
        say("nothing is past the retention" if policy else "no retention is set: crew-journal memory configure --help")
    elif erasure["erasure_id"] is None:
        say(f"{counted(erasure['messages'], 'message')} would be erased; nothing was changed")
    else:
        say(f"erasing {counted(erasure['messages'], 'message')}: `crew-journal erasures` shows the receipt")


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
    "apply_retention": _retention,
    "calibrate": _calibration,
    "conversation_search": _turns,
    "context_assemble": print_context,
    "fact_conflicts": print_conflicts,
    "fact_request_verification": print_verified,
    "fact_verify": print_verified,
    "layered_query": print_found,
    "layered_read": print_read,
    "layered_write": print_written,
    "palace_search": print_drawer_hits,
    "check_duplicate": print_drawer_hits,
    "drawers": print_drawers,
    "diary_read": print_diary,
    "palace_status": print_drawer_counts,
    "palace_wings": print_wings,
    "palace_taxonomy": print_taxonomy,
    "palace_graph": print_graph,
    "find_tunnels": print_tunnels,
    "traverse": print_reached,
    "create_tunnel": print_tunnel,
    "list_tunnels": print_explicit_tunnels,
    "follow_tunnels": print_connections,
    "palace_rooms": print_drawer_counts,
    "wake_up": print_layer,
    "palace_recall": print_layer,
    "palace_render": print_layer,
    "remember": _remembered,
    "set_priority": _priority,
    "receipt": _receipt,
    "used": _used,
    "document_read": print_document,
    "memory_stats": print_stats,
    "append_daily": documents_print_written,
    "documents": print_documents,
    "document_versions": print_versions,
    "document_diff": print_diff,
    "document_restore": documents_print_written,
    "document_retract": documents_print_written,
    "memory_file": print_file,
    "retract": _retraction,
    "restore": _retraction,
    "correct": _correction,
    "corrections": _corrections,
    "cluster": _nodes,
    "drain_node": _nodes,
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
    "accounts": _accounts,
    "sessions": _sessions,
    "remove_account": lambda it: say(f"the account of {safe(it['person'])} is removed"),
    "end_session": lambda it: say(f"session {safe(it['session_id'])} has ended"),
    "erasures": _erasures,
    "show_lineage": _lineage,
    "who_saw": _who_saw,
    "notices": _notices,
    "why": _why,
    "diff": _diff,
    "bisect": _bisect,
    "replay": _replay,
    "prove_entry": _proof,
    "revoke_token": lambda it: say(f"token {safe(it['token_id'])} is revoked"),
    "nudges": _nudges,
    "workspaces": _workspaces,
    "kg_add": print_change,
    "kg_invalidate": print_change,
    "kg_query": print_facts,
    "consolidate": print_consolidation,
    "learned_rules": print_rules,
    "lessons": print_lessons,
    "proposals": print_proposals,
    "explain_proposal": print_explanation,
    "diff_proposal": print_proposal_diff,
    "show_operator": print_operator,
    "operators": print_operators,
    "kg_timeline": print_facts,
}
"""By the name of the operation."""


# ``health``: how healthy the memory was when it was measured last.


METRICS = ("freshness", "coverage", "coherence", "efficiency", "reachability")


def health(
    recompute: Annotated[bool, Option("--recompute", help="Measure it now (OWNER, ADMIN).")] = False,
    *,
    fields: Annotated[dict[str, Any], Fields(HEALTH)],
    where: Where,
    json_output: Json = False,
) -> None:
    """Show the health of the memory: five metrics, the score, why, and what to do."""
    with client(where, embedder="auto") as journal:
        answer = journal.measure_health(**fields) if recompute else journal.health(**fields)
    show(answer, json_output, print_health)


def print_health(answer: Mapping[str, Any]) -> None:
    """The snapshot on stdout; crews that can be named, and a hint where there is no snapshot, on stderr."""
    if answer["status"] == "no snapshot yet":
        say(f"no snapshot yet: {safe(answer['hint'])}")
        return
    figures: dict[str, Any] = {"health": f"{_number(answer['score'])} ({answer['band'] or 'no data'})"}
    figures |= {name: _number(answer["metrics"].get(name)) for name in METRICS}
    mode = answer["embedder"].get("mode", "unknown")
    figures |= {"measured": answer["measured_at"], "model": answer["model"] or "none", "embedder now": mode}
    print_pairs(figures.items())
    for reason in answer["reasons"]:
        print(f"- {safe(reason)}")
    if answer["next_step"]:
        print(f"next: {safe(answer['next_step'])}")
    for pair in answer["review"] or ():
        print(f"? {safe(pair['src'])} contradicts {safe(pair['dst'])} ({pair['weight']:.2f}): {safe(pair['reason'])}")
    if answer["history"]:
        rows = [
            (day["date"], day["band"] or "no data", *map(_number, (day["score"], *map(day["metrics"].get, METRICS))))
            for day in answer["history"]
        ]
        print_table(("date", "band", "score", *METRICS), rows, right=("score", *METRICS))
    if answer["crews"]:
        say(f"crews: {', '.join(map(safe, answer['crews']))} (--crew NAME)")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


# The command of an operation.


_WITH_EMBEDDER: Final = frozenset(
    {"sweep", "sweep_embeddings", "reindex", "embedding_models", "activate_model", "drop_model"}
)
"""Operations that need vectors: if no ``up`` runs, the runtime that is started for the command has an embedder."""


def command_of(operation: Operation[Any, Any], name: str) -> Command:
    """The command of an operation."""
    embedder = "auto" if operation.name in _WITH_EMBEDDER else None

    def run(asked: dict[str, Any], where: Where, json_output: Json = False) -> None:
        required = {name for name, field in operation.request.model_fields.items() if field.is_required()}
        arguments = [asked.pop(name) for name in list(asked) if name in required and is_argument(operation, name)]
        with client(where, embedder=embedder) as journal:
            answer = getattr(journal, operation.name)(
                *arguments, **{name: value for name, value in asked.items() if value is not None}
            )
        show(answer, json_output, PRINTERS.get(operation.name, print_fields))

    text = (operation.request.__doc__ or "").strip()
    source = (operation.request.__module__, operation.name.upper())
    return Command(name, callback=run, help=text, parts={"asked": Fields(operation)}, source=source)
