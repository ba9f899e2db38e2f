"""What `status` says on one screen."""

from __future__ import annotations

from typing import Any

from crew_journal.services.cli.operate import status_lines

WELL: dict[str, Any] = {
    "ready": True,
    "problems": [],
    "stream": {"head": 1204, "bytes": 2048},
    "view_seq": 1204,
    "entries": {"count": 1100},
    "projections": {"entries": {"seq": 1204, "lag": 0}, "fulltext": {"seq": 1204, "lag": 0}},
    "folding": {"stopped": None, "since": None, "parked": {}},
    "feed": {"state": "running", "last_error": None, "since": None},
    "dead_letters": {"parked": 0},
    "broker": {
        "managed": True,
        "running": True,
        "version": "2.12.1",
        "durability": "durable",
        "url": "nats://127.0.0.1:1",
    },
    "connection": {"connected": True, "last_error": None},
    "canary": {"ok": True, "since": "2026-11-21T10:00:00.000Z", "error": None},
    "disk": {"free_bytes": 3 << 30, "total_bytes": 9 << 30},
    "embedder": {"kind": "minilm", "model": "m", "mode": "vector", "reason": "asked for", "error": None, "since": None},
    "embeddings": {"count": 90, "embeddable": 100, "refused": 2},
    "reactors": [{"name": "embed@1", "state": "running", "pending": 8, "last_error": None, "since": None}],
    "hot_index": {"workspaces": 1, "documents": 1100, "bytes": 1 << 20, "budget_bytes": 1 << 29},
    "memory": {"error": None},
}
SINCE = "2026-11-21T10:00:00.000Z"


def page(**changed: Any) -> dict[str, str]:
    return dict(status_lines(WELL | changed))


def test_a_well_journal_fits_on_a_screen_and_complains_of_nothing() -> None:
    lines = page()
    assert len(lines) < 20
    assert lines["ready"] == "yes"
    assert lines["views"] == "all 2 at 1,204"
    assert lines["vectors"] == "90 of 100 entries that need one; 2 refused"
    assert lines["canary"] == "ok"
    assert not {"problem", "dead letters", "memory"} & set(lines)
    assert "since" not in " ".join(lines.values())


def test_what_is_wrong_stands_first_with_the_time_it_began() -> None:
    lines = list(status_lines(WELL | {"ready": False, "problems": ["broker: away"]}))
    assert lines[:2] == [("ready", "NO"), ("problem", "broker: away")]
    assert page(feed={"state": "waiting", "last_error": "no broker", "since": SINCE})["feed"] == (
        f"waiting; no broker, since {SINCE}"
    )
    assert page(canary={"ok": False, "error": "no ack", "since": SINCE})["canary"] == f"FAILS; no ack, since {SINCE}"
    gone = {"connected": False, "since": SINCE, "last_error": "refused"}
    assert page(connection=gone)["broker"].endswith(f"NOT CONNECTED, since {SINCE}; refused")
    assert page(folding={"stopped": "disk full", "since": SINCE})["folding"] == f"stopped; disk full, since {SINCE}"
    lost = WELL["embedder"] | {
        "error": "EmbedderUnavailable",
        "message": "timed out",
        "hint": "start it",
        "since": SINCE,
    }
    assert page(embedder=lost)["embedder"] == f"m, vector; timed out, since {SINCE} (start it)"


def test_views_behind_and_parked_events_are_named() -> None:
    behind = {"entries": {"lag": 0}, "fulltext": {"lag": 3}, "turns": {"lag": 1_200}}
    lines = page(projections=behind, folding={"parked": {"fulltext": 2}}, dead_letters={"parked": 2})
    assert lines["views"] == "2 views behind by 1,200 at most (turns, fulltext); fulltext parked 2"
    assert lines["dead letters"].startswith("2 events parked")


def test_a_view_that_left_the_group_is_named_with_why_and_since_when() -> None:
    lags = [
        {"projection": "severities", "seq": 7, "error": "ParserException at 8..9", "since": SINCE},
        {"projection": "turns", "seq": 3, "error": None, "since": None},
    ]
    lines = list(status_lines(WELL | {"folding": {"stopped": None, "laggards": lags}}))
    assert [text for name, text in lines if name == "suspended"] == [
        f"severities left the group at 7: ParserException at 8..9, since {SINCE}; the others go on"
    ]


def test_a_report_that_shows_a_token_little_is_shown_as_far_as_it_goes() -> None:
    assert page(**dict.fromkeys(set(WELL) - {"ready"})) == {
        "ready": "yes",
        "journal": "0 entries",
        "views": "at 0",
    }


def test_a_stream_that_does_not_answer_is_said_and_the_rest_of_the_page_with_it() -> None:
    away = {"connected": False, "since": SINCE, "last_error": "refused"}
    lines = page(stream={"head": 9, "unavailable": "JetStream does not answer STREAM.INFO.JOURNAL"}, connection=away)
    assert lines["journal"] == "1,100 entries in the views; stream: JetStream does not answer STREAM.INFO.JOURNAL"
    assert f"NOT CONNECTED, since {SINCE}" in lines["broker"]


def test_views_that_were_put_aside_at_the_start_are_named_with_the_reason() -> None:
    assert "old views" not in page(views_put_aside=None)
    aside = {"name": "views.duckdb.damaged-1", "reason": "the views are damaged: Corrupt", "at": SINCE}
    said = page(views_put_aside=aside)["old views"]
    assert "the views are damaged: Corrupt" in said
    assert "views.duckdb.damaged-1" in said


def test_a_broker_of_ones_own_is_shown_with_its_version_and_that_its_durability_is_unknown() -> None:
    own = {"managed": False, "version": "2.15.1", "durability": "unknown", "url": "nats://127.0.0.1:1"}
    assert page(broker=own)["broker"] == "nats-server 2.15.1, external, durability unknown, nats://127.0.0.1:1"
    assert page()["broker"] == "nats-server 2.12.1, managed, durable, nats://127.0.0.1:1"


def test_texts_that_failed_or_were_put_off_are_said_of_their_reactor() -> None:
    """Ten texts that a model refused showed as "10 to do" for hours."""
    embed = WELL["reactors"][0]
    assert page(reactors=[embed | {"counts": {"put_off": 0, "failed": 0}}])["embed@1"] == "running, 8 to do"
    assert page(reactors=[embed | {"counts": {"put_off": 8, "failed": 1_024}}])["embed@1"] == (
        "running, 8 to do; 8 put off, to be tried again; failed 1,024 times since the start (the log names what and why)"
    )


def test_reactors_with_nothing_to_do_are_one_line() -> None:
    embed = WELL["reactors"][0]
    reactors = [embed | {"name": f"r{n}@1", "pending": 0} for n in range(12)] + [embed]
    lines = page(
        reactors=[*reactors, embed | {"name": "link@1", "pending": 0, "last_error": "disk full", "since": SINCE}]
    )
    assert lines["reactors"] == "12 running with nothing to do"
    assert "disk full" in lines["link@1"]
    assert lines["embed@1"] == "running, 8 to do"
    assert "r1@1" not in lines


def test_views_that_are_all_behind_are_one_fact_with_rate_and_time_left() -> None:
    behind = {f"view{n}": {"lag": 1_200} for n in range(14)}
    assert page(projections=behind)["views"] == "14 views behind by 1,200 at most (all)"
    assert page(projections=behind, per_second=100.0)["views"].endswith("(all), 100/s, 12 s left")
    assert page(projections=behind, per_second=0.0)["views"].endswith("no progress within a second")


def test_it_shows_what_the_last_run_of_each_sweep_counted() -> None:
    ran = {"workspace_id": "acme", "sweep": "operators", "due": SINCE, "finished_at": SINCE, "error": "model is away"}
    waiting = {**ran, "sweep": "decay", "finished_at": None}
    shown = page(memory={"sweeps": [{**ran, "counts": {"proposed": 3, "written": 0}}, waiting]})
    assert shown["sweep operators"] == f"acme, {SINCE}: proposed 3; model is away"
    assert "sweep decay" not in shown
    assert "sweeps" not in shown
    many = [{**ran, "workspace_id": f"w{n}", "counts": {}} for n in range(12)]
    assert page(memory={"sweeps": many})["sweeps"].startswith("2 more")
