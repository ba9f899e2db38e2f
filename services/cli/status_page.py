"""``status`` on one screen: what is wrong and since when first, then a line for each part.

Invariant: nothing is said to be well that the report does not say is; whatever is missing from the report is left out, and
``--json`` has all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .output import size_text

Report = Mapping[str, Any]


def status_lines(report: Report) -> Iterator[tuple[str, str]]:
    """Name and text of each line.

    Args:
        report: What ``GET /v1/status`` answers.
    """
    problems = list(report.get("problems") or ())
    yield "ready", "yes" if report.get("ready") else "NO"
    for problem in problems:
        yield "problem", str(problem)
    yield "journal", _journal(report)
    yield "views", _views(report)
    yield from _out(report)
    if said := (report.get("journal_damage") or {}).get("broker_said"):
        yield from (("broker says", str(line)) for line in said)
    if aside := report.get("views_put_aside"):
        yield "old views", f"rebuilt at the start: {aside['reason']}; the old file is kept as {aside['name']}"
    for name in ("folding", "feed"):
        if part := report.get(name):
            yield name, _state(part, part.get("state") or ("stopped" if part.get("stopped") else "running"))
    if parked := (report.get("dead_letters") or {}).get("parked"):
        yield "dead letters", f"{parked:,} events are parked: `crew-journal dlq list`"
    if broker := report.get("broker"):
        yield "broker", _broker(broker, report.get("connection") or {})
    if canary := report.get("canary"):
        yield "canary", _state(canary, "ok" if canary.get("ok") else "FAILS")
    if (ingest := report.get("ingest")) and (ingest.get("requests") or ingest.get("error")):
        yield "ingest", _ingest(ingest)
    if disk := report.get("disk"):
        yield "disk", f"{size_text(disk['free_bytes'])} free of {size_text(disk['total_bytes'])}"
    if embedder := report.get("embedder"):
        yield "embedder", _embedder(embedder)
    if vectors := report.get("embeddings"):
        yield "vectors", _vectors(vectors)
    for reactor in report.get("reactors") or ():
        yield reactor["name"], _state(reactor, _reactor(reactor))
    if hot := report.get("hot_index"):
        held = f"{size_text(hot['bytes'])} of {size_text(hot['budget_bytes'])}"
        yield "hot indexes", f"{hot['workspaces']:,} workspaces, {hot['documents']:,} entries, {held}"
    if error := (report.get("memory") or {}).get("error"):
        yield "memory", str(error)


def _journal(report: Report) -> str:
    stream = report.get("stream") or {}
    said = f"{(report.get('entries') or {}).get('count') or 0:,} entries"
    if unavailable := stream.get("unavailable"):
        return f"{said} in the views; stream: {unavailable}"
    if stream:
        said += f"; stream head {stream['head']:,}, {size_text(stream['bytes'])}"
    return said


def _views(report: Report) -> str:
    views = report.get("projections") or {}
    behind = {name: view["lag"] for name, view in views.items() if view.get("lag")}
    said = f"{f'all {len(views)} ' if views else ''}at {report.get('view_seq') or 0:,}"
    if behind:
        slowest = sorted(behind.items(), key=lambda item: (-item[1], item[0]))
        said = "behind: " + ", ".join(f"{name} by {lag:,}" for name, lag in slowest)
    parked = (report.get("folding") or {}).get("parked") or {}
    return said + "".join(f"; {name} parked {count:,}" for name, count in sorted(parked.items()))


def _out(report: Report) -> Iterator[tuple[str, str]]:
    """A line for each view that failed, and so folds no longer with the others."""
    for lag in (report.get("folding") or {}).get("laggards") or ():
        if lag.get("error"):
            left = f"{lag['projection']} left the group at {lag['seq']:,}: {lag['error']}{_since(lag)}"
            yield "suspended", f"{left}; the others go on"


def _broker(broker: Report, connection: Report) -> str:
    kind = f"nats-server {broker.get('version') or '?'}"
    kind += f", managed, {broker.get('durability')}" if broker.get("managed") else ", not ours"
    if not broker.get("managed") and (durability := broker.get("durability")):
        kind += f", durability {durability}"
    trouble = [] if connection.get("connected", True) else [f"NOT CONNECTED{_since(connection)}"]
    if broker.get("managed") and not broker.get("running", True):
        trouble.append("NOT RUNNING")
    if broker.get("restarts"):
        trouble.append(f"restarted {broker['restarts']} times")
    trouble += [str(part["last_error"]) for part in (broker, connection) if part.get("last_error")]
    return "; ".join([f"{kind}, {broker.get('url')}", *trouble])


def _ingest(ingest: Report) -> str:
    """What agents asked over NATS, and what keeps them from it."""
    said = f"{ingest['requests']:,} requests over NATS, {ingest['entries']:,} entries, {ingest['refused']:,} refused"
    if ingest["overloaded"]:
        said += f", {ingest['overloaded']:,} of them for overload, last at {ingest['overloaded_at']}"
    if ingest["unanswerable"]:
        said += f"; {ingest['unanswerable']:,} were not requests (no inbox to answer to) and are not stored"
    return said + (f"; {ingest['error']}" if ingest.get("error") else "")


def _embedder(embedder: Report) -> str:
    said = f"{embedder.get('model') or embedder.get('kind') or 'none'}, {embedder.get('mode')}"
    if error := embedder.get("error"):
        detail = embedder.get("message") or error
        said += f"; {detail}{_since(embedder)}"
        if hint := embedder.get("hint"):
            said += f" ({hint})"
    elif reason := embedder.get("reason"):
        said += f" ({reason})"
    return said


def _vectors(vectors: Report) -> str:
    said = f"{vectors.get('count', 0):,} of {vectors.get('embeddable', 0):,} entries that are to have one"
    return said + (f"; {vectors['refused']:,} refused" if vectors.get("refused") else "")


def _reactor(reactor: Report) -> str:
    """What it has to do, and what failed: texts that fail alone leave no error of the reactor itself."""
    said = f"{reactor.get('state')}, {reactor.get('pending') or 0:,} to do"
    counts = reactor.get("counts") or {}
    if put_off := counts.get("put_off"):
        said += f"; {put_off:,} put off, to be tried again"
    if failed := counts.get("failed"):
        said += f"; failed {failed:,} times since the start (the log names what and why)"
    return said


def _state(part: Report, state: str) -> str:
    """A part's state, and its trouble with the time it began."""
    trouble = part.get("last_error") or part.get("error") or part.get("stopped")
    return f"{state}; {trouble}{_since(part)}" if trouble else state


def _since(part: Report) -> str:
    return f", since {part['since']}" if part.get("since") else ""
