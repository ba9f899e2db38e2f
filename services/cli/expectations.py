"""``test``: runs what a workspace expects of recalls; exits with 1 if an expectation is not met.

Invariant: the node decides, by the same rule as before an activation; this command only reads files and prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final
from xml.etree import ElementTree as ET

import click

from ...schemas.core.errors import InvalidQuery
from ..printable import safe
from .commands import Argument, Option
from .connection import client
from .options import Json, Where, Workspace
from .output import counted, print_table, say, show

_RED: Final = 1
_WORDS: Final = 160
"""Characters of the text of a used hit that become an expectation."""
_NEWEST: Final = 500
"""Receipts that are read for ``--from-receipts``."""


def run_expectations(
    file: Annotated[
        Path | None,
        Argument(metavar="[FILE]", exists=True, dir_okay=False, help="expect.yaml; the stored ones if absent."),
    ] = None,
    from_receipts: Annotated[
        bool, Option("--from-receipts", help="Print expectations made of receipts whose hits were reported as used.")
    ] = False,
    save: Annotated[
        bool, Option("--save", help="Store the expectations of FILE in the workspace, so that they guard activations.")
    ] = False,
    junit: Annotated[
        Path | None, Option("--junit", metavar="FILE", help="Write the results as JUnit XML to this file.")
    ] = None,
    model: Annotated[
        str | None, Option("--model", help="Embedding model to try; the workspace's active one if absent.")
    ] = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> int | None:
    """Run expectations: recalls with what they must and must not return. Exit code 1 if one is not met.

    FILE maps names to expectations: query, scope, agent_id, crew_id, kinds, mode (inject by default), k, as_of, and
    must_contain, must_not_contain or must_be_silent. Words are compared without case; ids are not compared. Runs on the
    node, or on the data directory if no node runs.
    """
    if (save or junit is not None) and from_receipts:
        raise click.UsageError("--from-receipts prints expectations and takes neither --save nor --junit")
    given = None if file is None else _read(file)
    with client(where, embedder="auto") as journal:
        if from_receipts:
            found = _of_receipts(journal, workspace)
            click.echo(_yaml(found), nl=False)
            say(f"{counted(len(found), 'expectation')} of receipts whose hits were reported as used")
            return None
        if save and given is None:
            raise InvalidQuery("--save needs FILE", hint="crew-journal test expect.yaml --save", field="file")
        if save:
            journal.configure_workspace(expectations=given, workspace_id=workspace)
        answer = journal.run_expectations(expectations=given, model=model, workspace_id=workspace)
    plain = answer.model_dump(mode="json")
    if junit is not None:
        junit.write_bytes(_junit(plain))
    show(answer, json_output, _print)
    return _RED if answer.failed else None


def _read(file: Path) -> dict[str, Any]:
    """Parse a file.

    Raises:
        InvalidQuery: If it is not a mapping in YAML.
    """
    import yaml  # type: ignore[import-untyped]  # it has no stubs

    try:
        parsed = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidQuery(f"{file.name} cannot be read: {error}", hint="send YAML in UTF-8", field="file") from None
    if not isinstance(parsed, dict) or not all(isinstance(name, str) for name in parsed):
        raise InvalidQuery(f"{file.name} must map names to expectations", hint="see docs/why.md", field="file")
    return {name: _without_times(one) for name, one in parsed.items()}


def _without_times(expectation: Any) -> Any:
    """An expectation with texts in the place of what YAML reads as a time."""
    if not isinstance(expectation, dict):
        return expectation
    return {name: one.isoformat() if isinstance(one, date) else one for name, one in expectation.items()}


def _yaml(expectations: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(expectations), allow_unicode=True, sort_keys=False))


def _of_receipts(journal: Any, workspace: str | None) -> dict[str, Any]:
    """Expectations of the newest receipts of which hits, but not by rendering, were reported as used."""
    found: dict[str, Any] = {}
    uses = journal.list(types="memory.referenced", limit=_NEWEST, workspace_id=workspace)
    for use in uses.entries:
        receipt = use.payload.get("receipt")
        if receipt is None:
            continue
        why = journal.why(receipt, workspace_id=workspace)
        used = {one["entry_id"] for one in use.payload.get("entries", ())} | set(use.payload.get("chunks", ()))
        words = [
            hit.summary[:_WORDS].strip() for hit in why.hits if {hit.entry_id, hit.id} & used and hit.summary.strip()
        ]
        asked = why.asked or {}
        if not words or "query" not in asked:
            continue
        expectation: dict[str, Any] = {"query": asked["query"], "mode": asked.get("mode") or "search"}
        if asked["scope"] != "workspace":
            names = ("agent_id",) if asked["scope"] == "own" else ("agent_id", "crew_id")
            expectation |= {"scope": asked["scope"]}
            expectation |= {name: asked[name] for name in names if asked.get(name)}
        found.setdefault(asked["query"][:128], {**expectation, "must_contain": words})
    return found


def _print(answer: Mapping[str, Any]) -> None:
    rows = [
        (
            "met" if result["met"] else "NOT MET",
            result["name"],
            len(result["hits"]),
            "; ".join(result["problems"]) or "-",
        )
        for result in answer["results"]
    ]
    print_table(("result", "expectation", "hits", "what does not hold"), rows, right=("hits",))
    say(safe(f"{answer['passed']} met, {answer['failed']} not met in workspace {answer['workspace_id']}"))


def _junit(answer: Mapping[str, Any]) -> bytes:
    """The results as JUnit XML, in UTF-8."""
    total, failed = len(answer["results"]), answer["failed"]
    suite = ET.Element(
        "testsuite", name=f"expectations of {answer['workspace_id']}", tests=str(total), failures=str(failed)
    )
    for result in answer["results"]:
        case = ET.SubElement(suite, "testcase", classname="crew_journal.expectations", name=safe(result["name"]))
        if result["problems"]:
            failure = ET.SubElement(case, "failure", message=safe(result["problems"][0]))
            failure.text = safe("; ".join((*result["problems"], *(f"hit: {hit}" for hit in result["hits"]))))
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))
