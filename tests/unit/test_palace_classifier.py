"""The classifier on 300 texts of our own that were labelled by written rules (tests/data/palace_labelled.tsv)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from crew_journal.schemas.palace.exchanges import classify, prose_of
from crew_journal.schemas.text.kinds import Marker, lexicon

LABELLED = Path(__file__).parents[1] / "data" / "palace_labelled.tsv"
TYPES = ("decision", "preference", "milestone", "problem", "emotional")
PAGE = Path(__file__).parents[2] / "docs" / "palace.md"


def labelled() -> list[tuple[str, str]]:
    lines = LABELLED.read_text("utf-8").splitlines()
    return [(kind, text) for kind, text in (line.split("\t") for line in lines if line and not line.startswith("#"))]


def figures() -> dict[str, tuple[float, float]]:
    """Precision and recall of each type."""
    pairs = Counter((kind, classify(text).memory_type) for kind, text in labelled())
    found: dict[str, tuple[float, float]] = {}
    for kind in TYPES:
        right = pairs[kind, kind]
        said = sum(count for (_, given), count in pairs.items() if given == kind)
        true = sum(count for (label, _), count in pairs.items() if label == kind)
        found[kind] = right / said, right / true
    return found


def test_the_labelled_texts_are_three_hundred_with_fifty_of_each_label():
    assert Counter(kind for kind, _ in labelled()) == dict.fromkeys((*TYPES, "general"), 50)


def test_the_page_of_the_palace_states_the_measured_precision_and_recall():
    page = PAGE.read_text("utf-8")
    for kind, (precision, recall) in figures().items():
        assert f"| `{kind}` | {precision:.2f} | {recall:.2f} |" in page


def test_no_language_makes_a_text_code():
    for _, text in labelled():
        assert prose_of(text) == text


@given(st.sampled_from([one for some in lexicon().markers.values() for one in some]), st.data())
@settings(max_examples=400)
def test_what_a_marker_matches_begins_with_one_of_its_openings(marker: Marker, data: st.DataObject):
    text = data.draw(st.from_regex(marker.pattern, fullmatch=True))
    assert text.startswith(marker.openings)
    assert marker.count(text) == len(marker.pattern.findall(text)) >= 1
