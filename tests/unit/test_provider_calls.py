"""Calls of a provider that somebody else wrote end in time and fail with named errors."""

from __future__ import annotations

import asyncio

import pytest

from crew_journal.schemas.core.errors import BackendFailed, EmptyContent, UpstreamTimeout
from crew_journal.services.documents import adapters as outside


async def fails(error: Exception) -> None:
    raise error


async def test_a_call_that_does_not_end_is_an_upstream_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "CALL_S", 0.01)
    with pytest.raises(UpstreamTimeout, match="did not answer"):
        await outside.answered(asyncio.Event().wait())


async def test_a_named_error_passes_and_another_loses_its_text() -> None:
    with pytest.raises(EmptyContent):
        await outside.answered(fails(EmptyContent("content is empty")))
    with pytest.raises(BackendFailed) as failed:
        await outside.answered(fails(ValueError("secret text of a memory")))
    assert "secret" not in str(failed.value)
    assert "ValueError" in str(failed.value)
