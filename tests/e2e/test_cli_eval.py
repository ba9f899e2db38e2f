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
