"""Forwards JSON-RPC lines of the Model Context Protocol from stdin to a service, and its answers to stdout.

Clients start tools as programs that use stdin and stdout. Invariant: each input message gives at most one output
message, as one line of UTF-8 on every platform; nothing else is written to stdout. Standard library only, so that it
starts at once.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Final
from urllib.parse import urlencode, urlsplit

from .find import ServiceAddress

PATH: Final = "/mcp"
CALLS_AT_ONCE: Final = 8
CALL_TIMEOUT_S: Final = 60.0
CALL_ID: Final = "Crew-Call-Id"
RUN: Final = "Crew-Run"
"""Header with which the service recognises a resent call, so that it writes only once."""
RETRY_S: Final = 3.0
"""Seconds for which a call is resent, because a killed node may take that long to end."""
PAUSE_S: Final = 0.1
LOOK_S: Final = 2.0
"""Seconds between two probes of an unavailable service."""
_UNREACHABLE: Final = -32000
"""Error code of this proxy, in JSON-RPC's range for servers."""
_NOT_JSON: Final = -32700
_NOT_A_REQUEST: Final = -32600
MAX_LINE_BYTES: Final = 16 << 20
"""Maximum bytes of a message; a request to the service has at most 8 MiB."""
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_NAMES: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_COMPLETE: Final = {"resultType": "complete"}
"""Field that every result needs since revision 2026-07-28; older clients ignore it, like ``ttlMs`` and ``cacheScope``
of a list.
"""
_CHANGED: Final = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

Message = dict[str, Any]


class Unreachable(Exception):
    """The service does not answer; the text says why and what to do."""


class Proxy:
    """Forwards messages.

    Args:
        address: Returns the current address of the service; raises ``Unreachable``. Called again after a failure.
        query: Parameters of the URL: toolsets, and the agent for which the caller acts.
        out: Stream for the answers.
    """

    def __init__(self, address: Callable[[], ServiceAddress], query: Mapping[str, str], out: BinaryIO) -> None:
        self._find = address
        self._path = f"{PATH}?{urlencode(query)}" if query else PATH
        self._out = out
        self._writing = threading.Lock()
        self._own = threading.local()
        self._address: ServiceAddress | None = None
        self._version: str | None = None
        self._run = uuid.uuid4().hex
        self._up = True
        self._ended = threading.Event()

    def run(self, lines: BinaryIO) -> None:
        """Forward every line until the input ends; running calls are completed."""
        try:
            with ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="mcp-call") as pool:
                while line := lines.readline(MAX_LINE_BYTES):
                    if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                        while (rest := lines.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                            pass
                        self._refuse(None, _NOT_A_REQUEST, f"a message has at most {MAX_LINE_BYTES:,} bytes")
                        continue
                    if not line.strip():
                        continue
                    try:
                        message = json.loads(line)
                    except ValueError:
                        self._refuse(None, _NOT_JSON, "not JSON")
                        continue
                    except RecursionError:
                        self._refuse(None, _NOT_JSON, "nested too deeply")
                        continue
                    if not isinstance(message, dict):
                        self._refuse(None, _NOT_A_REQUEST, "send one message a line, a JSON object")
                    elif message.get("method") == "initialize":
                        self._forward(message)  # later messages need the protocol version that this one negotiates
                    else:
                        pool.submit(self._forward, message)
        finally:
            self._ended.set()

    def _forward(self, message: Message) -> None:
        try:
            answer = self._ask(message)
        except Unreachable as error:
            self._went_down()
            answer = _without_service(message, str(error))
        except (ValueError, RecursionError) as error:  # the message cannot be forwarded
            self._own.connection = None
            self._refuse(message.get("id"), _NOT_A_REQUEST, f"the message cannot be sent on ({type(error).__name__})")
            return
        if answer is None:
            return
        if message.get("method") == "initialize" and "result" in answer:
            self._version = answer["result"].get("protocolVersion")
            answer["result"].setdefault("capabilities", {}).setdefault("tools", {})["listChanged"] = True
        self._write(answer)

    def _ask(self, message: Message) -> Message | None:
        body = _bytes(message)
        headers = self._headers(message) | {CALL_ID: uuid.uuid4().hex, RUN: self._run}
        until = time.monotonic() + RETRY_S
        while True:
            try:
                if self._address is None:
                    self._address = self._find()
                return self._post(self._address, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self._own.connection = None
                self._address = None
                if time.monotonic() > until:
                    raise Unreachable(f"the memory does not answer ({type(error).__name__})") from None
                time.sleep(PAUSE_S)

    def _post(self, address: ServiceAddress, body: bytes, headers: dict[str, str]) -> Message | None:
        connection = self._connection(address)
        headers["Authorization"] = f"Bearer {address.token}"
        connection.request("POST", self._path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status == http.client.ACCEPTED or not data:
            return None
        try:
            read = json.loads(data)
        except (ValueError, RecursionError):
            raise Unreachable(f"the memory answers with status {answer.status}") from None
        if not isinstance(read, dict):
            raise Unreachable(f"the memory answers with status {answer.status}")
        if answer.status == http.client.TOO_MANY_REQUESTS:  # too many open requests of the token: resent
            raise ConnectionRefusedError
        if "jsonrpc" not in read:  # a problem of the service: the token, or a parameter of the URL
            raise Unreachable(". ".join(str(read[key]) for key in ("detail", "hint") if read.get(key)))
        return read

    def _connection(self, address: ServiceAddress) -> http.client.HTTPConnection:
        known: tuple[str, http.client.HTTPConnection] | None = getattr(self._own, "connection", None)
        if known is not None and known[0] == address.url:
            return known[1]
        parts = urlsplit(address.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=CALL_TIMEOUT_S)
        self._own.connection = (address.url, connection)
        return connection

    def _headers(self, message: Message) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        modern = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
        if isinstance(modern, str):
            headers["MCP-Protocol-Version"] = modern
            headers["Mcp-Method"] = str(message.get("method", ""))
            name = params.get(_NAMES.get(headers["Mcp-Method"], "")) if isinstance(params, dict) else None
            if isinstance(name, str):
                headers["Mcp-Name"] = _header_text(name)
        elif self._version is not None:
            headers["MCP-Protocol-Version"] = self._version
        return headers

    def _went_down(self) -> None:
        with self._writing:
            if not self._up:
                return
            self._up = False
        threading.Thread(target=self._wait_until_up, name="mcp-look", daemon=True).start()

    def _wait_until_up(self) -> None:
        while not self._ended.wait(LOOK_S):
            try:
                address = self._find()
                parts = urlsplit(address.url)
                connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LOOK_S)
                connection.request("GET", "/healthz")
                if connection.getresponse().status == http.client.OK:
                    self._up = True
                    self._write(_CHANGED)
                    return
            except (OSError, http.client.HTTPException, Unreachable):
                continue

    def _write(self, message: Mapping[str, Any]) -> None:
        line = _bytes(message) + b"\n"
        with self._writing:
            self._out.write(line)
            self._out.flush()

    def _refuse(self, named: object, code: int, why: str) -> None:
        plain = (
            named if isinstance(named, (str, int)) else None
        )  # another type of id may be the reason why the message could not be sent
        self._write({"jsonrpc": "2.0", "id": plain, "error": {"code": code, "message": why}})


def _bytes(message: Mapping[str, Any]) -> bytes:
    """A message on one line; half of a surrogate pair, which UTF-8 cannot hold, becomes ``?``."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _header_text(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def _without_service(message: Message, why: str) -> Message | None:
    """The answer while the service is down: an empty list of tools, and for a call the reason of its failure."""
    if "id" not in message:
        return None
    envelope = {"jsonrpc": "2.0", "id": message["id"]}
    if message.get("method") == "tools/list":
        return {**envelope, "result": {**_COMPLETE, "ttlMs": 0, "cacheScope": "private", "tools": []}}
    if message.get("method") == "tools/call":
        text = f"The memory is not available: {why}. Nothing was read, and a write may be lost. Go on without it and say so."
        return {**envelope, "result": {**_COMPLETE, "content": [{"type": "text", "text": text}], "isError": True}}
    return {**envelope, "error": {"code": _UNREACHABLE, "message": why}}
