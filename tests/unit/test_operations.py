"""Operations are declared once: every shell has each of them, and a new one appears everywhere by itself."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pydantic import Field, StrictInt

from crew_journal.schemas.core.operation import Answer, Effect, Operation, Request, Workspace
from crew_journal.schemas.core.ports import ViewReader
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.operations import ALL
from crew_journal.services import generate
from crew_journal.services.cli import main as cli_operations
from crew_journal.services.cli import printers
from crew_journal.services.cli.commands import CommandGroup
from crew_journal.services.client.core import HttpRequest as Wire
from crew_journal.services.client.core import request_of
from crew_journal.services.client.generated import AsyncOperations, Operations
from crew_journal.services.desk import Caller, Desk
from crew_journal.services.http import operations as http_operations
from crew_journal.services.http.app import App
from crew_journal.services.http.route import AppServices, HttpLimits

ROOT = Path(__file__).parents[2]


def test_names_routes_and_commands_are_unique() -> None:
    for values in (
        [operation.name for operation in ALL],
        [operation.route for operation in ALL],
        [operation.command for operation in ALL if operation.command],
    ):
        assert len(values) == len(set(values))


def test_an_operation_has_at_most_twelve_fields() -> None:
    assert len(fields(Operation)) <= 12


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.name)
def test_every_operation_and_every_field_explains_itself(operation: Operation) -> None:  # type: ignore[type-arg]
    assert operation.summary
    assert all(field.description for field in operation.request.model_fields.values())


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.name)
def test_every_field_of_the_path_is_a_required_field_of_the_request(operation: Operation) -> None:  # type: ignore[type-arg]
    assert all(operation.request.model_fields[name].is_required() for name in operation.path_fields)


@pytest.mark.parametrize("client", [Operations, AsyncOperations])
def test_every_operation_is_a_method_with_every_field(client: type) -> None:
    for operation in ALL:
        parameters = inspect.signature(getattr(client, operation.name)).parameters
        assert set(parameters) - {"self"} == set(operation.request.model_fields)


def test_the_committed_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    for name in generate.FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    for name in generate.TABLES:
        shutil.copy(ROOT / name, tmp_path / name)
    generate.write(tmp_path)
    formatted = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--quiet",
        "--line-length",
        "120",
        str(tmp_path / generate.CLIENT),
        str(tmp_path / generate.SYNC),
    ]
    subprocess.run(formatted, check=True)
    for name in generate.FILES:
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), f"{name} is old: run `make generate`"


class EchoRequest(Request):
    """Say a word back.

    Written by a test only.
    """

    word: str = Field(description="The word.", examples=["hello"])
    times: StrictInt = Field(default=1, ge=1, le=3, description="How often.")
    workspace_id: Workspace = None


class EchoAnswer(Answer):
    """The word."""

    said: str


ECHO = Operation(
    name="echo",
    request=EchoRequest,
    answer=EchoAnswer,
    route="GET /v1/echo/{word}",
    effect=Effect.READS,
    command="echo",
)


async def echo(caller: Caller, asked: EchoRequest) -> EchoAnswer:
    return EchoAnswer(said=f"{caller.workspace_id}: " + " ".join([asked.word] * asked.times))


@pytest.fixture
def with_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """One model and one handler more; every shell loops over ``ALL``."""
    everything = (*ALL, ECHO)
    for module in (http_operations, cli_operations, generate):
        monkeypatch.setattr(module, "ALL", everything)


class Tokens:
    """Knows one token."""

    def authenticate(self, bearer: str) -> Principal:
        return Principal(token_id=bearer, role=Role.AGENT, workspace_id="acme", agent_id="ada")


class NoNotices:
    """No run has a notice."""

    def waiting(self, principal: Principal) -> int:
        return 0


def app_with(desk: Desk) -> App:
    absent: Any = None
    services = AppServices(
        journal=absent,
        queries=absent,
        tail=absent,
        desk=desk,
        tokens=cast(Any, Tokens()),
        accounts=absent,
        status=absent,
        operations=absent,
        models=absent,
        mcp=absent,
        notices=cast(Any, NoNotices()),
        stores=absent,
        history=absent,
        limits=HttpLimits(),
    )
    return App(services)


async def test_a_new_operation_is_one_model_and_one_handler(
    with_echo: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(cast(ViewReader, None))
    desk.bind(ECHO, echo)
    app = app_with(desk)
    assert app.openapi()["paths"]["/v1/echo/{word}"]["get"]["summary"] == "Say a word back"
    assert "## echo" in generate.docs_text()

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        headers = {"Authorization": "Bearer cj_x"}
        answer = await http.get("/v1/echo/hello", params={"times": "2"}, headers=headers)
        refused = await http.get("/v1/echo/hello", params={"times": "9"}, headers=headers)
    assert answer.json() == {"said": "acme: hello hello"}
    assert (refused.status_code, refused.json()["field"]) == (400, "times")

    text = generate.client_text().replace("from ...schemas.", "from crew_journal.schemas.")
    text = text.replace("from .", "from crew_journal.services.client.").replace(
        f"from ...{__name__}", f"from {__name__}"
    )
    text = re.sub(r"from \S*test_operations import .*\n", "", text)
    made: dict[str, Any] = {"ECHO": ECHO, "EchoAnswer": EchoAnswer}
    exec(compile(text, "generated", "exec", dont_inherit=True), made)
    asked: list[Wire] = []

    class Client(made["Operations"]):  # type: ignore[misc, valid-type]  # made above
        def _operate(self, operation: Operation[Any, Any], given: dict[str, Any]) -> Any:
            asked.append(request_of(operation, given))
            return EchoAnswer(said="hi")

    class AsyncClient(made["AsyncOperations"]):  # type: ignore[misc, valid-type]  # made above
        async def _operate(self, operation: Operation[Any, Any], given: dict[str, Any]) -> Any:
            asked.append(request_of(operation, given))
            return EchoAnswer(said="hi")

    assert Client().echo("hello", times=2).said == (await AsyncClient().echo("hello", times=2)).said == "hi"
    assert [(one.method, one.path, list(one.params)) for one in asked] == [
        ("GET", "/v1/echo/hello", [("times", "2")])
    ] * 2

    @contextmanager
    def client(*_: object, **__: object) -> Iterator[Any]:
        yield Client()

    monkeypatch.setattr(printers, "client", client)
    commands = CommandGroup()
    cli_operations.add_commands(commands, defaultdict(CommandGroup))
    commands.main(["echo", "hello", "--times", "2", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == {"said": "hi"}
