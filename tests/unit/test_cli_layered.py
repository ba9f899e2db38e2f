"""What a terminal shows of layered memory: texts as they are, and on stderr what is said about them."""

from __future__ import annotations

from typing import Any

import pytest

from crew_journal.services.cli.printers import PRINTERS

FACT = {"id": "t_1", "salience": 0.756, "state": "stale", "namespace": "infra", "text": "Checkout runs on\x1b Nomad"}
CONFLICT = {"fact_ids": ["t_1", "t_2"], "texts": ["Checkout runs on Nomad", "Checkout runs on Kubernetes"]}


def test_a_context_is_printed_as_text_with_drops_and_doubts_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    drop = {"action": "dropped", "part": "memory", "name": "j_1", "tokens": 19, "reason": "no room"}
    answer: dict[str, Any] = {
        "system": "", "memory": "[SEMANTIC MEMORY]\n- a\n", "prompt": "Deploy", "drops": [drop], "conflicts": [CONFLICT],
        "stale": ["t_1"], "tools": [{}], "conversation": [], "tokens": {"total": 57, "budget": 110}, "tokenizer": "estimate",
    }  # fmt: skip
    PRINTERS["context_assemble"](answer)
    out, err = capsys.readouterr()
    assert out == "[SEMANTIC MEMORY]\n- a\n\nDeploy\n"
    assert err.splitlines() == [
        "dropped: memory j_1, 19 tokens: no room",
        "warning: these contradict each other: Checkout runs on Nomad / Checkout runs on Kubernetes",
        "warning: not fresh: t_1",
        "57 of 110 tokens (estimate)",
        "1 tools and 0 messages are shown by --json",
    ]


def test_facts_are_a_table_and_procedures_are_texts(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = {"kind": "fact", "facts": [FACT], "episodes": [], "procedures": [], "truncated": True}
    PRINTERS["layered_query"](found)
    out, err = capsys.readouterr()
    assert "Checkout runs on\\x1b Nomad" in out
    assert "0.76" in out
    assert err == "there are more: raise --limit\n"
    procedure = {"name": "deploy", "owner": "w", "content": "1. Build.\n2. Test.", "seq": 8}
    PRINTERS["layered_query"](found | {"facts": [], "procedures": [procedure], "truncated": False})
    assert capsys.readouterr().out == "1. Build.\n2. Test.\n"
