"""What connections without a token can do to a running service: nothing that others notice."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support import hostile
from support.processes import Stack, wait_for

CONNECTIONS = 32
GROWTH_BYTES = 50 * 2**20
P99_S = 0.05
"""What the issue asks for."""


def healthz_s(host: str, port: int) -> float:
    """Seconds of one request on a connection of its own."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection(host, port, timeout=120)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.close()
    return time.perf_counter() - began


def p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


def best_p99(took: list[float], windows: int) -> float:
    """The least p99 of so many parts of the time: a busy machine does not hold up all of them."""
    size = len(took) // windows
    return min(p99(took[first : first + size]) for first in range(0, size * windows, size))


@pytest.mark.parametrize(
    ("seconds", "windows"),
    [pytest.param(12, 8, id="bounded"), pytest.param(60, 1, id="full size", marks=pytest.mark.nightly)],
)
def test_slow_huge_and_silent_connections_take_no_memory_and_hold_up_nobody(
    tmp_path: Path, seconds: int, windows: int
) -> None:
    """Bounded, other tests may run beside it: it passes by the best part, or by ten times what it takes without attack."""
    with Stack(tmp_path / "data") as stack:
        host, _, port = stack.up().http.removeprefix("http://").partition(":")
        warm = http.client.HTTPConnection(host, int(port), timeout=120)
        warm.request("GET", "/openapi.json")  # described once, in 0.4 s
        assert warm.getresponse().read()
        warm.close()
        quiet = p99([healthz_s(host, int(port)) for _ in range(200)])
        service = psutil.Process(stack.pid)
        before = service.memory_info().rss
        attack = [sys.executable, hostile.__file__, host, port, str(seconds), str(CONNECTIONS)]
        process = subprocess.Popen(attack, stderr=subprocess.PIPE)
        took, most, connected = [], 0, 0
        while process.poll() is None:
            took.append(healthz_s(host, int(port)))
            most = max(most, service.memory_info().rss)
            connected = max(connected, len(service.net_connections("tcp")))
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert connected > CONNECTIONS // 2  # those that were cut come again after a moment
        assert most - before <= GROWTH_BYTES
        allowed = P99_S if windows == 1 else max(P99_S, 10 * quiet)
        assert best_p99(took, windows) <= allowed, (p99(took), quiet)
        wait_for(lambda: healthz_s(host, int(port)) < P99_S, "a quiet service")
        assert "Traceback" not in stack.log_path.read_text()
