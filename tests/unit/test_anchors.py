"""Files outside the stream that keep the signed checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from crew_journal.schemas.chain.checkpoint import Checkpoint, signed
from crew_journal.schemas.core.errors import Unavailable
from crew_journal.services.chain.anchors import AnchorFile

KEY = bytes(range(32))
NOTES = [signed(Checkpoint(size, bytes([size]) * 32), KEY) for size in (7, 12, 130)]


LENGTH = len(NOTES[1].encode())


@pytest.mark.parametrize("cut", [*range(1, LENGTH, 9), LENGTH - 1])
def test_checkpoint_that_a_full_disk_cut_is_left_out_and_the_later_ones_are_read(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "anchor.txt"
    anchor = AnchorFile(path)
    anchor.write(NOTES[0])
    with path.open("ab") as file:
        file.write(NOTES[1].encode()[:cut])
    anchor.write(NOTES[2])
    whole = [NOTES[1]] if cut == LENGTH - 1 else []  # only its line break was missing
    assert list(anchor.read().notes) == [NOTES[0], *whole, NOTES[2]]


def test_anchor_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"anchor far\.txt cannot be read"):
        AnchorFile(tmp_path, "far.txt").read()


def test_anchor_with_bytes_that_are_not_text_has_the_checkpoints_that_are(tmp_path: Path) -> None:
    path = tmp_path / "anchor.txt"
    path.write_bytes(NOTES[0].encode() + b"\xff\xfe\x00\n" + NOTES[1].encode())
    assert list(AnchorFile(path).read().notes) == NOTES[:2]
