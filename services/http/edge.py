"""The outermost layer of every request: trace id, Host check, security headers, figures, and the last catch.

Invariants: an answer always leaves with a trace id and the security headers; a page of another site whose name was
re-bound to loopback is refused before any route sees it; an unexpected exception becomes a problem, never a stack.
"""

from __future__ import annotations

import ipaddress
import random
import re
import time
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..problem import log_unexpected
from .metrics import HttpMetrics
from .problems import problem_response, unexpected_response

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}\Z", re.ASCII)
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]+)(:[0-9]*)?\Z", re.ASCII)
_CLIENT_LEFT: Final = 499
"""Status in the figures of a request whose client left before its answer; nginx uses the same number."""
SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
"""Answers are data of one token; nothing of them may be cached, framed, sniffed or run. A page sets a policy of its own."""
_SECURITY_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


class Edge:
    """ASGI middleware.

    Args:
        app: What it wraps.
        hosts: Host names accepted beside addresses, lower case, without port; None for any.
        metrics: Where requests are counted.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] | None, metrics: HttpMetrics) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(hosts)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = Headers(scope=scope)
        trace_id = _trace_id(headers)
        scope.setdefault("state", {})["trace_id"] = trace_id
        began = time.perf_counter()
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                added = [pair for pair in _SECURITY_HEADERS if pair[0] not in own]
                message["headers"] = [*message["headers"], (b"x-trace-id", trace_id.encode()), *added]
            await send(message)

        try:
            if self._hosts is not None and not _is_accepted(headers.get("host", ""), self._hosts):
                refusal = problem_response(
                    HTTPStatus.MISDIRECTED_REQUEST,
                    "Wrong host",
                    "the Host header does not name this service",
                    "use the address the service listens on, or allow the name in CREW_JOURNAL_HTTP_HOSTS",
                    trace_id,
                )
                await refusal(scope, receive, send_marked)
            else:
                await self._app(scope, receive, send_marked)
        except ClientDisconnect:
            status = status or _CLIENT_LEFT  # the client has left; this is not an error of the service
        except Exception as error:
            log_unexpected(error, trace_id)
            if status:
                raise  # the answer has begun: breaking the connection is all that is left
            await unexpected_response(trace_id)(scope, receive, send_marked)
        finally:
            if (share := scope["state"].get("share")) is not None:
                share.end()
            route = getattr(scope.get("route"), "path", "unknown")
            self._metrics.observe(route, scope["method"], status, time.perf_counter() - began)


def _trace_id(headers: Headers) -> str:
    match = _TRACEPARENT.match(headers.get("traceparent", ""))
    return match[1] if match else f"{random.getrandbits(128) | 1:032x}"  # a system call takes 40 µs beside busy threads


def _is_accepted(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header is an address or an accepted name; only a name can be a sign of DNS rebinding."""
    match = _HOST.match(host)
    if match is None:
        return False
    name = match[1]
    if name.lower() in names:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
