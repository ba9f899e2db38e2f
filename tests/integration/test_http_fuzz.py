"""Every route fuzzed from its own OpenAPI description: no server fault, and every answer as described."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.memory_node import SWIFT
from support.patience import impatient
from support.stack import HTTP_TIMEOUT_S, Stack, running_stack

from crew_journal.consumers.health.reactor import HealthReactor
from crew_journal.consumers.models.missing_reactor import IndexReactor
from crew_journal.services.http.app import App

EXAMPLES = max(2, settings.default.max_examples // 20)
"""Per route and mode."""
BOTH_MODES = settings.default.max_examples > 100
"""Bounded, every second route gets what it describes, and the others what they do not."""
ENDLESS = {"/v1/journal/stream", "/v1/admin/sweeps"}
"""Ends only when its client leaves, or when a reactor has compacted, which this stack lacks; other tests cover them."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path_factory.mktemp("fuzz")) as running:
        reactors = [kind(running.context(), running.store, limits=SWIFT) for kind in (HealthReactor, IndexReactor)]
        for reactor in reactors:  # sweeps on request wait for them
            await reactor.start()
        yield running
        for reactor in reactors:
            await reactor.stop()


async def test_the_description_covers_every_route_and_is_valid(stack: Stack) -> None:
    app = App(stack.services)
    described = app.openapi()
    assert described["openapi"].startswith("3.")
    schemathesis.openapi.from_dict(described).validate()


async def test_no_generated_request_is_a_server_fault_or_answered_otherwise_than_described(stack: Stack) -> None:
    schema = schemathesis.openapi.from_dict(App(stack.services).openapi())
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) >= 20

    def fuzz(operation: Any, mode: GenerationMode) -> None:
        @seed(7)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def run(case: Any) -> None:
            case.headers.clear()  # what is no HTTP never reaches a route: the server answers it
            if case.query and "min_seq" in case.query:
                case.query.pop("min_seq")  # would only wait
            if isinstance(case.body, dict):
                case.body.pop("min_seq", None)
            response = case.call(
                base_url=stack.url, headers={"Authorization": f"Bearer {stack.owner}"}, timeout=HTTP_TIMEOUT_S
            )
            case.validate_response(response, checks=CHECKS)

        try:
            run()
        except FailureGroup as found:  # not an ``Exception``, so anyio would skip the end of the fixtures
            raise AssertionError("\n\n".join(map(str, found.exceptions))) from None

    with impatient():
        for number, operation in enumerate(operations):
            if operation.path in ENDLESS:
                continue
            varied = bool(operation.body or operation.query or operation.path_parameters)
            if BOTH_MODES or not varied or number % 2:
                await asyncio.to_thread(fuzz, operation, GenerationMode.POSITIVE)
            if varied and (BOTH_MODES or not number % 2):
                await asyncio.to_thread(fuzz, operation, GenerationMode.NEGATIVE)
