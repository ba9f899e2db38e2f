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

import click

from ...schemas.core.errors import EntryTooLarge, InvalidFile
from ...schemas.documents.bundles import MAX_BYTES, MAX_FILES
from ...schemas.documents.operations import EXPORT_BUNDLE, IMPORT_BUNDLE
from .commands import Argument, CommandGroup
from .connection import client
from .foreign_files import TEXT, LeftOut, ValuePlace, file_at, files_of, shown, values_of
from .options import Fields, Json, Where
from .output import print_table, say, show

if TYPE_CHECKING:
    from ...schemas.documents.operations import BundleAnswer

bundles = CommandGroup(help="Memory as plain files: export, plan an import, import.")

_BUNDLE: Final = {"documents": [{"path": TEXT, "content": TEXT}]}
_FIRST_DAY: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive, so that archives of one content are equal."""
_MODE: Final = 0o600 << 16


@bundles.command("export")
def export_bundle(
    out: Annotated[Path, Argument(metavar="PATH", help="A new directory, or a file that ends in .zip or .json.")],
    asked: Annotated[dict[str, Any], Fields(EXPORT_BUNDLE, without=("min_seq",))],
    where: Where,
    json_output: Json = False,
) -> None:
    """Export the memory documents of an agent, a crew, or both."""
    if out.exists():
        raise click.BadParameter("exists already", param_hint="PATH")
    with client(where) as journal:
        answer = journal.export_bundle(**asked)
    _write(out, answer)
    skipped = [item.model_dump() for item in answer.skipped]
    result = {"path": str(out), "format": answer.format, "documents": len(answer.documents) - 1, "skipped": skipped}
    show(result, json_output, _print_exported)


@bundles.command("import")
def import_bundle(
    path: Annotated[Path, Argument(metavar="PATH", exists=True, help="A directory, a .zip or a .json file.")],
    fields: Annotated[dict[str, Any], Fields(IMPORT_BUNDLE, without=("documents",))],
    where: Where,
    json_output: Json = False,
) -> None:
    """Plan the import of a bundle; with --apply, write it."""
    documents, skipped = _read(path)
    with client(where) as journal:
        answer = journal.import_bundle(documents, **fields)
    result = {**answer.model_dump(mode="json"), "skipped": skipped}
    show(result, json_output, _print_imported)


def _write(out: Path, answer: BundleAnswer) -> None:
    if out.suffix == ".json":
        out.write_text(
            json.dumps(answer.model_dump(exclude={"view_seq"}), ensure_ascii=False, indent=1) + "\n", "utf-8"
        )
    elif out.suffix == ".zip":
        with zipfile.ZipFile(out, "x") as archive:
            for document in answer.documents:
                info = zipfile.ZipInfo(document.path, _FIRST_DAY)
                info.external_attr = _MODE
                archive.writestr(info, document.content.encode())
    else:
        for document in answer.documents:
            path = out / PurePosixPath(document.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(document.content.encode())


def _read(path: Path) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The files for the request, and the skipped files.

    Raises:
        EntryTooLarge: If the files have more than 32 MiB, or there are too many.
        InvalidFile: If an archive or a JSON file is malformed, or there is no text file.
    """
    documents: list[dict[str, str]] = []
    skipped: list[dict[str, str]] = []

    def skip(name: str, _reason: str) -> None:
        skipped.append({"path": name, "detail": "is not a regular file; symbolic links are not followed"})

    room = MAX_BYTES
    for name, data in _json_files(path) if path.suffix == ".json" else _files(path, skip):
        room -= len(data)
        if room < 0 or len(documents) + len(skipped) >= MAX_FILES:
            most = f"{MAX_BYTES} bytes" if room < 0 else f"{MAX_FILES} files"
            raise EntryTooLarge(f"{path} has more than {most}", hint="import parts of the bundle")
        try:
            documents.append({"path": name, "content": data.decode()})
        except UnicodeDecodeError:
            skipped.append({"path": name, "detail": "is not UTF-8 text"})
    if not documents:
        raise InvalidFile(f"{path} holds no text files", hint="name the directory or archive of a bundle")
    return documents, sorted(skipped, key=lambda item: item["path"])


def _files(path: Path, skip: LeftOut) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of each file, by path."""
    for file in files_of(path, lambda _inside: True, skip, archives=True):
        if file.label == shown(str(path)):
            raise InvalidFile(f"{path} is not a bundle", hint="name a directory, a .zip or a .json file")
        if file.size > MAX_BYTES:
            raise EntryTooLarge(f"{file.label} has {file.size} of {MAX_BYTES} bytes", hint="import parts of the bundle")
        yield file.inside, file.read(MAX_BYTES)


def _json_files(path: Path) -> Iterator[tuple[str, bytes]]:
    place = ValuePlace()
    for value in values_of(file_at(path), place, _BUNDLE):
        if not isinstance(value, dict) or "documents" not in value:
            raise InvalidFile(
                f"{place.at} is not a bundle: documents are missing",
                hint='it needs {"documents": [{"path", "content"}]}',
            )
        for number, document in enumerate(value["documents"] or ()):
            if not document or None in (document.get("path"), document.get("content")):
                raise InvalidFile(f"{place.at}: documents[{number}] needs path and content")
            yield document["path"], document["content"].encode()


def _print_exported(answer: Mapping[str, Any]) -> None:
    say(f"{answer['documents']} documents written to {answer['path']}")
    _say_skipped(answer)


def _print_imported(answer: Mapping[str, Any]) -> None:
    rows = [
        [result["path"], result["id"] or "-", result["owner"] or "-", result["status"], result["detail"] or "-"]
        for result in answer["results"]
    ]
    print_table(("file", "document", "of", "status", "why"), rows)
    _say_skipped(answer)
    if not answer["applied"]:
        say("this is the plan; --apply writes it")


def _say_skipped(answer: Mapping[str, Any]) -> None:
    for item in answer["skipped"]:
        say(f"{item['path']}: {item['detail']}")
