"""``up --leaf HUB``: a node that keeps a journal of its own and exchanges it with a hub whenever the hub can be reached.

A pass sends the entries that are new here, takes over those that are new at the hub, erases what the hub has erased, and
brings memory documents together. Both sides judge what they take over as any write: the token of the hub decides what
this machine may send and which of the crew's entries it gets.

If neither side has folded anything since the last pass, which one question to each tells, the pass ends there.

Invariant: an entry keeps its id, so what was sent before an interruption is not stored twice; a position moves only past
entries that the other side has acked. Sequences belong to each journal: the order of an entry is the one in which that
journal took it in, and ``ts`` says when it happened. A document that was changed on both sides gets the text of the hub,
and the text of this machine is a version of it on both sides.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...schemas.core.errors import (
    CrewJournalError,
    DocumentConflict,
    DocumentError,
    InvalidRequest,
    NotAllowed,
    Unavailable,
)
from ...schemas.core.sequence_set import Range, normalised, ranges_of
from ...schemas.documents.events import DocumentAction
from ...schemas.documents.operations import DocumentShown
from ...schemas.documents.rules import Scope, is_mirrored, joint, scope_of
from ..data_dir import write_private
from .importing.lines import BadLine, Line, batches_of, read_line
from .importing.run import BatchAck, ImportRun, held_by
from .output import counted, plain, say

if TYPE_CHECKING:
    from ...schemas.api import EntryRecord
    from ..client import AsyncCrewJournal

PAUSE_S: Final = 2.0
"""Seconds between two passes."""
AWAY_S: Final = 5.0
"""Seconds between two passes while the hub is away."""
REST_S: Final = 60.0
"""Seconds after which a pass asks both sides for everything, even if neither says that something is new."""
PATIENCE_S: Final = 5.0
"""Seconds for which a batch waits for the other side before the pass ends."""
AT_ONCE: Final = 5_000
"""Entries that are in memory at once, some 10 MB."""
STATE_FILE: Final = "leaf.json"
SOURCE: Final = "mirror"


@dataclass(slots=True)
class LeafState:
    """How far a leaf is; a file in the data directory.

    Attributes:
        hub: URL of the hub; another one begins anew.
        sent: Sequence here up to which entries are at the hub.
        taken: Sequence of the hub up to which entries are here.
        erasure: The hub's last completed erasure that was carried out here.
        own: First and last sequences of the hub with entries from here, which are not taken over.
        theirs: First and last sequences here with entries of the hub, which are not sent.
        refused: Ids of entries of this journal that the hub did not take.
        documents: Owner and label → text at the last exchange.
    """

    hub: str
    sent: int = 0
    taken: int = 0
    erasure: str | None = None
    own: list[Range] = field(default_factory=list)
    theirs: list[Range] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, hub: str) -> LeafState:
        """The state of the file, if it is about this hub."""
        try:
            noted = json.loads(path.read_text())
        except FileNotFoundError:
            return cls(hub)
        ranges = {name: [(first, last) for first, last in noted[name]] for name in ("own", "theirs")}
        return cls(**{**noted, **ranges}) if noted["hub"] == hub else cls(hub)

    def save(self, path: Path) -> None:
        """Replace the file; only its owner can read it."""
        write_private(path, json.dumps(asdict(self)))


@dataclass(slots=True)
class Exchanged:
    """What one pass did: entries sent, taken over, refused by a side, erased; documents written, and in conflict."""

    sent: int = 0
    taken: int = 0
    refused: int = 0
    erased: int = 0
    documents: int = 0
    conflicts: int = 0


class Leaf:
    """The exchange of one workspace with a hub.

    Args:
        here: Client of this node, with the owner's token.
        hub: Client of the hub.
        state_file: Where it notes how far it is.
        hub_url: URL of the hub.
        workspace: The workspace, on both sides.
    """

    def __init__(
        self, here: AsyncCrewJournal, hub: AsyncCrewJournal, state_file: Path, hub_url: str, workspace: str
    ) -> None:
        self._here = here
        self._hub = hub
        self._file = state_file
        self._workspace = workspace
        self._state = LeafState.load(state_file, hub_url)
        self._sees_erasures = True
        self._documents_at: dict[str, tuple[int, ...]] = {}
        self._views_at: list[int] = []
        self._looks_at = 0.0

    async def run(self) -> None:
        """Exchange until cancelled; an outage is said once, and what was missed follows after it."""
        away = False
        while True:
            try:
                done = await self.exchange()
            except (Unavailable, OSError) as error:
                if not away:
                    say(f"warning: the hub {self._state.hub} is away: {error}; this journal goes on, and follows later")
                away = True
            except CrewJournalError as error:
                say(f"warning: the exchange with the hub {self._state.hub} failed: {error.message}")
                away = True
            else:
                if away or done.conflicts or done.refused:
                    say(f"hub {self._state.hub}: {', '.join(f'{n} {name}' for name, n in asdict(done).items())}")
                away = False
            await asyncio.sleep(AWAY_S if away else PAUSE_S)

    async def exchange(self) -> Exchanged:
        """One pass.

        Raises:
            Unavailable: If one side cannot be reached; what was acked is noted.
            CrewJournalError: An answer of a side that concerns no single entry.
        """
        done = Exchanged()
        now = asyncio.get_running_loop().time()
        views = [
            (await side.list(workspace_id=self._workspace, after_seq=seq, limit=1)).view_seq
            for side, seq in ((self._here, self._state.sent), (self._hub, self._state.taken))
        ]
        if views == self._views_at and now < self._looks_at:
            return done
        while await self._take_over(done):
            pass
        while await self._send(done):
            pass
        await self._erase(done)
        await self._documents(done)
        self._views_at, self._looks_at = views, now + REST_S
        return done

    async def _send(self, done: Exchanged) -> bool:
        """Send the first ``AT_ONCE`` entries that are new here; returns whether there were any."""
        entries = await self._after(self._here, self._state.sent)

        def acked(ack: BatchAck) -> None:
            done.sent += sum(not receipt.duplicate for receipt in ack.sent)
            self._state.own = _with_acked(self._state.own, ack)
            done.refused += _say_refused(ack, "the hub")
            refused = {bad.number for bad in (*ack.bad, *ack.taken)}
            self._state.refused += [entry["id"] for entry in entries if refused and entry["seq"] in refused]
            self._state.sent = ack.batch.end_line
            self._state.save(self._file)

        await self._pass_on(self._hub, entries, self._state.theirs, acked)
        self._state.theirs = [ends for ends in self._state.theirs if ends[1] > self._state.sent]
        return bool(entries)

    async def _take_over(self, done: Exchanged) -> bool:
        """Take over the first ``AT_ONCE`` entries that are new at the hub and that its token may read, like ``_send``."""

        def acked(ack: BatchAck) -> None:
            done.taken += sum(not receipt.duplicate for receipt in ack.sent)
            self._state.theirs = _with_acked(self._state.theirs, ack)
            done.refused += _say_refused(ack, "this journal")
            self._state.taken = ack.batch.end_line
            self._state.save(self._file)

        entries = await self._after(self._hub, self._state.taken)
        await self._pass_on(self._here, entries, self._state.own, acked)
        self._state.own = [ends for ends in self._state.own if ends[1] > self._state.taken]
        return bool(entries)

    async def _after(self, side: AsyncCrewJournal, seq: int) -> list[dict[str, Any]]:
        """The first ``AT_ONCE`` entries of a side after this sequence, in its order, without archived ones."""
        found: list[dict[str, Any]] = []
        async for entry in self._after_seq(side, seq):
            found.append(plain(entry))
            if len(found) == AT_ONCE:
                break
        return found

    def _after_seq(self, side: AsyncCrewJournal, seq: int, *, archive: bool = False) -> AsyncIterator[EntryRecord]:
        return side.entries(workspace_id=self._workspace, include_archive=archive, after_seq=seq)

    async def _pass_on(
        self,
        side: AsyncCrewJournal,
        entries: list[dict[str, Any]],
        known: list[Range],
        acked: Callable[[BatchAck], None],
    ) -> None:
        """Append entries to the other side, without those that it is known to have."""
        run = ImportRun(side.append_batch, PATIENCE_S, skip_invalid=True, held=partial(held_by, side), in_flight=1)
        await run.run(batches_of(_lines(entries, self._workspace, known)), acked)

    async def _erase(self, done: Exchanged) -> None:
        """Erase here what the hub has erased since the last time.

        Which entries these are follows from what both sides have: the hub's receipt names none. So that a hub that was
        replaced by an older copy erases nothing here, no more are erased than its erasures say.
        """
        if not self._sees_erasures:
            return
        try:
            erasures = (await self._hub.erasures(workspace_id=self._workspace)).erasures
        except NotAllowed:
            self._sees_erasures = False
            say("warning: this token does not see the hub's erasures: they are not carried out here")
            return
        ended = sorted((one for one in erasures if one.completed_at is not None), key=lambda one: str(one.completed_at))
        known = [one.erasure_id for one in ended]
        fresh = ended[known.index(self._state.erasure) + 1 :] if self._state.erasure in known else ended
        if not fresh:
            return
        at_hub = {entry.id async for entry in self._after_seq(self._hub, 0, archive=True)} | {*self._state.refused}
        gone: list[str] = []
        async for entry in self._after_seq(self._here, 0, archive=True):
            if entry.seq > self._state.sent:
                break
            sent = {**plain(entry), "archived": False}
            lines = [line for _, _, line in _lines([sent], self._workspace, []) if isinstance(line, Line)]
            gone += [line.record["id"] for line in lines if line.record["id"] not in at_hub]
        if len(gone) > sum(one.messages for one in fresh):
            say(f"warning: {len(gone)} entries are missing at the hub, more than it has erased; none is erased here")
        elif gone:
            reason = f"erased at the hub: {fresh[-1].reason}"
            await self._here.forget(reason, ids=gone, workspace_id=self._workspace)
            done.erased += len(gone)
        self._state.erasure = fresh[-1].erasure_id
        self._state.save(self._file)

    async def _documents(self, done: Exchanged) -> None:
        """Bring the documents together that both tokens may read and write."""
        here, hub = await self._listed(self._here), await self._listed(self._hub)
        for name in sorted({*here, *hub}):
            seqs = tuple(side[name].seq if name in side else 0 for side in (here, hub))
            if self._documents_at.get(name) == seqs:
                continue
            try:
                await self._document(name, here.get(name) or hub[name], done)
            except DocumentConflict:
                continue  # written meanwhile; the next pass sees it
            except (DocumentError, InvalidRequest, NotAllowed) as error:
                say(f"warning: {name} is not exchanged with the hub until it changes: {error.message}")
            self._documents_at[name] = seqs

    async def _listed(self, side: AsyncCrewJournal) -> dict[str, DocumentShown]:
        documents = (await side.documents(workspace_id=self._workspace)).documents
        return {f"{one.owner}/{one.id}": one for one in documents if is_mirrored(one.tier)}

    async def _document(self, name: str, shown: DocumentShown, done: Exchanged) -> None:
        scope, owner = scope_of(shown.owner)
        address: dict[str, Any] = {"tier": shown.tier, "key": shown.key, "scope": scope.value}
        if scope is not Scope.WORKSPACE:
            address[f"{scope.value}_id"] = owner
        address["workspace_id"] = self._workspace
        here, hub = await self._here.document_read(**address), await self._hub.document_read(**address)
        base, agreed = self._state.documents.get(name, ""), hub.content
        if here.quarantined or hub.quarantined:
            return
        if here.content != hub.content:
            at_hub, text_at_hub = hub.seq, hub.content
            if hub.content == base:
                agreed = here.content
            elif here.content != base and await self._is_appended(address, base, here.content):
                agreed = hub.content + joint(hub.content, here.content[len(base) :])  # the hub's lines first
            elif here.content != base:
                done.conflicts += 1
                at_hub, text_at_hub = await _write(self._hub, address, hub.seq, here.content), here.content
                say(
                    f"{name} was changed here and at the hub; the hub's text counts, that of here is version {at_hub} there"
                )
            if text_at_hub != agreed:
                await _write(self._hub, address, at_hub, agreed)
            if here.content != agreed:
                await _write(self._here, address, here.seq, agreed)
            done.documents += 1
        if self._state.documents.get(name) != agreed:
            self._state.documents[name] = agreed
            self._state.save(self._file)

    async def _is_appended(self, address: dict[str, Any], base: str, text: str) -> bool:
        """Whether the text of this side only got lines since the last exchange, or since it was begun."""
        if base:
            return text.startswith(base)
        versions = (await self._here.document_versions(**address)).versions
        return {version.action for version in versions} == {DocumentAction.APPEND.value}


def _say_refused(ack: BatchAck, side: str) -> int:
    """Say why a side did not take some entries of a batch; returns how many."""
    refused = (*ack.bad, *ack.taken)
    for why, count in Counter(bad.problems[0].problem for bad in refused).items():
        say(f"warning: {counted(count, 'entry', 'entries')} not taken by {side}: {why}")
    return len(refused)


async def _write(side: AsyncCrewJournal, address: dict[str, Any], seq: int, text: str) -> int:
    """Replace a document, if it is still at that sequence; returns the new one."""
    if not text:
        return (await side.document_retract(**address, reason="retracted on the other side")).seq
    written = await side.document_write(**address, mode="replace", content=text, expected_seq=seq, source=SOURCE)
    return written.seq


def _with_acked(ranges: Iterable[Range], ack: BatchAck) -> list[Range]:
    """The ranges and the sequences that the other side gave."""
    return normalised([*ranges, *ranges_of(receipt.seq for receipt in ack.sent)])


def _lines(
    entries: Iterable[dict[str, Any]], workspace: str, known: Iterable[Range]
) -> Iterator[tuple[int, bytes, Line | BadLine | None]]:
    """Entries of a listing as lines to append, by sequence; None for those at known sequences and those of a service."""
    for entry in entries:
        seq, raw = entry["seq"], json.dumps(entry, ensure_ascii=False).encode()
        is_known = any(first <= seq <= last for first, last in known)
        yield seq, raw, None if is_known else read_line(seq, raw, workspace)
