"""What connections without a token can do to a running service: nothing that others notice."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support import hostile
from support.processes import Stack

CONNECTIONS = 32
GROWTH_BYTES = 50 * 2**20
HEALTHZ_S = 0.05
"""What the issue asks for, of the 99th percentile."""


def waited_s(pid: int) -> float:
    """Seconds that a process' main thread stood in the run queue while others had the processor."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:  # not Linux
        return 0.0


def healthz_s(host: str, port: int, pid: int) -> float:
    """Seconds of one request on a connection of its own, but for what other processes of the machine took."""
    waited = waited_s(pid) + waited_s(os.getpid())
    began = time.perf_counter()
    connection = http.client.HTTPConnection(host, port, timeout=120)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.close()
    took = time.perf_counter() - began
    return max(0.0, took - (waited_s(pid) + waited_s(os.getpid()) - waited))


@pytest.mark.parametrize(
    ("seconds", "share"),
    [pytest.param(5, 0.5, id="bounded"), pytest.param(60, 0.99, id="full size", marks=pytest.mark.nightly)],
)
def test_slow_huge_and_silent_connections_take_no_memory_and_hold_up_nobody(
    tmp_path: Path, seconds: int, share: float
) -> None:
    """Bounded, the median must do: other tests that run beside it take the processors away from a request in a hundred."""
    with Stack(tmp_path / "data") as stack:
        host, _, port = stack.up().http.removeprefix("http://").partition(":")
        warm = http.client.HTTPConnection(host, int(port), timeout=120)
        warm.request("GET", "/openapi.json")  # described once, in 0.4 s
        assert warm.getresponse().read()
        warm.close()
        service = psutil.Process(stack.pid)
        before = service.memory_info().rss
        attack = [sys.executable, hostile.__file__, host, port, str(seconds), str(CONNECTIONS)]
        process = subprocess.Popen(attack, stderr=subprocess.PIPE)
        took, most, connected = [], 0, 0
        while process.poll() is None:
            took.append(healthz_s(host, int(port), stack.pid))
            most = max(most, service.memory_info().rss)
            connected = max(connected, len(service.net_connections("tcp")))
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert connected > CONNECTIONS // 2  # those that were cut come again after a moment
        assert most - before <= GROWTH_BYTES
        assert sorted(took)[int(len(took) * share)] <= HEALTHZ_S
        assert "Traceback" not in stack.log_path.read_text()
