"""The short way in gives what nats-py's own parser gives, however the socket cuts the bytes."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from crew_journal.services.journal.broker.connection import DivertingParser

Seen = tuple[Any, ...]
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"

_tokens = st.sampled_from([b"journal.acme.x", b"_INBOX.a.1", b"MSG", b"x"])
_bodies = st.sampled_from([b"", b"{}", b"\r\n", b"HMSG a 1 r 1 1\r\n", b"PING\r\n", b"x" * 300])


@st.composite
def _commands(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(["hmsg", "msg", "hmsg", "msg", "ping", "pong", "ok", "info", "err"]))
    if kind not in ("hmsg", "msg"):
        return {
            "ping": b"PING\r\n",
            "pong": b"PONG\r\n",
            "ok": b"+OK\r\n",
            "info": b'INFO {"a": 1}\r\n',
            "err": b"-ERR 'slow'\r\n",
        }[kind]
    sid, body = draw(st.sampled_from([b"1", b"2", b"12"])), draw(_bodies)
    words = [draw(_tokens), sid, *draw(st.sampled_from([[], [b"$JS.ACK.a"]]))]
    if kind == "msg":
        return b"MSG " + b" ".join([*words, b"%d" % len(body)]) + b"\r\n" + body + b"\r\n"
    sizes = [b"%d" % len(HEADERS), b"%d" % (len(HEADERS) + len(body))]
    return b"HMSG " + b" ".join([*words, *sizes]) + b"\r\n" + HEADERS + body + b"\r\n"


class Recorder:
    """A client that writes down what a parser tells it."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.seen.append((sid, subject, reply, data, headers))

    async def _process_err(self, text: str) -> None:
        self.seen.append(("err", text))

    async def _process_ping(self) -> None:
        self.seen.append(("ping",))

    async def _process_pong(self) -> None:
        self.seen.append(("pong",))

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.seen.append(("info", info))

    def sink(self, sid: int) -> Any:
        def take(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
            self.seen.append((sid, subject, reply, data, headers))

        return take


def parsed(parser: Parser, recorder: Recorder, stream: bytes, cuts: list[int]) -> list[Seen]:
    async def feed() -> None:
        edges = [0, *sorted({cut for cut in cuts if cut < len(stream)}), len(stream)]
        for start, stop in itertools.pairwise(edges):
            await parser.parse(stream[start:stop])

    asyncio.run(feed())
    return recorder.seen


@given(st.lists(_commands(), max_size=12), st.lists(st.integers(1, 2_000), max_size=20))
def test_diverted_and_other_messages_arrive_as_from_nats_py_whole_and_in_order(
    commands: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(commands)
    plain, short = Recorder(), Recorder()
    expected = parsed(Parser(plain), plain, stream, [])
    diverting = DivertingParser(short, {b"1": short.sink(1), b"12": short.sink(12)})  # type: ignore[arg-type]  # a stand-in
    assert parsed(diverting, short, stream, cuts) == expected
    assert not diverting.buf


@given(st.binary(max_size=80), st.lists(st.integers(1, 60), max_size=5))
def test_what_no_broker_says_is_a_protocol_error_or_waits_for_more(noise: bytes, cuts: list[int]) -> None:
    recorder = Recorder()
    parser = DivertingParser(recorder, {b"1": recorder.sink(1)})  # type: ignore[arg-type]  # a stand-in
    try:
        seen = parsed(parser, recorder, b"\x00" + noise, cuts)
    except ProtocolError:
        seen = recorder.seen
    assert seen == []


@pytest.mark.parametrize(
    "line", [b"HMSG a 1 r x 4\r\nabcd\r\n", b"MSG a 1 r s t 4\r\nabcd\r\n", b"HMSG a 1 r 1 2 3 4\r\nabcd\r\n"]
)
def test_a_malformed_message_of_a_diverted_subscription_is_a_protocol_error(line: bytes) -> None:
    recorder = Recorder()
    parser = DivertingParser(recorder, {b"1": recorder.sink(1)})  # type: ignore[arg-type]  # a stand-in
    with pytest.raises(ProtocolError):
        parsed(parser, recorder, line, [])
