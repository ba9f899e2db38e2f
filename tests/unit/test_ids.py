"""Ids and keys that stored rows and facts hold."""

from crew_journal.schemas.core.ids import hash64, name_key


def test_the_key_of_a_rows_name_stays_what_stored_views_hold() -> None:
    assert name_key(("ws", "e_1", "model-a")) == 1_116_288_173_885_611_274
    assert name_key(["ws", "similar_to", "a", "b"]) == 15_411_130_807_079_122_164


def test_a_name_of_one_part_has_the_hash_of_its_text_and_parts_are_kept_apart() -> None:
    assert name_key(["ws"]) == hash64("ws")
    assert name_key(["ab", "c"]) != name_key(["a", "bc"])
