"""Which embedder a node takes: what works, unless a model was activated before."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.minilm import minilm_cache
from support.ollama_server import Failure, OllamaServer

from crew_journal.consumers.adapters import choose
from crew_journal.consumers.adapters.choose import EmbedderChoice, choose_embedder
from crew_journal.consumers.adapters.served import Endpoint
from crew_journal.schemas.core.errors import EmbedderError, EmbedderModelMissing, EmbedderUnavailable
from crew_journal.schemas.settings import EmbedderKind

MINILM = "all-MiniLM-L6-v2"
NOMIC = "nomic-embed-text"
NOWHERE = "http://127.0.0.1:1"


async def chosen(
    kind: EmbedderKind, host: str, cache_dir: Path, *, model: str = NOMIC, pinned: str | None = None
) -> tuple[EmbedderChoice, str | None, EmbedderError | None]:
    """The choice, its model id, and what its probe says; closed again."""
    choice = await choose_embedder(kind, ollama_host=host, ollama_model=model, cache_dir=cache_dir, pinned_model=pinned)
    if choice.embedder is None:
        return choice, None, None
    fault: EmbedderError | None = None
    try:
        await choice.embedder.probe()
    except EmbedderError as error:
        fault = error
    await choice.embedder.close()
    return choice, choice.embedder.model_id, fault


async def test_auto_takes_an_ollama_that_answers(server: OllamaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "BOOT_PROBE_TIMEOUT_S", 60.0)
    choice, model, fault = await chosen("auto", server.url, minilm_cache())
    assert (choice.kind, model, fault) == ("ollama", NOMIC, None)
    assert "answers" in choice.reason


async def test_auto_takes_minilm_when_no_ollama_is_there(tmp_path: Path) -> None:
    choice, model, fault = await chosen("auto", NOWHERE, minilm_cache())
    assert (choice.kind, model, fault) == ("minilm", MINILM, None)
    assert "cannot be reached" in choice.reason


@pytest.mark.parametrize("failure", ["model-missing", "server-error", "not-json", "half-answer", "nan", "slow"])
async def test_auto_passes_over_an_ollama_that_does_not_embed(
    server: OllamaServer, failure: Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "BOOT_PROBE_TIMEOUT_S", 0.3)
    server.fail(failure)
    choice, model, fault = await chosen("auto", server.url, minilm_cache())
    assert (choice.kind, model, fault) == ("minilm", MINILM, None)


async def test_auto_without_a_model_chooses_no_embedder_and_says_how_to_get_one(tmp_path: Path) -> None:
    choice, model, _ = await chosen("auto", NOWHERE, tmp_path)
    assert (choice.embedder, choice.kind, model) == (None, "none", None)
    assert "embedder install minilm" in choice.reason
    assert "cannot be reached" in choice.reason


async def test_the_setting_none_chooses_no_embedder_even_if_one_is_available(server: OllamaServer) -> None:
    choice, _, _ = await chosen("none", server.url, minilm_cache(), pinned=MINILM)
    assert choice.embedder is None
    assert server.requests == []


async def test_a_pinned_minilm_stays_although_ollama_appears(server: OllamaServer) -> None:
    choice, model, fault = await chosen("auto", server.url, minilm_cache(), pinned=MINILM)
    assert (choice.kind, model, fault) == ("minilm", MINILM, None)
    assert server.requests == []
    assert "activated before" in choice.reason


async def test_a_pinned_ollama_model_whose_server_is_down_stays_and_is_degraded() -> None:
    choice, model, fault = await chosen("auto", NOWHERE, minilm_cache(), pinned="mxbai-embed-large")
    assert (choice.kind, model) == ("ollama", "mxbai-embed-large")
    assert isinstance(fault, EmbedderUnavailable)


async def test_a_pinned_minilm_that_is_gone_stays_and_says_how_to_get_it_back(
    server: OllamaServer, tmp_path: Path
) -> None:
    choice, model, fault = await chosen("auto", server.url, tmp_path, pinned=MINILM)
    assert (choice.kind, model) == ("minilm", MINILM)
    assert isinstance(fault, EmbedderModelMissing)


async def test_a_pinned_model_wins_over_the_model_setting_of_its_own_kind(server: OllamaServer) -> None:
    server.models = (NOMIC, "mxbai-embed-large")
    _, model, fault = await chosen("ollama", server.url, minilm_cache(), pinned="mxbai-embed-large")
    assert (model, fault) == ("mxbai-embed-large", None)


async def test_an_explicit_kind_wins_over_a_pin_of_another_kind_and_says_so(server: OllamaServer) -> None:
    choice, model, _ = await chosen("ollama", server.url, minilm_cache(), pinned=MINILM)
    assert (choice.kind, model) == ("ollama", NOMIC)
    assert "although all-MiniLM-L6-v2 was activated" in choice.reason


async def test_a_model_switched_to_by_command_stays_whatever_kind_the_setting_names(server: OllamaServer) -> None:
    choice = await choose_embedder(
        "minilm",
        ollama_host=server.url,
        ollama_model=NOMIC,
        cache_dir=minilm_cache(),
        pinned_model="mxbai",
        switched=True,
    )
    assert choice.embedder is not None
    assert (choice.kind, choice.embedder.model_id) == ("ollama", "mxbai")
    await choice.embedder.close()
    off = await choose_embedder(
        "none",
        ollama_host=server.url,
        ollama_model=NOMIC,
        cache_dir=minilm_cache(),
        pinned_model="mxbai",
        switched=True,
    )
    assert off.embedder is None


@pytest.mark.parametrize("kind", ["ollama", "minilm"])
async def test_an_embedder_asked_for_by_name_is_given_even_if_it_does_not_work(
    kind: EmbedderKind, tmp_path: Path
) -> None:
    choice, _, fault = await chosen(kind, NOWHERE, tmp_path)
    assert choice.kind == kind
    assert fault is not None


async def test_auto_passes_over_a_host_that_is_no_address() -> None:
    choice, _, _ = await chosen("auto", "http://[::1", minilm_cache())
    assert choice.kind == "minilm"
    assert "is not a valid address" in choice.reason


@pytest.mark.parametrize("kind", ["auto", "openai"])
async def test_an_endpoint_that_is_set_is_used_without_a_test_and_before_ollama(
    server: OllamaServer, kind: EmbedderKind
) -> None:
    choice = await choose_embedder(
        kind,
        ollama_host=server.url,
        ollama_model=NOMIC,
        cache_dir=minilm_cache(),
        endpoint=Endpoint(NOWHERE),
        endpoint_model="BAAI/bge-m3",
    )
    assert choice.embedder is not None
    assert (choice.kind, choice.embedder.model_id) == ("openai", "openai/BAAI/bge-m3")
    assert server.requests == []
    await choice.embedder.close()


@pytest.mark.parametrize(("pinned", "kind"), [(MINILM, "minilm"), ("mxbai", "ollama"), ("openai/other", "openai")])
async def test_an_endpoint_that_is_set_later_does_not_replace_the_model_in_use(pinned: str, kind: str) -> None:
    choice = await choose_embedder(
        "auto",
        ollama_host=NOWHERE,
        ollama_model=NOMIC,
        cache_dir=minilm_cache(),
        endpoint=Endpoint(NOWHERE),
        pinned_model=pinned,
    )
    assert choice.embedder is not None
    assert (choice.kind, choice.embedder.model_id) == (kind, pinned)
    await choice.embedder.close()
