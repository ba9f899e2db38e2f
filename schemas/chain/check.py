"""Checks a whole stream against its seals and the anchors outside it.

Two verdicts: integrity (what is there is what was sealed) and completeness (nothing is missing that no record explains).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from ..core.entry import Priority
from ..core.ids import SYSTEM_WORKSPACE
from ..core.sequence_set import SequenceSet
from ..core.subjects import Family
from ..entries.events import ErasureScoped, JournalRestored, LossAccepted, MemoryCompacted
from ..recall.events import PriorityChanged
from .checkpoint import Checkpoint, verified
from .events import ChainSealed
from .tree import GAP, UNSALTED, Leaves, Tree, leaf_data

BREAKS_LISTED: Final = 100
"""Breaks that a report lists; it counts all."""
_CONTROL: Final = f"{Family.CONTROL.value}."
_RAISED: Final = re.compile(rb'"priority":\s*"(?:high|pin|permanent)"')
_CHANGED: Final = PriorityChanged.ENTRY_TYPE
_ARCHIVED: Final = MemoryCompacted.ENTRY_TYPE
_EXPLAINING: Final = frozenset(
    (ErasureScoped.ENTRY_TYPE, LossAccepted.ENTRY_TYPE, JournalRestored.ENTRY_TYPE, ChainSealed.ENTRY_TYPE)
)

EDITED: Final = "edited"
MOVED: Final = "moved"
FORGED: Final = "forged"
UNSIGNED: Final = "unsigned"
WRONG_SEAL: Final = "wrong seal"
FORK: Final = "fork"
LEDGER: Final = "ledger"
MISSING: Final = "missing"
CUT: Final = "cut"
_OF_COMPLETENESS: Final = frozenset((MISSING, CUT))


_Wanted = dict[int, list[tuple[str, int, Checkpoint]]]
"""Size → the checkpoints of this size: anchor, position in it (0 for the last one), checkpoint."""


class ChainBreak(NamedTuple):
    """One thing that is wrong: at a sequence, or None for an anchor outside the stream."""

    kind: str
    seq: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Anchor:
    """The checkpoints that a place outside the stream holds, in the order of writing."""

    name: str
    notes: tuple[str, ...]


@dataclass(slots=True)
class ChainReport:
    """What a check found.

    Attributes:
        messages: Number of messages read.
        last_seq: Sequence of the last one.
        sealed_to: Last sequence that a valid seal covers.
        seals: Number of valid seals.
        unsalted: Messages from before the log; they are not covered.
        explained: Sequences without a message that an erasure or an accepted loss explains.
        root: Root of the tree at ``sealed_to``.
        breaks: The first of what is wrong.
        counts: Number of breaks by kind.
        anchors: Name → number of checkpoints that agree.
        restored: Sequences at which the journal was restored from a backup or a loss was accepted.
    """

    messages: int = 0
    last_seq: int = 0
    sealed_to: int = 0
    seals: int = 0
    unsalted: int = 0
    explained: int = 0
    root: bytes = b""
    breaks: list[ChainBreak] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    anchors: dict[str, int] = field(default_factory=dict)
    restored: list[int] = field(default_factory=list)

    @property
    def integrity(self) -> bool:
        """Whether everything that is there is what was sealed."""
        return not any(kind not in _OF_COMPLETENESS for kind in self.counts)

    @property
    def completeness(self) -> bool:
        """Whether nothing is missing that no record explains."""
        return not any(kind in _OF_COMPLETENESS for kind in self.counts)

    def add(self, kind: str, seq: int | None, text: str) -> None:
        """Count a break, and list it if there is room."""
        self.counts[kind] += 1
        if len(self.breaks) < BREAKS_LISTED:
            self.breaks.append(ChainBreak(kind, seq, text))


class _PriorityLedger:
    """Follows the priority of each entry from the emitted one through the decisions that changed it."""

    def __init__(self) -> None:
        self._live: dict[tuple[str, str], tuple[str, int]] = {}
        """Workspace and id → its priority if that is not normal, or was changed, and the sequence that set it."""
        self._permanent: set[int] = set()  # sequences of the entries that were emitted as permanent
        self._doubtful: list[tuple[int, int, str]] = []  # sequence that set the priority before, sequence, text

    def take(self, seq: int, subject: str, body: bytes) -> None:
        """Read the next message of the service."""
        _, workspace_id, kind = subject.split(".", 2)
        if kind not in (_CHANGED, _ARCHIVED) and _RAISED.search(body) is None:
            return
        try:
            entry = from_json(body)
            payload, entry_id, priority = entry["payload"], entry["id"], entry.get("priority", "normal")
            if kind == _CHANGED:
                self._change(seq, workspace_id, PriorityChanged.model_validate(payload))
            elif kind == _ARCHIVED:
                archived = MemoryCompacted.model_validate(payload).entries
                self._doubtful += (
                    (seq - 1, seq, f"archives the entry at {kept}, which was emitted as permanent")
                    for kept in sorted(self._permanent)
                    if kept in archived
                )
        except (ValueError, KeyError, TypeError, ValidationError):  # the fold parks it
            return
        if priority != Priority.NORMAL and (workspace_id, entry_id) not in self._live:
            self._live[workspace_id, entry_id] = priority, seq
            if priority == Priority.PERMANENT:
                self._permanent.add(seq)

    def _change(self, seq: int, workspace_id: str, change: PriorityChanged) -> None:
        key = workspace_id, change.target_entry_id
        live, since = self._live.get(key, (Priority.NORMAL.value, 0))
        if live != change.previous_priority:
            text = f"changes {change.target_entry_id} from {change.previous_priority.value}; it was {live}"
            self._doubtful.append((since, seq, text))
        self._live[key] = change.new_priority.value, seq

    def breaks(self, explained: Collection[int]) -> Iterator[tuple[int, str]]:
        """What does not follow from the messages before it, unless one of those was erased or accepted as lost."""
        for since, seq, text in self._doubtful:
            if not any(gone in explained for gone in range(since + 1, seq)):
                yield seq, text


class ChainCheck:
    """Reads a stream once, in order, then compares.

    Args:
        public: The journal's public key, 32 bytes.
        anchors: What was written outside the stream.
    """

    def __init__(self, public: bytes, anchors: Iterable[Anchor] = ()) -> None:
        self._public = public
        self._anchors = tuple(anchors)
        self._leaves = Leaves()
        self._actual: dict[int, bytes] = {}
        self._seals: list[tuple[int, ChainSealed]] = []
        self._explained: set[int] = set()
        self._resumed: list[tuple[int, int]] = []  # (sequence, last sequence of before) of restores and accepted losses
        self._ledger = _PriorityLedger()
        self._agreeing: dict[str, list[tuple[int, int]]] = {}  # anchor → position and size of checkpoints
        self._disagreeing: list[tuple[str, str, int, int, str]] = []  # kind, anchor, position, size, text
        self._report = ChainReport()

    def take(self, seq: int, subject: str, headers: Mapping[str, str] | None, body: bytes) -> None:
        """Read the next message."""
        report = self._report
        report.messages += 1
        report.last_seq = seq
        salted = self._leaves.salted
        leaf = self._actual[seq] = self._leaves.leaf(subject, headers, body)
        if leaf is UNSALTED:
            report.unsalted += 1
        elif salted and leaf_data(subject, headers, body) is None:
            report.add(FORGED, seq, "has no salt, so the service did not publish it")
        if subject.startswith(_CONTROL):
            self._ledger.take(seq, subject, body)
        if subject.startswith(_CONTROL) and subject.split(".", 2)[2] in _EXPLAINING:
            self._take_control(seq, subject.split(".", 2)[1], body)

    def _take_control(self, seq: int, workspace_id: str, body: bytes) -> None:
        try:
            entry = from_json(body)
            kind, payload = entry["entry_type"], entry["payload"]
            if kind == ErasureScoped.ENTRY_TYPE:
                self._explain(ErasureScoped.model_validate(payload).scope)
            elif workspace_id != SYSTEM_WORKSPACE:
                return
            elif kind == ChainSealed.ENTRY_TYPE:
                self._seals.append((seq, ChainSealed.model_validate(payload)))
            elif kind == LossAccepted.ENTRY_TYPE:
                self._explain(LossAccepted.model_validate(payload).lost)
                self._resumed.append((seq, seq - 1))
            elif kind == JournalRestored.ENTRY_TYPE:
                self._resumed.append((seq, JournalRestored.model_validate(payload).last_seq))
        except (ValueError, KeyError, TypeError, ValidationError):
            self._report.add(WRONG_SEAL, seq, "a record of the log cannot be read")

    def _explain(self, sequences: SequenceSet) -> None:
        for first, last in sequences.ranges:
            self._explained.update(range(first, last + 1))

    def report(self) -> ChainReport:
        """The report over everything that was read."""
        report = self._report
        report.restored = [seq for seq, _ in self._resumed]
        for seq, text in self._ledger.breaks(self._explained):
            report.add(LEDGER, seq, text)
        sealed = self._compare_seals()
        for seq in range(len(sealed) + 1, report.last_seq + 1):  # not sealed yet
            if seq not in self._actual:
                self._missing(seq)
        return report

    def _compare_seals(self) -> list[bytes]:
        """Check seals and anchors against the tree, and messages against the seals; returns the sealed leaves."""
        report, sealed, tree = self._report, list[bytes](), Tree()
        wanted: _Wanted = {}
        for name, position, checkpoint in self._anchored():
            wanted.setdefault(checkpoint.size, []).append((name, position, checkpoint))
        for seq, seal in self._seals:
            try:
                checkpoint = verified(seal.checkpoint, self._public)
            except ValueError as error:
                report.add(UNSIGNED, seq, str(error))
                continue
            leaves = seal.sealed_leaves()
            if seal.last_seq <= len(sealed):  # sealed again after a crash
                if sealed[seal.first_seq - 1 : seal.last_seq] != leaves:
                    report.add(FORK, seq, f"two seals of {seal.first_seq}..{seal.last_seq} differ")
                continue
            while len(sealed) < seal.first_seq - 1:  # a seal is missing: the messages themselves stand in
                self._grow(tree, sealed, self._actual.get(len(sealed) + 1, GAP), wanted)
            for leaf in leaves[len(sealed) - seal.first_seq + 1 :]:
                self._grow(tree, sealed, leaf, wanted)
            if checkpoint != Checkpoint(tree.size, tree.root()) or seal.last_seq != tree.size:
                report.add(WRONG_SEAL, seq, f"the seal of {seal.first_seq}..{seal.last_seq} does not fit the tree")
            report.seals += 1
        report.sealed_to, report.root = tree.size, tree.root()
        self._compare_messages(sealed)
        self._compare_beyond(tree.size, wanted)
        return sealed

    def _anchored(self) -> Iterable[tuple[str, int, Checkpoint]]:
        for anchor in self._anchors:
            self._report.anchors[anchor.name] = 0
            for position, note in enumerate(anchor.notes, 1 - len(anchor.notes)):
                try:
                    yield anchor.name, position, verified(note, self._public)
                except ValueError as error:
                    self._report.add(UNSIGNED, None, f"{anchor.name}: {error}")

    def _grow(self, tree: Tree, sealed: list[bytes], leaf: bytes, wanted: _Wanted) -> None:
        tree.add(leaf)
        sealed.append(leaf)
        for name, position, checkpoint in wanted.pop(tree.size, ()):
            if checkpoint.root == tree.root():
                self._report.anchors[name] += 1
                self._agreeing.setdefault(name, []).append((position, checkpoint.size))
            else:
                text = f"{name} has another root for the first {tree.size} messages: the journal was changed or forked"
                self._disagreeing.append((FORK, name, position, checkpoint.size, text))

    def _compare_beyond(self, size: int, wanted: _Wanted) -> None:
        for checkpoints in wanted.values():
            for name, position, checkpoint in checkpoints:
                text = f"{name} was written when {checkpoint.size} messages were sealed; the journal has {size}"
                text = f"{text}: its end was cut, or it is an older copy"
                self._disagreeing.append((CUT, name, position, checkpoint.size, text))
        for kind, name, position, checkpoint_size, text in self._disagreeing:
            if position == 0 or not self._is_of_before(name, position, checkpoint_size):
                self._report.add(kind, None, text)

    def _is_of_before(self, name: str, position: int, size: int) -> bool:
        """Whether a restored backup or an accepted loss explains a checkpoint that this stream does not have.

        Its record comes after the last sequence of before. So a checkpoint that covers the record was written after it, and
        a later one of the same anchor is not of before.
        """
        agreeing = self._agreeing.get(name, ())
        return any(
            last_seq < size and not any(earlier < position and covered >= seq for earlier, covered in agreeing)
            for seq, last_seq in self._resumed
        )

    def _compare_messages(self, sealed: Sequence[bytes]) -> None:
        report = self._report
        wrong = [
            seq
            for seq, leaf in enumerate(sealed, 1)
            if self._actual.get(seq, GAP) != leaf or (leaf == GAP and seq not in self._explained)
        ]
        places = {leaf: seq for seq, leaf in enumerate(sealed, 1)} if wrong else {}
        for seq in wrong:
            leaf, actual = sealed[seq - 1], self._actual.get(seq)
            if actual is None:
                self._missing(seq)
            elif leaf == GAP:
                report.add(FORGED, seq, "there was no message when this sequence was sealed")
            elif places.get(actual, seq) != seq:
                report.add(MOVED, seq, f"holds the message of {places[actual]}")
            else:
                report.add(EDITED, seq, "is not the message that was sealed")
        report.explained = sum(seq not in self._actual and seq <= report.last_seq for seq in self._explained)

    def _missing(self, seq: int) -> None:
        if seq not in self._explained:
            self._report.add(MISSING, seq, "is missing, and neither an erasure nor an accepted loss explains it")
