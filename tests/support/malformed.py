"""Malformed files for every importer: each format's sound sample, and faults that are applied to it.

A fault is either of bytes (what a torn, foreign or hostile file holds) or of types (any value of the sample replaced by one
of another kind). All are made in memory or in a temporary folder; the large ones are large only against the bounds.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).parents[1] / "data" / "imports"
Fault = Callable[[bytes], bytes]


def _value_replaced(data: bytes, text: bytes) -> bytes:
    """The sample with its first text value (one after a colon) replaced by other JSON."""
    start = data.index(b'"', data.index(b":", data.index(b'"')))
    end = data.index(b'"', start + 1) + 1
    return data[:start] + text + data[end:]


def _into_first_text(data: bytes, more: bytes) -> bytes:
    start = data.index(b'"', data.index(b":", data.index(b'"'))) + 1
    return data[:start] + more + data[start:]


FAULTS: dict[str, Fault] = {
    "nothing": lambda data: b"",
    "blanks alone": lambda data: b" \n\t\r\n",
    "the first half": lambda data: data[: len(data) // 2],
    "all but the last byte": lambda data: data.rstrip()[:-1],
    "a byte that is not UTF-8": lambda data: _into_first_text(data, b"\xff"),
    "an encoded surrogate": lambda data: _into_first_text(data, b"\xed\xa0\x80"),
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "random bytes": lambda data: bytes((n * 167 + 13) % 256 for n in range(4_096)),
    "NUL bytes": lambda data: bytes(4_096),
    "a NUL within a text": lambda data: _into_first_text(data, b"\x00"),
    "an escaped NUL": lambda data: _into_first_text(data, rb"\u0000"),
    "half a surrogate pair": lambda data: _into_first_text(data, rb"\ud83d"),
    "NaN": lambda data: _value_replaced(data, b"NaN"),
    "minus infinity": lambda data: _value_replaced(data, b"-Infinity"),
    "a number beyond a double": lambda data: _value_replaced(data, b"1e999"),
    "an integer beyond 64 bits": lambda data: _value_replaced(data, b"1" + b"0" * 400),
    "an integer of 5,000 digits": lambda data: _value_replaced(data, b"7" * 5_000),
    "500 levels": lambda data: _value_replaced(data, b"[" * 500 + b"]" * 500),
    "100,000 levels": lambda data: _value_replaced(data, b"[" * 100_000 + b"]" * 100_000),
    "100,000 open brackets": lambda data: _value_replaced(data, b"[" * 100_000),
    "100,000 open objects": lambda data: b'{"a":' * 100_000,
    "a long line": lambda data: _into_first_text(data, b"x" * 3_000_000),
    "a file of brackets": lambda data: b"[" * 3_000_000,
    "a long list of nothing": lambda data: b"[" + b"{}," * 400_000 + b"{}]",
    "another format": lambda data: b"# A note\n\nWith a text.\n",
    "a number": lambda data: b"5",
    "a text": lambda data: b'"text"',
    "an empty object": lambda data: b"{}",
    "an empty list": lambda data: b"[]",
    "a list of lists": lambda data: b"[[[]], [], [[1]]]",
    "a list of everything": lambda data: b'[null, 1, "x", true, [], {}, -0.5]',
}
"""Faults of the bytes of a file, by name."""

OTHERS: tuple[Any, ...] = (None, True, -1.5, 10**18, "text\x00", ["x"], [None], [[]], {"a": 1})
"""What takes the place of each value of a sample; 10**18 is a time in the far future."""


def type_faults(value: Any) -> Iterator[tuple[str, Any]]:
    """(path, the sample with another value there) for every value at every level, and every kind of other value."""
    for path in _paths(value):
        for number, other in enumerate(OTHERS):
            yield f"{'/'.join(map(str, path)) or 'root'}:{number}", _with(value, path, other)


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _paths(one, (*at, key))


def _with(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    key, *rest = path
    if isinstance(value, dict):
        return {**value, key: _with(value[key], tuple(rest), other)}
    return [_with(one, tuple(rest), other) if number == key else one for number, one in enumerate(value)]


@dataclass(frozen=True)
class Sample:
    """A format's sample.

    Attributes:
        name: As ``--from`` names it.
        root: The file, or the folder of an export.
        inside: The file of that folder that is damaged.
        lines: Whether it is one value a line.
        archive: The name that the file has in a ZIP archive of this format; None if the format has none.
    """

    name: str
    root: Path
    inside: str | None = None
    lines: bool = False
    archive: str | None = None

    @property
    def data(self) -> bytes:
        """The bytes that are damaged."""
        return (self.root / self.inside if self.inside else self.root).read_bytes()

    def made(self, folder: Path, data: bytes) -> Path:
        """The sample in a folder, with other bytes."""
        target = folder / self.root.name
        if self.inside is None:
            target.write_bytes(data)
            return target
        shutil.copytree(self.root, target)
        (target / self.inside).write_bytes(data)
        return target

    def values(self) -> list[Any]:
        """Its values: those of the lines, the members of a document that is a list, or the document."""
        if self.lines:
            return [json.loads(line) for line in self.data.splitlines()]
        document = json.loads(self.data)
        return list(document) if isinstance(document, list) else [document]

    def written(self, values: list[Any]) -> bytes:
        """Values as bytes of this format."""
        if not self.lines:
            return json.dumps(values).encode()
        return b"\n".join(json.dumps(value).encode() for value in values)


SESSION = "-home-maria-shop/5b6c0f9e-8a9d-4f0e-9f2b-2d1d1f5e7a10.jsonl"
ROLLOUT = "2026/11/02/rollout-2026-11-02T10-00-00-019a2d7a-41c4-78b1-b7cc-a45d62a89cd5.jsonl"
FORMATS: tuple[Sample, ...] = (
    Sample("claude-code", SAMPLES / "claude-code", SESSION, lines=True),
    Sample("codex", SAMPLES / "codex", ROLLOUT, lines=True),
    Sample("chatgpt", SAMPLES / "chatgpt.json", archive="conversations.json"),
    Sample("claude", SAMPLES / "claude.json", archive="conversations.json"),
    Sample("openai-messages", SAMPLES / "openai-messages.jsonl", lines=True),
    Sample("mem0", SAMPLES / "mem0.json"),
    Sample("omp", SAMPLES / "omp" / "02_correction.json"),
    Sample("mcp-memory", SAMPLES / "mcp-memory.jsonl", lines=True),
    Sample("otel", SAMPLES / "otel.json"),
    Sample("cloudevents", SAMPLES / "cloudevents.json"),
    Sample("slack", SAMPLES / "slack", "general/2026-10-20.json", archive="general/2026-10-20.json"),
    Sample("slack", SAMPLES / "slack", "users.json", archive="users.json"),
    Sample("slack", SAMPLES / "slack", "channels.json", archive="channels.json"),
)
"""Every format of ``import --from``; Slack's three kinds of files each."""


def _spoiled(path: Path, at: bytes, offset: int, what: bytes) -> None:
    data = bytearray(path.read_bytes())
    start = data.index(at) + offset
    data[start : start + len(what)] = what
    path.write_bytes(data)


def _zip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def _bomb(path: Path, name: str, data: bytes) -> None:
    """A member of 4 MiB in 4 KB: for 3 MB it is 3 GB."""
    _zip(path, {name: data[:1] + b" " * (4 << 20) + data[1:]})


def _lying(path: Path, name: str, data: bytes) -> None:
    """A member that is larger than both headers say."""
    _zip(path, {name: data})
    for mark, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        _spoiled(path, mark, offset, struct.pack("<I", 10))


def _stored_link(path: Path, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name)
    info.external_attr = (0o120777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")


def _encrypted(path: Path, name: str, data: bytes) -> None:
    _zip(path, {name: data})
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        _spoiled(path, mark, offset, b"\x01\x00")


def _unknown_method(path: Path, name: str, data: bytes) -> None:
    _zip(path, {name: data})
    for mark, offset in ((b"PK\x01\x02", 10), (b"PK\x03\x04", 8)):
        _spoiled(path, mark, offset, b"\x63\x00")


def _bad_sum(path: Path, name: str, data: bytes) -> None:
    _zip(path, {name: data})
    for mark, offset in ((b"PK\x01\x02", 16), (b"PK\x03\x04", 14)):
        _spoiled(path, mark, offset, b"\x00\x00\x00\x01")


def _bad_stream(path: Path, name: str, data: bytes) -> None:
    _zip(path, {name: data})
    _spoiled(path, name.encode(), len(name), b"\xff" * 20)


def _cut(path: Path, name: str, data: bytes) -> None:
    _zip(path, {name: data})
    path.write_bytes(path.read_bytes()[:-30])


def _prefix_alone(path: Path, name: str, data: bytes) -> None:
    path.write_bytes(b"PK\x03\x04" + b"\x00" * 100)


def _wild_names(path: Path, name: str, data: bytes) -> None:
    _zip(path, {f"../../{name}": data, f"/{name}": data, f"a/{'b/' * 60}{name}": data, f"\x1b[31m/{name}": data})


ARCHIVES: dict[str, Callable[[Path, str, bytes], object]] = {
    "of a bomb": _bomb,
    "whose sizes are wrong": _lying,
    "with a link": _stored_link,
    "that is encrypted": _encrypted,
    "of an unknown method": _unknown_method,
    "with a wrong sum": _bad_sum,
    "with a broken stream": _bad_stream,
    "that is cut": _cut,
    "that only begins": _prefix_alone,
    "with names that lead out": _wild_names,
    "without members": lambda path, name, data: _zip(path, {}),
    "with other members": lambda path, name, data: _zip(path, {"other.txt": b"x"}),
}
"""Faults of a ZIP archive: each writes one to a path, for a member's name and data."""


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


SPECIALS: dict[str, Callable[[Path], object]] = {
    "a pipe": lambda path: os.mkfifo(path),
    "a socket": _socket,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link out of the folder": lambda path: path.symlink_to("/etc/passwd"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder of that name": lambda path: path.mkdir(),
    "a file without rights": lambda path: (path.write_bytes(b"[]"), path.chmod(0)),
}
"""What may be in the place of a file."""
