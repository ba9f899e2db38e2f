"""A workspace as one file: checked without its journal, taken over into another one, and changed in every line."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli
from support.running import running_node

from crew_journal.schemas.chain.log_file import LogFileCheck, LogFileReport
from crew_journal.services.chain.anchors import ANCHOR_FILE, AnchorFile
from crew_journal.services.client import AsyncCrewJournal

DEADLINE_S = 30.0
KEPT = "The pump of the harbour crane is green"


async def _filled(data: Path) -> tuple[str, str]:
    """Two workspaces with every family of messages; returns a receipt and the id of an erased entry."""
    async with (
        running_node(data, seal_s=0.1) as node,
        AsyncCrewJournal(node.http_url, token=node.owner_token) as owner,
    ):
        made = await owner.create_token("AGENT", workspace_id="acme", agent_id="ada", crew_id="red")
        async with AsyncCrewJournal(node.http_url, token=made.token) as ada:
            first = await ada.remember(KEPT)
            gone = await ada.remember("Ana's badge word is heron")
            for number in range(30):
                await owner.append({"entry_type": "note", "summary": f"of others {number}", "workspace_id": "zoo"})
                await ada.remember(f"Visit {number} of the kiln took {number + 3} minutes")
            await ada.document_write("AGENT", "append", "- The winch of ada is old.\n")
            await ada.add_drawer("yard", "winch", "ada keeps the papers of the winch in the winch room.")
            fact = await ada.kg_add("winch", "is_kept_by", "ada", source_entry_id=first.entry_id)
            found = await ada.recall("pump of the crane", kinds=("entries",), min_seq=fact.seq)
        pinned = await owner.set_priority(first.entry_id, "pin", reason="asked", workspace_id="acme")
        begun = await owner.forget("asked", ids=(gone.entry_id,), workspace_id="acme")
        async with asyncio.timeout(DEADLINE_S):
            while (  # noqa: ASYNC110
                await owner.erasure(str(begun.erasure_id), workspace_id="acme", min_seq=begun.seq)
            ).state != "completed":
                await asyncio.sleep(0.05)
        assert pinned.seq
    return str(found.receipt), gone.entry_id


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str, str]:
    """The data directory, the file, a receipt and an erased id."""
    folder = tmp_path_factory.mktemp("exported")
    receipt, gone = asyncio.run(_filled(folder / "data"))
    Cli(folder / "data")("export", str(folder / "out"), "--proofs", "--workspace", "acme")
    return folder / "data", folder / "out" / "acme.log.jsonl", receipt, gone


def _check(lines: list[bytes], **given: Any) -> LogFileReport:
    check = LogFileCheck(**given)
    for line in lines:
        check.take(line)
    return check.report()


def test_file_is_checked_without_its_journal_and_against_an_anchor(
    exported: tuple[Path, Path, str, str], tmp_path: Path
) -> None:
    data, file, _, gone = exported
    nowhere = Cli(tmp_path / "nowhere")
    anchor = tmp_path / "kept.txt"
    shutil.copy(data / ANCHOR_FILE, anchor)
    report = nowhere("verify", "--export", str(file), "--anchor", str(anchor), "--json").json
    assert (report["count"], report["unsealed"], report["unsalted"]) == (0, 0, 0)
    assert report["size"] == report["last_seq"] > 60
    assert report["elsewhere"] >= 30
    assert report["erased"]
    assert report["anchors"][str(anchor)] == report["checkpoints"] + 0 * report["later"]
    text = file.read_text()
    assert gone not in [json.loads(line).get("seq") for line in text.splitlines()]
    assert base64.b64encode(b"of others")[:8].decode() not in text
    assert "verified" in nowhere("verify", "--export", str(file), "--public-key", report["public_key"]).out
    other = Cli(tmp_path / "other")
    other("publish", "another journal")
    key = other("verify", "--chain", "--json").json["public_key"]
    assert "another public key" in nowhere("verify", "--export", str(file), "--public-key", key, code=6).out
    assert not (tmp_path / "nowhere").exists()


def _changed(line: bytes, rng: random.Random) -> bytes:
    record = json.loads(line)
    if "body" in record:
        record["body"] = base64.b64encode(base64.b64decode(record["body"]) + b" ").decode()
        if rng.random() < 0.5:  # the leaf is made to fit: the checkpoint does not
            record["leaf"] = base64.b64encode(rng.randbytes(32)).decode()
    elif "leaves" in record:
        leaves = bytearray(base64.b64decode(record["leaves"]))
        leaves[rng.randrange(len(leaves))] ^= 1
        record["leaves"] = base64.b64encode(leaves).decode()
    elif "checkpoint" in record:
        size = record["checkpoint"].split("\n")[1]
        record["checkpoint"] = record["checkpoint"].replace(f"\n{size}\n", f"\n{int(size) + 1}\n")
    elif "log" in record:
        record["size"] += 1
    else:
        record["messages"] += 1
    return json.dumps(record).encode()


@pytest.mark.parametrize("seed", range(120))
def test_every_tampering_with_a_file_is_found_at_or_behind_its_line(
    exported: tuple[Path, Path, str, str], seed: int
) -> None:
    rng = random.Random(seed)
    lines = exported[1].read_bytes().splitlines()
    at = rng.randrange(len(lines))
    kind = ("change", "drop", "swap", "repeat", "cut", "garbage")[seed % 6]
    if kind == "change":
        lines[at] = _changed(lines[at], rng)
    elif kind == "drop":
        del lines[at]
    elif kind == "swap":
        at = min(at, len(lines) - 2)
        lines[at], lines[at + 1] = lines[at + 1], lines[at]
    elif kind == "repeat":
        lines.insert(at, lines[at])
    elif kind == "cut":
        del lines[at:]
    else:
        lines[at] = lines[at][: len(lines[at]) // 2]
    if kind == "repeat" and b"checkpoint" in lines[at][:14]:
        return  # says the same twice
    anchor = AnchorFile(exported[0] / ANCHOR_FILE).read()
    report = _check(lines, anchors=[anchor])
    dropped_checkpoint = kind in ("drop", "swap") and report.count == 0
    if dropped_checkpoint:  # a later checkpoint covers the same lines
        assert any(b'"checkpoint"' in line for line in exported[1].read_bytes().splitlines()[at : at + 2])
        return
    assert report.count, kind
    assert report.breaks[0].line >= at, (kind, at, report.breaks)


def test_import_keeps_ids_origin_and_answers_and_applies_erasures(
    exported: tuple[Path, Path, str, str], tmp_path: Path
) -> None:
    _, file, receipt, gone = exported
    target = Cli(tmp_path / "new")
    tampered = tmp_path / "tampered.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b'"seq"' in line[:8])
    lines[at] = _changed(lines[at], random.Random(1)) + b"\n"
    tampered.write_bytes(b"".join(lines))
    refused = target("import", str(tampered), code=6)
    assert f"line {at + 1}:" in refused.err
    done = target("import", str(file), "--json").json
    assert done["imported"] > 30
    assert done["erased"] == 0  # its message is not in the file any more
    again = target("import", str(file), "--json").json
    assert (again["imported"], again["repeated"]) == (0, done["imported"])
    listed = target("list", "--workspace", "acme", "--all", "--json").lines
    entries = {entry["summary"]: entry for entry in listed}
    assert KEPT in entries
    assert entries[KEPT]["live_priority"] == "pin"
    assert gone not in {entry["id"] for entry in listed}
    hits = target("recall", "pump of the crane", "--workspace", "acme", "--json").json["hits"]
    assert hits[0]["entry_id"] == entries[KEPT]["id"]
    why = target("why", receipt, "--workspace", "acme", "--json").json
    assert why["hits"][0]["entry_id"] == entries[KEPT]["id"]
    assert "winch of ada" in target("memory", "read", "AGENT", "--agent", "ada", "--workspace", "acme").out
    proof = target("prove", entries[KEPT]["id"], "--workspace", "acme", "--json").json
    assert b"Crew-Origin: " in base64.b64decode(proof["leaf_data"])
    target("verify")


def test_erasure_after_an_import_reaches_the_other_journal_with_the_next_import(
    exported: tuple[Path, Path, str, str], tmp_path: Path
) -> None:
    source, target = Cli(tmp_path / "source"), Cli(tmp_path / "target")
    source("publish", "the heron is a badge word", "--workspace", "acme", "--json")
    source("publish", "the kiln stays", "--workspace", "acme")
    entry = source("list", "--workspace", "acme", "--json").json["entries"]
    heron = next(one["id"] for one in entry if "heron" in one["summary"])
    source("export", str(tmp_path / "one"), "--proofs", "--workspace", "acme")
    target("import", str(tmp_path / "one" / "acme.log.jsonl"))
    source("forget", "--id", heron, "--reason", "asked", "--yes", "--workspace", "acme")
    source("export", str(tmp_path / "two"), "--proofs", "--workspace", "acme")
    done = target("import", str(tmp_path / "two" / "acme.log.jsonl"), "--json").json
    assert done["erasure_id"]
    left = [one["summary"] for one in target("list", "--workspace", "acme", "--json").json["entries"]]
    assert "the kiln stays" in left
    assert not any("heron" in summary for summary in left)
