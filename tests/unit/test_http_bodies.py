"""Bodies that are no entries: what is refused names the field, what is wrong, and what to send instead."""

from __future__ import annotations

import json
from typing import Any, Literal

import orjson
import pytest
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from crew_journal.schemas.core.errors import InvalidEntry, InvalidQuery, InvalidRequest
from crew_journal.services.http.bodies import read_json, read_model


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    count: int = Field(default=1, ge=1)
    share: float = 0.0
    kind: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()


def _request(body: Any) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": orjson.dumps(body), "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": [(b"transfer-encoding", b"chunked")]}, receive)


@pytest.mark.parametrize(
    ("body", "field", "fix"),
    [
        ([], "body", "send an object with name, count, share, kind, names"),
        (None, "body", "send an object with name, count, share, kind, names"),
        ({}, "name", "add name"),
        ({"name": 5}, "name", "send a string"),
        ({"name": ""}, "name", "send at least one character"),
        ({"name": "a", "count": "b"}, "count", "send an integer"),
        ({"name": "a", "share": "b"}, "share", "send a number"),
        ({"name": "a", "count": 0}, "count", "send a number greater than or equal to 1"),
        ({"name": "a", "kind": "c"}, "kind", "use 'a' or 'b'"),
        ({"name": "a", "names": "c"}, "names", "send a JSON array"),
        ({"name": "a", "other": 1}, "other", "leave it out; known fields: name, count, share, kind, names"),
    ],
)
async def test_a_refused_body_names_the_field_and_what_to_send(body: Any, field: str, fix: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await read_model(_request(body), Asked, 1_000)
    assert caught.value.field == field
    assert caught.value.hint == fix
    assert "Asked" not in caught.value.message


async def test_every_problem_of_a_body_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        await read_model(_request({"name": 5, "count": 0, "other": 1}), Asked, 1_000)
    assert [problem.field for problem in caught.value.problems] == ["name", "count", "other"]


def _raw(body: str) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body.encode(), "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": [(b"transfer-encoding", b"chunked")]}, receive)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30, -(10**40), 10**200])
async def test_a_whole_number_that_would_lose_digits_is_refused_by_its_field(number: int) -> None:
    text = str(number)
    for body, fields in (
        (f'{{"summary": "s", "payload": {{"a": [1, {{"b": {text}}}]}}}}', ["payload"]),
        (
            f'[{{"payload": 1}}, {{"payload": {text}, "refs": {{"x":{text}}}}}]',
            ["entries[1].payload", "entries[1].refs"],
        ),
        (text, ["value"]),
    ):
        with pytest.raises(InvalidEntry) as refused:
            await read_json(_raw(body), 10**6)
        assert [problem.field for problem in refused.value.problems] == fields
        assert "as text" in refused.value.hint
    with pytest.raises(InvalidRequest, match="more than 64 bits"):
        await read_model(_raw(f'{{"name": "a", "count": {text}}}'), Asked, 10**6)


@pytest.mark.parametrize(
    "text",
    [
        str(2**64 - 1),
        str(-(2**63)),
        "0.12345678901234567890123",
        "123456789012345678901234567890.5",
        "1e30",
        '"123456789012345678901234567890"',
        '{"123456789012345678901234567890": "-12345678901234567890,"}',
    ],
)
async def test_every_other_number_and_digits_in_a_text_are_read_as_they_are(text: str) -> None:
    assert await read_json(_raw(f'{{"payload": {text}}}'), 1_000) == {"payload": json.loads(text)}


async def test_digits_in_a_body_that_is_nested_too_deeply_to_be_read_twice_are_refused() -> None:
    with pytest.raises(InvalidQuery, match="nested"):
        await read_json(_raw("[" * 400 + str(2**64) + "]" * 400), 10_000)
    with pytest.raises(InvalidQuery):
        await read_json(_raw("1" + "0" * 5_000), 10_000)


@pytest.mark.parametrize("text", ["1e400", "-1e400", "[1, 1e999]"])
async def test_a_number_that_no_double_holds_is_refused_by_its_field(text: str) -> None:
    with pytest.raises(InvalidEntry) as refused:
        await read_json(_raw(f'[{{"payload": 1}}, {{"payload": {{"x": {text}}}}}]'), 10**6)
    assert [problem.field for problem in refused.value.problems] == ["entries[1].payload"]
