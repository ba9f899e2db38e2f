"""Figures for Prometheus.

Invariant: labels are bounded and name no tenant: routes as templates, methods and statuses, never ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds; recall is to take 10 ms, 50 ms at the 99th percentile."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    """Counts requests and entries, and shows the node's gauges; one registry per application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "crew_journal_http_request_seconds",
            "Time to answer a request.",
            ("route", "method"),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self._requests = Counter(
            "crew_journal_http_requests", "Requests answered.", ("route", "method", "status"), registry=self.registry
        )
        self._appended = Counter(
            "crew_journal_http_entries_appended", "Entries acked over HTTP.", registry=self.registry
        )
        self._tails = Gauge("crew_journal_http_tails", "Live tails being watched.", registry=self.registry)
        self._node: dict[str, Gauge] = {}
        self._labelled = lru_cache(maxsize=1_024)(self._label)  # prometheus_client takes 50 µs to find them

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """One answered request."""
        known = method if method in _METHODS else "OTHER"
        histogram, counter = self._labelled(route, known, str(status))
        histogram.observe(seconds)
        counter.inc()

    def _label(self, route: str, method: str, status: str) -> tuple[Histogram, Counter]:
        return self._seconds.labels(route, method), self._requests.labels(route, method, status)

    def appended(self, entries: int) -> None:
        """Entries acked."""
        self._appended.inc(entries)

    def render(self, gauges: Mapping[str, float], tails: int) -> bytes:
        """The text that Prometheus reads."""
        self._tails.set(tails)
        for name, value in gauges.items():
            if name not in self._node:
                self._node[name] = Gauge(name, name.replace("_", " "), registry=self.registry)
            self._node[name].set(value)
        return generate_latest(self.registry)
