"""Reading reply subjects and raw header blocks of JetStream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

from crew_journal.consumers.feed.messages import (
    EntryHeaders,
    Position,
    headers_of,
    position_of,
    read_headers,
    status_of,
)

_VALUES = st.text("ab :\t\x0b\x1c\x85\xe4\n", max_size=6).map(str.encode)


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.JOURNAL.views.1.42.7.1700000000123456789.5",
        "$JS.ACK.hub.ACCHASH.JOURNAL.views.1.42.7.1700000000123456789.5",
        "$JS.ACK._.ACCHASH.JOURNAL.views.1.42.7.1700000000123456789.5.random",
    ],
)
def test_a_position_is_read_with_and_without_a_domain(reply: str) -> None:
    assert position_of(reply) == Position(seq=42, delivery=7, published_ms=1_700_000_000_123, pending=5)


@pytest.mark.parametrize("reply", ["", "_INBOX.x.y", "$JS.API.a.b.c.d.e.f.g"])
def test_another_reply_subject_is_no_position(reply: str) -> None:
    with pytest.raises(ValueError, match="not a message of a JetStream consumer"):
        position_of(reply)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"NATS/1.0\r\nA: b\r\nC: d: e\r\n\r\n", {"A": "b", "C": "d: e"}),
        (b"NATS/1.0\r\nA:b\r\nC:  d \r\n\r\n", {"A": "b", "C": "d"}),
        (b"NATS/1.0\r\nno colon\r\nA: b\r\n: x\r\n\r\n", {"A": "b"}),
        (b"NATS/1.0\r\nA: \xff\r\n\r\n", {"A": "\ufffd"}),
        (b"NATS/1.0\r\n\r\n", {}),
        (b"NATS/1.0\r\nA:  two\r\nB: end  \r\n\r\n", {"A": "two", "B": "end"}),
        (b"NATS/1.0\r\nA : q\r\n folded: b\r\nA b: c\r\n\r\n", {"A": "q", "folded": "b"}),
        (b"NATS/1.0\r\nA: b: c\r\nA: second  word\r\n\r\n", {"A": "second  word"}),
    ],
)
def test_a_header_block_is_read_as_written_by_anybody(block: bytes, expected: dict[str, str]) -> None:
    assert read_headers(block) == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    b"Crew-Content-Hash",
                    b"Crew-Publisher",
                    b"Crew-Entry-Id",
                    b"A",
                    b" A",
                    b"A b",
                    b"",
                    b"\xc3\xa4",
                    b"A\t",
                    b"A\x1c",
                ]
            ),
            _VALUES,
        ),
        max_size=5,
    ),
    st.sampled_from([b":", b": ", b":  ", b" : ", b":\t", b""]),
)
def test_replay_and_live_feed_read_the_same_headers(lines: list[tuple[bytes, bytes]], colon: bytes) -> None:
    block = b"NATS/1.0\r\n" + b"".join(name + colon + value + b"\r\n" for name, value in lines) + b"\r\n"
    live = {name: value for name, value in Client._parse_header_lines(block[10:]).items() if name}
    assert read_headers(block) == live
    put_off = headers_of(block)
    assert (None if put_off is None else put_off.get("Crew-Content-Hash")) == live.get("Crew-Content-Hash")
    assert (None if put_off is None else put_off.get("Crew-Publisher")) == live.get("Crew-Publisher")
    assert put_off == (live or None)


def test_an_entry_s_headers_are_read_when_asked_for() -> None:
    block = b"NATS/1.0\r\nNats-Msg-Id: a/j_1\r\nCrew-Content-Hash: 00ff\r\nCrew-Format: 1\r\n\r\n"
    headers = headers_of(block)
    assert isinstance(headers, EntryHeaders)
    assert headers.get("Crew-Content-Hash") == "00ff"
    assert headers.get("Crew-Publisher") is None
    assert headers.get("Crew-Entry-Id") is None
    assert headers == {"Nats-Msg-Id": "a/j_1", "Crew-Content-Hash": "00ff", "Crew-Format": "1"}
    assert len(headers) == 3
    assert headers_of(b"") is headers_of(None) is None


def test_the_status_is_in_the_first_line() -> None:
    assert status_of(b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n") == "408"
    assert status_of(b"NATS/1.0\r\nA: b\r\n\r\n") == status_of(b"") == ""
