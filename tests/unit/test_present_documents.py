"""What a node counts of a document that it writes: the views' row and what is on its way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.documents.rules import SCAN_OVERLAP, joint, sha256_of
from crew_journal.schemas.documents.tables import DocumentRow
from crew_journal.services.documents.checks import OwnerSizes, WrittenDocument

TEXT = st.text(st.sampled_from("aé\n"), min_size=1, max_size=12) | st.just("x" * (SCAN_OVERLAP + 5))


def row(content: str, seq: int) -> DocumentRow:
    return DocumentRow(
        key=1,
        workspace_id="acme",
        owner="a-ada",
        tier="AGENT",
        doc_key=None,
        content=content,
        sha256=sha256_of(content),
        bytes=len(content.encode()),
        finding=None,
        clean=0,
        retracted=False,
        base_seq=1,
        seq=seq,
        writes=1,
        created_ms=0,
        updated_ms=0,
        actor_type="agent",
        actor_id="ada",
    )


@given(TEXT, st.lists(st.tuples(TEXT, st.booleans()), max_size=5))
def test_size_and_end_are_those_of_the_text_with_all_that_is_pending(
    stored: str, writes: list[tuple[str, bool]]
) -> None:
    document = WrittenDocument(OwnerSizes())
    document.take(row(stored, 7))
    text = stored
    for piece, whole in writes:
        document.reserve(piece, whole=whole)
        text = piece if whole else text + joint(text, piece)
    assert document.size == len(text.encode())
    assert document.end == text[-SCAN_OVERLAP:]


def test_a_write_is_counted_until_the_views_have_passed_it() -> None:
    document = WrittenDocument(OwnerSizes())
    first, second = document.reserve("one", whole=False), document.reserve("two", whole=False)
    first.seq, second.seq = 8, 9
    document.take(row("one\n", 8))
    assert (document.size, document.pending) == (8, [second])
    document.take(row("one\ntwo\n", 9))
    assert (document.size, document.pending) == (8, [])


def test_an_older_row_does_not_take_the_place_of_a_newer_one() -> None:
    document = WrittenDocument(OwnerSizes())
    document.take(row("new", 9))
    document.take(row("old", 8))
    assert document.content == "new"
    sizes = OwnerSizes()
    for seq, size in ((9, 30), (8, 20), (10, 10)):
        sizes.take(("AGENT", None), seq, size)
    assert sizes.total == 10
