"""`eval` on a small journal: the whole path, and figures that can be known beforehand."""

import json
from pathlib import Path

from support.cli import Cli

FACTS = {
    "a1": "The lighthouse lamp was replaced by Ines",
    "a2": "The harbour crane is out of order until Friday",
    "a3": "Tea is served in the blue room",
}


def test_lexical_recall_is_measured_over_the_whole_path(tmp_path: Path) -> None:
    with (tmp_path / "journal.jsonl").open("w") as file:
        for name, text in FACTS.items():
            entry = {"id": name, "workspace_id": "exam", "agent_id": "ada", "trace_id": f"s-{name}", "summary": text}
            file.write(json.dumps({**entry, "entry_type": "peer.conversation", "refs": {"episodic": True}}) + "\n")
    questions = [("lamp", "who replaced the lamp?", ["a1"]), ("crane", "until when is the crane broken?", ["a2", "a3"])]
    with (tmp_path / "queries.jsonl").open("w") as file:
        for category, query, relevant in questions:
            asked = {"agent_id": "ada", "category": category, "query": query, "relevant_ids": relevant}
            file.write(json.dumps(asked) + "\n")
    cli = Cli(tmp_path / "unused")
    report = cli("eval", str(tmp_path), "--recipes", "lexical", "--embedder", "none", "--json").json
    found = report["recipes"]["lexical"]
    assert found["categories"]["lamp"]["recall"] == 1.0
    assert found["categories"]["crane"]["recall"] == 0.5
    assert found["overall"]["mrr"] == 1.0
    assert found["overall"]["session_recall"] == 0.75
    assert (report["questions"], report["vectors"]) == (2, 0)
    assert not (tmp_path / "unused").exists()
    assert "lexical" in cli("eval", str(tmp_path), "--recipes", "lexical", "--embedder", "none").out


def test_an_agent_in_two_workspaces_is_asked_in_each_and_what_nothing_answers_is_in_no_mean(tmp_path: Path) -> None:
    """It was asked in the workspace of its last entry only, and a mistyped id was a recall of 0."""
    with (tmp_path / "journal.jsonl").open("w") as file:
        for home, name in (("harbour", "a2"), ("exam", "a1")):
            entry = {"id": name, "workspace_id": home, "agent_id": "ada", "summary": FACTS[name]}
            file.write(json.dumps({**entry, "entry_type": "peer.conversation"}) + "\n")
    asked = [
        ("who replaced the lamp?", "a1"),
        ("until when is the crane broken?", "a2"),
        ("where is tea served?", "a33"),
    ]
    lines = [json.dumps({"agent_id": "ada", "query": query, "relevant_ids": [name]}) for query, name in asked]
    (tmp_path / "queries.jsonl").write_text("\n".join(lines), encoding="utf-8-sig")
    found = Cli(tmp_path / "unused")("eval", str(tmp_path), "--recipes", "lexical", "--embedder", "none", "--json")
    assert found.json["recipes"]["lexical"]["overall"]["recall"] == 1.0
    assert (found.json["questions"], found.json["left_out"][0]["line"]) == (2, 3)
    assert "line 3: a33 is not an entry of ada in journal.jsonl" in found.err
