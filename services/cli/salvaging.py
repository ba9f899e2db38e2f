"""``salvage``: what the views still know of entries that the journal has lost, as a file for ``import``.

Invariant: a file that exists is never overwritten, only its owner may read a new one, and a salvage that fails leaves none.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, TextIO

import click

from ...schemas.errors import Unavailable
from .commands import Option
from .connection import client
from .options import Json, Where
from .output import counted, emit, plain, say


def salvage(
    out: Annotated[
        Path, Option("--out", dir_okay=False, metavar="FILE.jsonl", help="New file to write the entries to.")
    ],
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Write the entries that the journal has lost, but the views still have, to a file for `import`.

    Damaged views are read around their bad blocks; what could not be read is counted.

    Import it after `rebuild --accept-loss`: before, the views still count the entries as there. Decisions of the service
    itself (priorities, tokens, relations …) cannot be imported; they go to FILE.decisions.jsonl, to be made again by hand.
    """
    decisions = out.with_name(f"{out.name.removesuffix('.jsonl')}.decisions.jsonl")
    for path in (out, decisions):
        if path.exists():
            raise click.BadParameter(f"{path} exists already; name a new file", param_hint="--out")
    counts: dict[str, Any] | None = None
    with ExitStack() as stack, client(where) as journal:
        writing: dict[str, TextIO] = {"entry": stack.enter_context(_new(out))}
        try:
            for item in journal.salvage():
                record = plain(item)
                if "result" in record:
                    counts = dict(record["result"])
                    break
                ((kind, entry),) = record.items()
                if kind not in writing:
                    writing[kind] = stack.enter_context(_new(decisions))
                writing[kind].write(json.dumps(entry, ensure_ascii=False) + "\n")
            if counts is None:
                raise Unavailable("salvage ended without a result", hint="see the log of `up`, then try again")
            for file in writing.values():
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            out.unlink(missing_ok=True)
            decisions.unlink(missing_ok=True)
            raise
    made = str(decisions) if counts["decisions"] else None
    if json_output:
        emit({**counts, "out": str(out), "decisions_out": made})
        return
    print(f"salvaged {counted(counts['entries'], 'entry', 'entries')} to {out}")
    if made is not None:
        say(f"{counts['decisions']:,} decisions of the service are in {made}: repeat by hand those that still apply")
    if counts["unreadable"]:
        number = counted(counts["unreadable"], "lost entry", "lost entries")
        say(f"{number} could not be read, in bad blocks of the views: sequences {counts['unreadable_sequences']}")
    if counts["damaged_files"]:
        say(f"read around bad blocks of {', '.join(counts['damaged_files'])}: keep these files until all is well again")
    if counts["entries"]:
        say(f"next: `crew-journal rebuild --accept-loss`, then `crew-journal import {out}`")


def _new(path: Path) -> TextIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8")
