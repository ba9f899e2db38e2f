"""Bodies that are no entries: what is refused names the field, what is wrong, and what to send instead."""

from __future__ import annotations

from typing import Any, Literal

import orjson
import pytest
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from crew_journal.services.http.bodies import InvalidBody, read_model


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

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


@pytest.mark.parametrize(
    ("body", "field", "fix"),
    [
        ([], "body", "send an object with name, count, share, kind, names"),
        (None, "body", "send an object with name, count, share, kind, names"),
        ({}, "name", "add name"),
        ({"name": 5}, "name", "send a string"),
        ({"name": ""}, "name", "send at least one character"),
        ({"name": "a", "count": "b"}, "count", "send a whole number"),
        ({"name": "a", "share": "b"}, "share", "send a number"),
        ({"name": "a", "count": 0}, "count", "send a number greater than or equal to 1"),
        ({"name": "a", "kind": "c"}, "kind", "use 'a' or 'b'"),
        ({"name": "a", "names": "c"}, "names", "send a JSON array"),
        ({"name": "a", "other": 1}, "other", "leave it out; there are name, count, share, kind, names"),
    ],
)
async def test_a_refused_body_names_the_field_and_what_to_send(body: Any, field: str, fix: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        await read_model(_request(body), Asked, 1_000)
    assert caught.value.field == field
    assert caught.value.hint == fix
    assert "Asked" not in caught.value.message


async def test_every_problem_of_a_body_is_named() -> None:
    with pytest.raises(InvalidBody) as caught:
        await read_model(_request({"name": 5, "count": 0, "other": 1}), Asked, 1_000)
    assert [problem.field for problem in caught.value.problems] == ["name", "count", "other"]
