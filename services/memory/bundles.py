"""The use-cases of bundles: export an agent's and a crew's documents as files, plan an import, apply it.

Invariant: an import writes documents through the checks of any write, and blocks credentials whatever the workspace is set
to; the plan and its application judge by the same rules.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

from ...schemas.errors import CrewJournalError, EntryTooLarge, FieldProblem, InvalidQuery, InvalidRequest
from ...schemas.operations.bundles import (
    BundleAnswer,
    BundleText,
    ExportBundleRequest,
    ImportBundleAnswer,
    ImportBundleRequest,
    ImportedShown,
    SkippedShown,
)
from ...schemas.operations.documents import WriteDocumentRequest
from ...schemas.ports import ViewReader
from ...schemas.rules.bundles import (
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
from ...schemas.rules.documents import finding_in
from ...schemas.rules.lessons import as_yaml, rules_text
from ...schemas.rules.secrets import find_secrets, kinds_of
from ...schemas.rules.tiers import TIERS, Scope, owner_of
from ...schemas.views import DOCUMENTS, DOCUMENTS_PROJECTION
from ...schemas.views.documents import DocumentRow
from ..desk import Caller
from .documents.writing import Writing
from .learned import Learned
from .operators import Operators

IMPORT: Final = "import"
_OWNED: Final = f"""SELECT {DOCUMENTS.names} FROM {DOCUMENTS} WHERE workspace_id = ? AND owner = ? AND NOT retracted
    AND bytes > 0 ORDER BY tier, doc_key"""
_DIGEST_DIGITS: Final = 16
Status = Literal["planned", "unchanged", "written", "skipped", "rejected", "failed"]


class Bundles:
    """The use-cases.

    Args:
        views: The views.
        writing: Writes documents.
        operators: Names the documents about people.
    """

    def __init__(self, views: ViewReader, writing: Writing, operators: Operators) -> None:
        self._views = views
        self._writing = writing
        self._operators = operators
        self._learned = Learned(views)

    async def export(self, caller: Caller, asked: ExportBundleRequest) -> BundleAnswer:
        """The documents of an agent, a crew, or both.

        Raises:
            InvalidQuery: If neither is named.
        """
        if asked.agent_id is None and asked.crew_id is None:
            raise InvalidQuery("whose memory is missing", hint="name agent_id, crew_id or both", field="agent_id")
        view_seq = self._views.view_seq(DOCUMENTS_PROJECTION)
        return await asyncio.to_thread(self._export, caller.workspace_id, asked, view_seq)

    def _export(self, workspace_id: str, asked: ExportBundleRequest, view_seq: int) -> BundleAnswer:
        found: list[tuple[str, str, str]] = []
        skipped: list[SkippedShown] = []
        for scope, name in ((Scope.AGENT, asked.agent_id), (Scope.CREW, asked.crew_id)):
            if name is None:
                continue
            for row in self._rows(workspace_id, owner_of(scope, name)):
                path = f"{scope.value}/{TIERS[row.tier].label_of(row.doc_key)}"
                if row.finding is not None:
                    skipped.append(SkippedShown(path=path, detail=f"is blocked by the scanners: {row.finding}"))
                else:
                    found.append((path, f"memory.{row.tier.lower()}", row.content))
            if lessons := as_yaml(self._learned.lessons(workspace_id, owner_of(scope, name)), whole=False):
                found.append((f"{scope.value}/lessons.md", "memory.lessons", lessons))
        if asked.crew_id is not None and (rules := rules_text(self._learned.rules(workspace_id, asked.crew_id))):
            found.append((LEARNED, "memory.learned", rules))
        documents = tuple(BundleText(path=one.path, content=one.content) for one in exported(found))
        return BundleAnswer(format="okf", documents=documents, skipped=tuple(skipped), view_seq=view_seq)

    def _rows(self, workspace_id: str, owner: str) -> list[DocumentRow]:
        return [DocumentRow(*row) for row in self._views.rows(_OWNED, [workspace_id, owner])]

    async def load(self, caller: Caller, asked: ImportBundleRequest) -> ImportBundleAnswer:
        """Plan an import, and write it if ``apply`` is set.

        Raises:
            EntryTooLarge: If the files have more than 32 MiB.
            InvalidRequest: If the files are of no known format, or a choice is missing.
        """
        size = sum(len(one.content.encode()) for one in asked.documents)
        if size > MAX_BYTES:
            raise EntryTooLarge(
                f"the files have {size} of {MAX_BYTES} bytes", hint="import parts of the bundle", field="documents"
            )
        files = [BundleFile(one.path, one.content) for one in asked.documents]
        slug = None
        if asked.person is not None:
            slug = await asyncio.to_thread(self._operators.slug, caller.workspace_id, asked.person)
        choices = Choices(asked.crew_id is not None, asked.group, slug)
        try:
            name, plan = await asyncio.to_thread(planned, files, choices, asked.format)
        except NotABundle as error:
            raise InvalidRequest((FieldProblem("documents", str(error), error.fix),)) from None
        present = await asyncio.to_thread(self._present, caller.workspace_id, asked)
        opted_out = asked.person is not None and await self._opted_out(caller, asked.person)
        reason = f"imported from a bundle ({name}, {_digest(files)})"
        results = [await self._one(caller, asked, one, present, opted_out, reason) for one in plan]
        counts = Counter(one.status for one in results)
        return ImportBundleAnswer(format=name, applied=asked.apply, results=tuple(results), counts=dict(counts))

    def _present(self, workspace_id: str, asked: ImportBundleRequest) -> dict[tuple[str, str, str | None], str]:
        owners = [owner for scope in Scope if (owner := _owner(asked, scope)) is not None]
        return {
            (owner, row.tier, row.doc_key): row.content for owner in owners for row in self._rows(workspace_id, owner)
        }

    async def _opted_out(self, caller: Caller, person: str) -> bool:
        return await asyncio.to_thread(self._operators.opted_out, caller.workspace_id, person)

    async def _one(
        self,
        caller: Caller,
        asked: ImportBundleRequest,
        one: Planned,
        present: dict[tuple[str, str, str | None], str],
        opted_out: bool,
        reason: str,
    ) -> ImportedShown:
        target = one.target
        if target is None:
            return _shown(one, "skipped", one.kind, one.detail)
        owner = _owner(asked, target.scope)
        if owner is None:
            return _shown(one, "skipped", target.scope.value, f"name the {target.scope.value} that gets it")
        before = present.get((owner, target.tier, target.key))
        problem = await asyncio.to_thread(lambda: next(_problems(target, one.content, opted_out), None))
        status: Status = "planned"
        kind = detail = ""
        if problem is not None:
            status, (kind, detail) = "rejected", problem
        elif before == one.content:
            status = "unchanged"
        elif asked.apply:
            try:
                await self._writing.write(caller, _write(asked, target, one.content, reason), IMPORT)
                status = "written"
            except CrewJournalError as error:
                status, kind, detail = "failed", type(error).__name__, error.message
        return _shown(one, status, kind or None, detail, owner, len((before or "").encode()))


def _write(asked: ImportBundleRequest, target: TargetDocument, content: str, reason: str) -> WriteDocumentRequest:
    return WriteDocumentRequest(
        tier=target.tier,
        key=target.key,
        scope="agent" if target.scope is Scope.AGENT else "crew",
        agent_id=asked.agent_id,
        crew_id=asked.crew_id,
        workspace_id=asked.workspace_id,
        mode="replace",
        content=content,
        reason=reason,
        data_subject_id=asked.person if target.tier == "peers" else None,
    )


def _problems(target: TargetDocument, content: str, opted_out: bool) -> Iterator[tuple[str, str]]:
    """The problems for which the checks of a write would refuse it: kind and detail."""
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


def _owner(asked: ImportBundleRequest, scope: Scope) -> str | None:
    name = {Scope.AGENT: asked.agent_id, Scope.CREW: asked.crew_id}.get(scope)
    return None if name is None else owner_of(scope, name)


def _shown(
    one: Planned, status: Status, kind: str | None, detail: str, owner: str | None = None, replaces: int = 0
) -> ImportedShown:
    target = one.target
    return ImportedShown(
        path=one.path,
        owner=owner,
        id=None if target is None else TIERS[target.tier].label_of(target.key),
        status=status,
        kind=kind,
        detail=detail,
        bytes=len(one.content.encode()),
        replaces_bytes=replaces,
    )


def _digest(files: list[BundleFile]) -> str:
    """Names the bundle in the history of what was written."""
    hashed = hashlib.sha256()
    for one in sorted(files, key=lambda one: one.path):
        hashed.update(f"{one.path}\0{len(one.content)}\0{one.content}".encode())
    return hashed.hexdigest()[:_DIGEST_DIGITS]
