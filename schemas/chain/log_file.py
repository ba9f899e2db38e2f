"""A workspace as one file that can be checked without its journal: JSON lines with messages, leaves and checkpoints.

Line 1 names the workspace, the public key and the number of sealed sequences. Then every sequence of the stream follows in
order: a message of the workspace whole, the leaves alone of what lies between. After the last sequence that a checkpoint
covers comes that checkpoint, as it was sealed. The last line has the number of messages. Invariant: the leaves of other
workspaces are salted hashes, so the file says nothing about them but how many messages they had.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from ..core.sequence_set import Range, normalised
from ..core.subjects import Family
from ..entries.events import ErasureScoped
from .check import BREAKS_LISTED, Anchor
from .checkpoint import Checkpoint, public_key_of, verification_key, verified
from .tree import GAP, HASH_BYTES, UNSALTED, Tree, leaf_data, leaf_hash

LOG_FORMAT: Final = 1
_ERASURES: Final = f".{ErasureScoped.ENTRY_TYPE}"


class LoggedMessage(NamedTuple):
    """A message as it is in the stream; ``block`` are its headers as bytes."""

    seq: int
    subject: str
    block: bytes
    body: bytes


class LogFileBreak(NamedTuple):
    """What is wrong in a line, counted from 1."""

    line: int
    text: str


class _Block(dict[str, str]):
    """Headers that are kept as bytes."""

    def __init__(self, block: bytes) -> None:
        super().__init__()
        self.block = block


def leaf_of(message: LoggedMessage) -> bytes | None:
    """The leaf of a message, None if it has no salt."""
    data = leaf_data(message.subject, _Block(message.block), message.body)
    return None if data is None else leaf_hash(data)


def head_line(workspace_id: str, public: bytes, size: int, last_seq: int) -> dict[str, Any]:
    """The first line of a file whose first ``size`` of ``last_seq`` sequences are sealed."""
    key = verification_key(public)
    return {"log": LOG_FORMAT, "workspace_id": workspace_id, "public_key": key, "size": size, "last_seq": last_seq}


def message_line(message: LoggedMessage, leaf: bytes) -> dict[str, Any]:
    """The line of a message of the workspace."""
    seq, subject, block, body = message
    parts = {"headers": block, "body": body, "leaf": leaf}
    return {"seq": seq, "subject": subject, **{name: _text(value) for name, value in parts.items()}}


def leaves_line(first_seq: int, leaves: Iterable[bytes]) -> dict[str, Any]:
    """The line of consecutive sequences that are not messages of the workspace."""
    return {"first_seq": first_seq, "leaves": _text(b"".join(leaves))}


@dataclass(slots=True)
class LogFileReport:
    """What a check of a file found.

    Attributes:
        workspace_id: The workspace.
        public_key: The key that signed the checkpoints, as other verifiers take it.
        messages: Messages of the workspace.
        size: Sequences that the last valid checkpoint covers.
        last_seq: Last sequence in the file.
        checkpoint: The last valid checkpoint as a signed note; empty if there is none.
        checkpoints: Number of valid checkpoints.
        unsealed: Messages behind the last checkpoint: nothing proves them.
        unsalted: Messages from before the log: nothing proves them.
        elsewhere: Sequences of other workspaces.
        gaps: Sequences without a message when they were sealed.
        erased: Sequences that erasures of the workspace cover.
        anchors: Name → number of checkpoints that agree.
        later: Number of checkpoints of anchors that are newer than the file.
        count: Number of breaks.
        breaks: The first of them.
    """

    workspace_id: str = ""
    public_key: str = ""
    messages: int = 0
    size: int = 0
    last_seq: int = 0
    checkpoint: str = ""
    checkpoints: int = 0
    unsealed: int = 0
    unsalted: int = 0
    elsewhere: int = 0
    gaps: int = 0
    erased: list[Range] = field(default_factory=list)
    anchors: dict[str, int] = field(default_factory=dict)
    later: int = 0
    count: int = 0
    breaks: list[LogFileBreak] = field(default_factory=list)

    def add(self, line: int, text: str) -> None:
        """Count a break, and list it if there is room."""
        self.count += 1
        if len(self.breaks) < BREAKS_LISTED:
            self.breaks.append(LogFileBreak(line, text))


class LogFileCheck:
    """Reads a file once, line by line.

    Args:
        public_key: The key that is expected; the one of the file if absent, which proves only that the file is whole.
        anchors: Checkpoints that were kept elsewhere.
    """

    def __init__(self, public_key: str | None = None, anchors: Iterable[Anchor] = ()) -> None:
        self._wanted_key = public_key
        self._public = b""
        self._tree = Tree()
        self._line = 0
        self._next = 1
        self._parted = False  # whether a line or checkpoint did not fit: all later checkpoints cannot fit either
        self._since_sealed: Counter[str] = Counter()
        self._size = -1
        self._ended = False
        self._gone: list[Range] = []
        self._anchors = tuple(anchors)
        self._anchored: dict[int, list[tuple[str, bytes]]] = {}
        self._report = LogFileReport(anchors={anchor.name: 0 for anchor in self._anchors})

    def take(self, raw: bytes) -> LoggedMessage | None:
        """Read the next line; the message in it, if it has one and the line itself is sound."""
        self._line += 1
        try:
            line = from_json(raw)
            if not isinstance(line, dict):
                raise TypeError("not a JSON object")
            return self._taken(line)
        except (ValueError, KeyError, TypeError) as error:
            self._break(f"cannot be read as a line of a log: {error}")
            return None

    def _taken(self, line: Mapping[str, Any]) -> LoggedMessage | None:
        if self._ended:
            self._break("follows the last line")
        elif self._line == 1:
            self._begin(line)
        elif "seq" in line:
            return self._take_message(line)
        elif "leaves" in line:
            self._take_leaves(int(line["first_seq"]), _bytes(line["leaves"]))
        elif "checkpoint" in line:
            self._take_checkpoint(str(line["checkpoint"]))
        elif "messages" in line:
            self._ended = True
            if line["messages"] != self._report.messages:
                self._break(f"the file had {line['messages']} messages, and has {self._report.messages}")
        else:
            self._break("has none of seq, leaves, checkpoint and messages")
        return None

    def _begin(self, line: Mapping[str, Any]) -> None:
        if line.get("log") != LOG_FORMAT:
            raise ValueError(f"it must begin with the head of a log of format {LOG_FORMAT}")
        report = self._report
        report.workspace_id, report.public_key = str(line["workspace_id"]), str(line["public_key"])
        self._public, self._size = public_key_of(report.public_key), int(line["size"])
        if self._wanted_key not in (None, report.public_key):
            self._break("names another public key than the expected one")
            self._public = public_key_of(str(self._wanted_key))
        for anchor in self._anchors:
            for note in anchor.notes:
                try:
                    checkpoint = verified(note, self._public)
                except ValueError as error:
                    self._break(f"{anchor.name}: {error}")
                else:
                    self._anchored.setdefault(checkpoint.size, []).append((anchor.name, checkpoint.root))

    def _take_message(self, line: Mapping[str, Any]) -> LoggedMessage | None:
        report, seq = self._report, int(line["seq"])
        message = LoggedMessage(seq, str(line["subject"]), _bytes(line["headers"]), _bytes(line["body"]))
        report.messages += 1
        self._continue_at(seq, seq)
        leaf, actual, wrong = _bytes(line["leaf"]), leaf_of(message), ""
        if message.subject.split(".")[1] != report.workspace_id:
            wrong = f"the message {seq} is not of the workspace {report.workspace_id}"
        elif actual is None and leaf == UNSALTED:
            report.unsalted += 1
        elif actual is None:
            wrong = f"the message {seq} has no salt, so the service did not publish it"
        elif actual != leaf:
            wrong = f"the message {seq} is not the one that was exported"
        if wrong:
            self._break(wrong)
        self._grow(leaf)
        self._since_sealed["messages"] += 1
        if message.subject.startswith(Family.CONTROL.value) and message.subject.endswith(_ERASURES):
            self._gone += ErasureScoped.model_validate(from_json(message.body)["payload"]).scope.ranges
        return None if wrong else message

    def _take_leaves(self, first_seq: int, data: bytes) -> None:
        if not data or len(data) % HASH_BYTES:
            raise ValueError(f"leaves have {HASH_BYTES} bytes each")
        self._continue_at(first_seq, first_seq + len(data) // HASH_BYTES - 1)
        for at in range(0, len(data), HASH_BYTES):
            leaf = data[at : at + HASH_BYTES]
            if leaf == GAP:
                self._report.gaps += 1
            else:
                self._report.elsewhere += 1
            self._grow(leaf)

    def _continue_at(self, first_seq: int, last_seq: int) -> None:
        if first_seq != self._next:
            self._parted = True
            self._break(f"begins at the sequence {first_seq}; {self._next} comes next")
        self._next = last_seq + 1

    def _grow(self, leaf: bytes) -> None:
        if len(leaf) != HASH_BYTES:
            raise ValueError(f"a leaf has {HASH_BYTES} bytes")
        tree = self._tree
        tree.add(leaf)
        if self._parted:
            return
        for name, root in self._anchored.pop(tree.size, ()):
            if root == tree.root():
                self._report.anchors[name] += 1
            else:
                self._break(f"{name} has another root for the first {tree.size} sequences: changed or forked")

    def _take_checkpoint(self, note: str) -> None:
        checkpoint = verified(note, self._public)
        if self._parted:
            return
        report, tree = self._report, self._tree
        if checkpoint != Checkpoint(tree.size, tree.root()):
            self._parted = True
            self._break(
                f"the checkpoint of {checkpoint.size} does not fit: a line was changed, removed or added "
                f"behind sequence {report.size}"
            )
            return
        report.checkpoint, report.size = note, checkpoint.size
        report.checkpoints += 1
        self._since_sealed.clear()

    def _break(self, text: str) -> None:
        self._report.add(self._line, text)

    def report(self) -> LogFileReport:
        """The report over all lines that were read."""
        report = self._report
        self._line += 1
        if not self._ended:
            self._break("the last line is missing: the end of the file was cut")
        if self._size >= 0 and not self._parted and report.size != self._size:
            self._break(f"the checkpoint of {self._size} is missing; the last one is of {report.size}")
        report.last_seq = self._next - 1
        report.unsealed = self._since_sealed["messages"]
        report.erased = normalised(self._gone)
        report.later = sum(map(len, self._anchored.values()))
        return report


def log_lines(raw: Iterable[bytes], check: LogFileCheck) -> Iterator[LoggedMessage]:
    """The messages of a file's lines, while ``check`` reads them."""
    for line in raw:
        if (message := check.take(line)) is not None:
            yield message


def is_log(first_line: bytes) -> bool:
    """Whether a file that begins with this line is a log."""
    return first_line.startswith(b'{"log":')


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: Any) -> bytes:
    return base64.b64decode(text, validate=True)
