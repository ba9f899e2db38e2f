from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew_journal.schemas.catalogue import catalogue, info_of
from crew_journal.schemas.core.entry import JournalEntry
from crew_journal.schemas.core.errors import InvalidQuery
from crew_journal.schemas.core.timestamps import to_ms
from crew_journal.services.entries.filters import FILTER_PARAMETERS, Phrase, is_quiet, parse_filters, quiet_condition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_lists_win_over_singles() -> None:
    filters = parse_filters([("crew_id", "c1"), ("crew_ids", "c2"), ("crew_ids", "c3,c4"), ("agent_id", "a1")])
    assert filters.crew_ids == ("c2", "c3", "c4")
    assert filters.agent_ids == ("a1",)


def test_types_are_repeatable_comma_separated_and_have_two_names() -> None:
    filters = parse_filters([("types", "run.started, run.failed"), ("entry_type", "x.y"), ("types", "run.failed")])
    assert filters.types == ("run.started", "run.failed", "x.y")


@pytest.mark.parametrize("name", ["types", "exclude_types"])
def test_a_star_means_all_types_that_begin_so_in_sql_and_in_python(name: str) -> None:
    filters = parse_filters([(name, "drawer.*,note.taken")])
    con = duckdb.connect()
    for kind in ("drawer.filed", "drawer.filed.twice", "drawers.filed", "drawer", "note.taken", "note.made"):
        entry = JournalEntry(id="e1", ts=EPOCH, workspace_id="w1", entry_type=kind, summary="x", actor_type="system")
        (found,) = filters.conditions("w1")
        sql = f"SELECT {found.sql} FROM (SELECT ?::VARCHAR AS entry_type)"
        asked = kind == "note.taken" or kind.startswith("drawer.")
        assert filters.matches(entry) is (asked if name == "types" else not asked), kind
        assert con.execute(sql, [*found.params, kind]).fetchall() == [(filters.matches(entry),)], kind
    with pytest.raises(InvalidQuery, match="not an entry type"):
        parse_filters([(name, "*")])


def test_blank_values_are_no_constraint() -> None:
    assert parse_filters([(name, "  ") for name in FILTER_PARAMETERS]) == parse_filters([])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("crew_id", "a b"), ("agent_ids", "ok,n*t"), ("mission_id", "x" * 65), ("trace_id", "_"),
        ("actor_id", "x" * 129), ("types", "Run.Started"), ("exclude_types", "a..b"), ("severities", "fatal"),
        ("severity", "INFO"), ("actor_types", "robot"), ("priorities", "urgent"), ("since", "yesterday"),
        ("until", "2026-11-21T09:30:00"), ("since", "2026-02-30T00:00:00Z"), ("q", "x" * 201),
        ("agent_ids", ",".join(f"a{n}" for n in range(201))),
    ],
)  # fmt: skip
def test_a_malformed_filter_is_refused_and_named(name: str, value: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        parse_filters([(name, value)])
    assert refused.value.field is not None


def test_only_a_time_whose_plus_was_lost_in_a_url_gets_the_hint_how_to_write_it() -> None:
    for value, told in (("2026-11-21T09:30:00 01:00", True), ("2026-11-21T09:30:00", False), ("bad", False)):
        with pytest.raises(InvalidQuery, match="since") as refused:
            parse_filters([("since", value)])
        assert ("%2B" in refused.value.hint) is told, value


def test_a_single_filter_that_is_repeated_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="crew_id is given 2 times"):
        parse_filters([("crew_id", "c1"), ("crew_id", "c2")])


MOMENTS = st.integers(-2_208_988_800_000_000, 7_258_118_400_000_000).map(lambda us: EPOCH + timedelta(microseconds=us))
"""The years 1900 to 2200, in microseconds."""


@given(MOMENTS, st.integers(0, 999))
def test_since_rounds_up_and_until_rounds_down_to_milliseconds(moment: datetime, nanos: int) -> None:
    text = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}{nanos:03d}Z".rjust(30, "0")
    filters = parse_filters([("since", text), ("until", text)])
    assert filters.until_ms == to_ms(moment)
    exact_up = to_ms(moment) + (moment.microsecond % 1000 > 0)
    above = nanos > 0 and moment.microsecond % 1000 == 0
    assert filters.since_ms == (exact_up + 1 if above else exact_up)


@given(MOMENTS)
def test_bounds_with_another_offset_are_the_same_instants(moment: datetime) -> None:
    local = (moment.replace(tzinfo=None) + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(
        26, "0"
    ) + "+02:00"
    assert parse_filters([("until", local)]).until_ms == to_ms(moment)


def test_a_phrase_of_two_hundred_characters_is_accepted_whole() -> None:
    found = parse_filters([("q", "x" * 200)]).phrase
    assert found is not None
    assert len(found.folded) == 200


@pytest.mark.parametrize(
    ("phrase", "text", "found"),
    [
        ("Straße", "the STRASSE was closed", True),
        ("ﬁnal", "the final call", True),
        ("to be", "to be or not", True),
        ("deploy failed", "deploy  failed", True),
        ("deploy failed", "failed deploy", False),
        ('say "hi"', 'they say "hi" twice', True),
        ("a AND b", "b and a", False),
        ("100%", "100% sure", True),
        ("100%", "1000 sure", False),
        ("a_b", "axb", False),
    ],
)
def test_a_phrase_is_literal_folded_text(phrase: str, text: str, found: bool) -> None:
    parsed = Phrase.parse(phrase)
    assert parsed is not None
    assert parsed.matches(0, text, {}) is found
    assert parsed.matches(0, "other", {"deep": [{"note": text}]}) is found


def test_a_phrase_does_not_span_two_texts_nor_match_keys() -> None:
    parsed = Phrase.parse("alpha beta")
    assert parsed is not None
    assert not parsed.matches(0, "alpha", {"alpha beta": "beta"})


def test_quiet_types_are_the_same_in_sql_and_in_python() -> None:
    known = [name.replace(".*", ".anything") for name in catalogue()] + ["brand.new", "sweep.ticked", "x"]
    quiet = quiet_condition(())
    assert quiet is not None
    con = duckdb.connect()
    for entry_type in known:
        sql = f"SELECT {quiet.sql} FROM (SELECT ?::VARCHAR AS entry_type)"
        shown = con.execute(sql, [*quiet.params, entry_type]).fetchall()[0][0]
        assert shown is not info_of(entry_type).quiet, entry_type
        assert is_quiet(entry_type, ()) is info_of(entry_type).quiet
    assert quiet_condition(("container.metrics",)) is None
    assert not is_quiet("container.metrics", ("container.metrics",))


def test_records_of_recalls_are_found_only_where_their_type_is_named() -> None:
    recalled, note = (
        JournalEntry(id="e1", ts=EPOCH, workspace_id="w1", entry_type=kind, summary="the parser", actor_type="system")
        for kind in ("memory.searched", "note.taken")
    )
    by_phrase = parse_filters([("q", "parser")])
    assert [by_phrase.matches(one) for one in (recalled, note)] == [False, True]
    named = parse_filters([("q", "parser"), ("types", "memory.searched")])
    assert [named.matches(one) for one in (recalled, note)] == [True, False]
    assert not parse_filters([]).matches(recalled)
