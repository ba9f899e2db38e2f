"""What a person and what a machine see of the log."""

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from crew_journal.services.cli.logs import LEVEL_VARIABLE, configure_logging, plain_line
from crew_journal.services.cli.output import say

_module_log = structlog.get_logger(__name__)


class Screen(io.StringIO):
    """A terminal that keeps what it shows."""

    def isatty(self) -> bool:
        return True


def logged(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, level: str = "info") -> list[str]:
    monkeypatch.setattr(sys, "stderr", stderr)
    configure_logging(level)
    log = structlog.get_logger("test")
    log.info("feed.consumer_created", seq=1)
    log.warning("nats.disconnected", connection="writer", error=None)
    return stderr.getvalue().splitlines()


def test_on_a_terminal_only_what_needs_attention_is_shown_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    assert logged(monkeypatch, Screen()) == ["warning: nats disconnected (connection writer)"]


def test_a_file_gets_every_event_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    lines = [json.loads(line) for line in logged(monkeypatch, io.StringIO())]
    assert [line["event"] for line in lines] == ["feed.consumer_created", "nats.disconnected"]
    assert lines[0]["seq"] == 1


def test_an_explicit_log_level_gives_json_of_that_level_on_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, "info")
    assert [json.loads(line)["level"] for line in logged(monkeypatch, Screen())] == ["info", "warning"]


def test_a_quieter_level_stays_quieter_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    assert logged(monkeypatch, Screen(), "error") == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_log_on_a_full_disk_loses_lines_and_fails_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115  # closing it fails, too
    monkeypatch.setattr(sys, "stderr", full)
    with pytest.raises(OSError, match="No space left"):
        print("a line", file=sys.stderr, flush=True)
    configure_logging("info")
    structlog.get_logger("test").error("folding_stopped")
    logging.getLogger("test").error("a library's line")
    say("stopping")
    sys.stderr.flush()
    with pytest.raises(OSError, match="No space left"):
        full.close()


@pytest.mark.parametrize("level", ["error", "info"])
def test_what_one_test_makes_of_the_log_is_over_in_the_next(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """A logger of a module that was used meanwhile follows as well, whatever the order of the tests."""
    with structlog.testing.capture_logs() as seen:
        _module_log.warning("here")
    assert [event["event"] for event in seen] == ["here"]
    logged(monkeypatch, io.StringIO(), level)
    _module_log.info("there")


def test_nothing_that_is_logged_can_act_on_the_terminal() -> None:
    line = plain_line(None, "", {"event": "x.y", "level": "error", "timestamp": "t", "why": "\x1b[2J\nowned"})
    assert line == "error: x y (why \\x1b[2J\\nowned)"


SERVICE = """
import asyncio, gc, logging, sys, threading, warnings
from crew_journal.services.cli.logs import configure_logging
from crew_journal.services.cli.output import report_error, say
from crew_journal.schemas.core.errors import NotFound
configure_logging("info", service=True)
say("broker: at nats://127.0.0.1")
say("warning: two\\nlines")
report_error(NotFound("gone", hint="look elsewhere"), as_json=False)
report_error(NotFound("gone", hint="look elsewhere"), as_json=True)
print("{no JSON", "\\ud800", file=sys.stderr)
warnings.warn("old", DeprecationWarning, stacklevel=1)
warnings.warn("odd", stacklevel=1)
for name in ("uvicorn.error", "nats.aio.client", "faststream", "httpx"):
    try:
        {}[name]
    except KeyError:
        logging.getLogger(name).exception("a library's\\n%s", name)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
class Odd:
    def __del__(self):
        raise ValueError("unraisable")
Odd()
async def fails():
    raise LookupError("in a task")
async def main():
    task = asyncio.create_task(fails())
    await asyncio.wait({task})
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
asyncio.run(main())
gc.collect()
raise RuntimeError("the end")
"""


def test_every_log_line_of_a_service_is_json() -> None:
    ran = subprocess.run([sys.executable, "-c", SERVICE], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 1
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines if "error" not in line)
    said = [(line["level"], line["message"]) for line in lines if line.get("event") == "said"]
    assert said[:4] == [
        ("info", "broker: at nats://127.0.0.1"),
        ("warning", "warning: two"),
        ("info", "lines"),
        ("error", "error: gone"),
    ]
    assert [line["error"]["message"] for line in lines if "error" in line] == ["gone"]
    assert {"uvicorn.error", "nats.aio.client", "faststream", "httpx", "py.warnings", "asyncio", "python"} <= {
        line.get("logger") for line in lines
    }
    traces = " ".join(line.get("exception", "") for line in lines)
    for died in ("ZeroDivisionError", "unraisable", "in a task", "the end"):
        assert died in traces
