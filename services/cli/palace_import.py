"""``palace import``: compares a store with the palace, says what would change, and does it.

Invariant: a dry run counts exactly what the import does, because the service decides about each drawer in both cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from ..printable import safe
from .commands import Argument, Option
from .connection import client
from .options import Json, Where, Workspace
from .output import counted, progress_bar, say, show

if TYPE_CHECKING:
    from ...schemas.palace.operations import ImportedDrawer
    from ..client import CrewJournal
    from .palace_sources import PalaceSource

BATCH: Final = 200
BATCH_CHARS: Final = 400_000
"""Characters of one request, so that it is smaller than a request may be even if each takes four bytes."""
PAGE: Final = 200


def palace_import(
    path: Annotated[Path, Argument(exists=True, help="A MemPalace store, or a folder of notes in Markdown.")],
    *,
    wing: Annotated[str | None, Option("--wing", help="Wing of the notes; the name of the folder if absent.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would change.")] = False,
    restore: Annotated[bool, Option("--restore", help="File again what was deleted here.")] = False,
    workspace: Workspace = None,
    where: Where,
    json_output: Json = False,
) -> None:
    """Import a MemPalace store or a folder of notes; repeating it files what is new and replaces what changed.

    Drawers that were removed from the source are deleted here, too, and can be restored. A drawer that was deleted here
    stays deleted.
    """
    from .palace_sources import palace_folder, read_mempalace, read_notes

    folder = palace_folder(path) if path.is_dir() else None
    source = read_notes(path, wing) if folder is None else read_mempalace(folder)
    with client(where, create=not dry_run) as journal:
        run = _Import(journal, source, workspace, dry_run)
        drawers = run.file(restore)
        report = {
            "source": source.name,
            "dry_run": dry_run,
            "drawers": {**drawers, "gone": run.delete_gone()},
            "facts": run.assert_facts(),
            "tunnels": run.make_tunnels(),
            "left_out": dict(source.left_out.most_common()),
        }
    show(report, json_output, _print)
    if drawers["no_room"] and not dry_run:
        from ...schemas.core.errors import PalaceFull

        number = counted(drawers["no_room"], "drawer")
        raise PalaceFull(
            f"{number} had no room: a workspace has at most 10,000", hint="delete drawers, or use --workspace"
        )


class _Import:
    def __init__(self, journal: CrewJournal, source: PalaceSource, workspace: str | None, dry_run: bool) -> None:
        self._journal = journal
        self._source = source
        self._in: dict[str, Any] = {} if workspace is None else {"workspace_id": workspace}
        self._dry_run = dry_run

    def file(self, restore: bool) -> dict[str, int]:
        """File the drawers; the number of each outcome."""
        outcomes = Counter(dict.fromkeys(("added", "replaced", "unchanged", "deleted_here", "noise", "no_room"), 0))
        room: int | None = None
        with progress_bar("import", len(self._source.drawers), unit="drawers") as bar:
            for batch in _batches(list(self._source.drawers.values())):
                given = [drawer.model_dump(mode="json", exclude_defaults=True) for drawer in batch]
                answer = self._journal.import_drawers(
                    given, self._source.name, dry_run=self._dry_run, restore=restore, **self._in
                )
                counts = Counter(drawer.outcome for drawer in answer.drawers)
                room = answer.room_left + counts["added"] if room is None else room
                outcomes.update(counts)
                bar(outcomes.total())
        if (
            self._dry_run and room is not None and outcomes["added"] > room
        ):  # because each request counted from the same number
            outcomes["no_room"] += outcomes["added"] - room
            outcomes["added"] = room
        return dict(outcomes)

    def delete_gone(self) -> int:
        """Delete drawers that were imported from the source and are no longer in it; returns their number."""
        gone: list[str] = []
        offset = 0
        while page := self._page(offset):
            gone += [drawer_id for drawer_id in page if drawer_id not in self._source.drawers]
            offset += len(page)
        if not self._dry_run:
            for name in gone:
                self._journal.delete_drawer(name, **self._in)
        return len(gone)

    def assert_facts(self) -> dict[str, int]:
        """Add new facts, and end facts that ended in the source."""
        counts = Counter(dict.fromkeys(("added", "ended", "unchanged"), 0))
        known: dict[str, dict[tuple[str, str, str | None], str | None]] = {}
        for fact in self._source.facts:
            subject = _same(fact.subject)
            if subject not in known:
                known[subject] = self._known(fact.subject)
            held = (fact.predicate, _same(fact.object), fact.valid_from)
            if held not in known[subject]:
                counts["added"] += 1
                if not self._dry_run:
                    more = fact.model_dump(exclude_defaults=True, exclude={"subject", "predicate", "object"})
                    self._journal.kg_add(fact.subject, fact.predicate, fact.object, **more, **self._in)
            elif known[subject][held] is None and fact.valid_to is not None:
                counts["ended"] += 1
                if not self._dry_run:
                    ended = {"ended": fact.valid_to, **self._in}
                    self._journal.kg_invalidate(fact.subject, fact.predicate, fact.object, **ended)
            else:
                counts["unchanged"] += 1
            known[subject][held] = fact.valid_to
        return dict(counts)

    def make_tunnels(self) -> dict[str, int]:
        """Create new tunnels."""
        counts = Counter(dict.fromkeys(("added", "unchanged"), 0))
        ends = ("source_wing", "source_room", "target_wing", "target_room")
        tunnels = self._journal.list_tunnels(**self._in).tunnels if self._source.tunnels else ()
        known = {tuple(getattr(tunnel, name) for name in ends): tunnel.label for tunnel in tunnels}
        for tunnel in self._source.tunnels:
            places = [tunnel[name] for name in ends]
            label = known.get(tuple(places), known.get((*places[2:], *places[:2])))
            counts["unchanged" if label == tunnel["label"] else "added"] += 1
            if label != tunnel["label"] and not self._dry_run:
                self._journal.create_tunnel(**tunnel, **self._in)
        return dict(counts)

    def _page(self, offset: int) -> list[str]:
        answer = self._journal.drawers(imported_from=self._source.name, limit=PAGE, offset=offset, **self._in)
        return [drawer.id for drawer in answer.drawers]

    def _known(self, entity: str) -> dict[tuple[str, str, str | None], str | None]:
        facts = self._journal.kg_query(entity, direction="outgoing", **self._in).results
        return {(fact.predicate, _same(fact.object), fact.valid_from): fact.valid_to for fact in facts}


def _batches(drawers: Sequence[ImportedDrawer]) -> Iterator[list[ImportedDrawer]]:
    batch: list[ImportedDrawer] = []
    size = 0
    for drawer in drawers:
        if batch and (len(batch) == BATCH or size + len(drawer.content) > BATCH_CHARS):
            yield batch
            batch, size = [], 0
        batch.append(drawer)
        size += len(drawer.content)
    if batch:
        yield batch


def _same(name: str) -> str:
    return " ".join(name.lower().split())


def _print(report: Mapping[str, Any]) -> None:
    drawers, facts, tunnels = report["drawers"], report["facts"], report["tunnels"]
    prefix = "would be " if report["dry_run"] else ""
    print(f"{safe(report['source'])}:")
    print(
        f"  drawers: {drawers['added']:,} {prefix}added, {drawers['replaced']:,} replaced, "
        f"{drawers['gone']:,} deleted because they are gone, {drawers['unchanged']:,} unchanged"
    )
    for name, text in (
        ("deleted_here", "were deleted here and stay deleted (--restore files them again)"),
        ("noise", "are noise and are left out"),
        ("no_room", "have no room: a workspace has at most 10,000"),
    ):
        if drawers[name]:
            print(f"           {drawers[name]:,} {text}")
    if any(facts.values()):
        print(f"  facts: {facts['added']:,} {prefix}added, {facts['ended']:,} ended, {facts['unchanged']:,} unchanged")
    if any(tunnels.values()):
        print(f"  tunnels: {tunnels['added']:,} {prefix}added, {tunnels['unchanged']:,} unchanged")
    for reason, count in report["left_out"].items():
        say(f"  left out: {count:,} {safe(reason)}")
