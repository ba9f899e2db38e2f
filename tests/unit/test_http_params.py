"""A parameter that a route reads is one that it knows, and no filter: a wrong name fails instead of reading nothing."""

import pytest
from starlette.requests import Request

from crew_journal.schemas.core.errors import InvalidQuery
from crew_journal.services.entries.filters import FILTER_PARAMETERS, parse_filters
from crew_journal.services.http.operations import COMMON, known_names
from crew_journal.services.http.route import Params


def params(query, *groups, filters=False):
    request = Request({"type": "http", "method": "GET", "headers": [], "query_string": query.encode()})
    return Params(request, known_names(*groups, filters=filters))


@pytest.mark.parametrize("name", sorted(FILTER_PARAMETERS))
def test_a_filter_is_not_read_as_text_even_where_it_was_not_given(name):
    """It would be None whatever was asked for, and the route would answer as if nothing had been."""
    for query in (f"{name}=a", ""):
        for known in (params(query, filters=True), params(query, (name,))):
            with pytest.raises(LookupError, match=name):
                known.text(name)


def test_a_name_that_the_route_does_not_know_is_not_read():
    with pytest.raises(LookupError, match="dpeth"):
        params("depth=2", ("depth",)).whole("dpeth")


def test_parameters_beside_the_filters_are_read():
    given = params("workspace_id=+w1+&min_seq=7&crew_id=c1", COMMON, filters=True)
    assert (given.text("workspace_id"), given.whole("min_seq")) == ("w1", 7)
    assert parse_filters(given.items).crew_ids == ("c1",)
    with pytest.raises(InvalidQuery, match="workspace_id is empty"):
        params("workspace_id=+", COMMON)


@pytest.mark.parametrize("query", ["crew=c1", "workspace_id=w1&workspace_id=w2"])
def test_an_unknown_or_repeated_parameter_is_refused(query):
    with pytest.raises(InvalidQuery):
        params(query, COMMON, filters=True)
