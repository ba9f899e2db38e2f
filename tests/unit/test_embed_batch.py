"""Whose fault a failure of the model is, and the small parts of the embed reactor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from crew_journal.consumers.models.embed_batch import (
    FILTER_SUBJECTS,
    DeliveredEntry,
    Embedded,
    Failed,
    Split,
    embed_in_pieces,
)
from crew_journal.consumers.models.embed_reactor import durable_name
from crew_journal.consumers.reacting.pull import Backoff, doubled
from crew_journal.schemas.core.errors import EmbedderBadAnswer, EmbedderInputRejected, EmbedderUnavailable
from crew_journal.schemas.models.rules import EMBEDDABLE

DIM = 2


class Model:
    """An embedder in memory that fails on some texts, on long calls, or altogether."""

    model_id = "m"
    dim = DIM

    def __init__(self, *, poison: frozenset[str] = frozenset(), most: int = 1_000, broken: bool = False) -> None:
        self.poison, self.most, self.broken = poison, most, broken
        self.asked: list[list[str]] = []
        self.probes = 0
        self.down = False

    async def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        self.asked.append(list(texts))
        if self.down:
            raise EmbedderUnavailable("down")
        if self.broken:
            raise KeyError("a fault of the adapter")
        if len(texts) > self.most:
            raise EmbedderUnavailable("too slow")
        if self.poison & set(texts):
            raise EmbedderInputRejected("refused")
        return [text.encode().ljust(4 * DIM, b"\x00")[: 4 * DIM] for text in texts]

    async def embed_query(self, text: str) -> bytes:
        return (await self.embed_documents([text]))[0]

    async def probe(self) -> None:
        self.probes += 1
        if self.down:
            raise EmbedderUnavailable("down")

    async def close(self) -> None:
        """Nothing to give back."""


def candidates(*texts: str) -> list[DeliveredEntry]:
    return [cast("DeliveredEntry", SimpleNamespace(text=text)) for text in texts]


async def pieces(model: Model, texts: Sequence[str], dim: int | None = None) -> list[Any]:
    return [piece async for piece in embed_in_pieces(model, candidates(*texts), dim)]


TEXTS = [f"t{n}" for n in range(64)]


async def test_a_working_model_is_asked_once_and_not_probed() -> None:
    model = Model()
    (piece,) = await pieces(model, TEXTS)
    assert [c.text for c in piece.candidates] == TEXTS
    assert (len(model.asked), model.probes) == (1, 0)


@pytest.mark.parametrize("poison", [{"t0"}, {"t63"}, {"t7", "t8", "t40"}, set(TEXTS)])
async def test_exactly_the_refused_texts_fail_and_order_is_kept(poison: set[str]) -> None:
    done: list[str] = []
    failed: set[str] = set()
    for piece in await pieces(Model(poison=frozenset(poison)), TEXTS):
        if isinstance(piece, Failed):
            assert isinstance(piece.error, EmbedderInputRejected)
            failed.add(piece.candidate.text)
            done.append(piece.candidate.text)
        elif isinstance(piece, Embedded):
            assert len(piece.vectors) == len(piece.candidates)
            done += [c.text for c in piece.candidates]
    assert failed == poison
    assert done == TEXTS


async def test_a_model_too_slow_for_a_batch_is_asked_for_less() -> None:
    found = await pieces(Model(most=16), TEXTS)
    assert [len(p.candidates) for p in found if isinstance(p, Embedded)] == [16] * 4
    assert all(isinstance(p.error, EmbedderUnavailable) for p in found if isinstance(p, Split))


async def test_a_model_that_is_down_gets_no_halved_batches() -> None:
    model = Model()
    model.down = True
    with pytest.raises(EmbedderUnavailable):
        await pieces(model, TEXTS)
    assert len(model.asked) == 1, "no halving against a model that is not there"


async def test_what_was_done_before_the_model_went_down_is_kept() -> None:
    model = Model(poison=frozenset({"t63"}))
    done: list[str] = []

    async def consume() -> None:
        async for piece in embed_in_pieces(model, candidates(*TEXTS), None):
            if isinstance(piece, Embedded):
                done.extend(c.text for c in piece.candidates)
                model.down = True

    with pytest.raises(EmbedderUnavailable):
        await consume()
    assert done == TEXTS[:32]


async def test_a_fault_of_the_adapter_is_bounded_to_its_texts() -> None:
    found = await pieces(Model(broken=True), ["a", "b"])
    failed = [piece for piece in found if isinstance(piece, Failed)]
    assert [type(piece.error) for piece in failed] == [EmbedderBadAnswer, EmbedderBadAnswer]


async def test_other_dimensions_than_the_journal_has_are_the_models_fault() -> None:
    with pytest.raises(EmbedderBadAnswer, match="dimensions"):
        await pieces(Model(), TEXTS, dim=DIM + 1)


def test_the_filters_are_the_policys_types_on_entries_and_on_control() -> None:
    assert len(FILTER_SUBJECTS) == 2 * len(EMBEDDABLE) + 4
    assert {"journal.*.*.*.chat.>", "journal.*.*.*.message.posted"} < set(FILTER_SUBJECTS), "speech"
    assert "journal.*.*.*.peer.escalation" in FILTER_SUBJECTS
    assert "control.*.memory.consolidated" in FILTER_SUBJECTS


def test_durable_names_are_safe_and_tell_models_apart() -> None:
    models = ["nomic-embed-text", "nomic-embed-text:v1.5", "nomic/embed.text:v1-5", "a" * 96, "a" * 95]
    names = {durable_name(1, model) for model in models}
    assert len(names) == len(models)
    assert all(re.fullmatch(r"embed-v1-[A-Za-z0-9-]{1,50}", name) for name in names)
    assert durable_name(2, models[0]) not in names


def test_pauses_double_up_to_the_last_and_restart_after_a_success() -> None:
    backoff = Backoff(1.0, 60.0, lambda: 1.0)
    assert [backoff.next() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff.failures == 8
    backoff.reset()
    assert backoff.next() == 1
    assert Backoff(1.0, 60.0, lambda: 0.0).next() == 0.5
    assert doubled(1.0, 60.0, 10_000) == 60.0
