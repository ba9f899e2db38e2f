"""``status`` on one screen: what is wrong and since when first, then a line for each part.

Invariant: a part is shown as running only if the report says so; what is missing from the report is left out. ``--json`` has
the whole report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .output import age, counted, size_text

Report = Mapping[str, Any]
_NAMED: Final = 3
"""Views that are named; of more, the number."""
_SWEEPS: Final = 10
"""Sweeps that are shown: more than one workspace has."""


def status_lines(report: Report) -> Iterator[tuple[str, str]]:
    """Name and text of each line, from the answer of ``GET /v1/status``."""
    folding = report.get("folding") or {}
    yield "ready", "yes" if report.get("ready") else "NO"
    yield from (("problem", str(problem)) for problem in report.get("problems") or ())
    yield "journal", _journal(report)
    yield "views", _views(report, folding)
    for view in folding.get("laggards") or ():
        if view.get("error"):
            left = f"{view['projection']} left the group at {view['seq']:,}: {view['error']}{_since(view)}"
            yield "suspended", f"{left}; the others go on"
    yield from (("broker says", str(line)) for line in (report.get("journal_damage") or {}).get("broker_said") or ())
    if aside := report.get("views_put_aside"):
        yield "old views", f"rebuilt at the start: {aside['reason']}; the old file is kept as {aside['name']}"
    for name in ("folding", "feed"):
        if part := report.get(name):
            yield name, _state(part, part.get("state") or ("stopped" if part.get("stopped") else "running"))
    if parked := (report.get("dead_letters") or {}).get("parked"):
        yield "dead letters", f"{counted(parked, 'event')} parked: `crew-journal dlq list`"
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
        refused = f"; {vectors['refused']:,} refused" if vectors.get("refused") else ""
        yield "vectors", f"{vectors['count']:,} of {vectors['embeddable']:,} entries that need one{refused}"
    for reactor in report.get("reactors") or ():
        yield reactor["name"], _state(reactor, _reactor(reactor))
    yield from _sweeps((report.get("memory") or {}).get("sweeps") or ())
    if hot := report.get("hot_index"):
        memory = f"{size_text(hot['bytes'])} of {size_text(hot['budget_bytes'])}"
        yield (
            "hot indexes",
            f"{counted(hot['workspaces'], 'workspace')}, {counted(hot['documents'], 'entry', 'entries')}, {memory}",
        )
    of_memory = report.get("memory") or {}
    if error := of_memory.get("error"):
        yield "memory", str(error)
    if error := (of_memory.get("operators") or {}).get("error"):
        yield "operator models", f"none are made: {error}"


def _sweeps(sweeps: Sequence[Report]) -> Iterator[tuple[str, str]]:
    """What the last run of each sweep counted, the newest first; of many workspaces only some."""
    newest = sorted(
        (report for report in sweeps if report.get("finished_at")), key=lambda report: str(report["finished_at"])
    )[::-1]
    for sweep in newest[:_SWEEPS]:
        counts = ", ".join(f"{name} {count:,}" for name, count in (sweep.get("counts") or {}).items() if count)
        error = f"; {sweep['error']}" if sweep.get("error") else ""
        text = f"{sweep['workspace_id']}, {sweep['finished_at']}: {counts or 'nothing to do'}{error}"
        yield f"sweep {sweep['sweep']}", text
    if len(newest) > _SWEEPS:
        yield "sweeps", f"{len(newest) - _SWEEPS} more, of all workspaces: --json"


def _journal(report: Report) -> str:
    stream = report.get("stream") or {}
    if "entries" not in report:
        return "its size is shown to OWNER and ADMIN"
    text = f"{(report['entries'] or {}).get('count') or 0:,} entries"
    if unavailable := stream.get("unavailable"):
        return f"{text} in the views; stream: {unavailable}"
    return text + (f"; stream head {stream['head']:,}, {size_text(stream['bytes'])}" if stream else "")


def _views(report: Report, folding: Report) -> str:
    views = report.get("projections") or {}
    behind = sorted(((-view["lag"], name) for name, view in views.items() if view.get("lag")))
    text = f"{f'all {len(views)} ' if views else ''}at {report.get('view_seq') or 0:,}"
    if behind:
        most = -behind[0][0]
        every = len(behind) == len(views)
        names = "all" if every else ", ".join(name for _, name in behind[:_NAMED])
        more = "" if every or len(behind) <= _NAMED else f" and {len(behind) - _NAMED} more"
        text = f"{counted(len(behind), 'view')} behind by {most:,} at most ({names}{more}){_left(report, most)}"
    return text + "".join(f"; {name} parked {count:,}" for name, count in sorted((folding.get("parked") or {}).items()))


def lag_of(report: Report) -> int:
    """Sequences by which the view that is furthest behind is behind."""
    return max((view.get("lag") or 0 for view in (report.get("projections") or {}).values()), default=0)


def _left(report: Report, lag: int) -> str:
    rate = report.get("per_second")
    if rate is None:
        return ""
    return f", {rate:,.0f}/s, {age(lag / rate)} left" if rate > 0 else ", no progress within a second"


def _broker(broker: Report, connection: Report) -> str:
    managed, durability = broker.get("managed"), broker.get("durability")
    kind = f"nats-server {broker.get('version') or '?'}, "
    kind += f"managed, {durability}" if managed else f"external{f', durability {durability}' if durability else ''}"
    trouble = [] if connection.get("connected", True) else [f"NOT CONNECTED{_since(connection)}"]
    if managed and not broker.get("running", True):
        trouble.append("NOT RUNNING")
    if broker.get("restarts"):
        trouble.append(f"restarted {broker['restarts']} times")
    trouble += [str(part["last_error"]) for part in (broker, connection) if part.get("last_error")]
    return "; ".join([f"{kind}, {broker.get('url')}", *trouble])


def _ingest(ingest: Report) -> str:
    """Requests of agents over NATS, and why some were not answered."""
    entries = counted(ingest["entries"], "entry", "entries")
    text = f"{counted(ingest['requests'], 'request')} over NATS, {entries}, {ingest['refused']:,} refused"
    if ingest["overloaded"]:
        text += f", {ingest['overloaded']:,} of them for overload, last at {ingest['overloaded_at']}"
    if ingest["unanswerable"]:
        text += f"; {ingest['unanswerable']:,} were not requests (no inbox to answer to) and are not stored"
    return text + (f"; {ingest['error']}" if ingest.get("error") else "")


def _embedder(embedder: Report) -> str:
    text = f"{embedder.get('model') or embedder.get('kind') or 'none'}, {embedder.get('mode')}"
    why = embedder.get("reason")
    if error := embedder.get("error"):
        text += f"; {embedder.get('message') or error}{_since(embedder)}"
        why = embedder.get("hint")
    return text + (f" ({why})" if why else "")


def _reactor(reactor: Report) -> str:
    """What it has to do, and what failed: texts that fail alone leave no error of the reactor itself."""
    text = f"{reactor.get('state')}, {reactor.get('pending') or 0:,} to do"
    counts = reactor.get("counts") or {}
    if put_off := counts.get("put_off"):
        text += f"; {put_off:,} put off, to be tried again"
    if failed := counts.get("failed"):
        text += f"; failed {failed:,} times since the start (the log names what and why)"
    return text


def _state(part: Report, state: str) -> str:
    """A part's state, and its trouble with the time it began."""
    trouble = part.get("last_error") or part.get("error") or part.get("stopped")
    return f"{state}; {trouble}{_since(part)}" if trouble else state


def _since(part: Report) -> str:
    return f", since {part['since']}" if part.get("since") else ""
