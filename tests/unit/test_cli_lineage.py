"""How people see proofs and what a memory was made of."""

from __future__ import annotations

import pytest

from crew_journal.services.cli.printers import PRINTERS

NOTE = "crew-journal\n12\ncm9vdA==\n\n\N{EM DASH} crew-journal c2lnbmF0dXJl\n"


def test_proof_is_printed_line_by_line_as_a_verifier_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    proof = {"entry_id": "j_1", "seq": 4, "index": 3, "size": 12, "leaf_data": "bGVhZg==", "path": ["YQ==", "Yg=="]}
    PRINTERS["prove_entry"]({**proof, "checkpoint": NOTE, "public_key": "crew-journal+00+AQ=="})
    printed = capsys.readouterr().out
    assert "path:\nYQ==\nYg==\n" in printed
    assert printed.endswith(f"checkpoint:\n{NOTE}")


def test_message_that_is_named_in_several_fields_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    step = {
        "name": "j_1", "seq": 3, "of": "d_2", "depth": 1, "what": "run.failed", "author": "agent:ada", "ts": "2026-11-26",
        "data_subject_id": None, "root": True,
    }  # fmt: skip
    made_of = [{**step, "how": "evidence"}, {**step, "how": "source_entry_ids"}, {**step, "how": "source", "of": "d_3"}]
    PRINTERS["show_lineage"](
        {"made_of": made_of, "made_from_it": [], "authors": ["agent:ada"], "subjects": [], "prompts": 0}
    )
    lines = [line for line in capsys.readouterr().out.splitlines() if "j_1" in line]
    assert lines == [
        "  j_1  evidence, source_entry_ids of d_2 run.failed agent:ada 2026-11-26 root",
        "  j_1  source of d_3 run.failed agent:ada 2026-11-26 root",
    ]
