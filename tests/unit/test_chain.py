"""The transparency log: tree, checkpoints, and the check of a stream that somebody has tampered with."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from crew_journal.schemas.chain import check as chain_check
from crew_journal.schemas.chain.check import Anchor, ChainCheck, ChainReport
from crew_journal.schemas.chain.checkpoint import Checkpoint, public_key, signed, verification_key, verified
from crew_journal.schemas.chain.events import ChainSealed
from crew_journal.schemas.chain.tree import (
    EMPTY_ROOT,
    GAP,
    Leaves,
    Tree,
    inclusion_path,
    leaf_data,
    leaf_hash,
    node_hash,
    root_of,
)
from crew_journal.schemas.core.sequence_set import in_parts, ranges_of

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
SEAL_SUBJECT = f"control._system.{ChainSealed.ENTRY_TYPE}"
LEAVES_OF_RFC = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243")]
ROOT_OF_RFC = "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef"
"""Root over the first six leaves of the test vectors of certificate-transparency."""


@dataclass(frozen=True)
class Stored:
    seq: int
    subject: str
    headers: dict[str, str]
    data: bytes


class Log:
    """A stream that is sealed every few messages, and an anchor outside it."""

    def __init__(self, rng: random.Random, *, key: bytes = KEY, head: tuple[Stored, ...] = ()) -> None:
        self.rng, self.key = rng, key
        self.messages: list[Stored] = list(head)
        self.notes: list[str] = []
        self._tree, self._leaves = Tree(), Leaves()

    def append(self, subject: str, body: bytes, *, salted: bool = True) -> None:
        headers = {"Crew-Entry-Id": f"e{len(self.messages)}"}
        if salted:
            headers["Crew-Salt"] = self.rng.randbytes(16).hex()
        self.messages.append(Stored(len(self.messages) + 1, subject, headers, body))

    def seal(self) -> None:
        fresh = self.messages[self._tree.size :]
        leaves = [self._leaves.leaf(m.subject, m.headers, m.data) for m in fresh]
        first = self._tree.size + 1
        for leaf in leaves:
            self._tree.add(leaf)
        note = signed(Checkpoint(self._tree.size, self._tree.root()), self.key)
        payload = ChainSealed(
            first_seq=first,
            last_seq=self._tree.size,
            leaves=base64.b64encode(b"".join(leaves)).decode(),
            peaks=tuple(peak.hex() for peak in self._tree.peaks),
            salted=self._leaves.salted,
            checkpoint=note,
        )
        self.notes.append(note)
        self.control("_system", ChainSealed.ENTRY_TYPE, payload.model_dump(mode="json"))

    def control(self, workspace: str, entry_type: str, payload: object) -> None:
        body = json.dumps({"entry_type": entry_type, "payload": payload}).encode()
        self.append(f"control.{workspace}.{entry_type}", body)

    @classmethod
    def filled(cls, seed: int, *, entries: int = 60, unsalted: int = 0, key: bytes = KEY) -> Log:
        log = cls(random.Random(seed), key=key)
        for number in range(entries):
            log.append("journal.w._.a.note", f"text {number}".encode(), salted=number >= unsalted)
            if number > unsalted and log.rng.random() < 0.15:
                log.seal()
        log.seal()
        return log


def checked(messages: list[Stored], notes: list[str]) -> ChainReport:
    check = ChainCheck(public_key(KEY), [Anchor("anchor", tuple(notes))])
    for message in messages:
        check.take(message.seq, message.subject, message.headers, message.data)
    return check.report()


def path_leads_to(root: bytes, leaf: bytes, index: int, size: int, path: list[bytes]) -> bool:
    """RFC 9162 section 2.1.3.2, step by step."""
    fn, sn, current = index, size - 1, leaf
    for step in path:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            current = node_hash(step, current)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            current = node_hash(current, step)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and current == root


def test_root_of_the_vectors_of_rfc_6962_equals_theirs() -> None:
    assert root_of([]) == EMPTY_ROOT
    assert root_of(map(leaf_hash, LEAVES_OF_RFC)).hex() == ROOT_OF_RFC


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 33])
def test_inclusion_path_of_every_leaf_leads_to_the_root(size: int) -> None:
    leaves = [leaf_hash(bytes([number])) for number in range(size)]
    for index, leaf in enumerate(leaves):
        path = inclusion_path(leaves, index)
        assert path_leads_to(root_of(leaves), leaf, index, size, path)
        assert not path_leads_to(root_of(leaves), leaf_hash(b"other"), index, size, path)


def test_tree_that_is_continued_from_its_peaks_has_the_same_root() -> None:
    leaves = [leaf_hash(bytes([number])) for number in range(200)]
    for cut in (0, 1, 63, 64, 100):
        first = Tree()
        for leaf in leaves[:cut]:
            first.add(leaf)
        second, at_once = Tree(first.size, first.peaks), Tree(first.size, first.peaks)
        for leaf in leaves[cut:]:
            second.add(leaf)
        for start in range(cut, len(leaves), 7):
            at_once.extend(leaves[start : start + 7])
        assert second.root() == at_once.root() == root_of(leaves)
        assert (second.size, second.peaks) == (at_once.size, at_once.peaks)


def test_checkpoint_signed_by_another_key_or_changed_is_refused() -> None:
    note = signed(Checkpoint(7, b"r" * 32), KEY)
    assert verified(note, public_key(KEY)) == Checkpoint(7, b"r" * 32)
    for wrong, public in ((note, public_key(OTHER_KEY)), (note.replace("\n7\n", "\n8\n"), public_key(KEY))):
        with pytest.raises(ValueError, match=r"signed|signature"):
            verified(wrong, public)


def test_leaf_without_its_salt_confirms_no_guess() -> None:
    log = Log.filled(1, entries=3)
    message = log.messages[0]
    data = leaf_data(message.subject, message.headers, message.data)
    assert data is not None
    guessed = replace(message, headers=message.headers | {"Crew-Salt": "00" * 16})
    assert leaf_data(guessed.subject, guessed.headers, guessed.data) != data
    assert (
        hashlib.sha256(b"\x00" + data).digest()
        in ChainSealed.model_validate(
            json.loads(next(m.data for m in log.messages if m.subject == SEAL_SUBJECT))["payload"]
        ).sealed_leaves()
    )


@pytest.mark.parametrize("unsalted", [0, 20])
def test_check_of_an_untouched_stream_finds_nothing(unsalted: int) -> None:
    log = Log.filled(2, unsalted=unsalted)
    log.append("journal.w._.a.note", b"not sealed yet")
    report = checked(log.messages, log.notes)
    assert (report.integrity, report.completeness, report.breaks) == (True, True, [])
    assert report.unsalted == unsalted
    assert report.anchors == {"anchor": len(log.notes)}
    assert report.sealed_to == len(log.messages) - 2  # the last seal, and one message


def _edit(log: Log, at: int) -> tuple[str, int]:
    log.messages[at] = replace(log.messages[at], data=log.messages[at].data + b" ")
    return chain_check.EDITED, at + 1


def _drop_salt(log: Log, at: int) -> tuple[str, int]:
    log.messages[at] = replace(log.messages[at], headers={"Crew-Entry-Id": "e"})
    return chain_check.EDITED, at + 1


def _remove(log: Log, at: int) -> tuple[str, int]:
    del log.messages[at]
    return chain_check.MISSING, at + 1


def _swap(log: Log, at: int) -> tuple[str, int]:
    one, two = log.messages[at], log.messages[at + 1]
    log.messages[at], log.messages[at + 1] = replace(two, seq=one.seq), replace(one, seq=two.seq)
    return chain_check.MOVED, at + 1


def _cut(log: Log, at: int) -> tuple[str, None]:
    del log.messages[at:]
    return chain_check.CUT, None


def _replay(log: Log, at: int) -> tuple[str, int]:
    """An older copy of a message in the place of a later one."""
    log.messages[at + 1] = replace(log.messages[at], seq=at + 2)
    return chain_check.MOVED, at + 2


def _fork(log: Log, at: int) -> tuple[str, None]:
    """The whole journal is replaced by another one, signed with the same key."""
    other = Log.filled(1_000 + at, entries=at + 100)
    log.messages = other.messages
    return chain_check.FORK, None


def _foreign_signer(log: Log, at: int) -> tuple[str, int]:
    other = Log.filled(2_000 + at, key=OTHER_KEY)
    log.messages = other.messages
    seal = next(m for m in other.messages if m.subject == SEAL_SUBJECT)
    return chain_check.UNSIGNED, seal.seq


TAMPERINGS: list[Callable[[Log, int], tuple[str, int | None]]] = [
    _edit, _drop_salt, _remove, _swap, _cut, _replay, _fork, _foreign_signer,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(200))
def test_every_tampering_is_found_at_its_place(seed: int) -> None:
    log = Log.filled(seed)
    sealed = checked(log.messages, log.notes).sealed_to
    at = log.rng.randrange(sealed - 1)
    kind, seq = TAMPERINGS[seed % len(TAMPERINGS)](log, at)
    report = checked(log.messages, log.notes)
    assert any((found.kind, found.seq) == (kind, seq) for found in report.breaks), report.breaks
    incomplete = {chain_check.MISSING, chain_check.CUT}
    assert report.completeness is (not incomplete & set(report.counts))
    assert report.integrity is (set(report.counts) <= incomplete)


def _priority(log: Log, entry_id: str, before: str, after: str) -> None:
    payload = {"target_entry_id": entry_id, "previous_priority": before, "new_priority": after, "reason": "r"}
    body = {"id": f"c{len(log.messages)}", "entry_type": "memory.priority_changed", "payload": payload}
    log.append("control.w.memory.priority_changed", json.dumps(body).encode())


def _emitted(log: Log, entry_id: str, priority: str) -> None:
    body = {"id": entry_id, "entry_type": "note", "priority": priority, "payload": {}}
    log.append("control.w.note", json.dumps(body).encode())


def _archived(log: Log, *sequences: int) -> None:
    payload = {
        "crew_id": "c", "bucket_date": "2026-01-01", "entry_type": "llm.call", "count": len(sequences), "bytes_sum": 1,
        "bytes_freed": 0, "first_ts": "a", "last_ts": "b", "cutoff": "c",
        "entries": {"sequences": ",".join(map(str, sequences))},
    }  # fmt: skip
    body = {"id": f"c{len(log.messages)}", "entry_type": "memory.compacted", "payload": payload}
    log.append("control.w.memory.compacted", json.dumps(body).encode())


def test_live_priority_that_the_decisions_do_not_lead_to_is_a_break_unless_one_was_erased() -> None:
    log = Log(random.Random(7))
    _emitted(log, "kept", "permanent")  # 1
    _priority(log, "kept", "permanent", "normal")
    _priority(log, "plain", "normal", "pin")
    _priority(log, "plain", "pin", "high")
    log.append("journal.w._.a.llm.call", b"{}")  # 5
    _archived(log, 5)
    log.seal()
    assert checked(log.messages, log.notes).breaks == []
    _priority(log, "plain", "pin", "permanent")  # 8: it was high
    _archived(log, 1)  # 9: un-pinned meanwhile
    log.seal()
    found = checked(log.messages, log.notes).breaks
    assert [(wrong.kind, wrong.seq) for wrong in found] == [(chain_check.LEDGER, 8), (chain_check.LEDGER, 9)]
    other = Log(random.Random(8))
    _priority(other, "plain", "normal", "pin")
    _priority(other, "plain", "pin", "high")
    _priority(other, "plain", "high", "normal")
    other.control("_system", "journal.loss_accepted", {"loss_id": "l_1", "lost": {"sequences": "2", "ids": []}})
    other.seal()
    del other.messages[1]
    assert checked(other.messages, other.notes).breaks == []


def test_all_breaks_are_counted_and_a_hundred_are_listed() -> None:
    log = Log.filled(5, entries=300)
    for at in range(250):
        _edit(log, at)
    report = checked(log.messages, log.notes)
    assert sum(report.counts.values()) >= 250
    assert len(report.breaks) == chain_check.BREAKS_LISTED


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("kind", ["erasure.scoped", "journal.loss_accepted"])
def test_lawful_removals_are_not_called_tampering(seed: int, kind: str) -> None:
    log = Log.filled(seed)
    gone = set(log.rng.sample(range(1, 40), 5)) - {m.seq for m in log.messages if m.subject == SEAL_SUBJECT}
    scope = in_parts(ranges_of(gone))[0].model_dump(mode="json")
    workspace, payload = (
        ("w", {"erasure_id": "er_1", "scope": scope})
        if kind == "erasure.scoped"
        else ("_system", {"loss_id": "l_1", "lost": scope})
    )
    log.control(workspace, kind, payload)
    log.seal()
    log.messages = [m for m in log.messages if m.seq not in gone]
    report = checked(log.messages, log.notes)
    assert (report.integrity, report.completeness) == (True, True), report.breaks
    assert report.explained == len(gone)


@pytest.mark.parametrize("seed", range(50))
def test_lawful_compactions_are_not_called_tampering(seed: int) -> None:
    """Entries of any priority but permanent are archived, some after their priority was set and set back."""
    log = Log(random.Random(seed))
    archived = []
    for number in range(30):
        priority = log.rng.choice(("normal", "high", "pin", "permanent"))
        _emitted(log, f"entry{number}", priority)
        if priority != "permanent":
            archived.append(len(log.messages))
            for before, after in ((priority, "permanent"), ("permanent", "normal")) if log.rng.random() < 0.3 else ():
                _priority(log, f"entry{number}", before, after)
        if log.rng.random() < 0.1:
            log.seal()
    _archived(log, *log.rng.sample(archived, len(archived) // 2))
    log.seal()
    report = checked(log.messages, log.notes)
    assert (report.integrity, report.completeness, report.breaks) == (True, True, [])


def _restored(log: Log, last_seq: int) -> None:
    """The record of a restore after ``last_seq``, and a seal over it."""
    payload = {"backup_sha256": "0" * 64, "made_at": "2026-01-01T00:00:00Z", "last_seq": last_seq, "messages": last_seq}
    log.control("_system", "journal.restored", payload)
    log.seal()


def _told(log: Log, entries: int, text: str) -> None:
    for number in range(entries):
        log.append("journal.w._.a.note", f"{text} {number}".encode())
        if number % 5 == 4:
            log.seal()


def test_restore_explains_checkpoints_of_before_and_no_later_ones() -> None:
    log = Log(random.Random(11))
    _told(log, 10, "kept")
    backup = copy.deepcopy(log)
    _told(log, 20, "lost with the disk")
    restored, notes = backup, log.notes
    restored.notes = [*notes]
    _restored(restored, len(restored.messages))
    _told(restored, 10, "after the restore")
    assert checked(restored.messages, restored.notes).breaks == []
    older = copy.deepcopy(restored)
    _told(restored, 20, "what somebody wants to be forgotten")
    notes = [*restored.notes]
    assert checked(restored.messages, notes).breaks == []
    _told(older, 10, "what was written instead")
    notes += older.notes[-2:]
    report = checked(older.messages, notes)
    assert set(report.counts) >= {chain_check.CUT}, "the last checkpoint fits, but not those before it"
    assert (report.integrity and report.completeness) is False


def test_message_where_none_was_sealed_is_forged() -> None:
    log = Log(random.Random(3))
    for number in range(4):
        log.append("journal.w._.a.note", str(number).encode())
    leaves = [GAP if m.seq == 2 else Leaves().leaf(m.subject, m.headers, m.data) for m in log.messages]
    tree = Tree()
    for leaf in leaves:
        tree.add(leaf)
    note = signed(Checkpoint(4, tree.root()), KEY)
    log.control("_system", ChainSealed.ENTRY_TYPE, {
        "first_seq": 1, "last_seq": 4, "leaves": base64.b64encode(b"".join(leaves)).decode(),
        "peaks": [peak.hex() for peak in tree.peaks], "salted": True, "checkpoint": note,
    })  # fmt: skip
    report = checked(log.messages, [note])
    assert [(found.kind, found.seq) for found in report.breaks] == [(chain_check.FORGED, 2)]


def test_another_verifier_accepts_checkpoint_and_proof() -> None:
    foreign = pytest.importorskip("aics_tlog", reason="needs Python 3.12")
    log = Log.filled(9)
    leaves = [Leaves(salted=True).leaf(m.subject, m.headers, m.data) for m in log.messages]
    size = checked(log.messages, log.notes).sealed_to
    note = log.notes[-1]
    answer = foreign.verify_checkpoint(foreign.parse_note(note), foreign.parse_vkey(verification_key(public_key(KEY))))
    assert answer.ok
    root = verified(note, public_key(KEY)).root
    for index in (0, 3, size - 1):
        message = log.messages[index]
        data = leaf_data(message.subject, message.headers, message.data)
        path = inclusion_path(leaves[:size], index)
        assert foreign.verify_leaf_inclusion(data, index, size, path, root)
