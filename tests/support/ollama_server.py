"""An HTTP server with the APIs of Ollama and of OpenAI that fails on request, so that tests meet real sockets.

It runs in a thread of its own: usable from synchronous and asynchronous tests and by other processes.

    with OllamaServer() as server:
        server.fail("slow")          # "ok" ends it
        server.stop()                # connection refused
        server.start()               # back, on the same port
        server.requests              # what it was asked

Vectors are deterministic: each word adds a direction of its own, so texts that share words are similar. The task
prefixes of nomic-embed-text do not count.
"""

from __future__ import annotations

import hashlib
import json
import math
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

Failure = Literal[
    "ok",
    "slow",
    "model-missing",
    "server-error",
    "wrong-dimension",
    "wrong-count",
    "half-answer",
    "not-json",
    "nan",
    "nan-error",
    "zero",
    "reversed",
    "wrong-index",
]
DEFAULT_DIM = 768
SLOW_S = 600.0
"""Longer than any time-out; ended early by the next `fail` or `stop`."""
PREFIXES = ("search_document: ", "search_query: ")


def reference_vector(text: str, dim: int = DEFAULT_DIM) -> list[float]:
    """The vector the server gives for a text, not normalised (Ollama's are, but nothing may rest on it)."""
    for prefix in PREFIXES:
        text = text.removeprefix(prefix)
    total = [0.0] * dim
    for word in text.lower().split() or [""]:
        for index, value in enumerate(_direction(word, dim)):
            total[index] += value
    return total


def _direction(word: str, dim: int) -> tuple[float, ...]:
    data = hashlib.shake_128(word.encode("utf-8", "replace")).digest(2 * dim)
    return tuple(value / 32768.0 for value in struct.unpack(f"<{dim}h", data))


@dataclass(frozen=True)
class SeenRequest:
    """One request, as it came."""

    method: str
    path: str
    body: dict[str, Any]
    authorization: str | None = None

    @property
    def inputs(self) -> list[str]:
        """The texts of an embed request."""
        given = self.body.get("input", [])
        return [given] if isinstance(given, str) else list(given)


@dataclass
class OllamaServer:
    """The server; start and stop it as often as the test likes."""

    models: Sequence[str] = ("nomic-embed-text",)
    dim: int = DEFAULT_DIM
    dims: Mapping[str, int] = field(default_factory=dict)
    """Dimensions of models that have others."""
    requests: list[SeenRequest] = field(default_factory=list)
    rejected: str | None = None
    """Inputs that contain this are refused with 400, and the whole batch with them, as Ollama does."""
    answers: tuple[int, str] | None = None
    """Status and error text given to every request to a model instead of an answer."""
    retry_after: str | None = None
    """Sent with such answers."""
    says: str | Callable[[str], str] = '{"contradicts": ["d1"]}'
    """What its chat models answer, whatever they are asked, or depending on the question (the user's message)."""
    cut: bool = False
    """Whether its chat models say that the answer was cut off at the token limit."""
    biased: str | None = None
    """A model that sees other words in whatever it is given from now on, so that two models rank differently."""
    port: int = 0

    def __post_init__(self) -> None:
        self._failure: Failure = "ok"
        self._changed = threading.Condition()
        self._generation = 0
        self._http: ThreadingHTTPServer | None = None
        self._kept: socket.socket | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """What OLLAMA_HOST should be."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def embed_requests(self) -> list[SeenRequest]:
        """Those for vectors."""
        return [seen for seen in list(self.requests) if seen.path in ("/api/embed", "/v1/embeddings")]

    @property
    def embedded(self) -> list[str]:
        """Every text it was given, in order, prefix included."""
        return [text for seen in self.embed_requests for text in seen.inputs]

    def fail(self, failure: Failure) -> None:
        """Fail like this from now on; requests held by `slow` are let go."""
        with self._changed:
            self._failure = failure
            self._generation += 1
            self._changed.notify_all()

    def start(self) -> None:
        """Listen; on the former port if there was one."""
        owner = self

        class Handler(_Handler):
            server_state = owner

        self._http = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._http.server_address[1]
        self._let_go()
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection: clients are refused from now on, and nobody else gets the port."""
        http, self._http = self._http, None
        if http is None:
            return
        with self._changed:
            self._generation += 1
            self._changed.notify_all()
        http.shutdown()
        http.server_close()
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind(("127.0.0.1", self.port))  # without listening
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _let_go(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._let_go()

    def wait_for_requests(self, count: int, deadline_s: float = 120.0) -> None:
        """Wait until so many embed requests have come; raises `AssertionError` after the deadline."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.embed_requests) >= count, deadline_s):
                raise AssertionError(f"{len(self.embed_requests)} of {count} embed requests after {deadline_s} s")

    def _record(self, seen: SeenRequest) -> None:
        with self._changed:
            self.requests.append(seen)
            self._changed.notify_all()

    def _hold(self) -> None:
        with self._changed:
            began = self._generation
            self._changed.wait_for(lambda: self._generation != began, SLOW_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *args: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that went away are part of the tests."""

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed meanwhile


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: OllamaServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is the library's
        """Say nothing."""

    def do_GET(self) -> None:
        self._record({})
        if self.path == "/api/version":
            self._answer(200, {"version": "0.12.0"})
        elif self.path == "/api/tags":
            self._answer(200, {"models": [{"name": f"{m}:latest", "model": f"{m}:latest"} for m in self._models]})
        elif self.path == "/":
            self._answer(200, {"status": "Ollama is running"})
        else:
            self._answer(404, {"error": "not found"})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body: dict[str, Any] = json.loads(self.rfile.read(length) or b"{}")
        self._record(body)
        if self.path == "/api/show":
            if self._known(body.get("model", "")):
                self._answer(200, {"capabilities": ["embedding"], "model_info": {"embedding_length": self._dim}})
            else:
                self._no_model(body)
        elif self.path in ("/api/embed", "/v1/embeddings"):
            self._embed(body)
        elif self.path in ("/api/chat", "/v1/chat/completions"):
            self._chat(body)
        else:
            self._answer(404, {"error": "not found"})

    @property
    def _models(self) -> Sequence[str]:
        return self.server_state.models

    @property
    def _dim(self) -> int:
        return self.server_state.dim

    def _known(self, model: str) -> bool:
        return model.removesuffix(":latest") in self._models

    def _record(self, body: dict[str, Any]) -> None:
        self.server_state._record(SeenRequest(self.command, self.path, body, self.headers.get("Authorization")))

    def _no_model(self, body: dict[str, Any]) -> None:
        self._answer(404, {"error": f'model "{body.get("model")}" not found, try pulling it first'})

    def _chat(self, body: dict[str, Any]) -> None:
        state = self.server_state
        if state._failure == "slow":
            state._hold()
            if state._http is None:
                self.close_connection = True
                return
        if state._failure == "model-missing" or not self._known(body.get("model", "")):
            self._no_model(body)
        elif state._failure == "server-error":
            self._answer(500, {"error": "llama runner process has terminated"})
        elif state.answers is not None:
            self._answer(state.answers[0], {"error": state.answers[1]})
        else:
            asked = body["messages"][-1]["content"]
            message = {"role": "assistant", "content": state.says if isinstance(state.says, str) else state.says(asked)}
            reason = "length" if state.cut else "stop"
            said: dict[str, Any] = {"model": body["model"], "message": message, "done": True, "done_reason": reason}
            said |= {"prompt_eval_count": 11, "eval_count": 7}
            if self.path != "/api/chat":
                choice = {"index": 0, "message": message, "finish_reason": reason}
                spent = {"prompt_tokens": 11, "completion_tokens": 7}
                said = {"object": "chat.completion", "choices": [choice], "usage": spent}
            answer = b"<html>a proxy's greeting</html>" if state._failure == "not-json" else json.dumps(said).encode()
            self._send(200, answer, cut=state._failure == "half-answer")

    def _embed(self, body: dict[str, Any]) -> None:
        state = self.server_state
        given = body.get("input", [])
        texts = [given] if isinstance(given, str) else list(given)
        failure = state._failure
        if failure == "slow":
            state._hold()
            if state._http is None:  # stopped meanwhile: the connection ends without an answer
                self.close_connection = True
                return
            failure = state._failure if state._failure != "slow" else "ok"
        if state.answers is not None:
            self._answer(state.answers[0], {"error": state.answers[1]})
            return
        if failure == "model-missing" or not self._known(body.get("model", "")):
            self._no_model(body)
            return
        if failure == "server-error":
            self._answer(500, {"error": "llama runner process has terminated"})
            return
        if failure == "nan-error":
            self._answer(500, {"error": "failed to encode response: json: unsupported value: NaN"})
            return
        if self.path == "/v1/embeddings" and "" in texts:
            self._answer(
                400, {"error": {"message": "input cannot be an empty string", "type": "invalid_request_error"}}
            )
            return
        if state.rejected is not None and any(state.rejected in text for text in texts):
            self._answer(400, {"error": "the input length exceeds the context length"})
            return
        dim = state.dims.get(body["model"], state.dim) + (failure == "wrong-dimension")
        if state.biased is not None and body.get("model") == state.biased:
            texts = [" ".join(word[::-1] for word in text.split()) for text in texts]
        vectors = [reference_vector(text, dim) for text in texts]
        if failure == "wrong-count":
            vectors = vectors[:-1]
        elif failure == "nan":
            vectors[-1][0] = math.nan
        elif failure == "zero":
            vectors[-1] = [0.0] * dim
        said: dict[str, Any] = {"model": body.get("model"), "embeddings": vectors, "total_duration": 1}
        if self.path == "/v1/embeddings":
            data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(vectors)]
            if failure == "wrong-index":
                data[-1]["index"] = len(data)
            said = {
                "object": "list",
                "data": data[::-1] if failure == "reversed" else data,
                "usage": {"prompt_tokens": 3},
            }
        answer = json.dumps(said).encode()
        if failure == "not-json":
            answer = b"<html>a proxy's greeting</html>"
        self._send(200, answer, cut=failure == "half-answer")

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, body: bytes, *, cut: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        if self.server_state.retry_after is not None:
            self.send_header("Retry-After", self.server_state.retry_after)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.wfile.flush()
            self.close_connection = True
