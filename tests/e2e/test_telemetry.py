"""Spans and durations of a real node, as a receiver of OTLP over HTTP gets them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families
from support.cli import Cli, Up, eventually
from support.mcp_client import connected_to
from support.monitoring import METRIC, expressions, labels_of

from crew_journal.schemas.operations import ALL
from crew_journal.services.telemetry import APPEND, MEMORY_OPERATIONS, is_wanted

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "AKIAIOSFODNN7EXAMPLE"


class Receiver:
    """What was sent to it."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []

    @property
    def spans(self) -> list[Span]:
        sent = [ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"]
        return [span for one in sent for of in one.resource_spans for scope in of.scope_spans for span in scope.spans]

    def span(self, name: str, **attributes: str) -> Span | None:
        return next(
            (span for span in self.spans if span.name == name and attributes.items() <= told(span).items()), None
        )

    @property
    def metrics(self) -> dict[str, list[dict[str, Any]]]:
        """Histogram → the attributes of its points."""
        sent = [ExportMetricsServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/metrics"]
        return {
            metric.name: [told(point) for point in metric.histogram.data_points]
            for one in sent
            for of in one.resource_metrics
            for scope in of.scope_metrics
            for metric in scope.metrics
        }

    @property
    def everything(self) -> bytes:
        return b"".join(body for _, body in self.bodies)


def told(span: Any) -> dict[str, Any]:
    return {
        one.key: one.value.int_value if one.value.HasField("int_value") else one.value.string_value
        for one in span.attributes
    }


@contextmanager
def receiving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(up: Up) -> httpx.Client:
    token = Path(up.facts["owner_token_file"]).read_text().strip()
    return httpx.Client(
        base_url=up.facts["http"], headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60
    )


async def test_operations_are_spans_of_the_callers_trace_and_durations_without_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving(monkeypatch) as receiver, Cli(tmp_path / "data").up() as up, asked(up) as http:
        text = {"text": "the heron nests by the weir", "agent_id": "ada", "workspace_id": "acme"}
        kept = http.post("/v1/memory/remember", json=text).json()
        asking = {"query": "where does the heron nest", "workspace_id": "acme", "min_seq": kept["seq"]}
        found = http.post("/v1/recall", json=asking, headers={"traceparent": TRACEPARENT, "Crew-Run": "run-7"}).json()
        assert len(found["hits"]) == 1
        entries = [{"entry_type": "note.taken", "summary": f"note {n}", "workspace_id": "acme"} for n in range(3)]
        assert http.post("/v1/journal", json=entries).status_code == 201
        assert http.post("/v1/recall", json={"query": "x", "k": 0}).status_code == 400
        async with connected_to(up.facts["http"], http.headers["Authorization"].removeprefix("Bearer ")) as client:
            meta: Any = {"traceparent": f"00-{TRACE}-{'c' * 16}-01"}
            await client.call_tool("recall", {"query": "where does the heron nest"}, meta=meta)

        searched = eventually(lambda: receiver.span("search_memory", **{"gen_ai.conversation.id": "run-7"}), "a search")
        assert (searched.trace_id.hex(), searched.parent_span_id.hex()) == (TRACE, PARENT)
        assert searched.kind == Span.SPAN_KIND_SERVER
        assert told(searched) == {
            "gen_ai.operation.name": "search_memory",
            "gen_ai.provider.name": "crew_journal",
            "gen_ai.memory.store.id": "acme",
            "gen_ai.memory.record.count": 1,
            "gen_ai.conversation.id": "run-7",
            "crew_journal.operation": "recall",
        }
        created = eventually(lambda: receiver.span("create_memory", **{"crew_journal.operation": "remember"}), "one")
        assert told(created)["gen_ai.memory.record.id"] == kept["entry_id"]
        assert told(created)["gen_ai.agent.id"] == "ada"
        assert told(created)["crew_journal.seq"] == kept["seq"]
        appended = eventually(lambda: receiver.span("create_memory", **{"crew_journal.operation": APPEND}), "appends")
        assert told(appended)["gen_ai.memory.record.count"] == 3
        assert told(appended)["gen_ai.memory.store.id"] == "acme"
        refused = eventually(lambda: receiver.span("search_memory", **{"error.type": "InvalidQuery"}), "the refusal")
        assert refused.status.code == 2
        tool = eventually(lambda: receiver.span("tools/call recall"), "the SDK's span of the tool")
        assert (tool.trace_id.hex(), tool.parent_span_id.hex()) == (TRACE, "c" * 16)
        inner = eventually(
            lambda: next((span for span in receiver.spans if span.parent_span_id == tool.span_id), None), "its search"
        )
        assert (inner.name, inner.kind) == ("search_memory", Span.SPAN_KIND_INTERNAL)

        points = eventually(lambda: receiver.metrics.get("gen_ai.client.operation.duration"), "durations")
        names = {point["gen_ai.operation.name"] for point in points}
        assert names == {"search_memory", "create_memory"}
        assert all(point["gen_ai.provider.name"] == "crew_journal" for point in points)
        assert http.post("/v1/memory/health", json={"workspace_id": "acme"}).status_code == 200
        board_and_alerts_find_their_figures(http.get("/metrics").text)
        assert b"deployment.environment.name" in receiver.everything
        for words in (b"heron", b"nests", b"note 1"):
            assert words not in receiver.everything, "texts only on request"


def board_and_alerts_find_their_figures(metrics: str) -> None:
    """Prometheus stays: every figure and label that ``deploy/monitoring`` asks for is one of this running node."""
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for expression in expressions():
        names = METRIC.findall(expression)
        assert names, expression
        assert set(names) <= labels.keys(), expression
        assert labels_of(expression) <= set().union(*(labels[name] for name in names)), expression


async def test_texts_are_in_spans_on_request_and_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with receiving(monkeypatch) as receiver:
        with Cli(tmp_path / "data", {"CREW_JOURNAL_OTEL_CONTENT": "true"}).up() as up, asked(up) as http:
            kept = http.post("/v1/memory/remember", json={"text": "the heron nests by the weir"}).json()
            query = f"where does the heron nest? my key is {SECRET}"
            answer = http.post("/v1/recall", json={"query": query, "min_seq": kept["seq"]})
            assert len(answer.json()["hits"]) == 1, answer.text
        searched = receiver.span("search_memory")
        assert searched is not None, "what waits is sent when the node stops"
        [record] = json.loads(told(searched)["gen_ai.memory.records"])
        assert (record["id"], record["content"]) == (kept["entry_id"], "the heron nests by the weir")
        assert 0 <= record["score"] <= 1
        assert told(searched)["gen_ai.memory.query.text"].startswith("where does the heron nest? my key is [redacted:")
        assert SECRET.encode() not in receiver.everything
        assert {path for path, _ in receiver.bodies} == {"/v1/traces"}


def test_a_receiver_that_is_away_costs_no_answer_and_no_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(monkeypatch):
        pass  # the port is free again
    with Cli(tmp_path / "data").up() as up, asked(up) as http:
        assert http.post("/v1/memory/remember", json={"text": "all the same"}).status_code == 201
        assert up.stop() == 0


def test_without_a_receiver_nothing_of_the_sdk_is_imported() -> None:
    program = "import sys, crew_journal.services.runtime.node; print('opentelemetry.sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "TRUE"}, False),
    ],
)
def test_the_environment_says_whether_there_is_a_receiver(environ: dict[str, str], wanted: bool) -> None:
    assert is_wanted(environ) is wanted


def test_every_search_is_one_of_the_conventions_and_every_name_is_an_operation() -> None:
    known = {operation.name for operation in ALL}
    assert MEMORY_OPERATIONS.keys() - {APPEND} <= known
    searches = {operation.name for operation in ALL if "query" in operation.request.model_fields} - {"bisect"}
    assert {name: MEMORY_OPERATIONS.get(name) for name in searches} == dict.fromkeys(searches, "search_memory")
