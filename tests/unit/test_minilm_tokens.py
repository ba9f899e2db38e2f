"""MiniLM's tokens as bits, and the table of word pieces: computed from the weights, kept with a stamp."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.minilm import minilm_cache

from crew_journal.consumers.adapters import minilm_weights as minilm_static
from crew_journal.consumers.adapters.minilm import PASSAGE_PIECES, QUANTISER, MiniLmEmbedder, counting, mean, token_bits
from crew_journal.consumers.adapters.minilm_encoder import DIM, MiniLmEncoder
from crew_journal.consumers.adapters.minilm_weights import (
    MODEL_FILES,
    MODEL_ID,
    TABLE_FILE,
    TABLE_STAMP,
    ensure_static_table,
    ensure_table,
    find_static_table,
    load_table,
)
from crew_journal.schemas.text.vocabulary import SIZE, vocabulary

WEIGHTS = MODEL_FILES["model.safetensors"]
CHAT = Path(__file__).resolve().parents[2] / "bench" / "data" / "everyday_chat.txt"


@pytest.fixture(scope="module")
def encoder():
    made = MiniLmEncoder(minilm_cache() / MODEL_ID)
    yield made
    made.close()


def test_a_row_of_the_table_is_the_sign_of_the_word_by_itself(encoder: MiniLmEncoder) -> None:
    table = ensure_static_table(minilm_cache())
    assert table is not None
    assert table.shape == (SIZE, DIM // 8)
    known = vocabulary()
    words = [known[word] for word in ("harbour", "violin", "##ing")]
    alone = [encoder.hidden([(known["[CLS]"], word, known["[SEP]"])])[1] for word in words]
    rows = np.unpackbits(table[words], axis=1).astype(bool)
    # the mean over all pieces is not known here, but a state far from it keeps its sign
    decided = np.abs(alone) > 1.5
    assert decided.sum() > 20
    assert (rows == (np.array(alone) > 0))[decided].mean() > 0.99


def test_words_that_are_alike_have_bits_that_are_alike() -> None:
    table = ensure_static_table(minilm_cache())
    assert table is not None
    known = vocabulary()

    def apart(one: str, other: str) -> int:
        return int(np.bitwise_count(table[known[one]] ^ table[known[other]]).sum())

    assert apart("dog", "puppy") < apart("dog", "tuesday")
    assert apart("paint", "painting") < apart("paint", "harbour")


def test_a_table_that_does_not_match_its_stamp_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (TABLE_FILE, TABLE_STAMP):
        shutil.copy(minilm_cache() / MODEL_ID / name, tmp_path)
    assert load_table(tmp_path, WEIGHTS) is not None
    assert load_table(tmp_path, "other weights") is None
    with (tmp_path / TABLE_FILE).open("r+b") as file:
        file.write(b"\x00\xff\x00")
    assert load_table(tmp_path, WEIGHTS) is None
    fresh = np.zeros((SIZE, DIM // 8), np.uint8)
    monkeypatch.setattr(
        minilm_static, "MiniLmEncoder", lambda _directory: type("E", (), {"close": lambda self: None})()
    )
    monkeypatch.setattr(minilm_static, "build_table", lambda _encoder: fresh)
    assert ensure_table(tmp_path, WEIGHTS) is fresh
    again = load_table(tmp_path, WEIGHTS)
    assert again is not None
    assert np.array_equal(again, fresh)


def test_without_weights_there_is_no_table(tmp_path: Path) -> None:
    assert find_static_table(tmp_path) is None
    assert ensure_static_table(tmp_path) is None


def test_tokens_are_what_lies_above_the_mean_and_stop_words_are_left_out(encoder: MiniLmEncoder) -> None:
    pieces = [encoder.word_pieces("The harbour of the violin!"), encoder.word_pieces("the of and")]
    hidden = encoder.hidden(pieces)
    harbour, nothing = token_bits(hidden, pieces)
    kept = [at for at, piece in enumerate(pieces[0]) if counting()[piece]]
    assert len(kept) == 2
    assert harbour.bits == np.packbits(hidden[kept] > mean(), axis=1).tobytes()
    assert (harbour.quantiser, harbour.dim, harbour.first_passage) == (QUANTISER, DIM, 2)
    assert (nothing.bits, nothing.first_passage) == (b"", 0)


def test_a_long_text_has_two_passages(encoder: MiniLmEncoder) -> None:
    pieces = [encoder.word_pieces("garden violin " * 140)]
    [tokens] = token_bits(encoder.hidden(pieces), pieces)
    assert tokens.first_passage == PASSAGE_PIECES
    assert len(tokens.bits) // (DIM // 8) == 254


def test_the_mean_is_that_of_the_chat_it_names(encoder: MiniLmEncoder) -> None:
    pieces = [encoder.word_pieces(line) for line in CHAT.read_text("utf-8").splitlines()]
    assert np.abs(encoder.hidden(pieces).mean(axis=0) - mean()).max() < 1e-3


async def test_vectors_and_tokens_come_of_one_call_and_are_those_of_single_calls() -> None:
    embedder = MiniLmEmbedder(minilm_cache())
    texts = ["The violin is behind the harbour door", "We sold two parsers yesterday"]
    both = await embedder.embed_documents_tokens(texts)
    assert [vector for vector, _ in both] == await embedder.embed_documents(texts)
    vector, tokens = await embedder.embed_query_tokens(texts[0])
    assert np.frombuffer(vector, "<f4") == pytest.approx(np.frombuffer(both[0][0], "<f4"), abs=1e-5)
    differing = np.bitwise_count(np.frombuffer(tokens.bits, np.uint8) ^ np.frombuffer(both[0][1].bits, np.uint8)).sum()
    assert differing <= 4  # a float next to the mean may fall either way in another batch
    await embedder.close()
