"""Spans and metrics by OpenTelemetry, after the conventions for memory of generative AI, sent over OTLP/HTTP.

Why: the operator of a crew sees in one trace what an agent asked and what its memory did. Invariants: OpenTelemetry's SDK
is imported only if a variable ``OTEL_EXPORTER_OTLP_*ENDPOINT`` names a receiver; its standard variables configure
everything else. A span has no text of a memory or a question unless the setting ``otel_content`` asks for it, and then with
credentials replaced. Nothing here raises because a receiver is away: the SDK drops what it cannot send.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..schemas.core.errors import CrewJournalError
from ..schemas.core.limits import DEFAULT_WORKSPACE
from ..schemas.core.principal import Principal
from ..schemas.text.secrets import find_secrets, without
from .parts import Part

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

_ENDPOINTS: Final = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))
SERVICE: Final = "crew-journal"
"""``service.name``, unless ``OTEL_SERVICE_NAME`` or ``OTEL_RESOURCE_ATTRIBUTES`` names another."""
PROVIDER: Final = "crew_journal"
DURATION: Final = "gen_ai.client.operation.duration"
BOUNDARIES: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Bounds of the histogram in seconds, as the conventions recommend."""
FLUSH_MS: Final = 2_000
"""Milliseconds that a stop waits for the receiver."""
APPEND: Final = "append"
"""The append of entries, which is a route and not an operation."""
MEMORY_OPERATIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "recall",
            "render",
            "recall_brief",
            "conversation_search",
            "document_search",
            "search_memory",
            "context_assemble",
            "memory_block",
            "layered_query",
            "kg_query",
            "palace_search",
            "palace_render",
            "palace_recall",
            "palace_context",
            "wake_up",
        ),
        "search_memory",
    ),
    **dict.fromkeys(
        (
            APPEND,
            "publish_entry",
            "remember",
            "append_daily",
            "layered_write",
            "kg_add",
            "add_drawer",
            "diary_write",
            "add_lesson",
            "import_drawers",
            "import_log",
        ),
        "create_memory",
    ),
    **dict.fromkeys(
        (
            "correct",
            "retract",
            "restore",
            "set_priority",
            "document_restore",
            "document_retract",
            "update_drawer",
            "restore_drawer",
            "kg_invalidate",
            "fact_verify",
        ),
        "update_memory",
    ),
    **dict.fromkeys(
        ("document_write", "memory_file", "put_drawer", "set_identity", "import_bundle", "consolidate"),
        "upsert_memory",
    ),
    **dict.fromkeys(
        ("forget", "delete_drawer", "apply_retention", "forget_operator", "delete_operator"), "delete_memory"
    ),
}
"""Operation → ``gen_ai.operation.name``. Operations that are not about memories have spans under their own name."""
_LISTS: Final = ("hits", "results", "facts", "drawers", "entries")
"""Fields of answers with the memories that were found."""
_IDS: Final = ("entry_id", "id", "drawer_id", "fact_id")
_TEXTS: Final = ("summary", "text", "content")


def is_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment names a receiver."""
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return not disabled and any(environ.get(name, "").strip() for name in _ENDPOINTS)


class Telemetry(Part):
    """Records spans and durations of operations, and sends them.

    Args:
        version: Version of Crew Journal.
        instance: The node's name, ``service.instance.id``.
        content: Whether questions and found texts are recorded.

    Raises:
        ImportError: If the extra ``crew-journal[otel]`` is not installed.
    """

    def __init__(self, version: str, instance: str, *, content: bool) -> None:
        from opentelemetry import metrics, trace
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._content = content
        named = {"service.version": version, "service.instance.id": instance}
        if "OTEL_SERVICE_NAME" not in os.environ and "service.name" not in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        ):
            named["service.name"] = SERVICE
        resource = Resource.create(named)
        self._spans: TracerProvider = TracerProvider(resource=resource)
        readers = []
        if os.environ.get("OTEL_TRACES_EXPORTER") != "none":
            self._spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        if os.environ.get("OTEL_METRICS_EXPORTER") != "none":
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
        self._meters: MeterProvider = MeterProvider(readers, resource)
        trace.set_tracer_provider(self._spans)  # the MCP SDK records its spans with it
        metrics.set_meter_provider(self._meters)
        self._tracer: Tracer = self._spans.get_tracer(SERVICE, version)
        self._duration: Histogram = self._meters.get_meter(SERVICE, version).create_histogram(
            DURATION,
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )

    async def stop(self) -> None:
        """Send what waits, for a bounded time."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._spans.force_flush(FLUSH_MS)
        self._spans.shutdown()
        self._meters.shutdown(FLUSH_MS)

    @contextmanager
    def joined(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Within the block, spans belong to the trace that W3C headers (``traceparent``) name."""
        from opentelemetry import context, propagate

        token = context.attach(propagate.extract(headers))
        try:
            yield
        finally:
            context.detach(token)

    @contextmanager
    def operation(
        self, name: str, principal: Principal, fields: Mapping[str, Any], run: str | None
    ) -> Iterator[Callable[[Any], None]]:
        """A span and a measured duration; the block passes the answer to the yielded function.

        Args:
            name: The operation, or ``APPEND``.
            principal: The caller.
            fields: The request.
            run: The run of the request, ``gen_ai.conversation.id``.
        """
        from opentelemetry.trace import SpanKind, StatusCode, get_current_span

        of_memory = MEMORY_OPERATIONS.get(name)
        workspace = fields.get("workspace_id") or principal.workspace_id or DEFAULT_WORKSPACE
        measured: dict[str, Any] = {}
        if of_memory is not None:
            measured = {"gen_ai.operation.name": of_memory, "gen_ai.provider.name": PROVIDER}
        known = {
            **measured,
            "crew_journal.operation": name,
            "gen_ai.memory.store.id": workspace if of_memory else None,
            "gen_ai.agent.id": principal.agent_id or fields.get("agent_id"),
            "gen_ai.conversation.id": run,
            "gen_ai.memory.query.text": self._query(fields),
        }
        attributes = {key: value for key, value in known.items() if isinstance(value, str)}
        within = get_current_span().get_span_context()
        kind = SpanKind.INTERNAL if within.is_valid and not within.is_remote else SpanKind.SERVER
        began = time.perf_counter()
        with self._tracer.start_as_current_span(
            of_memory or name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield lambda answer: span.set_attributes(self._of_answer(of_memory, answer))
            except BaseException as error:
                measured["error.type"] = type(error).__name__
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR, error.title if isinstance(error, CrewJournalError) else "")
                raise
            finally:
                if of_memory is not None:
                    self._duration.record(time.perf_counter() - began, measured)

    def _query(self, fields: Mapping[str, Any]) -> str | None:
        query = fields.get("query")
        return _redacted(query) if self._content and isinstance(query, str) else None

    def _of_answer(self, of_memory: str | None, answer: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if isinstance(seq := getattr(answer, "seq", None), int):
            found["crew_journal.seq"] = seq
        if of_memory is None:
            return found
        records = next((value for name in _LISTS if isinstance(value := getattr(answer, name, None), tuple)), None)
        if records is not None:
            found["gen_ai.memory.record.count"] = len(records)
            if self._content and of_memory == "search_memory":
                found["gen_ai.memory.records"] = json.dumps([_record(record) for record in records])
        elif of_memory != "search_memory":
            record_id = next((value for name in _IDS if isinstance(value := getattr(answer, name, None), str)), None)
            if record_id is not None:
                found |= {"gen_ai.memory.record.id": record_id, "gen_ai.memory.record.count": 1}
        return found


def _redacted(text: str) -> str:
    return without(text, find_secrets(text))


def _record(record: Any) -> dict[str, Any]:
    """A found memory in the form of the conventions: id, content, score."""
    texts = (getattr(record, name, None) for name in _TEXTS)
    ids = (getattr(record, name, None) for name in _IDS)
    shown: dict[str, Any] = {"content": _redacted(next((text for text in texts if isinstance(text, str)), ""))}
    if (record_id := next((known for known in ids if isinstance(known, str)), None)) is not None:
        shown["id"] = record_id
    if isinstance(score := getattr(record, "score", None), float):
        shown["score"] = score
    return shown
