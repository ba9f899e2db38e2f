"""From a file to the journal: appends, replaces, and conflicts.

Invariants: a write is noted in the state before it is sent, with an id that follows from the text, so that it counts once
however often it is sent. In a conflict the journal wins: the text of the file becomes a version and a file beside, then the
text of the journal is written again as the newest version.
"""

from __future__ import annotations

from typing import Final

from ....schemas.errors import DocumentConflict, WriteIdTaken
from ....schemas.rules.documents import sha256_of
from .changes import Base, UnkeptText, change_of, sha256, write_id
from .documents import REFUSALS, MirroredDocument, MirrorService
from .folder import Signature, UnreadableFile
from .report import MirrorReport
from .state import Known, MirrorState, Sending

CONFLICT_ATTEMPTS: Final = 3
"""How often a local text is written as a version while others write the document; then with the next pass."""


class Pushing:
    """Writes files to the journal.

    Args:
        state: What is known of the files.
        report: What is said.
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
        """Write what changed in a file.

        Args:
            documents: The service.
            document: The document.
            base: The version that the file was in step with; None if it was not in step with any.
            file: The file.

        Returns:
            What the file is in step with; None if nothing was written.
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
        """Keep a text beside its file and say so."""
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
        """Write the text beside as a version, then the text that the journal had."""
        done = Base(0, sending.text)  # the file has been taken over: the journal's text may take its place
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
        except DocumentConflict:  # another write came in between: what was appended to the text of the file is kept
            now = documents.read(document)
            content = now.content.encode()
            if now.seq == mine or sha256_of(now.content) != now.sha256 or not content.startswith(data):
                return
            rest = content[len(data) :]
            gap = b"" if text.endswith(b"\n") or rest.startswith(b"\n") else b"\n"
            again = write_id(identity, now.seq, sha256(content))
            documents.write(document, "replace", text + gap + rest, again, expected_seq=now.seq, reason=reason)
