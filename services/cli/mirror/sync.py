"""One pass of a mirror: compares each file with its last synchronised version and with the journal.

Invariants: if a text was changed on both sides, both texts are kept; a file whose text is not in the journal yet is
never replaced. If nothing is refused, the directory equals the journal afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....schemas.core.errors import DocumentConflict, DocumentError, InvalidEntry, NotAllowed, WriteIdTaken
from ....schemas.documents.operations import VERSIONS_MAX
from ....schemas.documents.rules import MIRROR, TIERS, MinRole, Scope, is_mirrored, sha256_of, tier_of_label
from ...printable import safe
from ..output import say
from .folder import (
    Base,
    Folder,
    Former,
    Known,
    MirrorState,
    Sending,
    Signature,
    UnkeptText,
    UnreadableFile,
    base_among,
    change_of,
    sha256,
    write_id,
)

if TYPE_CHECKING:
    from ....schemas.documents.operations import DocumentAnswer, DocumentShown, DocumentWrittenAnswer, VersionShown
    from ...client import CrewJournal


# Reads and writes the documents of a mirror over HTTP.
#
# Invariant: every request names the owner, so that a document of agent ``support`` and one of crew ``support`` stay
# apart.


REFUSALS: Final = (DocumentError, NotAllowed, InvalidEntry)
"""Errors that say that a text is not accepted; sending it again does not help."""


@dataclass(frozen=True, slots=True)
class Side:
    """One owner's documents and their folder.

    Attributes:
        owner: ``a-<agent>`` or ``c-<crew>``, as lists name it.
        is_lead: Whether the agent may write documents of a crew's LEAD.
    """

    folder: Folder
    scope: Scope
    owner: str
    is_lead: bool


@dataclass(frozen=True, slots=True)
class MirroredDocument:
    """A document and its file."""

    side: Side
    label: str

    @property
    def name(self) -> str:
        """``agent/AGENT.md``: its name in the state."""
        return f"{self.side.scope.value}/{self.label}"

    @property
    def path(self) -> str:
        """Its file, for messages."""
        return str(self.side.folder.path_of(self.label))

    @property
    def tier_and_key(self) -> tuple[str, str | None]:
        """Tier and key."""
        named = tier_of_label(self.label)
        if named is None:
            raise ValueError(f"{self.label} is not a label")
        return named

    @property
    def read_only(self) -> str | None:
        """Why the file is not written to the journal; None if it is written.

        Documents of operators are read-only even with an operator's token, because the directory belongs to the agent.
        """
        rule = TIERS[self.tier_and_key[0]]
        if not rule.writable:
            return "is rendered from entries"
        writer = rule.writers[self.side.scope]
        if writer is MinRole.OPERATOR:
            return "is written by operators"
        if writer is MinRole.LEAD and not self.side.is_lead:
            return "is written by the lead of the crew (`crew-journal agent update AGENT --role lead`, or --lead)"
        return None


@dataclass(slots=True)
class MirrorService:
    """The requests of a mirror to the service.

    Attributes:
        journal: The client.
        owners: ``agent_id`` and ``crew_id`` of the mirror.
        workspace_id: The workspace; None for the token's workspace.
        reached: The highest sequence seen so far; requests wait until the views have passed it.
    """

    journal: CrewJournal
    owners: dict[str, str]
    workspace_id: str | None
    reached: int = 0

    def list(self) -> tuple[int, dict[tuple[str, str], DocumentShown]]:
        """The sequence that the views have reached, and (owner, label) → every mirrored document of its owners."""
        answer = self.journal.documents(
            agent_id=self.owners["agent_id"],
            crew_id=self.owners.get("crew_id"),
            workspace_id=self.workspace_id,
            min_seq=self.reached or None,
        )
        return answer.view_seq, {
            (document.owner, document.id): document for document in answer.documents if is_mirrored(document.tier)
        }

    def read(self, document: MirroredDocument, version: int | None = None) -> DocumentAnswer:
        """A document, or a version of it."""
        answer = self.journal.document_read(**self._named(document), version=version, min_seq=self.reached or None)
        self.reached = max(self.reached, answer.seq)
        return answer

    def versions(self, document: MirroredDocument) -> tuple[VersionShown, ...]:
        """Its newest versions."""
        return self.journal.document_versions(**self._named(document), limit=VERSIONS_MAX).versions

    def write(
        self,
        document: MirroredDocument,
        mode: str,
        content: bytes,
        write_id: str,
        *,
        expected_seq: int | None = None,
        reason: str = "",
    ) -> DocumentWrittenAnswer:
        """Write a document."""
        answer = self.journal.document_write(
            **self._named(document),
            mode=mode,
            content=content.decode(),
            write_id=write_id,
            expected_seq=expected_seq,
            reason=reason,
            source=MIRROR,
        )
        self.reached = max(self.reached, answer.seq)
        return answer

    def retract(self, document: MirroredDocument, reason: str) -> None:
        """Retract a document."""
        self.reached = max(self.reached, self.journal.document_retract(**self._named(document), reason=reason).seq)

    def _named(self, document: MirroredDocument) -> dict[str, Any]:
        tier, key = document.tier_and_key
        scope = document.side.scope
        field = f"{scope.value}_id"
        return {
            "tier": tier,
            "key": key,
            "scope": scope.value,
            field: self.owners[field],
            "workspace_id": self.workspace_id,
        }


# The messages of a mirror: each refusal once, and figures at the end.


class MirrorReport:
    """What happened since the start.

    Args:
        tell: Prints a line.
    """

    def __init__(self, tell: Callable[[str], None] = say) -> None:
        self._tell = tell
        self._said: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.conflicts: list[dict[str, str]] = []
        self.refused: dict[str, str] = {}

    def count(self, what: str) -> None:
        """Count a change."""
        self.counts[what] += 1

    def note(self, path: str, message: str) -> None:
        """Print a message about a file, unless it equals the last message."""
        if self._said.get(path) != message:
            self._said[path] = message
            self._tell(safe(f"{path}: {message}"))

    def refuse(self, path: str, message: str) -> None:
        """Print that a file is refused."""
        self.refused[path] = message
        self.note(path, message)

    def accept(self, path: str) -> None:
        """Forget that a file was refused, because it is synchronised."""
        self.refused.pop(path, None)
        self._said.pop(path, None)

    def conflict(self, path: str, beside: str, message: str) -> None:
        """Print that a local text was kept in a separate file."""
        self.conflicts.append({"file": path, "kept_as": beside})
        self._tell(safe(f"{path}: {message}; the text of the file is kept as {beside}"))

    def summary(self) -> dict[str, Any]:
        """Figures since the start, conflicts, and currently refused files."""
        return {
            "appended": self.counts["appended"],
            "replaced": self.counts["replaced"],
            "received": self.counts["received"],
            "removed": self.counts["removed"],
            "conflicts": self.conflicts,
            "refused": [{"file": path, "why": why} for path, why in sorted(self.refused.items())],
        }


# From a file to the journal: appends, replaces, and conflicts.


CONFLICT_ATTEMPTS: Final = 3
"""How often a local text is written as a version while others write the document; then with the next pass."""


class Pushing:
    """Writes files to the journal.

    Args:
        state: The known state of the files.
        report: Collects and prints messages.
        patient: Whether a change other than appended lines waits until two passes saw the same text.
    """

    def __init__(self, state: MirrorState, report: MirrorReport, *, patient: bool) -> None:
        self._state = state
        self._report = report
        self._patient = patient
        self._waiting: dict[str, str] = {}
        self._refused: dict[str, str] = {}

    def waits(self, document: MirroredDocument, what: str) -> bool:
        """Whether a change is seen for the first time and may not be complete."""
        seen_before = self._waiting.get(document.name) == what
        self._waiting[document.name] = what
        return self._patient and not seen_before

    def push(
        self, documents: MirrorService, document: MirroredDocument, base: Base | None, file: tuple[Signature, bytes]
    ) -> Base | None:
        """Write the changes of a file to the journal.

        Args:
            documents: The service.
            document: The document.
            base: The version with which the file was last synchronised; None if there is none.
            file: The file.

        Returns:
            The version with which the file is now synchronised; None if nothing was written.
        """
        data = file[1]
        name, text = document.name, UnkeptText.of(data)
        if self._refused.get(name) == text.sha256:
            return None
        change = None if base is None else change_of(base.text, data)
        if not (change is not None and change.whole_lines) and self.waits(document, text.sha256):
            return None
        if base is None or change is None:
            return self._conflict(documents, document, file)
        identity = write_id(self._state.mirror, name, base.seq, base.text.sha256, text.sha256)
        sending = Sending(identity, change.mode, text, base.seq)
        self._state.put(name, Known(base, sending))
        return self._send(documents, document, base, sending, file)

    def resume(
        self, documents: MirrorService, document: MirroredDocument, known: Known, file: tuple[Signature, bytes] | None
    ) -> Base:
        """Finish a write that may have been sent before."""
        sending = known.sending
        if sending is None:
            return known.base
        if sending.mode == "conflict":
            return self._settle(documents, document, sending) or known.base
        if file is not None and sending.text.begins(file[1]):
            done = self._send(documents, document, known.base, sending, (file[0], file[1][: sending.text.size]))
            return done or known.base
        base = known.base
        for version in documents.versions(document):
            if version.write_id == sending.write_id:
                base = Base(version.seq, sending.text)
        self._state.put(document.name, Known(base))
        return base

    def keep_beside(self, document: MirroredDocument, file: tuple[Signature, bytes], why: str) -> None:
        """Keep a text in a separate file and print that."""
        beside = document.side.folder.keep_beside(document.label, file[1], file[0].mtime_ns)
        self._report.conflict(document.path, beside, why)

    def _send(
        self,
        documents: MirrorService,
        document: MirroredDocument,
        base: Base,
        sending: Sending,
        file: tuple[Signature, bytes],
    ) -> Base | None:
        change = change_of(base.text, file[1])
        expected = base.seq if change.mode == "replace" else None
        try:
            answer = documents.write(document, change.mode, change.content, sending.write_id, expected_seq=expected)
        except DocumentConflict:
            return self._conflict(documents, document, file)
        except REFUSALS as error:
            self._state.put(document.name, Known(base))
            if not isinstance(error, WriteIdTaken):
                self._refused[document.name] = sending.text.sha256
                self._report.refuse(document.path, f"was not written: {error.message} ({error.hint})")
            return None
        done = Base(answer.seq if expected is not None else base.seq, sending.text)
        self._state.put(document.name, Known(done))
        self._report.count("replaced" if expected is not None else "appended")
        return done

    def _conflict(
        self, documents: MirrorService, document: MirroredDocument, file: tuple[Signature, bytes]
    ) -> Base | None:
        signature, data = file
        folder, text = document.side.folder, UnkeptText.of(data)
        beside = folder.keep_beside(document.label, data, signature.mtime_ns)
        there = documents.read(document)
        identity = write_id(self._state.mirror, document.name, "conflict", there.seq, text.sha256)
        sending = Sending(identity, "conflict", text, there.seq, beside)
        self._state.put(document.name, Known(Base(0, text), sending))
        self._report.conflict(document.path, beside, "changed here and in the journal, whose text was restored")
        return self._settle(documents, document, sending)

    def _settle(self, documents: MirrorService, document: MirroredDocument, sending: Sending) -> Base | None:
        """Write the local text as a version, then the journal's former text again."""
        done = Base(
            0, sending.text
        )  # the file's text is in the journal, so that the journal's text may replace the file
        try:
            _, data = document.side.folder.read(sending.beside)
        except (UnreadableFile, FileNotFoundError):
            self._state.put(document.name, Known(done))
            return done
        for _ in range(CONFLICT_ATTEMPTS):
            try:
                mine = documents.write(
                    document,
                    "replace",
                    data,
                    sending.write_id,
                    expected_seq=sending.expected,
                    reason="text of the file while the journal changed",
                )
                self._restore(documents, document, sending, mine.seq, data)
                break
            except DocumentConflict:
                there = documents.read(document)
                identity = write_id(sending.write_id, there.seq)
                sending = Sending(identity, "conflict", sending.text, there.seq, sending.beside)
                self._state.put(document.name, Known(done, sending))
            except REFUSALS as error:
                self._report.note(
                    document.path, f"{sending.beside} could not be written to the journal as a version: {error.message}"
                )
                break
        else:
            return None
        self._state.put(document.name, Known(done))
        return done

    def _restore(
        self, documents: MirrorService, document: MirroredDocument, sending: Sending, mine: int, data: bytes
    ) -> None:
        reason = "restored: it was newer than the text of the file"
        former = documents.read(document, sending.expected) if sending.expected else None
        text = b"" if former is None or former.retracted else former.content.encode()
        identity = write_id(sending.write_id, "restored")
        if not text.strip():
            if documents.read(document).seq == mine:
                documents.retract(document, reason)
            return
        try:
            documents.write(document, "replace", text, identity, expected_seq=mine, reason=reason)
        except (
            DocumentConflict
        ):  # another write happened in between: lines that it appended to the file's text are kept
            now = documents.read(document)
            content = now.content.encode()
            if now.seq == mine or sha256_of(now.content) != now.sha256 or not content.startswith(data):
                return
            rest = content[len(data) :]
            gap = b"" if text.endswith(b"\n") or rest.startswith(b"\n") else b"\n"
            again = write_id(identity, now.seq, sha256(content))
            documents.write(document, "replace", text + gap + rest, again, expected_seq=now.seq, reason=reason)


LATE_S: Final = 60.0
"""Seconds for which a file that was replaced is watched: a shell that appends has it open for milliseconds."""
File = tuple[Signature, bytes]


class Mirror:
    """Synchronises folders with the documents of their owners.

    Args:
        sides: The folders.
        state: The known state of the files.
        report: Collects and prints messages.
        patient: As in ``Pushing``; False for a single pass.
        late_s: Seconds for which a replaced file is watched.
    """

    def __init__(
        self,
        sides: tuple[Side, ...],
        state: MirrorState,
        report: MirrorReport,
        *,
        patient: bool = True,
        late_s: float = LATE_S,
    ) -> None:
        self._sides = {side.scope: side for side in sides}
        self._state = state
        self._report = report
        self._pushing = Pushing(state, report, patient=patient)
        self._late_s = late_s
        self._in_step: dict[str, tuple[Signature | None, int]] = {}
        self._former_seen: dict[str, Signature] = {}
        self._foreign: dict[Scope, set[str]] = {}

    def run_pass(self, documents: MirrorService) -> None:
        """Synchronise both sides, except for refused files.

        Raises:
            Unavailable: If the service does not answer; a later pass does the rest.
            CrewJournalError: If the service refuses the mirror.
        """
        documents.reached = max([documents.reached, *(known.base.seq for known in self._state.files.values())])
        view_seq, listed = documents.list()
        for side in self._sides.values():
            side.folder.make()
        for name in list(self._state.former):
            self._follow_former(documents, name)
        for side in self._sides.values():
            scanned = side.folder.scan()
            self._refuse(side, scanned.refused)
            prefix = f"{side.scope.value}/"
            known = {name.removeprefix(prefix) for name in self._state.files if name.startswith(prefix)}
            in_journal = {label for owner, label in listed if owner == side.owner}
            for label in sorted(known | in_journal | scanned.files.keys()):
                if label in scanned.refused or label.split("/")[0] in scanned.refused:
                    continue
                document, shown = MirroredDocument(side, label), listed.get((side.owner, label))
                try:
                    self._sync(documents, document, shown, scanned.files.get(label))
                except UnreadableFile as error:
                    self._report.refuse(document.path, str(error))
                except FileNotFoundError:
                    continue  # deleted since the scan; the next pass handles it
                except REFUSALS as error:
                    self._report.refuse(document.path, f"{error.message} ({error.hint})")
                except OSError as error:
                    self._report.refuse(document.path, error.strerror or str(error))

        is_first, self._state.passed = self._state.passed is None, view_seq
        if is_first:
            self._state.save()

    def _refuse(self, side: Side, refused: Mapping[str, str]) -> None:
        """Print the refused paths of a folder, and forget paths that are no longer refused."""
        now = {str(side.folder.path_of(path)): why for path, why in refused.items()}
        for path in self._foreign.get(side.scope, set()) - now.keys():
            self._report.accept(path)
        for path, why in now.items():
            self._report.refuse(path, why)
        self._foreign[side.scope] = set(now)

    def _sync(
        self,
        documents: MirrorService,
        document: MirroredDocument,
        shown: DocumentShown | None,
        signature: Signature | None,
    ) -> None:
        name, seq = document.name, shown.seq if shown is not None else 0
        if self._in_step.get(name) == (signature, seq):
            return
        if shown is not None and shown.quarantined is not None:
            self._report.refuse(document.path, "is blocked by the injection scanners and not synchronised")
            return
        file = document.side.folder.read(document.label) if signature is not None else None
        known = self._state.files.get(name)
        base = None if known is None else self._pushing.resume(documents, document, known, file)
        if file is None:
            self._missing(documents, document, shown, base)
            return
        pushed = known is not None and known.sending is not None
        base = self._base_of(documents, document, shown, base, file[1])
        if not file[1].strip():
            if base is not None and base.text.size and not self._emptied(document):
                return
        elif base is None or base.text != UnkeptText.of(file[1]):
            base, pushed = self._take_over(documents, document, shown, base, file), True
            if base is None:
                return
        if shown is None and not pushed:
            if base is not None and base.seq:
                self._report.note(document.path, "is no longer in the journal; change it to write it again")
            return
        if not pushed and base is not None and base.seq == seq and base.text == UnkeptText.of(file[1]):
            self._settled(document, base, file[0])
            return
        self._pull(documents, document, base or Base(), file)

    def _base_of(
        self,
        documents: MirrorService,
        document: MirroredDocument,
        shown: DocumentShown | None,
        base: Base | None,
        data: bytes,
    ) -> Base | None:
        """The version from which a file was changed; None if there is no such version."""
        if base is not None and base.text == UnkeptText.of(data):
            return base
        if shown is None or (base is not None and shown.seq == base.seq):
            return base or Base()
        versions = documents.versions(document)
        version = base_among(versions, data, base.seq if base is not None else 0)
        if version is not None or base is not None:
            return version or base
        passed = self._state.passed
        is_new = passed is not None and bool(versions) and versions[-1].seq > passed
        return Base(0 if is_new else shown.seq) if is_new or not shown.bytes else None

    def _take_over(
        self,
        documents: MirrorService,
        document: MirroredDocument,
        shown: DocumentShown | None,
        base: Base | None,
        file: File,
    ) -> Base | None:
        """Write a changed file to the journal; None if nothing is written."""
        why = document.read_only
        if why is None:
            return self._pushing.push(documents, document, base, file)
        if shown is None or self._pushing.waits(document, UnkeptText.of(file[1]).sha256):
            if shown is None:
                self._report.refuse(document.path, why)
            return None
        self._pushing.keep_beside(document, file, why)
        taken = Base(0, UnkeptText.of(file[1]))
        self._state.put(document.name, Known(taken))
        return taken

    def _missing(
        self, documents: MirrorService, document: MirroredDocument, shown: DocumentShown | None, base: Base | None
    ) -> None:
        """Bring a file that is not there."""
        if shown is None or shown.retracted:
            self._state.put(document.name, None)
            self._in_step[document.name] = (None, shown.seq if shown is not None else 0)
            return
        if base is not None:
            if self._pushing.waits(document, "deleted"):
                return
            self._report.note(document.path, "was deleted and is brought back; to clear it, retract the document")
        self._pull(documents, document, base or Base(), None)

    def _emptied(self, document: MirroredDocument) -> bool:
        """Whether a file is empty for good."""
        if self._pushing.waits(document, "emptied"):
            return False
        self._report.note(document.path, "was emptied and is brought back; to clear it, retract the document")
        return True

    def _pull(self, documents: MirrorService, document: MirroredDocument, base: Base, file: File | None) -> None:
        """Replace a file by the journal's text."""
        there = documents.read(document)
        if there.quarantined is not None or sha256_of(there.content) != there.sha256:
            self._report.refuse(document.path, "is blocked by the injection scanners and not synchronised")
            return
        data = there.content.encode()
        now = Base(there.seq, UnkeptText.of(data))
        if file is not None and file[1] == data and not there.retracted:
            self._settled(document, now, file[0])
            return
        if there.retracted and file is None:
            self._state.put(document.name, None)
            return
        folder = document.side.folder
        former = folder.former_label(document.label, there.seq, file[0].inode if file else 0)
        if file is not None:
            self._state.former[f"{document.side.scope.value}/{former}"] = Former(document.label, UnkeptText.of(file[1]))
            self._state.put(document.name, Known(base))
        if there.retracted and file is not None:
            if folder.take_away(document.label, file[0], former):
                self._state.put(document.name, None)
                self._report.count("removed")
            return
        read_only = document.read_only is not None
        if folder.place(document.label, data, file[0] if file else None, former, read_only=read_only):
            self._state.put(document.name, Known(now))
            self._report.accept(document.path)
            self._report.count("received")

    def _settled(self, document: MirroredDocument, base: Base, signature: Signature) -> None:
        """Note that a file is synchronised."""
        known = Known(base)
        if self._state.files.get(document.name) != known:
            self._state.put(document.name, known)
        self._report.accept(document.path)
        if not signature.is_racy:
            self._in_step[document.name] = (signature, base.seq)

    def _follow_former(self, documents: MirrorService, name: str) -> None:
        """Write text that was added to a replaced file to the journal; forget the file when nothing more comes."""
        scope, _, path = name.partition("/")
        side, former = self._sides.get(Scope(scope)), self._state.former[name]
        if side is None:
            return
        folder, document = side.folder, MirroredDocument(side, former.label)
        signature, present = folder.signature(path), folder.signature(former.label)
        if signature is None or (present is not None and present.inode == signature.inode):
            folder.remove(path)  # the file has not been replaced
            self._forget_former(name)
            return
        if self._former_seen.get(name) != signature:
            try:
                signature, data = folder.read(path)
            except UnreadableFile as error:
                self._report.refuse(str(folder.path_of(path)), str(error))
                return
            if data.strip() and UnkeptText.of(data) != former.text:
                self._late(documents, document, former, (signature, data))
            self._state.former[name] = Former(former.label, UnkeptText.of(data))
            self._state.save()
            if not signature.is_racy:
                self._former_seen[name] = signature
        elif folder.changed_ago_s(path) > self._late_s:
            self._forget_former(name)
            folder.remove(path)

    def _late(self, documents: MirrorService, document: MirroredDocument, former: Former, file: File) -> None:
        data = file[1]
        rest = data[former.text.size :]
        if document.read_only is None and former.text.begins(data) and rest.strip():
            identity = write_id(
                self._state.mirror,
                document.name,
                "late",
                former.text.size,
                former.text.sha256,
                UnkeptText.of(data).sha256,
            )
            try:
                documents.write(document, "append", rest, identity)
                self._report.count("appended")
                return
            except REFUSALS as error:
                self._report.note(document.path, f"was not written: {error.message} ({error.hint})")
        self._pushing.keep_beside(document, file, "was written while the journal's text took its place")

    def _forget_former(self, name: str) -> None:
        del self._state.former[name]
        self._former_seen.pop(name, None)
        self._state.save()
