"""What a workspace expects of recalls: red, green and silent; a red one stops the activation of a model."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.cli import Cli
from support.ollama_server import OllamaServer
from support.stack import Stack
from support.two_models import BLUE, RED, running

from crew_journal.schemas.core.errors import CrewJournalError, ExpectationsNotMet, NotFound
from crew_journal.schemas.core.expectations import Expectation, unmet
from crew_journal.schemas.core.principal import Role


@pytest.mark.parametrize(
    ("expected", "hits", "problems"),
    [
        ({"must_contain": ["Red  crane"]}, ["the red crane\na-ada/AGENT.md"], ()),
        ({"must_contain": ["a-ada/AGENT.md"]}, ["the red crane\na-ada/AGENT.md"], ()),
        ({"must_contain": ["blue"]}, ["the red crane"], ("no hit contains 'blue'",)),
        ({"must_not_contain": ["crane"]}, ["a", "the CRANE"], ("hit 2 contains 'crane'",)),
        ({"must_be_silent": True}, [], ()),
        ({"must_be_silent": True}, ["a"], ("must be silent, but there are 1 hits",)),
    ],
)
def test_expectation_is_met_by_words_and_keys(expected: dict, hits: list[str], problems: tuple[str, ...]) -> None:  # type: ignore[type-arg]
    assert unmet(Expectation(query="q", **expected), hits) == problems


async def test_expectations_of_workspace_are_met_or_name_what_does_not_hold(stack: Stack) -> None:
    token = (await stack.token(Role.AGENT, "expects", agent="ada", crew="red")).plaintext
    async with stack.client(token) as ada, stack.client() as owner:
        first = await ada.remember("The crane of the harbour was built in May")
        done = await ada.remember("The crane of the harbour is painted red")
        await ada.recall("crane", min_seq=done.seq)
        given = {
            "colour": {
                "query": "which colour has the crane of the harbour?",
                "mode": "search",
                "must_contain": ["painted red"],
            },
            "then": {
                "query": "which colour has the crane of the harbour?",
                "mode": "search",
                "as_of": first.seq,
                "must_contain": ["built in May"],
                "must_not_contain": ["painted red"],
            },
            "none": {"query": "who feeds the quaggas at night?", "must_be_silent": True},
            "wrong": {
                "query": "crane of the harbour",
                "mode": "search",
                "must_not_contain": ["harbour"],
                "scope": "own",
                "agent_id": "ada",
            },
        }
        answer = await owner.run_expectations(expectations=given, workspace_id="expects")
        assert {result.name: result.met for result in answer.results} == {
            "colour": True,
            "then": True,
            "none": True,
            "wrong": False,
        }
        assert answer.results[3].problems[0] == "hit 1 contains 'harbour'"
        with pytest.raises(CrewJournalError, match=r"expectations\.colour\.querry"):
            await owner.run_expectations(expectations={"colour": {"querry": "x"}}, workspace_id="expects")
        with pytest.raises(CrewJournalError, match="must_be_silent contradicts"):
            await owner.configure_workspace(
                expectations={"a": {"query": "x", "must_be_silent": True, "must_contain": ["y"]}},
                workspace_id="expects",
            )
        stored = await owner.configure_workspace(expectations=given, workspace_id="expects")
        again = await owner.run_expectations(workspace_id="expects", min_seq=stored.view_seq)
        assert (again.passed, again.failed) == (3, 1)


async def test_words_are_those_that_were_written_not_their_escapes(stack: Stack) -> None:
    text = 'call it "Heron" from now on, its path is C:\\tmp\\x\nand the dog is Rex'
    async with stack.client() as owner:
        before = await owner.append({"entry_type": "note", "summary": "first", "workspace_id": "quotes"})
        boat = {"entry_type": "chat.message", "summary": "Maria named the boat", "workspace_id": "quotes"}
        named = await owner.append({**boat, "payload": {"text": text, "port": 4222}})
        query = {"query": "what did Maria name the boat?", "mode": "search"}
        words = ['call it "Heron" from', "C:\\tmp\\x and the dog", '"port": 4222']
        given = {"there": {**query, "must_contain": words}, "not": {**query, "must_not_contain": words[:1]}}
        answer = await owner.run_expectations(expectations=given, workspace_id="quotes", min_seq=named.seq)
        assert {result.name: result.met for result in answer.results} == {"there": True, "not": False}
        found = await owner.bisect(
            query["query"], str(before.seq), until=str(named.seq), contains=words[0], workspace_id="quotes"
        )
        assert (found.why, found.event and found.event.entry_id) == ("written", named.id)


async def test_trial_of_model_without_vectors_is_refused(stack: Stack) -> None:
    async with stack.client() as owner:
        await owner.remember("The crane is red", workspace_id="trial")
        given = {"crane": {"query": "the crane", "mode": "search", "must_contain": ["red"]}}
        with pytest.raises(NotFound, match="there are no vectors of misspelt in the workspace trial"):
            await owner.run_expectations(expectations=given, model="misspelt", workspace_id="trial")
        with pytest.raises(NotFound, match="there are no vectors of misspelt in the workspace trial"):
            await owner.replay(model="misspelt", workspace_id="trial")


async def test_activation_of_model_that_breaks_an_expectation_is_refused_unless_forced_with_a_reason(
    tmp_path: Path, two_models: OllamaServer
) -> None:
    async with running(tmp_path, two_models) as journal:
        await journal.client.add_model(BLUE)
        await journal.escalate(0, 3)
        await journal.until_vectors(RED, 3)
        await journal.until_vectors(BLUE, 3)
        red = {"pump": {"query": "the pump is stuck", "must_contain": ["no entry says this"], "mode": "search"}}
        stored = await journal.client.configure_workspace(expectations=red)
        tried = await journal.client.run_expectations(model=BLUE, min_seq=stored.view_seq)
        assert [(result.met, result.model) for result in tried.results] == [(False, BLUE)]
        for force, reason in ((False, "better"), (True, "")):
            with pytest.raises(ExpectationsNotMet, match="pump: no hit contains"):
                await journal.client.activate_model(BLUE, force=force, reason=reason)
        assert await journal.top() == (RED, None)
        forced = await journal.client.activate_model(BLUE, force=True, reason="the expectation is out of date")
        assert forced.changed
        green = {"pump": {"query": "the pump is stuck", "must_contain": ["pump"], "mode": "search"}}
        stored = await journal.client.configure_workspace(expectations=green)
        await journal.client.run_expectations(min_seq=stored.view_seq)
        assert (await journal.client.activate_model(RED)).changed


def test_command_test_exits_red_and_writes_junit_offline(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data")
    cli("publish", "the red crane is sold")
    file, report = tmp_path / "expect.yaml", tmp_path / "report.xml"
    file.write_text(
        "sold:\n  query: what happened to the crane?\n  mode: search\n  must_contain: [red crane]\n"
        "lost:\n  query: the crane\n  mode: search\n  must_not_contain:\n  - sold\n"
    )
    done = cli("test", str(file), "--junit", str(report), code=1)
    assert "NOT MET" in done.out
    suite = ET.parse(report).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    file.write_text("sold:\n  query: the crane\n  mode: search\n  must_contain: [red crane]\n")
    cli("test", str(file), "--save")
    cli("test")
    file.write_text("sold:\n  query: the crane\n  must: [red crane]\n")
    wrong = cli("test", str(file), code=None)
    assert wrong.code not in (0, 1)
    assert "expectations.sold.must" in wrong.err
