"""How people see the palace: tables, with the same content as the answers."""

from __future__ import annotations

from typing import Any

import pytest

from crew_journal.schemas.operations import ALL
from crew_journal.services.cli.printers import PRINTERS

ROOM = {"room": "plans", "wings": ["notes", "team"], "halls": [], "count": 2}
TUNNEL = {
    "id": "tunnel_1",
    "source_wing": "notes",
    "source_room": "plans",
    "target_wing": "team",
    "target_room": "ops",
    "label": "moves",
    "strength": 1.0,
}
CASES: list[tuple[str, dict[str, Any], list[list[str]]]] = [
    (
        "palace_wings",
        {"wings": [{"wing": "team", "count": 12}, {"wing": "notes", "count": 1}]},
        [["drawers", "wing"], ["12", "team"], ["1", "notes"]],
    ),
    (
        "palace_taxonomy",
        {"taxonomy": {"team": {"rooms": {"ops": 1, "plans": 2}}, "notes": {"rooms": {"plans": 3}}}},
        [["drawers", "wing", "room"], ["1", "team", "ops"], ["2", "team", "plans"], ["3", "notes", "plans"]],
    ),
    (
        "palace_graph",
        {
            "total_rooms": 2,
            "tunnel_rooms": 1,
            "total_edges": 4,
            "rooms_per_wing": {"team": 2},
            "top_tunnels": [ROOM],
        },
        [
            ["rooms", "2"],
            ["rooms", "in", "several", "wings", "1"],
            ["edges", "4"],
            ["rooms", "wing"],
            ["2", "team"],
            ["drawers", "room", "wings"],
            ["2", "plans", "notes,", "team"],
        ],
    ),
    (
        "find_tunnels",
        {"tunnels": [ROOM], "count": 1, "explicit": [TUNNEL]},
        [
            ["drawers", "room", "wings"],
            ["2", "plans", "notes,", "team"],
            ["tunnel", "strength", "from", "to", "label"],
            ["tunnel_1", "1.00", "notes/plans", "team/ops", "moves"],
        ],
    ),
    (
        "traverse",
        {"rooms": [{**ROOM, "hop": 1, "connected_via": ["team"]}], "count": 1},
        [["hops", "drawers", "room", "wings", "through"], ["1", "2", "plans", "notes,", "team", "team"]],
    ),
    (
        "follow_tunnels",
        {
            "connections": [
                {
                    "tunnel_id": "tunnel_1",
                    "strength": 0.5,
                    "wing": "team",
                    "room": "ops",
                    "drawers": 3,
                    "label": "",
                    "preview": "the deploy",
                }
            ],
            "count": 1,
        },
        [
            ["tunnel", "strength", "room", "drawers", "label", "text"],
            ["tunnel_1", "0.50", "team/ops", "3", "-", "the", "deploy"],
        ],
    ),
    (
        "conversation_search",
        {
            "turns": [
                {"score": 0.98, "ts": "2026-11-23T11:00:04.753Z", "session": None, "speaker": "user", "text": "loud"}
            ],
            "degraded": None,
            "view_seq": 3,
        },
        [["score", "when", "session", "speaker", "text"], ["0.98", "2026-11-23T11:00Z", "-", "user", "loud"]],
    ),
]


@pytest.mark.parametrize(("operation", "answer", "expected"), CASES, ids=[name for name, _, _ in CASES])
def test_an_answer_is_printed_as_tables_without_the_paths_of_its_fields(
    operation: str, answer: dict[str, Any], expected: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    PRINTERS[operation](answer)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line and not line[0].startswith("─")] == expected


def test_an_empty_palace_prints_only_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    PRINTERS["palace_wings"]({"wings": []})
    PRINTERS["palace_taxonomy"]({"taxonomy": {}})
    PRINTERS["list_tunnels"]({"tunnels": [], "count": 0})
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("crew-journal palace add") == 2
    assert "crew-journal palace tunnel-create" in shown.err


def test_every_command_that_answers_with_objects_in_a_list_has_a_printer() -> None:
    for operation in ALL:
        if operation.command is None or operation.name in PRINTERS:
            continue
        lists = [name for name, field in operation.answer.model_fields.items() if _of_models(field.annotation)]
        assert not lists, f"`{operation.command}` would print the paths of {lists}"


def _of_models(annotation: Any) -> bool:
    return any(hasattr(kind, "model_fields") or _of_models(kind) for kind in getattr(annotation, "__args__", ()))
