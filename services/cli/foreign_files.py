"""Finds and opens files of other programs within limits: a file, a folder of files, or a ZIP archive.

Exports are untrusted: a pipe may never end, a link may lead out of the folder, an archive of 3 MB may unpack to
gigabytes. Invariant: every importer opens its files here. Only regular files are opened, links in a folder are not
followed, and every read has a limit. Links and special files are left out and counted; every other problem is an error
that names the file or member.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import lzma
import math
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from ...schemas.core.errors import InvalidFile

MAX_FILES: Final = 200_000
"""Files of a folder, or members of an archive; a workspace of Slack with 500 channels has so many days in two years."""
MAX_DEPTH: Final = 32
"""Folders within folders; exports have at most five."""
MAX_UNPACKED_BYTES: Final = 8 << 30
"""Bytes of all members of an archive that are read, unpacked; large exports have 1 to 2 GB."""
MAX_RATIO: Final = 200
"""Unpacked bytes for each byte of a member; chats as JSON have 3 to 20, and DEFLATE reaches 1,030."""
RATIO_FROM_BYTES: Final = 16 << 20
"""Unpacked bytes below which a member may have any ratio."""
MAX_TEXT_BYTES: Final = 16 << 20
"""Maximum bytes of a text that is read completely; books have one to three million."""
_DIRECTORY_BYTES: Final = 400
"""Bytes of a member in the archive's directory, at most on average: 46 and its name."""
_END: Final = b"PK\x05\x06"
_END_64: Final = b"PK\x06\x06"
_ARCHIVE: Final = (b"PK\x03\x04", _END)
_END_BYTES: Final = 22 + 65_535
_LINK: Final = 0xA
_ENCRYPTED: Final = 0x1
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Without waiting, because the opening of a pipe waits for a writer."""
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
"""What ``zipfile`` raises for members that are damaged, encrypted or packed by an unknown method."""
_UNPACK: Final = "unpack it with another program and import the folder"

LINKED: Final = "links, which are not followed"
SPECIAL: Final = "neither files nor folders"
LeftOut = Callable[[str, str], object]
"""Called with the path within the folder or archive and the reason, for each file that is left out."""


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A regular file, or a member of an archive.

    Attributes:
        label: Its name in messages.
        inside: Its path within the folder or archive, with ``/``; the name of a single file.
        size: Its unpacked bytes.
        opened: Opens it.
        mtime: When it was changed, seconds since 1970; 0 for a member of an archive.
    """

    label: str
    inside: str
    size: int
    opened: Callable[[], IO[bytes]]
    mtime: float = 0

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The file for reading.

        Raises:
            InvalidFile: If it cannot be opened or read, also while it is read.
        """
        try:
            with self.opened() as file:
                yield file
        except OSError as error:
            raise InvalidFile(f"{self.label} cannot be read: {error.strerror or error}") from None
        except _BROKEN as error:
            raise InvalidFile(f"{self.label} cannot be unpacked: {_plain(error)}", hint=_UNPACK) from None

    def read(self, limit: int) -> bytes:
        """Its bytes.

        Args:
            limit: Maximum bytes.

        Raises:
            InvalidFile: If it is larger, or cannot be read.
        """
        with self.open() as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise InvalidFile(f"{self.label} has more than {limit:,} bytes", hint="split it")
        return data


def text_of(file: ForeignFile, limit: int = MAX_TEXT_BYTES) -> str:
    """A whole file as text.

    Raises:
        InvalidFile: If it is larger, not UTF-8, or cannot be read.
    """
    try:
        return file.read(limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{file.label} is not UTF-8 text (byte {error.start})", hint="write it as UTF-8") from None


def files_of(
    path: Path, wanted: Callable[[str], bool], left_out: LeftOut, *, archives: bool = False, hidden: bool = True
) -> Iterator[ForeignFile]:
    """The files of a folder or an archive, in the order of their paths, or the one file.

    Args:
        path: The path that a person named; it may be a link.
        wanted: Returns whether to read a path within the folder or archive; not called for a single file.
        left_out: Called for each wanted file that is a link or special.
        archives: Whether a ZIP archive is opened; otherwise it is a file like any other.
        hidden: Whether files and folders whose names begin with a dot are read.

    Raises:
        InvalidFile: If ``path`` is not a regular file or folder, or a limit is exceeded.
    """
    if path.is_dir():
        yield from _of_folder(path, wanted, left_out, hidden)
        return
    foreign_file = file_at(path)
    if archives:
        with foreign_file.open() as file:
            is_archive = file.read(4).startswith(_ARCHIVE)
        if is_archive:
            yield from _of_archive(path, wanted, left_out)
            return
    yield foreign_file


def file_at(path: Path, *, follow: bool = True) -> ForeignFile:
    """A regular file.

    Args:
        path: Its path.
        follow: Whether it may be a link.

    Raises:
        InvalidFile: If it is not a regular file.
    """
    label = shown(str(path))
    try:
        status = path.stat(follow_symlinks=follow)
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{label} cannot be read: {_plain(error)}", hint="name a file or a folder") from None
    if not stat.S_ISREG(status.st_mode):
        what = "is a link, which is not followed" if stat.S_ISLNK(status.st_mode) else "is not a regular file"
        raise InvalidFile(f"{label} {what}", hint="copy its content to a file")
    opened = partial(_opened, path, 0 if follow else os.O_NOFOLLOW)
    return ForeignFile(label, shown(path.name), status.st_size, opened, status.st_mtime)


def shown(name: str) -> str:
    """A file's name as text: bytes that are not UTF-8 become ``�``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _opened(path: Path, flags: int) -> IO[bytes]:
    descriptor = os.open(path, _OPEN | flags)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def _of_folder(root: Path, wanted: Callable[[str], bool], left_out: LeftOut, hidden: bool) -> Iterator[ForeignFile]:
    files: list[tuple[tuple[str, ...], Path]] = []
    seen = 0
    folders: list[tuple[str, ...]] = [()]
    while folders:
        parts = folders.pop()
        if len(parts) > MAX_DEPTH:
            raise InvalidFile(f"{shown(str(root))} has folders deeper than {MAX_DEPTH} levels", hint="name one of them")
        try:
            entries = list(os.scandir(root.joinpath(*parts)))
        except OSError as error:
            raise InvalidFile(f"{shown(str(root.joinpath(*parts)))} cannot be read: {error.strerror}") from None
        seen += len(entries)
        if seen > MAX_FILES:
            raise InvalidFile(f"{shown(str(root))} has more than {MAX_FILES:,} files", hint="import parts of it")
        for entry in entries:
            inside = (*parts, entry.name)
            if not hidden and entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(inside)
            elif not wanted("/".join(inside)):
                continue
            elif entry.is_file(follow_symlinks=False):
                files.append((inside, Path(entry.path)))
            else:
                left_out(shown("/".join(inside)), LINKED if entry.is_symlink() else SPECIAL)
    for inside, path in sorted(files):
        yield replace(file_at(path, follow=False), inside=shown("/".join(inside)))


def _of_archive(path: Path, wanted: Callable[[str], bool], left_out: LeftOut) -> Iterator[ForeignFile]:
    label = shown(str(path))
    with file_at(path).open() as file:
        _refuse_large_directory(label, file)
        archive = _archive(label, file)
        members = sorted(archive.infolist(), key=lambda info: info.filename)
        if len(members) > MAX_FILES:
            raise InvalidFile(f"{label} has {len(members):,} of at most {MAX_FILES:,} members")
        unpacked = 0
        for info in members:
            if info.is_dir() or not wanted(info.filename):
                continue
            if (info.external_attr >> 28) == _LINK:
                left_out(shown(info.filename), LINKED)
                continue
            name = f"{label}:{shown(info.filename)}"
            _refuse_member(name, info)
            unpacked += info.file_size
            if unpacked > MAX_UNPACKED_BYTES:
                raise InvalidFile(
                    f"{label} unpacks to more than {MAX_UNPACKED_BYTES:,} bytes", hint="import parts of it"
                )
            yield ForeignFile(name, shown(info.filename), info.file_size, partial(archive.open, info))


def _archive(label: str, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (*_BROKEN, ValueError, LookupError, struct.error, OverflowError) as error:
        raise InvalidFile(f"{label} is not a whole ZIP archive: {_plain(error)}", hint=_UNPACK) from None


def _refuse_member(name: str, info: zipfile.ZipInfo) -> None:
    if info.flag_bits & _ENCRYPTED:
        raise InvalidFile(f"{name} is encrypted", hint=_UNPACK)
    if info.file_size > RATIO_FROM_BYTES and info.file_size > MAX_RATIO * max(info.compress_size, 1):
        raise InvalidFile(
            f"{name} unpacks from {info.compress_size:,} to {info.file_size:,} bytes, more than {MAX_RATIO} to 1",
            hint="if you trust it, unpack it and import the folder",
        )


def _refuse_large_directory(label: str, file: IO[bytes]) -> None:
    """``zipfile`` reads an archive's directory as a whole, at ten times its size in memory."""
    end = file.seek(0, io.SEEK_END)
    file.seek(max(0, end - _END_BYTES - 76))
    tail = file.read()
    at, at_64 = tail.rfind(_END), tail.rfind(_END_64)
    sizes = [struct.unpack_from("<I", tail, at + 12)[0]] if 0 <= at <= len(tail) - 16 else [0]
    if sizes == [0xFFFFFFFF] and 0 <= at_64 <= len(tail) - 48:
        sizes = [struct.unpack_from("<Q", tail, at_64 + 40)[0]]
    if sizes[0] > MAX_FILES * _DIRECTORY_BYTES:
        raise InvalidFile(f"{label} has too many members, or too long names", hint=_UNPACK)
    file.seek(0)


def _plain(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200] or type(error).__name__


# Reads JSON of other programs within limits: values of a stream or of lines, each checked before a reader gets it.
#
# Invariant: no value is larger than ``MAX_VALUE_CHARS``, deeper than ``MAX_LEVELS``, holds NaN, a number beyond 64
# bits or half a surrogate pair, or has another type at a place where its reader expects one (``Shape``). An array of
# any length is read one member at a time. A fault is an ``InvalidFile`` that names the file or member, and the line.


MAX_VALUE_CHARS: Final = 64 << 20
"""Characters of one value: a conversation, a line, or a document that is one object."""
MAX_PARTS: Final = 3_000_000
"""Members of one value's objects and lists: Python needs up to 230 bytes for each."""
MAX_LEVELS: Final = 190
"""Maximum nesting of objects and lists, as in the service (`services/problem.py`)."""
CHUNK_BYTES: Final = 1 << 20
_NEAR_END: Final = 12
"""Characters at the end of a part in which a fault may only mean that the rest is missing: the longest word is -Infinity."""
_SPACE: Final = " \t\n\r"
_SURROGATES: Final = ("\\ud", "\\uD")
_BEYOND: Final = 2**64
_MOST_DIGITS: Final = len(str(-_BEYOND))
_ONE_LINE_CHARS: Final = 8 << 20
"""Maximum characters of a list that may be the first of several values, one per line; a longer list is a document."""
_TOO_DEEP: Final = f"it is nested too deeply: more than {MAX_LEVELS} levels"
_blank: Final = re.compile(r"[ \t\n\r]*")
_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}


class ShapeFault(ValueError):
    """A value does not have the expected form.

    Args:
        why: The problem, printed after the position.
        line: Line of the problem, from 1, counted from the beginning of the parsed text.
        beyond: Whether the value is valid JSON but exceeds a limit.
        unfinished: Whether the text may only be incomplete.
    """

    def __init__(self, why: str, line: int = 1, *, beyond: bool = False, unfinished: bool = False) -> None:
        super().__init__(why)
        self.line = line
        self.beyond = beyond
        self.unfinished = unfinished


# shapes

TEXT: Final = "a text"
NAME: Final = "a text or a number"
OBJECT: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Each:
    """An object with any keys, whose values have one shape."""

    shape: Shape


Shape = str | Mapping[str, Any] | Sequence[Any] | Each | None
"""The expected form: ``TEXT``, ``NAME``, an object by the keys that are read, ``[shape]`` for a list, ``Each``, or None
for anything. A value may always be null, and an object may have other keys.
"""


def misfit(value: Any, shape: Shape, at: str = "") -> str | None:
    """The first position at which a value's type does not match its shape (``messages[2].role is …``); None if it fits."""
    if value is None or shape is None:
        return None
    if isinstance(shape, str):
        fits = isinstance(value, str) or (shape == NAME and isinstance(value, (int, float)))
        return None if fits else _says(value, shape, at)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _says(value, _KINDS[list], at)
        inner = ((f"{at}[{number}]", item, shape[0]) for number, item in enumerate(value))
        return next((fault for name, item, part in inner if (fault := misfit(item, part, name)) is not None), None)
    if not isinstance(value, dict):
        return _says(value, _KINDS[dict], at)
    if isinstance(shape, Each):
        named = ((name, item, shape.shape) for name, item in value.items())
    else:
        assert isinstance(shape, Mapping)
        named = ((name, value[name], part) for name, part in shape.items() if name in value)
    dot = "." if at else ""
    return next(
        (fault for name, item, part in named if (fault := misfit(item, part, f"{at}{dot}{name[:64]}")) is not None),
        None,
    )


def _says(value: Any, wanted: str, at: str) -> str:
    return f"{at or 'the value'} is {_KINDS[type(value)]}, not {wanted}"


# values


def parse(text: str, *, mend: bool = False) -> Any:
    """Parse a JSON value within the limits.

    Args:
        text: The whole text.
        mend: Whether half of a surrogate pair becomes ``�``; otherwise it stays.

    Raises:
        Fault: If it is not JSON, or beyond a bound.
    """
    text = text.strip(_SPACE)
    value, end = _decoded(text, 0)
    if end != len(text):
        raise ShapeFault("more follows after the value", text.count("\n", 0, end) + 1)
    return _mended(value) if mend and any(mark in text for mark in _SURROGATES) else value


def values_of(file: ForeignFile, place: ValuePlace, shape: Shape = None) -> Iterator[Any]:
    """The members of a document that is an array, the document itself if it is not, or the value of each line (JSONL).

    Args:
        file: The document.
        place: Position of the current value; kept up to date.
        shape: What each value must be.

    Raises:
        InvalidFile: Naming the file and the line.
    """
    with file.open() as opened:
        text = _Text(opened, file.label)
        for line, value in text.values():
            place.at = f"{file.label}, line {line}"
            yield fitting(value, shape, place)


def lines_of(
    file: ForeignFile, place: ValuePlace, shape: Shape = None, *, torn: Callable[[], object] | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield (line number from 1, value) for each line that is not blank.

    Args:
        file: The file.
        place: Position of the current value; kept up to date.
        shape: What each value must be, if it is an object.
        torn: Called with no arguments for each line that is not JSON; without it, such a line is an error.

    Raises:
        InvalidFile: Naming the file and the line.
    """
    with file.open() as opened:
        for number, raw in enumerate(bounded_lines(opened, MAX_VALUE_CHARS), 1):
            place.at = f"{file.label}, line {number}"
            if raw is None:
                raise InvalidFile(f"{place.at} is longer than {MAX_VALUE_CHARS:,} bytes", hint="split it")
            if not raw.strip():
                continue
            try:
                value = parse(raw.decode("utf-8-sig" if number == 1 else "utf-8"), mend=True)
            except (ShapeFault, UnicodeDecodeError) as error:
                if torn is None or (isinstance(error, ShapeFault) and error.beyond):
                    raise _invalid(place.at, error) from None
                torn()
                continue
            yield number, fitting(value, shape, place) if isinstance(value, dict) else value


def bounded_lines(file: IO[bytes], limit: int) -> Iterator[bytes | None]:
    """Each line with its line break; None for a line of ``limit`` bytes or more, which is skipped."""
    while chunk := file.readline(limit):
        if len(chunk) < limit or chunk.endswith(b"\n"):
            yield chunk
            continue
        while (rest := file.readline(CHUNK_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield None


@dataclass(slots=True)
class ValuePlace:
    """The position of the current value, for messages: ``export.zip:conversations.json, line 7``."""

    at: str = ""


def fitting(value: Any, shape: Shape, place: ValuePlace) -> Any:
    """The value, if it fits.

    Raises:
        InvalidFile: Naming the place and what does not fit.
    """
    if (problem := misfit(value, shape)) is not None:
        raise InvalidFile(f"{place.at}: {problem}", hint="is it the format that --from names?")
    return value


def _invalid(at: str, error: ShapeFault | UnicodeDecodeError) -> InvalidFile:
    if isinstance(error, UnicodeDecodeError):
        return InvalidFile(f"{at} is not UTF-8 text", hint="write the file as UTF-8")
    return InvalidFile(f"{at} is not valid JSON: {error}", hint="export it again, or correct that line")


class _Text:
    """A document as text: read in parts, of which only the current value is kept in memory."""

    def __init__(self, file: IO[bytes], label: str) -> None:
        self._file = file
        self._label = label
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._line = 1
        self._later = ""
        self._read_all = False

    def values(self) -> Iterator[tuple[int, Any]]:
        """(line of its beginning, value)."""
        if not self._past_space():
            raise self._fault(ShapeFault("the file is empty"))
        if self._peek() == "[" and not self._is_line():
            yield from self._members()
            return
        line, first = self._line, self._value()
        if not self._past_space() and isinstance(first, list):
            yield from ((line, value) for value in first)
            return
        yield line, first
        while self._past_space():
            line = self._line
            yield line, self._value()

    def _is_line(self) -> bool:
        """Whether the array ends on its first line; then it may be the first of several values, one per line."""
        while (end := self._text.find("\n", self._at)) < 0 and not self._ended and self._held < _ONE_LINE_CHARS:
            self._more(self._held)
        if end < 0:
            return self._ended and self._held <= CHUNK_BYTES
        try:
            _decoded(self._text[self._at : end], 0)
        except ShapeFault:
            return False
        return True

    def _members(self) -> Iterator[tuple[int, Any]]:
        self._step(self._at + 1)
        part = (
            self._at + CHUNK_BYTES
        )  # text that was read to find the end of the line is processed in small parts again
        self._later, self._text = self._text[part:] + self._later, self._text[:part]
        mark = self._past_space()
        while mark != "]":
            line = self._line
            yield line, self._value()
            mark = self._past_space()
            if mark not in (",", "]"):
                raise self._fault(ShapeFault("a comma is missing" if mark else "the list does not end"))
            if mark == ",":
                self._step(self._at + 1)
                mark = ""
                self._past_space()
        self._step(self._at + 1)
        if self._past_space():
            raise self._fault(ShapeFault("more follows after the end of the list"))

    def _value(self) -> Any:
        while True:
            held = self._held
            try:
                value, end = _decoded(self._text, self._at)
            except ShapeFault as fault:
                if self._ended or not fault.unfinished:
                    raise self._fault(fault) from None
            else:
                if end - self._at <= MAX_VALUE_CHARS and (self._ended or end < len(self._text) - _NEAR_END):
                    source = self._text[self._at : end]
                    self._step(end)
                    return _mended(value) if any(mark in source for mark in _SURROGATES) else value
                held = end - self._at
            if held > MAX_VALUE_CHARS:
                raise self._fault(ShapeFault(f"a value is longer than {MAX_VALUE_CHARS:,} characters"))
            self._more(held)

    @property
    def _ended(self) -> bool:
        return self._read_all and not self._later

    @property
    def _held(self) -> int:
        return len(self._text) - self._at

    def _past_space(self) -> str:
        """Pass over blanks; the next character, empty at the end."""
        while True:
            self._step(_blank.match(self._text, self._at).end())  # type: ignore[union-attr]  # it matches nothing, too
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._more(0)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _step(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        if (
            to - self._at > 2 * CHUNK_BYTES
        ):  # after a large value, the next values are searched for in small parts again
            self._later = self._text[to:] + self._later
            self._text, self._at = "", 0
        else:
            self._at = to

    def _more(self, least: int) -> None:
        """Read ``least`` characters or bytes more, and at least a chunk."""
        wanted = max(least, CHUNK_BYTES)
        if self._later:
            more, self._later = self._later[:wanted], self._later[wanted:]
        else:
            data = self._file.read(wanted)
            try:
                more = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                line = self._line + self._text.count("\n", self._at) + data.count(b"\n", 0, error.start)
                raise _invalid(f"{self._label}, line {line},", error) from None
            self._read_all = not data
        self._text = self._text[self._at :] + more
        self._at = 0

    def _fault(self, fault: ShapeFault) -> InvalidFile:
        return _invalid(f"{self._label}, line {self._line + fault.line - 1},", fault)


def _decoded(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at a place, and where it ends."""
    if len(text) - at > MAX_PARTS and sum(text.count(mark, at) for mark in "[{,") > MAX_PARTS:
        raise ShapeFault(f"the value has more than {MAX_PARTS:,} members", beyond=True)
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        unfinished = error.pos >= len(text) - _NEAR_END or error.msg.startswith("Unterminated string")
        raise ShapeFault(error.msg, text.count("\n", at, error.pos) + 1, unfinished=unfinished) from None
    except RecursionError:
        raise ShapeFault(_TOO_DEEP, beyond=True) from None
    if text.count("[", at, end) + text.count("{", at, end) > MAX_LEVELS and _levels(value) > MAX_LEVELS:
        raise ShapeFault(_TOO_DEEP, beyond=True)
    return value, end


def _levels(value: Any) -> int:
    levels, here = 0, [value]
    while here and levels <= MAX_LEVELS:
        inner = (part for part_ in here for part in (part_.values() if isinstance(part_, dict) else part_))
        here = [part for part in inner if isinstance(part, (dict, list))]
        levels += 1
    return levels


def _mended(value: Any) -> Any:
    """The value with ``\ufffd`` for each half of a surrogate pair."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(item) for name, item in value.items()}
    return value


def _constant(name: str) -> float:
    raise ShapeFault(f"JSON has no number {name}", beyond=True)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ShapeFault("a number is beyond 1.8e308", beyond=True)
    return number


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS or not -_BEYOND // 2 <= int(digits) < _BEYOND:
        raise ShapeFault("a whole number has more than 64 bits", beyond=True)
    return int(digits)


_DECODER: Final = json.JSONDecoder(parse_constant=_constant, parse_float=_finite, parse_int=_whole)
