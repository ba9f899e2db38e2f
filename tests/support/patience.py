"""Bounds that spare a person's patience, stretched for tests on machines that are slow and busy.

A recall gives its query's vector up after 2 s and a query its ``min_seq`` after 5 s; a node is not ready once its broker was
silent for 1.5 s. Where a test is about something else,
a machine that folds three events in more than that must not fail it; where it is about the bound, it states a short one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from crew_journal.consumers.host.store import ViewStore
from crew_journal.schemas.settings import MIN_SEQ_WAIT_S
from crew_journal.services.index.query_embedding import QUERY_TIMEOUT_S
from crew_journal.services.journal import watch as heartbeat
from crew_journal.services.recall.recall import RecallService

PATIENCE_S = 120.0
LATE_S = heartbeat.LATE_S
"""Seconds of silence after which a node says that its broker does not answer; 120 within ``patient``."""
_wait_for = ViewStore.wait_for


async def _wait_longer(self: ViewStore, seq: int, timeout_s: float, *projections: str, patient: bool = False) -> int:
    wait_s = PATIENCE_S if timeout_s == MIN_SEQ_WAIT_S else timeout_s
    return await _wait_for(self, seq, wait_s, *projections, patient=patient)


@contextmanager
def patient() -> Iterator[None]:
    """Within it, what has the default bounds waits for ``PATIENCE_S`` seconds instead."""
    defaults = RecallService.__init__.__kwdefaults__ or {}
    assert defaults["embed_timeout_s"] == QUERY_TIMEOUT_S, "the bound has moved"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(defaults, "embed_timeout_s", PATIENCE_S)
        patch.setattr(ViewStore, "wait_for", _wait_longer)
        patch.setattr(heartbeat, "LATE_S", PATIENCE_S)
        yield


@contextmanager
def impatient() -> Iterator[None]:
    """Within it, ``min_seq`` is waited for as long as a service does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ViewStore, "wait_for", _wait_for)
        yield
