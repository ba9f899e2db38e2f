"""Answers of a model server read by orjson, and by Python's reader where that one refuses."""

import math
from json import JSONDecodeError

import httpx
import pytest

from crew_journal.consumers.adapters.fast_json import JsonResponse


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"embeddings": [[0.5, -1e-3]]}', {"embeddings": [[0.5, -1e-3]]}),
        (b'{"n": [Infinity, 1e400]}', {"n": [math.inf, math.inf]}),
        ('{"n": "ü"}'.encode("utf-16"), {"n": "ü"}),
    ],
    ids=["vectors", "a number that is none", "another encoding"],
)
def test_json_is_read_as_httpx_reads_it(body: bytes, expected: object) -> None:
    assert JsonResponse(200, content=body).json() == httpx.Response(200, content=body).json() == expected


@pytest.mark.parametrize("body", [b"<html>", b"", b"\xff\xfe\xfd"])
def test_what_is_no_json_is_refused_as_httpx_refuses_it(body: bytes) -> None:
    with pytest.raises((JSONDecodeError, UnicodeDecodeError)) as theirs:
        httpx.Response(200, content=body).json()
    with pytest.raises(theirs.type):
        JsonResponse(200, content=body).json()
