"""``bundle``: the memory of an agent and its crew as files in a directory, a ZIP archive or a JSON document.

Invariant: the same answer of the service gives the same bytes. Symbolic links and files that are not UTF-8 are skipped and
listed.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from ...schemas.errors import EntryTooLarge, InvalidQuery
from .connection import client
from .groups import grouped
from .options import Json, Where, Workspace
from .output import print_table, say, show

if TYPE_CHECKING:
    from ...schemas.operations.bundles import BundleAnswer

bundles = typer.Typer(help="Memory as plain files: export, plan an import, import.", no_args_is_help=True)

Agent = Annotated[str | None, Option("--agent", help="The agent.")]
Crew = Annotated[str | None, Option("--crew", help="The crew; without it, no document of a crew is imported.")]
_MAX_BYTES: Final = 32 * 1024 * 1024
"""As ``rules/bundles.MAX_BYTES``, which the service checks; more is not read."""
_FIRST_DAY: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive, so that archives of one content are equal."""
_MODE: Final = 0o600 << 16


@bundles.command("export")
@grouped
def export_bundle(
    out: Annotated[
        Path,
        Argument(metavar="PATH", help="A new directory, or a file that ends in .zip or .json.", show_default=False),
    ],
    agent: Agent = None,
    crew: Crew = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Export the memory documents of an agent, a crew, or both."""
    if out.exists():
        raise typer.BadParameter("exists already", param_hint="PATH")
    with client(where) as journal:
        answer = journal.export_bundle(agent_id=agent, crew_id=crew, workspace_id=workspace)
    _write(out, answer)
    skipped = [one.model_dump() for one in answer.skipped]
    result = {"path": str(out), "format": answer.format, "documents": len(answer.documents) - 1, "skipped": skipped}
    show(result, json_output, _print_exported)


@bundles.command("import")
@grouped
def import_bundle(
    path: Annotated[
        Path, Argument(metavar="PATH", exists=True, help="A directory, a .zip or a .json file.", show_default=False)
    ],
    agent: Agent = None,
    crew: Crew = None,
    apply: Annotated[bool, Option("--apply", help="Write; without it, only the plan is printed.")] = False,
    format_: Annotated[
        str | None, Option("--format", help="okf, crewship, nanoclaw or openclaw; found by the files if absent.")
    ] = None,
    group: Annotated[str | None, Option("--group", help="Of nanoclaw: the group, if there are several.")] = None,
    person: Annotated[str | None, Option("--person", help="The person that USER.md is about.")] = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Plan the import of a bundle; with --apply, write it."""
    documents, skipped = _read(path)
    asked: dict[str, Any] = {"agent_id": agent, "crew_id": crew, "format": format_, "group": group, "person": person}
    with client(where) as journal:
        answer = journal.import_bundle(documents, apply=apply, workspace_id=workspace, **asked)
    result = {**answer.model_dump(mode="json"), "skipped": skipped}
    show(result, json_output, _print_imported)


def _write(out: Path, answer: BundleAnswer) -> None:
    if out.suffix == ".json":
        out.write_text(
            json.dumps(answer.model_dump(exclude={"view_seq"}), ensure_ascii=False, indent=1) + "\n", "utf-8"
        )
    elif out.suffix == ".zip":
        with zipfile.ZipFile(out, "x") as archive:
            for one in answer.documents:
                info = zipfile.ZipInfo(one.path, _FIRST_DAY)
                info.external_attr = _MODE
                archive.writestr(info, one.content.encode())
    else:
        for one in answer.documents:
            path = out / PurePosixPath(one.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(one.content.encode())


def _read(path: Path) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Files as the service takes them, and what was skipped.

    Raises:
        EntryTooLarge: If the files have more than 32 MiB.
        InvalidQuery: If a JSON file is not a bundle.
    """
    documents: list[dict[str, str]] = []
    skipped: list[dict[str, str]] = []
    room = _MAX_BYTES
    for name, data in _json_files(path) if path.suffix == ".json" else _files(path):
        if data is None:
            skipped.append({"path": name, "detail": "is not a regular file; symbolic links are not followed"})
            continue
        room -= len(data)
        if room < 0:
            raise EntryTooLarge(f"{path} has more than {_MAX_BYTES} bytes", hint="import parts of the bundle")
        try:
            documents.append({"path": name, "content": data.decode()})
        except UnicodeDecodeError:
            skipped.append({"path": name, "detail": "is not UTF-8 text"})
    if not documents:
        raise InvalidQuery(f"{path} holds no text files", hint="name the directory or archive of a bundle")
    return documents, skipped


def _files(path: Path) -> Iterator[tuple[str, bytes | None]]:
    """Path and bytes of each file, by path; the bytes are None for what is not a regular file."""
    if path.is_dir():
        for one in sorted(path.rglob("*")):
            if one.is_symlink() or not (one.is_file() or one.is_dir()):
                yield one.relative_to(path).as_posix(), None
            elif one.is_file() and not _below_link(one, path):
                yield one.relative_to(path).as_posix(), _bounded(one.stat().st_size, one.read_bytes)
        return
    try:
        with zipfile.ZipFile(path) as archive:
            for info in sorted(archive.infolist(), key=lambda info: info.filename):
                if (info.external_attr >> 28) == 0xA:
                    yield info.filename, None
                elif not info.is_dir():
                    yield info.filename, _bounded(info.file_size, lambda info=info: archive.read(info))
    except zipfile.BadZipFile:
        raise InvalidQuery(f"{path} is not a ZIP archive", hint="name a directory, a .zip or a .json file") from None


def _bounded(size: int, read: Any) -> bytes:
    if size > _MAX_BYTES:
        raise EntryTooLarge(f"a file has {size} of {_MAX_BYTES} bytes", hint="import parts of the bundle")
    data: bytes = read()
    return data


def _below_link(one: Path, root: Path) -> bool:
    return any(parent.is_symlink() for parent in one.parents if parent != root and root in parent.parents)


def _json_files(path: Path) -> Iterator[tuple[str, bytes | None]]:
    try:
        for one in json.loads(path.read_bytes())["documents"]:
            yield str(one["path"]), str(one["content"]).encode()
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidQuery(
            f"{path} is not a bundle: {error}", hint='it needs {"documents": [{"path", "content"}]}'
        ) from None


def _print_exported(answer: Mapping[str, Any]) -> None:
    say(f"{answer['documents']} documents written to {answer['path']}")
    _say_skipped(answer)


def _print_imported(answer: Mapping[str, Any]) -> None:
    rows = [
        [one["path"], one["id"] or "-", one["owner"] or "-", one["status"], one["detail"] or "-"]
        for one in answer["results"]
    ]
    print_table(("file", "document", "of", "status", "why"), rows)
    _say_skipped(answer)
    if not answer["applied"]:
        say("this is the plan; --apply writes it")


def _say_skipped(answer: Mapping[str, Any]) -> None:
    for one in answer["skipped"]:
        say(f"{one['path']}: {one['detail']}")
