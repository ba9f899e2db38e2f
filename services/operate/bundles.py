"""The use-cases of bundles: export an agent's and a crew's documents as files, plan an import, apply it.

Invariant: imported documents pass the checks of any write, and credentials are always blocked, whatever the workspace's
setting; plan and application use the same rules.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

from ...schemas.core.errors import CrewJournalError, EntryTooLarge, FieldProblem, InvalidQuery, InvalidRequest
from ...schemas.core.ports import ViewReader
from ...schemas.documents.bundles import (
    LEARNED,
    MAX_BYTES,
    BundleFile,
    Choices,
    NotABundle,
    Planned,
    TargetDocument,
    exported,
    planned,
)
from ...schemas.documents.operations import (
    EXPORT_BUNDLE,
    IMPORT_BUNDLE,
    BundleAnswer,
    BundleText,
    ExportBundleRequest,
    ImportBundleAnswer,
    ImportBundleRequest,
    ImportedShown,
    SkippedShown,
    WriteDocumentRequest,
)
from ...schemas.documents.rules import TIERS, Scope, owner_of
from ...schemas.documents.tables import DOCUMENTS, DOCUMENTS_PROJECTION, DocumentRow
from ...schemas.learning.lessons import as_yaml, rules_text
from ...schemas.text.injection import finding_in
from ...schemas.text.secrets import find_secrets, kinds_of
from ..desk import Caller
from ..documents.learned import Learned
from ..documents.use_cases import JournalDocuments
from ..operators.use_cases import Operators

IMPORT: Final = "import"
_OWNED: Final = f"""SELECT {DOCUMENTS.names} FROM {DOCUMENTS} WHERE workspace_id = ? AND owner = ? AND NOT retracted
    AND bytes > 0 ORDER BY tier, doc_key"""
_DIGEST_DIGITS: Final = 16
Status = Literal["planned", "unchanged", "written", "skipped", "rejected", "failed"]


class Bundles:
    """The use-cases.

    Args:
        views: The views.
        documents: Writes documents.
        operators: Gives the keys of documents about people.
    """

    def __init__(self, views: ViewReader, documents: JournalDocuments, operators: Operators) -> None:
        self._views = views
        self._documents = documents
        self._operators = operators
        self._learned = Learned(views)

    async def export(self, caller: Caller, request: ExportBundleRequest) -> BundleAnswer:
        """The documents of an agent, a crew, or both.

        Raises:
            InvalidQuery: If neither is named.
        """
        if request.agent_id is None and request.crew_id is None:
            raise InvalidQuery("whose memory is missing", hint="name agent_id, crew_id or both", field="agent_id")
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        return await asyncio.to_thread(self._export, caller.workspace_id, request, view_seq)

    def _export(self, workspace_id: str, request: ExportBundleRequest, view_seq: int) -> BundleAnswer:
        entries: list[tuple[str, str, str]] = []
        skipped: list[SkippedShown] = []
        for scope, name in ((Scope.AGENT, request.agent_id), (Scope.CREW, request.crew_id)):
            if name is None:
                continue
            for row in self._rows(workspace_id, owner_of(scope, name)):
                path = f"{scope.value}/{TIERS[row.tier].label_of(row.doc_key)}"
                if row.finding is not None:
                    skipped.append(SkippedShown(path=path, detail=f"is blocked by the scanners: {row.finding}"))
                else:
                    entries.append((path, f"memory.{row.tier.lower()}", row.content))
            if lessons := as_yaml(self._learned.lessons(workspace_id, owner_of(scope, name)), whole=False):
                entries.append((f"{scope.value}/lessons.md", "memory.lessons", lessons))
        if request.crew_id is not None and (rules := rules_text(self._learned.rules(workspace_id, request.crew_id))):
            entries.append((LEARNED, "memory.learned", rules))
        documents = tuple(
            BundleText(path=bundle_file.path, content=bundle_file.content) for bundle_file in exported(entries)
        )
        return BundleAnswer(format="okf", documents=documents, skipped=tuple(skipped), view_seq=view_seq)

    def _rows(self, workspace_id: str, owner: str) -> list[DocumentRow]:
        return [DocumentRow(*row) for row in self._views.rows(_OWNED, [workspace_id, owner])]

    async def load(self, caller: Caller, request: ImportBundleRequest) -> ImportBundleAnswer:
        """Plan an import, and write it if ``apply`` is set.

        Raises:
            EntryTooLarge: If the files have more than 32 MiB.
            InvalidRequest: If the files are of no known format, or a choice is missing.
        """
        size = sum(len(document.content.encode()) for document in request.documents)
        if size > MAX_BYTES:
            raise EntryTooLarge(
                f"the files have {size} of {MAX_BYTES} bytes", hint="import parts of the bundle", field="documents"
            )
        files = [BundleFile(document.path, document.content) for document in request.documents]
        slug = None
        if request.person is not None:
            slug = await asyncio.to_thread(self._operators.slug, caller.workspace_id, request.person)
        choices = Choices(request.crew_id is not None, request.group, slug)
        try:
            name, plan = await asyncio.to_thread(planned, files, choices, request.format)
        except NotABundle as error:
            raise InvalidRequest((FieldProblem("documents", str(error), error.fix),)) from None
        present = await asyncio.to_thread(self._present, caller.workspace_id, request)
        opted_out = request.person is not None and await self._opted_out(caller, request.person)
        reason = f"imported from a bundle ({name}, {_digest(files)})"
        results = [await self._one(caller, request, planned, present, opted_out, reason) for planned in plan]
        counts = Counter(result.status for result in results)
        return ImportBundleAnswer(format=name, applied=request.apply, results=tuple(results), counts=dict(counts))

    def _present(self, workspace_id: str, request: ImportBundleRequest) -> dict[tuple[str, str, str | None], str]:
        owners = [owner for scope in Scope if (owner := _owner(request, scope)) is not None]
        return {
            (owner, row.tier, row.doc_key): row.content for owner in owners for row in self._rows(workspace_id, owner)
        }

    async def _opted_out(self, caller: Caller, person: str) -> bool:
        return await asyncio.to_thread(self._operators.opted_out, caller.workspace_id, person)

    async def _one(
        self,
        caller: Caller,
        request: ImportBundleRequest,
        planned: Planned,
        present: dict[tuple[str, str, str | None], str],
        opted_out: bool,
        reason: str,
    ) -> ImportedShown:
        target = planned.target
        if target is None:
            return _shown(planned, "skipped", planned.kind, planned.detail)
        owner = _owner(request, target.scope)
        if owner is None:
            return _shown(planned, "skipped", target.scope.value, f"name the {target.scope.value} that gets it")
        before = present.get((owner, target.tier, target.key))
        problem = await asyncio.to_thread(lambda: next(_problems(target, planned.content, opted_out), None))
        status: Status = "planned"
        kind = detail = ""
        if problem is not None:
            status, (kind, detail) = "rejected", problem
        elif before == planned.content:
            status = "unchanged"
        elif request.apply:
            try:
                await self._documents.write(caller, _write(request, target, planned.content, reason), IMPORT)
                status = "written"
            except CrewJournalError as error:
                status, kind, detail = "failed", type(error).__name__, error.message
        return _shown(planned, status, kind or None, detail, owner, len((before or "").encode()))


def _write(request: ImportBundleRequest, target: TargetDocument, content: str, reason: str) -> WriteDocumentRequest:
    return WriteDocumentRequest(
        tier=target.tier,
        key=target.key,
        scope="agent" if target.scope is Scope.AGENT else "crew",
        agent_id=request.agent_id,
        crew_id=request.crew_id,
        workspace_id=request.workspace_id,
        mode="replace",
        content=content,
        reason=reason,
        data_subject_id=request.person if target.tier == "peers" else None,
    )


def _problems(target: TargetDocument, content: str, opted_out: bool) -> Iterator[tuple[str, str]]:
    """The problems for which a write would be refused: kind and detail."""
    size, cap = len(content.encode()), TIERS[target.tier].cap_of(IMPORT)
    if target.tier == "peers" and opted_out:
        yield "consent", "the person opted out"
    if not content.strip():
        yield "empty", "the file is empty"
    if size > cap:
        yield "cap", f"has {size} of {cap} bytes"
    if kinds := kinds_of(find_secrets(content)):
        yield "secret", f"holds credentials: {', '.join(kinds)}"
    if finding := finding_in(content):
        yield "injection", finding


def _owner(request: ImportBundleRequest, scope: Scope) -> str | None:
    name = {Scope.AGENT: request.agent_id, Scope.CREW: request.crew_id}.get(scope)
    return None if name is None else owner_of(scope, name)


def _shown(
    planned: Planned, status: Status, kind: str | None, detail: str, owner: str | None = None, replaces: int = 0
) -> ImportedShown:
    target = planned.target
    return ImportedShown(
        path=planned.path,
        owner=owner,
        id=None if target is None else TIERS[target.tier].label_of(target.key),
        status=status,
        kind=kind,
        detail=detail,
        bytes=len(planned.content.encode()),
        replaces_bytes=replaces,
    )


def _digest(files: list[BundleFile]) -> str:
    """A digest that identifies the bundle in the history of documents."""
    hashed = hashlib.sha256()
    for bundle_file in sorted(files, key=lambda bundle_file: bundle_file.path):
        hashed.update(f"{bundle_file.path}\0{len(bundle_file.content)}\0{bundle_file.content}".encode())
    return hashed.hexdigest()[:_DIGEST_DIGITS]


ANSWERS: Final = ((EXPORT_BUNDLE, Bundles.export), (IMPORT_BUNDLE, Bundles.load))
