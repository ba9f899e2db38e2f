"""Looking at a running stack from outside: memory of its processes, its status, and when it has caught up.

Invariant: what is measured here costs the stack no more than the request that is sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
from support.processes import Stack

from bench.figures import MB

SETTLE_DEADLINE_S = 120.0
SETTLED_SHARE = 0.03
"""CPU of the stack, as a share of one core, below which it counts as idle."""
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the stack's processes.

    Attributes:
        rss: Sum of resident sets, shared pages counted in each.
        pss: Sum of proportional sets, shared pages divided; what the machine would get back.
        by_name: Resident bytes by process name.
    """

    rss: int
    pss: int
    by_name: Mapping[str, int]

    @property
    def described(self) -> str:
        """By process, in MB."""
        parts = (f"{name} {size / MB:.0f}" for name, size in self.by_name.items())
        return f"RSS by process: {', '.join(parts)} MB; PSS {self.pss / MB:.0f} MB"


def memory_of(stack: Stack) -> Memory:
    """Memory of the service and its children now."""
    rss = pss = 0
    by_name: dict[str, int] = {}
    for process in stack.processes():
        try:
            full = process.memory_full_info()
            name = process.name()
        except psutil.NoSuchProcess:
            continue  # a child that ended while we looked
        rss += full.rss
        pss += full.pss
        by_name[name] = by_name.get(name, 0) + full.rss
    return Memory(rss, pss, by_name)


def cpu_seconds(stack: Stack) -> float:
    """CPU seconds the service and its children have used."""
    return sum(p.cpu_times().user + p.cpu_times().system for p in stack.processes())


def wait_idle(stack: Stack, deadline_s: float = SETTLE_DEADLINE_S, looks: int = 1) -> None:
    """Return once the stack has used almost no CPU for a second.

    Args:
        stack: What is watched.
        deadline_s: Seconds it may take: a model that works through thousands of entries needs minutes.
        looks: Seconds on end that it must have been so: what a stack does once it is idle is then done, too.

    Raises:
        TimeoutError: If it does not come to rest.
    """
    until = time.monotonic() + deadline_s
    quiet = 0
    while time.monotonic() < until:
        before = cpu_seconds(stack)
        time.sleep(LOOK_S)  # an interval of measurement
        quiet = quiet + 1 if cpu_seconds(stack) - before < SETTLED_SHARE * LOOK_S else 0
        if quiet == looks:
            return
    raise TimeoutError("the stack does not come to rest")


def client_of(stack: Stack, **options: Any) -> httpx.Client:
    """A client with the owner's token."""
    headers = {"Authorization": f"Bearer {stack.token}"}
    return httpx.Client(base_url=stack.url, headers=headers, timeout=60, trust_env=False, **options)


def async_client_of(stack: Stack) -> httpx.AsyncClient:
    """The same for asyncio."""
    headers = {"Authorization": f"Bearer {stack.token}"}
    return httpx.AsyncClient(base_url=stack.url, headers=headers, timeout=60, trust_env=False)


def wait_folded(stack: Stack, seq: int, deadline_s: float = 900.0) -> float:
    """Wait until the views have passed ``seq``; returns the seconds it took.

    Raises:
        TimeoutError: If they have not in time.
    """
    began = time.monotonic()
    with client_of(stack) as client:
        while time.monotonic() - began < deadline_s:
            answer = client.get("/v1/journal", params={"limit": 1, "min_seq": seq, "workspace_id": "bench-00"})
            if answer.status_code == 200:
                return time.monotonic() - began
            if answer.status_code != 503:
                answer.raise_for_status()
    raise TimeoutError(f"the views have not passed {seq} after {deadline_s:g} s")
