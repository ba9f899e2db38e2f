"""One pass of a mirror: each file is compared with the version it was in step with, and with the journal.

Invariants: a text that differs on both sides is kept on both; a file whose text was not taken over is never replaced. The
directory is as the journal says once nothing is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ....schemas.rules.documents import sha256_of
from ....schemas.rules.tiers import Scope
from .changes import Base, UnkeptText, base_among, write_id
from .documents import REFUSALS, MirroredDocument, MirrorService, Side
from .folder import Signature, UnreadableFile
from .pushing import Pushing
from .report import MirrorReport
from .state import Former, Known, MirrorState

if TYPE_CHECKING:
    from ....schemas.operations.documents import DocumentShown

LATE_S: Final = 60.0
"""Seconds for which a file that was replaced is watched: a shell that appends has it open for milliseconds."""
File = tuple[Signature, bytes]


class Mirror:
    """Keeps folders in step with the documents of their owners.

    Args:
        sides: The folders.
        state: What is known of the files.
        report: What is said.
        patient: As in ``Pushing``; a single pass is not.
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
        """Bring both sides in step, as far as nothing is refused.

        Raises:
            Unavailable: If the service does not answer; what was not done is done by a later pass.
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
                    continue  # gone since the scan: seen by the next pass
                except REFUSALS as error:
                    self._report.refuse(document.path, f"{error.message} ({error.hint})")
                except OSError as error:
                    self._report.refuse(document.path, error.strerror or str(error))

        is_first, self._state.passed = self._state.passed is None, view_seq
        if is_first:
            self._state.save()

    def _refuse(self, side: Side, refused: Mapping[str, str]) -> None:
        """Say which paths of a folder are refused, and forget those that no longer are."""
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
        """The version that a file is made of; None if it is not made of any version."""
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
        """Write a changed file to the journal; None if it stays as it is."""
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
        """Make a file what the journal says."""
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
        """Note that a file is in step."""
        known = Known(base)
        if self._state.files.get(document.name) != known:
            self._state.put(document.name, known)
        self._report.accept(document.path)
        if not signature.is_racy:
            self._in_step[document.name] = (signature, base.seq)

    def _follow_former(self, documents: MirrorService, name: str) -> None:
        """Take over what was added to a file after it was replaced; forget it once nothing comes any more."""
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
