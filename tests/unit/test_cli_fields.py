"""Errors about a field name the option of the command line that it came from."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import typer

from crew_journal.schemas.errors import CrewJournalError, InvalidQuery
from crew_journal.schemas.operations.relations import GRAPH
from crew_journal.services.cli import journal, recall
from crew_journal.services.cli.fields import as_options
from crew_journal.services.cli.main import app
from crew_journal.services.cli.words import words_of

RECALLED = recall.WORDS


def said(error: CrewJournalError, options: Mapping[str, str]) -> CrewJournalError:
    with pytest.raises(type(error)) as caught, as_options(options):
        raise error
    return caught.value


def test_the_option_is_named_in_message_and_hint() -> None:
    error = said(InvalidQuery("k: must be a whole number", hint="k: send one, 1 to 50", field="k"), RECALLED)
    assert str(error) == "--k: must be a whole number (--k: send one, 1 to 50)"
    assert error.field == "k", "programs go by the field"


def test_other_fields_in_it_are_options_too_but_no_common_word_is() -> None:
    text = "scope own needs an agent_id; the query and k are right"
    error = said(InvalidQuery(text, hint="name the agent in agent_id", field="agent_id"), RECALLED)
    assert error.message == "scope own needs an --agent; the query and k are right"
    assert error.hint == "name the agent in --agent"


@pytest.mark.parametrize("field", [None, "entry_ids"])
def test_an_error_about_no_option_stays_as_it_is(field: str | None) -> None:
    error = InvalidQuery("the receipt holds no agent_id", hint="see agent_id", field=field)
    assert str(said(error, RECALLED)) == "the receipt holds no agent_id (see agent_id)"


@pytest.mark.parametrize(
    ("command", "options"),
    [("recall", RECALLED), ("list", journal.LIST), ("tail", journal.TAIL), ("graph", words_of(GRAPH))],
)
def test_every_option_named_is_one_of_its_command(command: str, options: Mapping[str, str]) -> None:
    shell = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    known = {name for parameter in shell.params for name in (*parameter.opts, str(parameter.name).upper())}
    known |= {parameter.metavar for parameter in shell.params}
    assert set(options.values()) <= known
